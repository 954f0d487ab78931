"""`poolnode userprio` with a real node: what it shows, what an administrator changes, what a restart leaves (A6)."""

from __future__ import annotations

import json
from typing import Any

from pool.client import Pool
from tests.e2e.support import ALL, HEAD, Node, Nodes, asked, client, one_line, outcome, own_name, poolnode


def shown(node: Node, *arguments: str) -> list[dict[str, Any]]:
    """`userprio --json`."""
    done = poolnode("userprio", "--json", *arguments, POOLNODE_ADDRESS=node.address)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_who_has_used_what_is_shown_and_kept(nodes: Nodes) -> None:
    home = nodes.directory("home")
    config = home / "pool.conf"
    config.write_text(
        "PRIORITY_INTERVAL = 1\nPRIORITY_POLICY = fairshare\nGROUP_QUOTAS = physics=0.5, physics.lab=0.5 alone\n"
    )
    node = nodes.start("lab", ALL, config=config).ready()
    async with client(node) as pool:
        assert (await outcome(pool, home, executable="/bin/sleep", arguments="0.2")).ok
        nice = await outcome(pool, home, executable="/bin/sleep", arguments="0.2", nice_user="true")
        assert nice.ok

        async def counted() -> list[dict[str, Any]]:
            used = await _accounts(pool)
            return used if len([one for one in used if one["used"] > 0]) == 2 else []

        accounts = await asked(counted, "both to be counted")
    user, nice_user = (account["name"] for account in accounts)
    assert nice_user == f"nice-user/{user}"
    changed = poolnode("userprio", user, "--factor", "7", POOLNODE_ADDRESS=node.address)
    assert (changed.returncode, changed.stderr) == (0, "")
    text = poolnode("userprio", POOLNODE_ADDRESS=node.address, COLUMNS="80").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "fair share: the lowest priority goes first, nice last" in text
    assert "  lab" in text
    assert node.stop() == 0
    again = nodes.start("lab", ALL, config=config).ready()
    (kept,) = shown(again, user)
    assert shown(again, user.partition("@")[0]) == [kept]  # as `q` names the user
    assert (kept["factor"], kept["used"] > 0) == (7.0, True)
    poolnode("userprio", user, "--reset", POOLNODE_ADDRESS=again.address)
    (fresh,) = shown(again, user)
    assert (fresh["factor"], fresh["used"]) == (7.0, 0.0)
    again.stop()


async def _accounts(pool: Pool) -> list[dict[str, Any]]:
    from pool.client.priorities import priorities

    return list((await priorities(pool)).accounts)


def test_what_cannot_be_is_said_in_one_line(nodes: Nodes) -> None:
    node = nodes.start("lab", HEAD).ready()
    for arguments, said in (
        (("carol@lab",), "there is no account carol@lab"),
        (("carol@lab", "--json"), "there is no account carol@lab"),
        (("carol@lab", "--reset"), "there is no account carol@lab"),
        (("carol@lab", "--factor", "-1"), "a factor lies between"),
        (("carol@lab", "--priority", "0"), "a priority lies between"),
        (("--reset",), "change whom"),
    ):
        done = poolnode("userprio", *arguments, POOLNODE_ADDRESS=node.address)
        assert said in one_line(done)
        assert done.stdout == ""
    kept = poolnode("userprio", "carol@lab", "--factor", "10", POOLNODE_ADDRESS=node.address)
    assert kept.returncode == 0
    assert kept.stderr == "poolnode: kept, but without effect while PRIORITY_POLICY is updown\n"
    made = poolnode("token", "--user", own_name(), POOLNODE_ADDRESS=node.address).stdout.strip()
    address = node.said("ready")["address"]
    assert poolnode("userprio", POOLNODE_ADDRESS=address, POOLNODE_TOKEN=made).returncode == 0
    touched = poolnode("userprio", "carol@lab", "--factor", "0.001", POOLNODE_ADDRESS=address, POOLNODE_TOKEN=made)
    assert "administer" in one_line(touched)

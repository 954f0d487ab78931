"""An administrator's day with an agreement with credit, by the command line on two real pools (docs/flocking.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.client import Pool
from pool.wire import RemoteError
from tests.e2e import support
from tests.e2e.flocks import BOTH, HEAD
from tests.e2e.support import Node, Nodes, client, outcome, poolnode, slots, until
from tests.ordinary_user import as_root


@pytest.fixture(scope="module")
def pair(whose_pool: object) -> Iterator[Nodes]:
    """physics, which has no machine, and chem, which has one; nothing is agreed."""

    async def start(nodes: Nodes) -> None:
        nodes.start("physics", HEAD).ready()
        nodes.start("chem", BOTH, SLOTS="1", FILESYSTEM_DOMAIN="chem", CLAIM_LEASE="60").ready()

    with support.running(start) as nodes:
        yield nodes


def flock(node: Node, *words: str) -> Any:
    with as_root():  # the administrator is who runs the node
        return poolnode("flock", *words, "-A", node.address)


def pools(node: Node) -> dict[str, Any]:
    return {one["pool"]: one for one in map(json.loads, flock(node, "--json").stdout.splitlines())}


async def test_wrong_words_agree_nothing(pair: Nodes, tmp_path: Path) -> None:
    physics, chem = pair.all
    junk = tmp_path / "junk"
    junk.write_text("no token\n")
    for node, words, said in (
        (chem, ("invite", "physics", "--half-life", "3"), "goes with --credit"),
        (chem, ("invite", "physics", "--credit", "10", "--lifetime", "soon"), "is not a time"),
        (chem, ("invite", "physics", "--credit", "-1"), "is no number of hours"),
        (chem, ("settle", "nosuch"), "owes nothing"),
        (chem, ("leave", "nosuch"), "no agreement with a pool nosuch"),
        (physics, ("accept", "chem", str(junk), "--credit", "5"), "not a token"),
    ):
        done = flock(node, *words)
        assert done.returncode != 0, words
        assert said in done.stderr, (words, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr
    assert pools(physics) == pools(chem) == {}
    assert "no agreement with another" in flock(chem).stdout


async def test_a_day_of_two_pools_with_credit(pair: Nodes, tmp_path: Path) -> None:
    """Invited, accepted, used, settled, left, and agreed again."""
    physics, chem = pair.all
    invited = flock(chem, "invite", "physics", "--credit", "10", "--json")
    token = tmp_path / "token"
    token.write_text(json.loads(invited.stdout)["token"])
    done = flock(physics, "accept", "chem", str(token), "--credit", "5", "--half-life", "30")
    assert "where we are known as physics" in done.stdout, done.stderr
    async with client(physics) as pool:
        await slots(pool, 1)
        assert (await outcome(pool, pair.directory("credit"), executable="/bin/sleep", arguments="1")).ok
    await until(lambda: pools(chem)["physics"]["balance"] >= 1, "the job's time in the ledger")
    here, there = pools(chem)["physics"], pools(physics)["chem"]
    assert here["balance"] == -there["balance"]
    assert (here["agreement"], here["bound"], here["half_life"]) == ("credit", 5 * 3600.0, 0.0), "forgotten by neither"
    table = flock(physics).stdout
    assert "cannot be reached" not in table, "the agreement has one direction, and that works"
    assert " s of 5.0 h" in table, table
    assert "it lent" in table
    settled = json.loads(flock(chem, "settle", "physics", "--json").stdout)
    assert settled == {"pool": "physics", "forgiven": here["balance"], "unsigned": 0.0, "answered": True}
    assert pools(physics)["chem"]["balance"] == 0
    assert flock(chem, "settle", "physics").returncode != 0, "nothing is owed any more"
    assert json.loads(flock(chem, "leave", "physics", "--json").stdout) == {"pool": "physics", "left": True}
    assert pools(chem)["physics"]["agreement"] == "idle-only"
    assert flock(physics, "leave", "chem").stdout == "the agreement with chem has ended\n"
    token.write_text(flock(chem, "invite", "physics", "--credit", "10").stdout)
    assert flock(physics, "accept", "chem", str(token), "--credit", "10").returncode == 0
    await until(lambda: pools(chem)["physics"]["agreement"] == "credit", "the new agreement")


async def test_users_change_no_agreement(pair: Nodes) -> None:
    """Another user than the administrator may look, and nothing else."""
    if support.submitter is None:
        pytest.skip("needs a pool of root's with users of its own: it is run with pools of both kinds")
    chem = pair.all[1]
    for verb, params in (
        ("terms", {"pool": "physics", "agreement": "credit", "bound": 1}),
        ("settle", {"pool": "physics"}),
        ("leave", {"pool": "physics"}),
        ("accept", {"pool": "bio", "token": "x"}),
    ):
        async with await Pool.connect(chem.address) as pool:
            with pytest.raises(RemoteError, match="needs the right to"):
                await pool.call(f"world.{verb}", params)

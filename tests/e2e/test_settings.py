"""SIGHUP: a node takes a changed configuration, leaves its jobs alone, and refuses one that is wrong (A1)."""

from __future__ import annotations

import signal

from pool.client import Pool
from tests.e2e.support import ALL, Node, Nodes, asked, client, outcome, poolnode, processes_with, program, until


async def state_of(pool: Pool, cluster: int) -> str:
    return (await pool.job(cluster).result()).state


def reread(node: Node, message: str, **fields: str) -> None:
    """Send SIGHUP and wait for what the node has to say of it."""
    before = len(node.log)
    node.signal(signal.SIGHUP)
    node.said(message, after=before, **fields)


async def test_what_changed_counts_and_running_jobs_are_not_touched(nodes: Nodes) -> None:
    home = nodes.directory("home")
    config = home / "pool.conf"
    config.write_text("START = TRUE\nUPDATE_INTERVAL = 100\n")
    whole = nodes.start("whole", ALL, config=config).ready()
    script = program(home, "while ! test -e go; do sleep 0.02; done", "waits-9753.sh")
    async with client(whole) as pool:
        cluster = await pool.submit({"executable": script}, iwd=str(home))
        await until(lambda: processes_with("waits-9753"), "the job to begin")
        config.write_text("START = FALSE\nUPDATE_INTERVAL = 50\n")
        reread(whole, "configuration read again", changed="START,UPDATE_INTERVAL")
        assert processes_with("waits-9753")
        second = await pool.submit({"executable": "/bin/true"}, iwd=str(home))
        (home / "go").touch()
        (result,) = await cluster.wait(20, until_stuck=True)
        assert result.ok, result

        async def closed() -> bool:
            return [ad.value("State") for ad in await pool.machines()] == ["Owner"]

        await asked(closed, "the machine to be its owner's")
        assert await state_of(pool, second.cluster) == "idle"
        config.write_text("START = TRUE\nUPDATE_INTERVAL = 50\n")
        reread(whole, "configuration read again", changed="START")
        assert (await second.wait(20))[0].ok
    shown = poolnode("config", "UPDATE_INTERVAL", "--json", POOLNODE_ADDRESS=whole.address)
    assert f"{config}:2" in shown.stdout


async def test_a_wrong_configuration_is_refused_and_the_old_one_stays(nodes: Nodes) -> None:
    home = nodes.directory("home")
    config = home / "pool.conf"
    good = "START = TRUE\nPRIO = UserPrio\nUPDATE_INTERVAL = 100\n"
    config.write_text(good)
    whole = nodes.start("whole", ALL, config=config).ready()
    wrong = {
        "UPDATE_INTERVAL = often\n": "UPDATE_INTERVAL",
        "START = Memory >\n": "START",
        "PRIO = (1\n": "PRIO",
        "LOG_LEVEL = loud\n": "LOG_LEVEL",
        "this is no line\n": f"{config}:4",
    }
    for line, word in wrong.items():
        config.write_text(good.replace("100", "7") + line)
        reread(whole, "the configuration was not taken", error=word)
    config.unlink()
    reread(whole, "the configuration was not taken", error=str(config))
    shown = poolnode("config", "UPDATE_INTERVAL", POOLNODE_ADDRESS=whole.address)
    assert shown.stdout.strip() == "100"
    async with client(whole) as pool:
        assert (await outcome(pool, home, executable="/bin/true")).ok
    assert not [line for line in whole.log if line.get("message") == "a role failed"]
    config.write_text(good + "LOG_LEVEL = debug\n")
    reread(whole, "configuration read again", changed="LOG_LEVEL")

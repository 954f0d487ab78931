"""Looking after machines: one is taken out of use and back, over a restart of its node."""

from __future__ import annotations

import json

from tests.e2e.support import ALL, Nodes, asked, client, poolnode, program


def states(address: str) -> set[str]:
    listed = poolnode("status", "--json", "--address", address).stdout.splitlines()
    return {json.loads(line)["State"] for line in listed}


async def test_a_machine_is_drained_and_stays_so_until_it_is_wanted_again(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL, SLOTS="1").ready()
    script = program(home, "echo done")
    async with client(whole) as pool:

        async def known() -> bool:
            return bool(await pool.machines())

        await asked(known, "the machine")
        done = poolnode("drain", "whole", "--reason", "more memory", "--address", whole.address)
        assert (done.returncode, done.stdout) == (0, "whole: out of use\n"), done.stderr
    whole.stop()
    again = nodes.start("whole", ALL, SLOTS="1").ready()
    async with client(again) as pool:

        async def drained() -> bool:
            return states(again.address) == {"Drained"}

        await asked(drained, "the drained machine")
        cluster = await pool.submit({"executable": script, "output": "out"}, iwd=str(home))
        table = poolnode("status", "--address", again.address).stdout
        assert "Drained" in table
        done = poolnode("undrain", "whole", "--address", again.address)
        assert (done.returncode, done.stdout) == (0, "whole: in use\n"), done.stderr
        (result,) = await cluster.wait(20, until_stuck=True)
        assert result.ok, result
    done = poolnode("drain", "elsewhere", "--address", again.address)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "the pool has no machine or slot elsewhere" in done.stderr

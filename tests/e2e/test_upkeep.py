"""Looking after machines: one is taken out of use and back, over a restart of its node."""

from __future__ import annotations

import json

import pytest

from pool.errors import PoolError
from tests.e2e.support import ALL, HEAD, Nodes, asked, client, one_line, own_name, poolnode, program, slots, token


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


async def test_an_administrator_drains_a_machine_from_the_head(nodes: Nodes) -> None:
    head = nodes.start("head", HEAD).ready()
    nodes.start("near", "startd", join=await token(head, "startd"), SLOTS="1").ready()
    other = nodes.start("other", "schedd", join=await token(head, "schedd")).ready()
    async with client(head) as pool:
        await slots(pool, 1)
        network_address = str((await pool.info())["address"]).removeprefix("tcp://")
        done = poolnode("drain", "near", "--reason", "more memory", "--address", head.address)
        assert (done.returncode, done.stdout) == (0, "near: out of use\n"), done.stderr

        async def drained() -> bool:
            return states(head.address) == {"Drained"}

        async def in_use() -> bool:
            return states(head.address) == {"Unclaimed"}

        await asked(drained, "the drained machine")

        with pytest.raises(PoolError, match="no token gives the role authority"):
            await token(head, "startd", "authority")
        refused = one_line(poolnode("undrain", "near", "--address", other.address))
        assert "only the node with the pool's authority commands other machines" in refused
        user, administrator = (
            poolnode("token", "--user", own_name(), *more, "--address", head.address).stdout.strip()
            for more in ((), ("--administrator",))
        )
        refused = one_line(poolnode("undrain", "near", "--address", network_address, POOLNODE_TOKEN=user))
        assert "it needs the right to administer (root and the node's user may, " in refused
        assert await drained()

        done = poolnode("undrain", "near", "--address", network_address, POOLNODE_TOKEN=administrator)
        assert (done.returncode, done.stdout) == (0, "near: in use\n"), done.stderr
        await asked(in_use, "the machine back in use")
        done = poolnode("vacate", "--slot", "slot1@near", "--address", network_address, POOLNODE_TOKEN=administrator)
        assert (done.returncode, done.stdout) == (0, "slot1@near: 0 slots vacated\n"), done.stderr

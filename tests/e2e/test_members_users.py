"""An ordinary user of a machine that has joined a pool looks at the whole pool without a token (A9, D8)."""

from __future__ import annotations

import pytest

from pool.errors import PoolError
from pool.wire import RealNetwork
from tests.e2e import support
from tests.e2e.support import Nodes, client, slots, token
from tests.ordinary_user import OrdinaryUser


@pytest.mark.own_pool("has an ordinary user already")
async def test_he_reads_through_his_own_node_and_may_do_no_more(nodes: Nodes) -> None:
    ann = OrdinaryUser(nodes.place)
    head = nodes.start("head", support.HEAD, machine=ann.machine).ready()
    near = nodes.start("near", "schedd,startd", join=await token(head, "schedd", "startd"), machine=ann.machine).ready()
    async with client(head) as pool:
        await slots(pool, 1)
        (cluster,) = await pool.submit_all(
            {"executable": "/bin/true", "request_gpus": "9", "environment": '"SECRET=x"', "iwd": str(nodes.place)}
        )

    def said(*words: str) -> str:
        done = ann.poolnode(*words, "--address", near.address, cwd=ann.home)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "slot1@near" in said("status")
    listed = said("globalq", "--json")
    assert f'"ClusterId": {cluster.cluster}' in listed
    assert "SECRET" not in listed
    assert "up-down" in said("userprio")
    assert "slot1@near" in said("why", "near")

    refused = ann.poolnode("revoke", "head", "--address", near.address, cwd=ann.home)
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    for asked in (head, near):
        refused = ann.poolnode("drain", "near", "--address", asked.address, cwd=ann.home)
        assert "may not call " in support.one_line(refused)


async def test_the_node_asks_only_questions_and_only_others(nodes: Nodes) -> None:
    whole = nodes.start("whole", support.ALL).ready()
    async with client(whole) as pool:
        address = (await pool.info())["address"]
        network = RealNetwork()
        link = await network.connect(pool.address)
        for at, method in (
            ("tcp://127.0.0.1:1", "schedd.act"),
            ("tcp://127.0.0.1:1", "node.stop"),
            ("local:", "node.info"),
            (pool.address, "node.info"),
            *([(address, "node.info")] if address.startswith("tcp:") else []),
        ):
            with pytest.raises(PoolError, match=r"is not asked of other nodes|is not the address of another node"):
                await link.call("node.forward", {"at": at, "method": method, "params": {}})
        with pytest.raises(PoolError) as refused:
            await link.call("node.forward", {"at": "tcp://127.0.0.1:1", "method": "startd.drain", "params": {}})
        assert "at the node with the pool's authority, or on that machine" in refused.value.hint
        assert "token" not in refused.value.hint
        await link.close()

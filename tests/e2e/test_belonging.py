"""Nodes that are removed from the pool are refused by every other one; certificates are renewed before they end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from typing import Any

from pool.errors import PoolError
from pool.wire.certificates import life_of
from pool.wire.credentials import Credentials
from pool.wire.identity import user_name
from pool.wire.network import RealNetwork
from pool.wire.tokens import Token
from tests.e2e.support import HEAD, Nodes, asked, client, one_line, outcome, poolnode, slots, token, until


async def refused(nodes: Nodes, name: str, address: str) -> bool:
    """Whether a node of the pool refuses this one's certificate."""
    network = RealNetwork(credentials=Credentials.load(nodes.state(name) / "trust"))
    try:
        link = await network.connect(address)
        await link.call("node.ping", {}, timeout=5.0)
    except PoolError as error:
        return "removed from this pool" in str(error)
    await link.close()
    return False


async def test_a_revoked_node_is_refused_by_all_and_may_join_again(nodes: Nodes) -> None:
    head = nodes.start("head", HEAD).ready()
    bad = nodes.start("bad", "startd", join=await token(head, "startd")).ready()
    good = nodes.start("good", "startd", join=await token(head, "startd")).ready()
    there = good.said("ready")["address"]
    async with client(head) as pool:
        await slots(pool, 2)
    assert not await refused(nodes, "bad", there)
    said = one_line(poolnode("revoke", "nobody", POOLNODE_ADDRESS=head.address))
    assert "the pool has no node nobody (there are bad, good)" in said
    assert "cannot put itself out" in one_line(poolnode("revoke", "head", POOLNODE_ADDRESS=head.address))
    done = poolnode("revoke", "bad", POOLNODE_ADDRESS=head.address)
    assert (done.returncode, done.stdout) == (0, "bad has been removed from the pool\n"), done.stderr
    good.said("removed from the pool", which="bad")
    assert list(json.loads((nodes.state("good") / "trust" / "revoked.json").read_text())) == ["bad"]
    assert await refused(nodes, "bad", head.said("ready")["address"])
    assert await refused(nodes, "bad", there)
    assert "authority" in one_line(poolnode("revoke", "bad", POOLNODE_ADDRESS=good.address))
    # It holds through restarts, and while the authority is away.
    head.stop()
    good.crash()
    good = nodes.start("good", "startd").ready()
    assert await refused(nodes, "bad", good.said("ready")["address"])
    head = nodes.start("head", HEAD).ready()
    assert await refused(nodes, "bad", head.said("ready")["address"])

    async def one_machine() -> bool:
        async with client(head) as pool:
            return {ad.value("Machine") for ad in await pool.machines()} == {"good"}

    await asked(one_machine, "only the good machine to be known")
    bad.stop()
    shutil.rmtree(nodes.state("bad") / "trust")
    nodes.start("bad", "startd", join=await token(head, "startd")).ready()
    async with client(head) as pool:
        await slots(pool, 2)


async def test_tokens_are_listed_and_taken_back_and_a_revoked_node_leaves_the_status(nodes: Nodes) -> None:
    head = nodes.start("head", HEAD).ready()

    def typed(*words: str) -> str:
        done = poolnode(*words, POOLNODE_ADDRESS=head.address)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def listed() -> dict[str, dict[str, Any]]:
        return {one["id"]: one for one in map(json.loads, typed("token", "--list", "--json").splitlines())}

    taken, used = await token(head, "startd"), await token(head, "startd", uses=2)
    user = user_name(os.getuid())  # one whom this machine knows
    users = typed("token", "--user", user).strip()
    run = nodes.start("donder", "startd", join=used).ready()
    known, shown = listed(), typed("token", "--list")
    ids = {text: Token.read(text).id for text in (taken, used)}
    assert [known[ids[text]]["used"] for text in (taken, used)] == [0, 1]
    lines = {line.split()[0]: line.split()[1:] for line in shown.splitlines()}
    assert lines["ID"] == ["FOR", "USED", "EXPIRES"]
    assert lines[ids[used]][:4] == ["startd", "1", "of", "2"]
    assert lines[Token.read(users).id][0] == user
    for text in (taken, used, users):  # what is shown opens nothing
        assert Token.read(text).secret not in shown + json.dumps(known)
    assert typed("token", "--revoke", ids[taken]) == f"the token {ids[taken]} is worth nothing any more\n"
    assert ids[taken] in one_line(poolnode("token", "--revoke", ids[taken], POOLNODE_ADDRESS=head.address))
    late = nodes.start("late", "startd", join=taken)
    assert late.ended() != 0
    assert "cannot join as late" in late.text
    async with client(head) as pool:
        await slots(pool, 1)
    assert "donder" in typed("status")
    typed("revoke", "donder")
    # At once, while the node itself goes on and would advertise; and its token went with it.
    assert "donder" not in typed("status")
    assert run.process.poll() is None
    assert set(listed()) == {Token.read(users).id}


async def test_certificates_are_renewed_before_they_end(nodes: Nodes) -> None:
    home = nodes.directory("home")
    config = home / "pool.conf"
    config.write_text("CERTIFICATE_LIFE = 4 s\n")
    head = nodes.start("head", HEAD, config=config).ready()
    run = nodes.start("run", "startd", join=await token(head, "startd")).ready()
    certificate = nodes.state("run") / "trust" / "node.crt"
    first = certificate.read_text()
    for node in (run, head):
        node.said("this node's certificate was renewed")
    await until(lambda: certificate.read_text() != first, "the certificate to be kept")
    run.said("this node's certificate was renewed", after=len(run.log))
    # The first has ended by now; a connection that is made anew shows the present one, which lives longer than a slow
    # machine takes to start a node.
    config.write_text("CERTIFICATE_LIFE = 1 h\n")
    head.signal(signal.SIGHUP)
    await until(lambda: life_of(certificate.read_text())[1] > time.time() + 600, "a certificate that lives longer")
    head.crash()
    head = nodes.start("head", HEAD, config=config).ready()
    async with client(head) as pool:
        await slots(pool, 1)
        result = await outcome(pool, home, executable="/bin/true")
        assert result.ok, result

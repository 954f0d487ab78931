"""Two pools that lend to each other, each with its own authority: real nodes, joined by tokens (EV 4.3, 5.5, 8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.wire import RealNetwork, RemoteError
from pool.wire.credentials import Credentials
from tests.e2e import support
from tests.e2e.flocks import BOTH, HEAD, agree, lines_of
from tests.e2e.support import (
    Node,
    Nodes,
    administrator,
    asked,
    client,
    outcome,
    poolnode,
    processes_with,
    program,
    slots,
    until,
)


@pytest.fixture(scope="module")
def flock2(whose_pool: object) -> Iterator[Nodes]:
    """physics, which has no machine, and chem, which has one of two slots."""

    async def start(nodes: Nodes) -> None:
        physics = nodes.start("physics", HEAD).ready()
        chem = nodes.start("chem", BOTH, SLOTS="2", FILESYSTEM_DOMAIN="chem").ready()
        await agree(chem, physics, ("chem", "physics"))
        async with client(physics) as pool:
            await slots(pool, 1)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(flock2: Nodes, request: pytest.FixtureRequest) -> Path:
    return flock2.directory(support.directory_name(request))


async def test_a_job_runs_in_another_pool_with_its_files(flock2: Nodes, home: Path) -> None:
    physics = flock2.all[0]
    (home / "in").write_text("from physics\n")
    script = program(home, "cat in; echo made > result; id -un; exit 3")
    async with client(physics) as pool:
        cluster = await pool.submit(
            {"executable": script, "transfer_input_files": "in", "output": "out", "log": "log"}, iwd=str(home)
        )
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert (result.exit_code, result.reason) == (3, ""), result
        (ad,) = await cluster.ads()
    said, user = (home / "out").read_text().splitlines()
    assert said == "from physics"
    assert (home / "result").read_text() == "made\n"
    assert str(ad.value("LastRemoteHost")).endswith("@chem@physics")
    assert "@chem@physics" in (home / "log").read_text()
    if support.submitter is not None:
        assert user == "nobody", "an account of the same name here is another user's"


async def test_a_job_that_wants_no_flock_stays(flock2: Nodes, home: Path) -> None:
    physics = flock2.all[0]
    async with client(physics) as pool:
        cluster = await pool.submit({"executable": "/bin/true", "flock": "false"}, iwd=str(home))
        other = await outcome(pool, home, executable="/bin/true")
        assert other.ok
        (ad,) = await cluster.ads()
        assert ad.value("JobStatus") == 1
        await cluster.remove()


async def test_it_can_be_watched_inspected_and_removed_as_at_home(flock2: Nodes, home: Path) -> None:
    physics, chem = flock2.all
    script = program(home, "echo begun; exec sleep 600", "flocked-sleep.sh")
    async with client(physics) as pool:
        cluster = await pool.submit({"executable": script, "output": "out"}, iwd=str(home))
        await until(lambda: "begun" in poolnode("tail", f"{cluster.cluster}.0", "-A", physics.address).stdout, "output")
        inspected = poolnode("inspect", f"{cluster.cluster}.0", "-A", physics.address)
        assert "sleep" in inspected.stdout, inspected.stderr
        assert "chem" in poolnode("status", "-A", physics.address).stdout

        def is_borrowed() -> bool:
            """A machine that the test before has borrowed may be on its way back."""
            shown = json.loads(poolnode("flock", "--json", "-A", physics.address).stdout)
            return (shown["pool"], shown["borrowed"]) == ("chem", 1)

        await until(is_borrowed, "one machine to be borrowed")
        async with client(chem) as lender:
            owners = {str(ad.value("RemoteOwner", "")) for ad in await lender.machines()}
        assert any(owner.endswith("@physics") for owner in owners), owners
        await cluster.remove()
        await until(lambda: not processes_with("flocked-sleep.sh"), "the job to end there")
    await all_is_free(chem)


async def all_is_free(lender: Node) -> None:
    """Wait until the machine has no guest any more."""

    async def idle_again() -> bool:
        async with client(lender) as pool:
            return {ad.value("State") for ad in await pool.machines()} == {"Unclaimed"}

    await asked(idle_again, "the machine to be free")


async def test_a_checkpoint_moves_a_job_between_its_runs_there(flock2: Nodes, home: Path) -> None:
    """It is saved on the submit side, leaves, and goes on from there: each step once."""
    physics = flock2.all[0]
    script = program(home, "i=0; while [ ! -e go ]; do echo $i; i=$((i+1)); sleep 0.02; done; echo end")
    async with client(physics) as pool:
        cluster = await pool.submit(
            {"executable": script, "output": "out", "checkpoint": "required", "remote_io": "on"}, iwd=str(home)
        )
        await until(lambda: len(lines_of(home / "out")) > 3, "some steps")
        await cluster.checkpoint()
        await cluster.vacate()

        async def runs_again() -> bool:
            (ad,) = await cluster.ads()
            return bool(ad.value("NumJobStarts", 0) >= 2 and ad.value("JobStatus") == 2)

        await asked(runs_again, "the second run")
        (home / "go").touch()
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
    lines = lines_of(home / "out")
    assert lines == [*map(str, range(len(lines) - 1)), "end"]


async def test_two_pools_count_what_they_lend(flock2: Nodes, home: Path) -> None:
    """Both want credit; a job runs there, on a claim that there may have been before; both show the same debt, and it
    is forgiven."""
    physics, chem = flock2.all
    for node, other, bound in ((chem, "physics", 10), (physics, "chem", 5)):
        async with administrator(node) as pool:
            await pool.call("world.terms", {"pool": other, "agreement": "credit", "bound": bound})

    def ledger(node: Node) -> dict[str, Any]:
        return dict(json.loads(poolnode("flock", "--json", "-A", node.address).stdout))

    await until(lambda: ledger(chem)["agreement"] == ledger(physics)["agreement"] == "credit", "both to know of it")
    assert (await outcome_of_sleep(physics, home)).ok
    await all_is_free(chem)  # until then it is counted
    await until(lambda: ledger(chem)["balance"] == -ledger(physics)["balance"] >= 1.0, "the job's time in both ledgers")
    lent = ledger(chem)
    assert (lent["agreement"], lent["bound"]) == ("credit", 5 * 3600.0)
    assert "we lent" in poolnode("flock", "-A", chem.address).stdout
    async with administrator(chem) as pool:
        assert (await pool.call("world.settle", {"pool": "physics"}))["forgiven"] == lent["balance"]
    assert abs(ledger(physics)["balance"]) < 0.01


async def outcome_of_sleep(node: Node, home: Path) -> Any:
    async with client(node) as pool:
        return await outcome(pool, home, executable="/bin/sleep", arguments="1")


async def _has_guest(lender: Node, user: str) -> bool:
    async with client(lender) as pool:
        return user in {str(ad.value("RemoteOwner", "")) for ad in await pool.machines()}


async def test_a_pool_gets_nothing_that_the_agreement_does_not_give(flock2: Nodes, home: Path) -> None:
    """A world with a good certificate that lies: every other method, other addresses, our files, other users."""
    physics, chem = flock2.all
    credentials = Credentials.load(physics.state / "flock" / "chem")
    network = RealNetwork(credentials=credentials)
    link = await network.connect(credentials.address)
    try:
        for name in ("node.info", "node.token", "collector.query", "schedd.query", "startd.claim", "world.status"):
            with pytest.raises(RemoteError, match="needs the right to"):
                await link.call(name, {})
        way = {"schedd": "physics", "startd": credentials.address}
        for verb in ("drain", "matched", "vacate", "claim", "no.such"):
            with pytest.raises(RemoteError, match="does not pass between pools"):
                await link.call("world.pass_call", {**way, "verb": verb, "params": {}})
        for address in ("tcp://127.0.0.1:1", "unix:///etc/passwd", "local:", credentials.address.replace("127", "128")):
            with pytest.raises(RemoteError, match="has no machine at"):
                await link.call(
                    "world.pass_call", {**way, "startd": address, "verb": "release", "params": {"claims": []}}
                )
        ad = {"Owner": "root", "Requirements": True, "Cmd": "/bin/true", "JobUniverse": 5, "User": "root@chem"}
        request = {"schedd": "physics", "owner": "root", "lease": 60.0, "ad": ad, "count": 1}
        (made,) = (await link.call("world.claim", request))["claims"]
        await asked(lambda: _has_guest(chem, "root@physics"), "chem to show whose slot it is")
        order = {"claim": made["claim"], "start": {"mode": "shared"}, "shared": None, "own": ad}
        with pytest.raises(RemoteError, match="cannot work on files of the machine"):
            await link.call("world.pass_call", {**way, "verb": "activate", "params": order})
        await link.call("world.pass_call", {**way, "verb": "release", "params": {"claims": [made["claim"]]}})
    finally:
        await link.close()

"""Two pools that lend to each other, each with its own authority: real nodes, joined by tokens (EV 4.3, 5.5, 8)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import support
from tests.e2e.support import Node, Nodes, administrator, asked, client, outcome, program, slots

HEAD = "collector,negotiator,schedd,world"
BOTH = "collector,negotiator,schedd,startd,world"


async def agree(lender: Node, borrower: Node, names: tuple[str, str]) -> None:
    """The borrower's jobs may run on the lender's machines."""
    async with administrator(lender) as pool:
        made = await pool.call("node.token", {"roles": ["flock"], "node": names[1], "lifetime": 600, "uses": 1})
    async with administrator(borrower) as pool:
        await pool.call("world.accept", {"pool": names[0], "token": made["token"]})


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
    script = program(home, "cat in; echo made > result; exit 3")
    async with client(physics) as pool:
        result = await outcome(
            pool, home, executable=script, transfer_input_files="in", output="out", error="err", log="log"
        )
        assert (result.exit_code, result.reason) == (3, ""), result
        (ad,) = [ad async for ad in _history(pool)]
    assert (home / "out").read_text() == "from physics\n"
    assert (home / "result").read_text() == "made\n"
    assert "@chem@physics" in str(ad.value("LastRemoteHost"))
    assert "@chem@physics" in (home / "log").read_text()


async def test_a_job_that_wants_no_flock_stays(flock2: Nodes, home: Path) -> None:
    physics = flock2.all[0]
    async with client(physics) as pool:
        cluster = await pool.submit({"executable": "/bin/true", "flock": "false"}, iwd=str(home))
        other = await outcome(pool, home, executable="/bin/true")
        assert other.ok
        (ad,) = await cluster.ads()
        assert ad.value("JobStatus") == 1
        await cluster.remove()


async def _history(pool):
    async for batch in pool.history():
        for ad in batch if isinstance(batch, list) else [batch]:
            yield ad

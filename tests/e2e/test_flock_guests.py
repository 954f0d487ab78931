"""Guests leave for a job of the machine's own pool, saved, and go on where they were: real nodes (EV 4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import support
from tests.e2e.flocks import BOTH, HEAD, agree, lines_of
from tests.e2e.support import Nodes, asked, client, program, slots, until


@pytest.fixture(scope="module")
def lender(whose_pool: object) -> Iterator[Nodes]:
    """physics, which has no machine, and chem, which has one of two processors."""

    async def start(nodes: Nodes) -> None:
        physics = nodes.start("physics", HEAD).ready()
        divided = "partitionable cpus=2"
        chem = nodes.start("chem", BOTH, FILESYSTEM_DOMAIN="chem", SLOTS=divided, CHECKPOINT_WORTH="0").ready()
        await agree(chem, physics, ("chem", "physics"))
        async with client(physics) as pool:
            await slots(pool, 1)

    with support.running(start) as nodes:
        yield nodes


async def test_two_guests_leave_for_one_own_job_and_lose_nothing(lender: Nodes) -> None:
    physics, chem = lender.all
    homes = [lender.directory(name) for name in ("first", "second", "own")]
    script = "i=0; while [ ! -e go ]; do echo $i; i=$((i+1)); sleep 0.02; done; echo end"
    async with client(physics) as away, client(chem) as here:
        guests = [
            await away.submit(
                {
                    "executable": program(home, script),
                    "output": "out",
                    "log": "log",
                    "checkpoint": "required",
                    "remote_io": "on",
                },
                iwd=str(home),
            )
            for home in homes[:2]
        ]
        await until(lambda: all(len(lines_of(home / "out")) > 3 for home in homes[:2]), "both guests to run")
        own = await here.submit({"executable": "/bin/true", "request_cpus": "2"}, iwd=str(homes[2]))
        (result,) = await own.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
        for home in homes[:2]:
            (home / "go").touch()
        for guest, home in zip(guests, homes[:2], strict=True):
            (result,) = await guest.wait(support.PATIENCE, until_stuck=True)
            assert result.ok, result
            lines = lines_of(home / "out")
            assert lines == [*map(str, range(len(lines) - 1)), "end"], "each step once"
            (ad,) = await guest.ads()
            assert ad.value("NumJobStarts") == 2
            assert_told(home / "log")

        async def whole_again() -> bool:
            ads = await here.machines()
            return [(ad.value("State"), ad.value("Cpus")) for ad in ads] == [("Unclaimed", 2)]

        await asked(whole_again, "the machine to be whole again")


def assert_told(log: Path) -> None:
    text = log.read_text()
    assert "(1) Job was checkpointed." in text
    assert "a job of the machine's own pool needs it: jobs of other pools leave then" in text

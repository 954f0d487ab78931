"""One start after another on one claim: the next waits until the last is tidied away; a refused one gives it back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pool.jobs.events import EventKind
from pool.roles.startd.running.activations import Activations
from pool.starter.spec import KeeperSpec
from pool.starter.starter import Starter
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK


def heard(pool: SimPool) -> list[EventKind]:
    """The kinds of all events from now on."""
    kinds: list[EventKind] = []
    pool.role("head", "schedd").ledger.listen(lambda events: kinds.extend(event.kind for event in events))
    return kinds


@pytest.mark.parametrize("jobs", [1, 4])
def test_vacates_while_machines_tidy_up(jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is busy takes its time to be rid of a job; the schedd has its end already."""
    before = Starter.discard

    async def slowly(self: Starter) -> None:
        await asyncio.sleep(3.0)
        await before(self)

    monkeypatch.setattr(Starter, "discard", slowly)

    async def work() -> None:
        settings = {**QUICK, "SLOTS": str(jobs), "CLAIM_LEASE": "600"}
        async with SimPool(3, settings=settings, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(60.0))
            await pool.submit("head", count=jobs)
            await pool.run_until(lambda: len(pool.witness.running) == jobs, within=60)
            kinds = heard(pool)
            for _ in range(3):
                await asyncio.sleep(5.0)
                await pool.act("head", "alice", action="vacate", all=True)
                await pool.run_until(lambda: len(pool.witness.running) == jobs, within=30)
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            assert EventKind.SHADOW_EXCEPTION not in kinds
            assert len(pool.witness.starts) == 4 * jobs
            await pool.run_until(lambda: not pool.role("m1", "startd").claims, within=30)
            pool.assert_sound()

    run_virtual(work())


def test_a_refused_start_gives_its_claim_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Activations._still_accepts
    refused: list[Any] = []

    def accepts(self: Activations, *given: Any) -> bool:
        if not refused:
            refused.append(True)
            return False
        return before(self, *given)

    monkeypatch.setattr(Activations, "_still_accepts", accepts)

    async def work() -> None:
        async with SimPool(3, settings={**QUICK, "CLAIM_LEASE": "600"}, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(60.0))
            await pool.submit("head")
            await pool.run_until(lambda: bool(refused), within=60)
            await pool.act("head", "alice", action="hold", all=True)
            await pool.run_until(lambda: not pool.role("m1", "startd").claims, within=5)
            await pool.act("head", "alice", action="release", all=True)
            await pool.run_until(lambda: pool.queued("head") == 0, within=300)
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("by", ["the job", "the machine"])
def test_what_differs_from_job_to_job_is_looked_at_where_it_is_asked_for(by: str) -> None:
    """Jobs of one cluster that run one after the other on a claim: the one that no machine accepts never starts."""

    async def work() -> None:
        start = {} if by == "the job" else {"START": "ProcId =!= 1"}
        async with SimPool(3, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", settings=start, behave=lambda spec: Behaviour(5.0))
            ad = {"Requirements": ["ProcId != 1"]} if by == "the job" else {}
            cluster = await pool.submit("head", count=4, ad=ad)
            await pool.run_until(lambda: pool.queued("head") == 1, within=600)
            await asyncio.sleep(300.0)
            assert pool.role("head", "schedd").queue.find(cluster, 1) is not None
            assert {ad["ProcId"] for ad in await pool.ended("head")} == {0, 2, 3}
            assert len(pool.witness.starts) == 3

    run_virtual(work())


def argv_of_each(seen: dict[int, list[str]]) -> Callable[[KeeperSpec], Behaviour]:
    """Notes the program's arguments of each process of a cluster, at its last start."""

    def behave(spec: KeeperSpec) -> Behaviour:
        seen[int(spec.id.split(".")[1])] = list(spec.argv[1:])
        return Behaviour(5.0)

    return behave


def test_an_edited_job_starts_as_it_was_edited_and_its_neighbours_do_not() -> None:
    """The second of three jobs that follow each other on one claim has other arguments since it was queued."""
    seen: dict[int, list[str]] = {}

    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=argv_of_each(seen))
            cluster = await pool.submit("head", count=3, ad={"Arguments": "all"})
            await pool.run_until(lambda: len(seen) == 1, within=60)
            await pool.act("head", "alice", action="edit", ids=[[cluster, 1]], edits={"Arguments": '"edited"'})
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)

    run_virtual(work())
    assert seen == {0: ["all"], 1: ["edited"], 2: ["all"]}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        pytest.param({"Arguments": "$$([ProcId * 10])"}, ["0", "10", "20"], id="filled in from the job's own ad"),
        pytest.param({"Arguments": ['strcat("at ", ProcId)']}, ["at 0", "at 1", "at 2"], id="an expression"),
    ],
)
def test_what_a_start_works_out_from_the_process_is_each_process_own(
    attributes: dict[str, Any], expected: list[str]
) -> None:
    seen: dict[int, list[str]] = {}

    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=argv_of_each(seen))
            await pool.submit("head", count=3, ad=attributes)
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)

    run_virtual(work())
    assert [" ".join(seen[proc]) for proc in range(3)] == expected

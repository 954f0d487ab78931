"""Parallel jobs over several pools, simulated: all nodes start together or none, and nobody's machines are kept."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pool.policy.flock.cards import BadCard
from pool.roles.schedd.parallel.gangs import Gangs
from pool.roles.world.lending import GuestSchedd
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.flock import SimFlock, head
from pool.wire import Call
from tests.roles.schedd.parallel.test_parallel_jobs import parallel
from tests.roles.test_flock_simulated import borrower_and_lender
from tests.roles.test_flock_status import why


def pools_of(flock: SimFlock) -> Counter[str]:
    """How many starts there were on machines of each pool."""
    return Counter(machine.partition("-")[0] for _, machine, _ in flock.witness.starts)


def test_a_job_that_is_larger_than_its_pool_runs_in_two() -> None:
    """Own machines come first."""

    async def work() -> None:
        async with borrower_and_lender(1, machines=3, own=2) as flock:
            await flock.submit("physics", ad=parallel(4))
            await flock.run_until(lambda: flock.queued() == 0, within=300)
            (ad,) = await flock.pool("physics").ended(head("physics"))
            assert (ad["NumJobStarts"], ad["ExitCode"]) == (1, 0)
            assert pools_of(flock) == {"physics": 2, "chem": 2}
            flock.assert_sound()

    run_virtual(work())


RANKS = "its ranks reach no machine of another pool"
#: Attributes of a job that stays, and the reason that is told.
STAYS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "MPI": ({"JobUniverse": 8}, [RANKS]),
    "MPI in the parallel universe": ({"MpiFamily": "mpich"}, [RANKS]),
    "MPI over the machines' network": ({"JobUniverse": 8, "JobNetwork": "host"}, [RANKS]),
    "its user": ({"WantFlock": False}, []),
}


@pytest.mark.parametrize("what", STAYS)
def test_a_job_whose_nodes_would_not_reach_each_other_stays(what: str) -> None:
    own, said = STAYS[what]

    async def work() -> None:
        async with borrower_and_lender(2, machines=3, own=1) as flock:
            await flock.submit("physics", ad={**parallel(3), **own})
            await flock.settle(120)
            assert (flock.queued(), flock.witness.starts) == (1, [])
            user = await flock.network.user("carol", head("physics"))
            assert [found["trouble"].partition(";")[0] for found in await why(user, 1)] == said

    run_virtual(work())


def test_a_job_that_does_not_get_whole_gives_the_machines_back() -> None:
    """Three nodes and two machines: the other pool's own user has the lent one in between."""

    async def work() -> None:
        async with borrower_and_lender(3, machines=1, own=1) as flock:
            await flock.submit("physics", ad=parallel(3))
            await flock.settle(60)
            await flock.submit("chem", owner="bob")
            await flock.run_until(lambda: flock.queued("chem") == 0, within=900)
            assert (flock.queued("physics"), pools_of(flock)) == (1, {"chem": 1})
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("victim", ["physics", "chem"])
@pytest.mark.parametrize("phase", list(TrapPhase))
@pytest.mark.parametrize("step", ["world.claim", "world_machines.activate", "schedd.wait_for_parts", "startd.activate"])
def test_a_world_that_fails_while_a_job_begins_in_two_pools(step: str, phase: TrapPhase, victim: str) -> None:
    async def work() -> None:
        async with borrower_and_lender(5, machines=2, own=1) as flock:

            async def restart() -> None:
                await flock.pool(victim).restart_role(head(victim), "world")

            traps = [pool.run_at(step, phase, restart) for pool in flock.pools.values()]
            await flock.submit("physics", ad=parallel(3))
            await flock.run_until(lambda: flock.queued() == 0, within=4000)
            assert any(trap.sprung for trap in traps)
            (ad,) = await flock.pool("physics").ended(head("physics"))
            assert ad["ExitCode"] == 0
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("phase", list(TrapPhase))
def test_a_pool_that_withdraws_while_a_job_gathers_has_its_machines_at_once(phase: TrapPhase) -> None:
    """It leaves when its first machine is claimed, or asked for: no node starts, and its own user has both machines."""

    async def work() -> None:
        async with borrower_and_lender(7, machines=2, own=1) as flock:
            administrator = await flock.network.user("root", head("chem"), administer=True)

            async def leave() -> None:
                await administrator.call("world.leave", {"pool": "physics"}, timeout=60)

            trap = flock.pool("chem").run_at("world.claim", phase, leave)
            await flock.submit("physics", ad=parallel(3))
            await flock.run_until(lambda: trap.sprung, within=60)
            await flock.submit("chem", owner="bob", count=2)
            await flock.run_until(lambda: flock.running("chem") == 2, within=15)
            await flock.settle(600)
            assert (flock.queued("physics"), pools_of(flock)) == (1, {"chem": 2})
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("step", ["world.claim", "startd.activate"])
def test_a_link_that_breaks_while_a_job_begins_in_two_pools(step: str) -> None:
    """For longer than a lease: no node runs twice, and the job completes when the link is back."""

    async def work() -> None:
        async with borrower_and_lender(8, machines=2, own=1) as flock:

            async def break_link() -> None:
                flock.network.cut(head("physics"), head("chem"))

            trap = flock.pool("chem").run_at(step, TrapPhase.AFTER, break_link)
            await flock.submit("physics", ad=parallel(3))
            await flock.run_until(lambda: trap.sprung, within=60)
            await flock.settle(900)
            assert flock.queued("physics") == 1
            flock.network.restore_links()
            await flock.run_until(lambda: flock.queued() == 0, within=4000)
            (ad,) = await flock.pool("physics").ended(head("physics"))
            assert ad["ExitCode"] == 0
            flock.assert_sound()

    run_virtual(work())


def test_a_machine_of_another_pool_hears_names_and_no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies that it has a network for the job: with that it would get the addresses of all nodes."""
    heard: list[Any] = []
    honest = GuestSchedd.pass_call

    async def lies(guest: GuestSchedd, verb: str, call: Call, params: dict[str, Any]) -> Any:
        if verb == "wait_for_parts":
            params = {**params, "card": {**params["card"], "network": "private"}}
        answer = await honest(guest, verb, call, params)
        heard.extend(answer["cards"] if verb == "wait_for_parts" else [])
        return answer

    monkeypatch.setattr(GuestSchedd, "pass_call", lies)

    async def work() -> None:
        async with borrower_and_lender(6, machines=1, own=1) as flock:
            await flock.submit("physics", ad=parallel(2))
            await flock.run_until(lambda: flock.queued() == 0, within=300)
            own, other = sorted((card for card in heard if card is not None), key=lambda card: "@" in card["node"])
            assert (own["network"], own["node"].partition("-")[0]) == ("private", "chem")
            assert other.keys() == {"node"}
            assert other["node"].endswith("@physics")

    run_virtual(work())


def test_no_machine_connects_to_an_address_that_another_pool_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedd says that a node of the job is at some address in our network."""
    refused: list[str] = []
    honest, passed = Gangs.wait_for_parts, GuestSchedd.pass_call

    async def lies(gangs: Gangs, claim: str, run: int, card: Any) -> dict[str, Any]:
        answer = await honest(gangs, claim, run, card)
        evil = {"node": "printer", "address": "mem://printer", "network": "private", "large": False}
        return {"cards": [evil, *answer["cards"][1:]]} if claim.startswith("chem|") else answer

    async def watched(guest: GuestSchedd, verb: str, call: Call, params: dict[str, Any]) -> Any:
        try:
            return await passed(guest, verb, call, params)
        except BadCard as error:
            refused.append(str(error))
            raise

    monkeypatch.setattr(Gangs, "wait_for_parts", lies)
    monkeypatch.setattr(GuestSchedd, "pass_call", watched)

    async def work() -> None:
        async with borrower_and_lender(9, machines=2, own=2) as flock:
            await flock.submit("physics", ad=parallel(4))
            await flock.run_until(lambda: bool(refused), within=300)
            assert "names a machine at 'mem://printer', which is none of this pool's" in refused[0]
            assert not [start for start in flock.witness.starts if start[1].startswith("chem")]

    run_virtual(work())

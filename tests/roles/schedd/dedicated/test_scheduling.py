"""The dedicated scheduler in simulated pools: claims of its own, any user's jobs, the queue's head (WR 3)."""

from __future__ import annotations

from pool.policy.slots import CLAIMED_IDLE
from tests.roles.schedd.dedicated.support import OURS, DedicatedStory, parallel, pause, play, serial
from tests.roles.schedd.parallel.test_gangs import gang
from tests.roles.support import told


def claims_made(at: DedicatedStory) -> list[str]:
    """The claims that the machines have seen, each once."""
    return sorted(claim.id for claim in at.held.values())


def test_a_job_of_two_machines_runs_on_claims_of_the_schedulers_own() -> None:
    async def story(at: DedicatedStory) -> None:
        await at.pool.submit("head", ad=parallel(2))
        await at.runs("1.0")
        assert {claim.owner for claim in at.held.values()} == {"DedicatedScheduler"}
        (ad,) = await at.done(1)
        assert (ad["ExitCode"], ad["NumJobStarts"]) == (0, 1)
        starts = at.started("1.0")
        assert len(starts) == 2
        assert max(starts) - min(starts) < 0.1

    play(story)


def test_without_dedicated_jobs_nothing_is_asked_and_nothing_held() -> None:
    """W7: the collector has no watcher, the negotiator no submitter of the scheduler's name."""

    async def story(at: DedicatedStory) -> None:
        watchers = at.pool.role("head", "collector")._watchers
        await at.pool.submit("head", count=4)
        await at.done(4)
        assert len(watchers) == 1, "the negotiator's"
        entries = at.pool.role("head", "collector")._registry.entries
        assert ("Submitter", OURS) not in entries
        assert at.scheduler.cycles == 0
        await at.pool.submit("head", ad=serial())
        await at.runs("2.0")
        assert len(watchers) == 2
        await at.pool.run_until(lambda: not at.pool.queued("head") and not at.held, 500.0)
        await at.pool.run_until(lambda: len(watchers) == 1, 60.0)
        assert ("Submitter", OURS) not in entries

    play(story)


def test_many_jobs_of_several_users_run_on_one_negotiation_with_the_central_manager_gone() -> None:
    """W12, W13, W35: the claims serve job after job of any user, and each is charged for its own."""

    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 5.0
        await at.pool.add("sub", "schedd")
        await at.machines(2, 10, DEDICATED_SCHEDULER="sub")
        scheduler = at.pool.role("sub", "schedd").dedicated
        for owner in ("alice", "bob"):
            await at.pool.submit("sub", count=10, owner=owner, ad=parallel(2))
        await at.pool.run_until(lambda: len(scheduler.held()) == 2)
        before = sorted(claim.id for claim in scheduler.held().values())
        await at.pool.run_until(lambda: bool(at.pool.witness.running))
        await at.pool.kill("head")
        await at.pool.run_until(lambda: at.pool.queued("sub") == 0, 300.0)
        assert sorted(claim.id for claim in scheduler.held().values()) == before
        assert len(at.pool.witness.starts) == 40
        order = [job for job, _, _ in at.pool.witness.starts]
        owners = {job.split(".")[0] for job in order[:8]}
        assert owners == {"1", "2"}, "both users had their turn (WR 6.1)"

    play(story, machines=0)


def test_w50_the_one_job_of_a_user_is_next_whatever_another_has_queued() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 20.0
        await at.pool.submit("head", count=100, ad=parallel(2))
        await at.pool.run_until(lambda: len(at.pool.witness.starts) >= 6, 300.0)
        number = await at.pool.submit("head", owner="bob", ad=parallel(2))
        before = len(at.pool.witness.starts)
        await at.runs(f"{number}.0", 60.0)
        between = {job for job, _, _ in at.pool.witness.starts[before:] if not job.startswith(f"{number}.")}
        assert not between, "the job that ran when bob's came is followed by bob's"
        at.pool.assert_sound()

    play(story)


def test_a_slot_counts_to_the_user_whose_job_runs_and_to_nobody_while_it_waits() -> None:
    """W12."""

    async def story(at: DedicatedStory) -> None:
        await at.pool.submit("head", owner="bob", ad=serial())
        await at.runs("1.0")
        await pause(2.0)
        assert told(at.pool, "slot1@m0")[0]["RemoteUser"] == "bob@head"
        uses = at.pool.role("head", "negotiator").accounting.usage
        await pause(2.0)
        assert uses.held_by("bob@head") == 1.0
        await at.pool.run_until(lambda: at.pool.queued("head") == 0)
        await pause(3.0)
        assert told(at.pool, "slot1@m0")[0]["RemoteUser"] == OURS
        assert (uses.held_by("bob@head"), uses.held_by(OURS), uses.uses[OURS].slots) == (0.0, 0.0, 1)

    play(story, machines=1)


def test_a_small_job_behind_a_waiting_head_does_not_overtake_it() -> None:
    """W17: an endless stream of small jobs does not starve the head."""

    async def story(at: DedicatedStory) -> None:
        await at.pool.submit("head", ad=serial())
        await at.runs("1.0")
        await at.pool.submit("head", ad=parallel(2))
        for _ in range(5):
            await at.pool.submit("head", ad=serial())
        await at.runs("2.0", 100.0)
        assert not any(at.started(f"{number}.0") for number in range(3, 8))
        await at.done(7)

    play(story, DEDICATED_ORDER="fifo", DEDICATED_BACKFILL="none")


def test_a_job_that_is_too_big_is_passed_over_and_runs_when_machines_are_added() -> None:
    """W18."""

    async def story(at: DedicatedStory) -> None:
        await at.pool.submit("head", ad=parallel(3))
        await at.pool.submit("head", ad=parallel(2))
        await at.runs("2.0")
        (skip,) = at.scheduler.decisions.skips
        assert (skip.job, skip.words) == ("1.0", "too big: 2 configured machines fit it, and it needs 3")
        await at.pool.run_until(lambda: "2.0" not in at.running(), 100.0)
        await at.machines(1, 2)
        await at.runs("1.0", 60.0)
        await at.done(2)

    play(story)


def test_unused_claims_are_released_after_a_while_and_not_before() -> None:
    """W26."""

    async def story(at: DedicatedStory) -> None:
        await at.pool.submit("head", ad=parallel(2))
        await at.pool.run_until(lambda: at.pool.queued("head") == 0, 100.0)
        await pause(50.0)
        assert len(at.held) == 2
        assert all(at.pool.role(name, "startd").slots["slot1"].condition == CLAIMED_IDLE for name in ("m0", "m1"))
        await at.pool.run_until(lambda: not at.held, 51.0)
        await at.pool.submit("head", count=2)
        await at.done(3)

    play(story)


def test_it_takes_machines_from_opportunistic_jobs_and_these_go_on_elsewhere() -> None:
    """W3, W14."""

    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 600.0
        await at.pool.submit("head", owner="carol", count=2)
        await at.pool.run_until(lambda: len(at.pool.witness.running) == 2)
        at.seconds["2.0"] = 30.0
        await at.pool.submit("head", ad=parallel(2))
        await at.runs("2.0", 60.0)
        assert at.running() == {"2.0"}
        await at.pool.run_until(lambda: "2.0" not in at.running(), 100.0)
        await at.done(3, 3000.0)

    play(story)


def test_nobody_preempts_a_dedicated_claim() -> None:
    """W3: neither a better priority nor a RANK of another's."""

    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 300.0
        await at.pool.submit("head", ad=serial())
        await at.runs("1.0")
        await at.pool.submit("head", owner="carol", ad={"JobPrio": 2**40, "Worth": 1e200})
        await pause(200.0)
        assert at.running() == {"1.0"}
        await at.done(2)
        assert len(at.started("1.0")) == 1

    play(story, machines=1, RANK="TARGET.Worth", PREEMPTION_REQUIREMENTS="true", PREEMPTION_MINIMUM_RUN="0")


def test_machines_of_another_scheduler_are_not_touched() -> None:
    """W6, W11: two schedulers, two machines each, a job of four."""

    async def story(at: DedicatedStory) -> None:
        await at.pool.add("other", "schedd")
        await at.machines(2, 2, DEDICATED_SCHEDULER="other")
        await at.pool.submit("head", ad=parallel(4))
        await at.pool.submit("head", ad=parallel(2))
        await at.pool.submit("other", ad=parallel(2))
        await at.pool.run_until(lambda: len(at.pool.witness.running) == 4, 60.0)
        assert {machine for job, machine in at.pool.witness.running.items() if job.startswith("2.")} == {"m0", "m1"}
        (skip,) = at.scheduler.decisions.skips
        assert skip.words == "too big: 2 configured machines fit it, and it needs 4"

    play(story)


def test_parallel_jobs_gather_as_they_come_where_no_machine_is_dedicated() -> None:
    async def story(at: DedicatedStory) -> None:
        await at.machines(2, DEDICATED_SCHEDULER="")
        await at.pool.submit("head", ad={**gang(2, apart=False), "WantParallelScheduling": True})
        await at.runs("1.0", 60.0)
        assert not at.held
        await at.pool.submit("head", ad=parallel(2))
        await pause(100.0)
        assert not at.started("2.0"), "it said itself that it wants dedicated machines"
        await at.machines(2, 2)
        await at.runs("2.0", 60.0)
        await at.done(2)

    play(story, machines=0)


def test_a_job_that_is_held_while_machines_are_claimed_gives_nothing_away() -> None:
    async def story(at: DedicatedStory) -> None:
        await at.pool.submit("head", ad=parallel(3))
        await at.pool.submit("head", ad=parallel(2))
        await at.runs("2.0")
        await at.pool.act("head", "alice", action="hold", ids=[[1], [2]])
        await at.pool.run_until(lambda: not at.running(), 30.0)
        await pause(1.0)
        assert len(at.held) == 2, "the claims are the scheduler's, not the job's"
        await at.pool.act("head", "alice", action="release", ids=[[2]])
        await at.runs("2.0", 5.0)
        await at.pool.act("head", "alice", action="remove", ids=[[1], [2]])
        await at.done(2)

    play(story)

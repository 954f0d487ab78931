"""The slot table against the papers' figure: what leads where, what is refused, and that it draws itself."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.policy import slots
from pool.policy.slots import (
    BUSY,
    CLAIMED_IDLE,
    CONDITIONS,
    DRAINED,
    KILLING,
    MATCHED,
    OWNER,
    RETIRING,
    SUSPENDED,
    TABLE,
    UNCLAIMED,
    VACATING,
    Activity,
    SlotAction,
    SlotCondition,
    SlotEvent,
    SlotState,
    SlotStateError,
    draw,
    next_condition,
    step,
)

WITH_A_JOB = slots.OCCUPIED


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [
        # EV 2.7, figure 2.7: NoJob, JobRunning, Suspended, Vacating, Killed.
        (CLAIMED_IDLE, SlotEvent.ACTIVATE, BUSY),
        (BUSY, SlotEvent.SUSPEND, SUSPENDED),
        (SUSPENDED, SlotEvent.CONTINUE, BUSY),
        (SUSPENDED, SlotEvent.VACATE, VACATING),
        (VACATING, SlotEvent.KILL, KILLING),
        (BUSY, SlotEvent.JOB_ENDS, CLAIMED_IDLE),
        (VACATING, SlotEvent.JOB_ENDS, OWNER),
        (KILLING, SlotEvent.JOB_ENDS, OWNER),
        # RL 3.2.2: match, claim, job after job.
        (UNCLAIMED, SlotEvent.MATCH, MATCHED),
        (MATCHED, SlotEvent.LAPSE, UNCLAIMED),
        (MATCHED, SlotEvent.CLAIM, CLAIMED_IDLE),
        (CLAIMED_IDLE, SlotEvent.RELEASE, UNCLAIMED),
        (CLAIMED_IDLE, SlotEvent.OWNER_RETURNS, OWNER),
        (RETIRING, SlotEvent.JOB_ENDS, OWNER),
        (OWNER, SlotEvent.DRAIN, DRAINED),
    ],
)
def test_the_papers_moves(before: SlotCondition, event: SlotEvent, after: SlotCondition) -> None:
    assert next_condition(before, event) == after


def test_every_pair_is_listed_or_refused_by_name() -> None:
    for condition, event in itertools.product(CONDITIONS, SlotEvent):
        if (condition, event) in TABLE:
            assert step(condition, event).after in CONDITIONS
        else:
            with pytest.raises(SlotStateError, match=f"cannot {event.value} a slot that is {condition}"):
                step(condition, event)


def test_a_refusal_says_what_is_possible() -> None:
    with pytest.raises(SlotStateError, match=r"cannot activate a slot that is Unclaimed Idle \(possible now: .*claim"):
        next_condition(UNCLAIMED, SlotEvent.ACTIVATE)


def test_only_known_conditions_occur() -> None:
    assert {before for before, _ in TABLE} | {found.after for found in TABLE.values()} == set(CONDITIONS)
    # Matched Busy and the like cannot be said.
    assert (SlotCondition(SlotState.MATCHED, Activity.BUSY), SlotEvent.LAPSE) not in TABLE


def test_every_condition_can_be_reached_and_left() -> None:
    reached = {OWNER}
    for _ in CONDITIONS:
        reached |= {found.after for (before, _), found in TABLE.items() if before in reached}
    assert reached == set(CONDITIONS)
    for condition in CONDITIONS:
        assert any(found.after != condition for (before, _), found in TABLE.items() if before == condition)


def test_a_job_comes_by_activation_and_goes_by_its_end() -> None:
    for (before, event), (after, action) in TABLE.items():
        if before not in WITH_A_JOB and after in WITH_A_JOB:
            started = (CLAIMED_IDLE, SlotEvent.ACTIVATE, BUSY, SlotAction.START_JOB)
            found = (OWNER, SlotEvent.FIND, BUSY, SlotAction.RESUME_JOB)
            assert (before, event, after, action) in (started, found)
        if before in WITH_A_JOB and after not in WITH_A_JOB:
            assert event is SlotEvent.JOB_ENDS


def test_preempting_never_turns_back() -> None:
    for (before, _), (after, _) in TABLE.items():
        if before.state is SlotState.PREEMPTING:
            assert after in (KILLING, OWNER)


def test_what_is_done_fits_the_move() -> None:
    for (before, event), (after, action) in TABLE.items():
        assert (action is SlotAction.KILL_JOB) == (after == KILLING and before != KILLING)
        assert (action is SlotAction.ASK_JOB) == (after == VACATING)
        assert (action is SlotAction.OFFER) == (after == UNCLAIMED)
        if action is SlotAction.END_CLAIM:
            assert before.state in (SlotState.CLAIMED, SlotState.PREEMPTING)
        if event is SlotEvent.RELEASE and before in WITH_A_JOB:
            assert after == KILLING


@given(st.lists(st.sampled_from(list(SlotEvent)), max_size=60))
def test_any_story_keeps_jobs_and_claims_apart(events: list[SlotEvent]) -> None:
    """Whatever happens in whatever order: no job without a claim, and no claim that a job outlives."""
    now, claim, job = OWNER, False, False
    for event in events:
        try:
            now, action = step(now, event)
        except SlotStateError:
            continue
        claim = claim or event in (SlotEvent.CLAIM, SlotEvent.FIND)
        job = job or event is SlotEvent.FIND
        job = (job or action is SlotAction.START_JOB) and event is not SlotEvent.JOB_ENDS
        if action is SlotAction.END_CLAIM or now == UNCLAIMED:
            claim = False
        assert job == (now in WITH_A_JOB)
        assert claim == (now.state in (SlotState.CLAIMED, SlotState.PREEMPTING))


def test_it_draws_itself() -> None:
    drawn = draw()
    assert drawn.startswith("stateDiagram-v2\n    [*] --> OwnerIdle\n")
    assert "    ClaimedBusy --> ClaimedSuspended: suspend\n" in drawn
    assert "    ClaimedBusy --> PreemptingKilling: kill, release\n" in drawn
    assert drawn.count(" --> ") == len({(before, found.after) for (before, _), found in TABLE.items()}) + 1
    assert len(slots.describe().splitlines()) == len(TABLE)

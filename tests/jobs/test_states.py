"""The job's state table: what it lists, what it refuses, and that every way out exists."""

from __future__ import annotations

import pytest

from pool.jobs.states import TABLE, Happening, JobStateError, JobStatus, JobTransition, QueueAction, draw, transition

S, H = JobStatus, Happening


def test_a_job_that_runs_to_its_end() -> None:
    state = S.IDLE
    actions = []
    for happening in (H.START, H.SUSPEND, H.CONTINUE, H.OUTPUT, H.EXIT):
        state, action = transition(state, happening)
        actions.append(action)
    assert state is S.COMPLETED
    assert actions == [
        QueueAction.WRITE_RUN,
        QueueAction.NONE,
        QueueAction.NONE,
        QueueAction.NONE,
        QueueAction.ENTER_HISTORY,
    ]


@pytest.mark.parametrize("state", [S.RUNNING, S.SUSPENDED, S.TRANSFERRING_OUTPUT])
@pytest.mark.parametrize("happening", [H.EVICT, H.LOST, H.REQUEUE])
def test_a_lost_machine_puts_the_job_back(state: JobStatus, happening: Happening) -> None:
    assert transition(state, happening) == JobTransition(S.IDLE, QueueAction.END_RUN)


def test_the_start_is_written_first_and_nothing_else_leads_to_a_machine() -> None:
    into = {(s, h) for (s, h), m in TABLE.items() if m.next.has_machine and not s.has_machine}
    assert into == {(S.IDLE, H.START)}
    assert TABLE[S.IDLE, H.START].action is QueueAction.WRITE_RUN


def test_every_end_of_a_run_is_accounted() -> None:
    for (state, _), found in TABLE.items():
        if state.has_machine and not found.next.has_machine:
            assert found.action in (QueueAction.END_RUN, QueueAction.ENTER_HISTORY)
        assert (found.action is QueueAction.ENTER_HISTORY) == found.next.final


def test_final_states_stay() -> None:
    for state in (S.COMPLETED, S.REMOVED):
        for happening in H:
            if (state, happening) == (S.COMPLETED, H.LEAVE):
                continue
            with pytest.raises(JobStateError, match="leave" if state is S.COMPLETED else "it has left the queue"):
                transition(state, happening)


def test_every_state_that_is_not_final_can_be_removed_and_every_state_reached() -> None:
    for state in S:
        assert ((state, H.REMOVE) in TABLE) == (not state.final)
    assert {found.next for found in TABLE.values()} == set(S)


def test_what_cannot_happen_is_said() -> None:
    with pytest.raises(JobStateError) as caught:
        transition(S.HELD, H.START)
    assert caught.value.message == "cannot start a job that is held"
    assert caught.value.hint == "possible now: release, remove"


def test_letters_and_numbers_are_the_known_ones() -> None:
    assert "".join(state.letter for state in S) == "IRXCH>S"
    assert [int(state) for state in S] == list(range(1, 8))


def test_it_draws_itself() -> None:
    drawing = draw()
    assert drawing.startswith("stateDiagram-v2\n    [*] --> IDLE\n")
    assert "    IDLE --> RUNNING: start\n" in drawing
    assert drawing.count(" --> ") == len({(s, m.next) for (s, _), m in TABLE.items()}) + 3

"""The starter's table against VS figure 3.5, table 3.1 and appendix B: every event in every state has an answer."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.policy import starter
from pool.policy.starter import (
    ASYNCHRONOUS,
    TABLE,
    Event,
    Machine,
    StartAction,
    StarterStateError,
    StartState,
    draw,
    step,
)

#: Table 3.1, by the names of appendix B.
PAPERS = {"GET_PROC", "SUSPEND", "CONTINUE", "VACATE", "ALARM", "DIE", "CHILD_EXIT", "CKPT_AND_VACATE"}
#: Where processes of the job may be.
WITH_PROCESSES = {
    StartState.SPAWN_ALL,
    StartState.SUPERVISE,
    StartState.SUSPENDED,
    StartState.UPDATE,
    StartState.UPDATE_SUSPENDED,
    StartState.UPDATE_QUIT,
    StartState.TERMINATE,
    StartState.KILLED,
}
#: The states of a job that has to leave.
LEAVING = {
    StartState.LEAVE_EARLY,
    StartState.UPDATE_QUIT,
    StartState.SEND_CKPT,
    StartState.TERMINATE,
    StartState.KILLED,
    StartState.PROC_EXIT_QUIT,
}


def ran(*events: Event) -> tuple[StartState, list[StartAction]]:
    """Where a running job gets by these events, and what is done last."""
    machine = Machine()
    last: list[StartAction] = []
    for event in (Event.DEFAULT, Event.SUCCESS, Event.SUCCESS, *events):
        last = machine.handle_event(event)
    return machine.state, last


def test_table_31_is_all_there() -> None:
    assert {event.value for event in ASYNCHRONOUS} >= PAPERS


def test_every_state_answers_every_asynchronous_event() -> None:
    for state, event in itertools.product(StartState, ASYNCHRONOUS):
        assert isinstance(step(state, event).action, StartAction)


def test_every_state_but_the_last_has_a_way_on() -> None:
    for state in StartState:
        leads = {after for (before, _), (after, _) in TABLE.items() if before is state} - {state}
        assert bool(leads) == (state is not StartState.END)


def test_every_state_is_reached() -> None:
    reached, rest = {StartState.START}, [StartState.START]
    while rest:
        now = rest.pop()
        for (before, _), (after, _) in TABLE.items():
            if before is now and after not in reached:
                reached.add(after)
                rest.append(after)
    assert reached == set(StartState)


def test_a_synchronous_event_out_of_place_is_a_defect() -> None:
    with pytest.raises(StarterStateError, match="a starter in state supervise cannot come to 'has output'"):
        step(StartState.SUPERVISE, Event.HAS_OUTPUT)


@pytest.mark.parametrize(
    ("events", "state", "action"),
    [
        # 3.6.2: the alarm, or a wish to have the machine back; then the checkpoints go to the submit side, then the
        # status.
        ((Event.ALARM,), StartState.UPDATE, StartAction.DUMP),
        ((Event.ALARM, Event.CKPT_DONE), StartState.SUPERVISE, StartAction.SUPERVISE),
        ((Event.CKPT_AND_VACATE,), StartState.UPDATE_QUIT, StartAction.DUMP_LAST),
        ((Event.CKPT_AND_VACATE, Event.CKPT_DONE), StartState.SEND_CKPT, StartAction.CARRY),
        ((Event.CKPT_AND_VACATE, Event.CKPT_DONE, Event.SUCCESS), StartState.SEND_STATUS, StartAction.TELL),
        # Appendix B: VACATE terminates, DIE at once, ALARM in a job that leaves kills it.
        ((Event.VACATE,), StartState.TERMINATE, StartAction.ASK),
        ((Event.VACATE, Event.ALARM), StartState.KILLED, StartAction.KILL),
        ((Event.DIE,), StartState.KILLED, StartAction.KILL),
        ((Event.SUSPEND,), StartState.SUSPENDED, StartAction.STOP),
        ((Event.SUSPEND, Event.CONTINUE), StartState.SUPERVISE, StartAction.RESUME),
        ((Event.SUSPEND, Event.VACATE), StartState.TERMINATE, StartAction.ASK),
        # 3.6.3: the reason of an end is examined, then reported.
        ((Event.CHILD_EXIT,), StartState.PROC_EXIT, StartAction.EXAMINE),
        ((Event.CHILD_EXIT, Event.HAS_OUTPUT), StartState.SEND_OUTPUT, StartAction.BRING),
        ((Event.CHILD_EXIT, Event.DEFAULT, Event.SUCCESS), StartState.END, StartAction.CLEAN),
        ((Event.GET_PROC,), StartState.SUPERVISE, StartAction.LEARN),
        # Beyond the papers: a checkpoint does not keep the owner waiting, and a failed one loses no time.
        ((Event.ALARM, Event.SUSPEND), StartState.UPDATE_SUSPENDED, StartAction.STOP),
        ((Event.ALARM, Event.SUSPEND, Event.CKPT_DONE), StartState.SUSPENDED, StartAction.SUPERVISE),
        ((Event.CKPT_AND_VACATE, Event.CKPT_FAILED), StartState.TERMINATE, StartAction.ASK),
        ((Event.CKPT_AND_VACATE, Event.DIE), StartState.UPDATE_QUIT, StartAction.KILL),
        ((Event.CHILD_EXIT, Event.SAVED_ITSELF, Event.SUCCESS), StartState.SPAWN_ALL, StartAction.SPAWN),
    ],
)
def test_the_papers_ways(events: tuple[Event, ...], state: StartState, action: StartAction) -> None:
    assert ran(*events) == (state, [action])


def test_a_job_that_leaves_before_it_began_is_not_started() -> None:
    machine = Machine()
    machine.handle_event(Event.DEFAULT)
    machine.handle_event(Event.VACATE)
    assert machine.handle_event(Event.SUCCESS) == [StartAction.TELL]


def test_what_is_wished_during_the_start_is_answered_when_the_program_runs() -> None:
    machine = Machine()
    for event in (Event.DEFAULT, Event.SUSPEND, Event.SUCCESS):
        machine.handle_event(event)
    assert machine.handle_event(Event.SUCCESS) == [StartAction.SUPERVISE, StartAction.STOP]
    assert machine.state is StartState.SUSPENDED


def test_a_job_that_saves_itself_when_it_is_asked_to_leave_leaves() -> None:
    assert ran(Event.VACATE, Event.CHILD_EXIT, Event.SAVED_ITSELF) == (StartState.SEND_CKPT, [StartAction.CARRY])


def test_the_strongest_wish_comes_first_and_a_continue_takes_a_suspend_back() -> None:
    machine = Machine()
    for event in (Event.DEFAULT, Event.SUCCESS, Event.SUSPEND, Event.VACATE, Event.DIE, Event.CONTINUE):
        machine.handle_event(event)
    assert machine.handle_event(Event.SUCCESS) == [StartAction.SUPERVISE, StartAction.KILL]
    assert not machine.kept


def test_the_last_checkpoint_waits_for_the_one_under_way() -> None:
    assert ran(Event.ALARM, Event.CKPT_AND_VACATE)[0] is StartState.UPDATE
    assert ran(Event.ALARM, Event.CKPT_AND_VACATE, Event.CKPT_DONE) == (
        StartState.UPDATE_QUIT,
        [StartAction.SUPERVISE, StartAction.DUMP_LAST],
    )


def test_an_end_during_a_last_checkpoint_that_fails_is_an_end_like_any_other() -> None:
    state, last = ran(Event.CKPT_AND_VACATE, Event.CHILD_EXIT, Event.CKPT_FAILED)
    assert (state, last[-1]) == (StartState.PROC_EXIT_QUIT, StartAction.EXAMINE)


def test_a_job_that_saved_itself_and_has_to_leave_is_not_started_again() -> None:
    assert ran(Event.CHILD_EXIT, Event.SAVED_ITSELF, Event.VACATE, Event.SUCCESS)[0] is StartState.SEND_STATUS
    assert ran(Event.CHILD_EXIT, Event.VACATE, Event.SAVED_ITSELF, Event.SUCCESS)[0] is StartState.SEND_STATUS


@given(st.data())
def test_any_story(data: st.DataObject) -> None:
    """Whatever comes in whatever order: DIE kills wherever there are processes, and nobody who leaves comes back."""
    machine = Machine()
    left = False
    for _ in range(40):
        before = machine.state
        own = [event for event in Event if event not in ASYNCHRONOUS and (before, event) in TABLE]
        event = data.draw(st.sampled_from([*own, *own, *ASYNCHRONOUS]))
        actions = machine.handle_event(event)
        left = left or machine.state in LEAVING
        if event is Event.DIE and before in WITH_PROCESSES - {StartState.SPAWN_ALL}:
            assert StartAction.KILL in actions
        if left:
            assert machine.state not in (
                StartState.SUPERVISE,
                StartState.SUSPENDED,
                StartState.UPDATE,
                StartState.SPAWN_ALL,
            )
        if machine.state is StartState.END:
            assert before is StartState.END or StartAction.CLEAN in actions


def test_the_drawing_and_the_table_agree() -> None:
    name = {state.name.title().replace("_", ""): state for state in StartState}
    drawn = {
        (name[a], Event(event), name[b])
        for a, b, events in re.findall(r"^    (\w+) --> (\w+): (.+)$", draw(), re.MULTILINE)
        for event in events.split(", ")
    }
    moves = {(before, event, after) for (before, event), (after, _) in TABLE.items() if before is not after}
    assert drawn == moves
    assert {state for row in starter.answers() for state in StartState if row[0] == state} == set(StartState)

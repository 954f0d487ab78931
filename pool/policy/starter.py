"""The starter's state machine: the states of one start of a job, and an answer to everything that can happen to it.

Control is kept apart from action (VS 3.6): this table says what follows, and `pool.starter.starter` and
`pool.roles.startd` do it. States, events and the two flags are those of VS figure 3.5, table 3.1 and appendix B, as far
as they exist today. The keeper does what was done there by dumping core.

Rules:

1.  *Synchronous* events come from what a state does (success, failure, ...), each from the states that do it; one that
    the table does not list is a defect. *Asynchronous* ones (table 3.1) come at any time, and every state answers
    each: it moves, or does something, or keeps the event for the next state that can act on it, or has no use for it.
2.  While files are fetched or the program is started, what is asked for is kept, the strongest first when the program
    runs: DIE before VACATE before CKPT_AND_VACATE before SUSPEND. A CONTINUE takes a kept SUSPEND back.
3.  The flag QUIT of appendix B is part of the state: LEAVE_EARLY, UPDATE_QUIT, SEND_CKPT, TERMINATE, KILLED and
    PROC_EXIT_QUIT do not lead back to a running program. A job that has to leave leaves.
4.  The flag XFER is the choice between VACATE and CKPT_AND_VACATE, which is the owner's and the job's
    (`policy.checkpoints.before_leaving`); a checkpoint that fails on the way out becomes a VACATE.
5.  DIE kills at once wherever processes of the job are. A checkpoint that is whole by then is sent all the same:
    nothing runs on the machine any more.
6.  A checkpoint does not stop the job from being suspended, or from ending: the keeper writes it beside the job.
7.  ALARM is the time of a periodic checkpoint while the job runs, and the end of its patience while it is to leave
    (appendix B); the keeper counts the latter by itself.
8.  GET_PROC asks the submit side what is to be run (table 3.1). A start carries that with it; it is asked again by a
    node that was restarted and found the job by its keeper.

::

    START -> GET_EXEC -> SPAWN_ALL -> SUPERVISE <-> SUSPENDED      the job, and its owner's wishes
                                         | ^
                                    ALARM| |success
                                         v |
                                        UPDATE                     a checkpoint beside it
    SUPERVISE -> UPDATE_QUIT -> SEND_CKPT ---------.               the last one
    SUPERVISE -> TERMINATE -> KILLED -> PROC_EXIT_QUIT
                                            |
    SUPERVISE -> PROC_EXIT -> SEND_OUTPUT --+-----+-> SEND_STATUS -> END
                           -> SEND_OWN -> SPAWN_ALL                it has written a checkpoint itself, and goes on
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from pool.errors import PoolError


class StartState(StrEnum):
    """Where a start of a job is."""

    START = "start"
    GET_EXEC = "get_exec"
    LEAVE_EARLY = "leave_early"
    SPAWN_ALL = "spawn_all"
    SUPERVISE = "supervise"
    SUSPENDED = "suspended"
    UPDATE = "update"
    UPDATE_SUSPENDED = "update_suspended"
    UPDATE_QUIT = "update_quit"
    SEND_CKPT = "send_ckpt"
    TERMINATE = "terminate"
    KILLED = "killed"
    PROC_EXIT = "proc_exit"
    PROC_EXIT_QUIT = "proc_exit_quit"
    SEND_OWN = "send_own"
    SEND_OUTPUT = "send_output"
    SEND_STATUS = "send_status"
    END = "end"


class Event(StrEnum):
    """The events that move it."""

    # synchronous
    DEFAULT = "default"
    SUCCESS = "success"
    FAILURE = "failure"
    FOUND = "found"  # its keeper outlived the node
    SAVED_ITSELF = "saved itself"  # it ended with the code that says it wrote a checkpoint
    HAS_OUTPUT = "has output"
    # asynchronous
    VACATE = "VACATE"
    CKPT_AND_VACATE = "CKPT_AND_VACATE"
    DIE = "DIE"
    SUSPEND = "SUSPEND"
    CONTINUE = "CONTINUE"
    ALARM = "ALARM"
    CHECKPOINT = "CHECKPOINT"  # on demand, and the job goes on
    CKPT_DONE = "CKPT_DONE"  # a checkpoint is whole; one beside the job is on the submit side
    CKPT_FAILED = "CKPT_FAILED"
    CHILD_EXIT = "CHILD_EXIT"  # no process of the job is left
    GET_PROC = "GET_PROC"


class StartAction(StrEnum):
    """The work that a move asks for."""

    NOTHING = "nothing"
    KEEP = "keep it for later"
    FETCH = "fetch files, executable and checkpoint"
    SPAWN = "have the keeper start the program"
    SUPERVISE = "set the time of the next checkpoint"
    STOP = "stop the processes where they are"
    RESUME = "let the processes go on"
    DUMP = "have the keeper save the job while it runs"
    DUMP_LAST = "have the keeper save the job and end it"
    CARRY = "send the checkpoint to the submit side"
    ASK = "signal the job softly"
    KILL = "kill the processes"
    EXAMINE = "find out how it ended"
    BRING = "send the outputs to the submit side"
    TELL = "report the end"
    CLEAN = "remove all traces of the job"
    LEARN = "take over the data of the job's start"


class StartTransition(NamedTuple):
    """Where an event leads, and what is to be done."""

    after: StartState
    action: StartAction


class StarterStateError(PoolError):
    """An event that cannot happen to a starter in its state."""


#: Where it is to be said how the program ended.
EXAMINED = frozenset({StartState.PROC_EXIT, StartState.PROC_EXIT_QUIT})
#: In the order in which they are answered when several were kept.
ASYNCHRONOUS = (
    Event.CKPT_DONE,
    Event.CKPT_FAILED,
    Event.CHILD_EXIT,
    Event.DIE,
    Event.VACATE,
    Event.CKPT_AND_VACATE,
    Event.SUSPEND,
    Event.CONTINUE,
    Event.CHECKPOINT,
    Event.ALARM,
    Event.GET_PROC,
)
_S, _E, _A = StartState, Event, StartAction

_SYNCHRONOUS: tuple[tuple[StartState, Event, StartState, StartAction], ...] = (
    (_S.START, _E.DEFAULT, _S.GET_EXEC, _A.FETCH),
    (_S.START, _E.FOUND, _S.SUPERVISE, _A.RESUME),
    (_S.START, _E.FAILURE, _S.SEND_STATUS, _A.TELL),
    (_S.GET_EXEC, _E.SUCCESS, _S.SPAWN_ALL, _A.SPAWN),
    (_S.GET_EXEC, _E.FAILURE, _S.SEND_STATUS, _A.TELL),
    (_S.LEAVE_EARLY, _E.DEFAULT, _S.LEAVE_EARLY, _A.NOTHING),
    (_S.LEAVE_EARLY, _E.SUCCESS, _S.SEND_STATUS, _A.TELL),
    (_S.LEAVE_EARLY, _E.FAILURE, _S.SEND_STATUS, _A.TELL),
    (_S.SPAWN_ALL, _E.SUCCESS, _S.SUPERVISE, _A.SUPERVISE),
    (_S.SPAWN_ALL, _E.FAILURE, _S.SEND_STATUS, _A.TELL),
    (_S.SEND_CKPT, _E.SUCCESS, _S.SEND_STATUS, _A.TELL),
    (_S.SEND_CKPT, _E.FAILURE, _S.SEND_STATUS, _A.TELL),
    (_S.PROC_EXIT, _E.SAVED_ITSELF, _S.SEND_OWN, _A.CARRY),
    (_S.PROC_EXIT, _E.HAS_OUTPUT, _S.SEND_OUTPUT, _A.BRING),
    (_S.PROC_EXIT, _E.DEFAULT, _S.SEND_STATUS, _A.TELL),
    (_S.PROC_EXIT_QUIT, _E.SAVED_ITSELF, _S.SEND_CKPT, _A.CARRY),
    (_S.PROC_EXIT_QUIT, _E.HAS_OUTPUT, _S.SEND_OUTPUT, _A.BRING),
    (_S.PROC_EXIT_QUIT, _E.DEFAULT, _S.SEND_STATUS, _A.TELL),
    (_S.SEND_OWN, _E.SUCCESS, _S.SPAWN_ALL, _A.SPAWN),
    (_S.SEND_OWN, _E.FAILURE, _S.SEND_STATUS, _A.TELL),
    (_S.SEND_OUTPUT, _E.SUCCESS, _S.SEND_STATUS, _A.TELL),
    (_S.SEND_OUTPUT, _E.FAILURE, _S.SEND_STATUS, _A.TELL),
    (_S.SEND_STATUS, _E.SUCCESS, _S.END, _A.CLEAN),
)

_NO = StartAction.NOTHING, None
_KEEP = StartAction.KEEP, None
_Answer = tuple[StartAction, StartState | None]


def _go_to(state: StartState, action: StartAction) -> _Answer:
    return action, state


_LEARN: _Answer = (StartAction.LEARN, None)
_EXIT = _go_to(_S.PROC_EXIT, _A.EXAMINE)
_EXIT_QUIT = _go_to(_S.PROC_EXIT_QUIT, _A.EXAMINE)
_QUIT = _go_to(_S.PROC_EXIT_QUIT, _A.NOTHING)
_ASK = _go_to(_S.TERMINATE, _A.ASK)
_KILL = _go_to(_S.KILLED, _A.KILL)
_LAST = _go_to(_S.UPDATE_QUIT, _A.DUMP_LAST)
_EARLY = _go_to(_S.LEAVE_EARLY, _A.NOTHING)
_LEAVE_ONLY = _go_to(_S.SEND_CKPT, _A.NOTHING)

#: Each state's answers, in the order of ASYNCHRONOUS.
_ANSWERS: dict[StartState, tuple[_Answer, ...]] = {
    # CKPT_DONE, CKPT_FAILED, CHILD_EXIT
    # DIE, VACATE, CKPT_AND_VACATE
    # SUSPEND, CONTINUE
    # CHECKPOINT, ALARM, GET_PROC
    _S.START: (
        *(_NO, _NO, _NO),
        *(_EARLY, _EARLY, _EARLY),
        *(_KEEP, _KEEP),
        *(_NO, _NO, _NO),
    ),
    _S.GET_EXEC: (
        *(_NO, _NO, _NO),
        *(_EARLY, _EARLY, _EARLY),
        *(_KEEP, _KEEP),
        *(_NO, _NO, _NO),
    ),
    _S.LEAVE_EARLY: (_NO,) * len(ASYNCHRONOUS),
    _S.SPAWN_ALL: (
        *(_NO, _NO, _KEEP),
        *(_KEEP, _KEEP, _KEEP),
        *(_KEEP, _KEEP),
        *(_NO, _NO, _NO),
    ),
    _S.SUPERVISE: (
        *(_NO, _NO, _EXIT),
        *(_KILL, _ASK, _LAST),
        *(_go_to(_S.SUSPENDED, _A.STOP), _NO),
        *(_go_to(_S.UPDATE, _A.DUMP), _go_to(_S.UPDATE, _A.DUMP), _LEARN),
    ),
    _S.SUSPENDED: (
        *(_NO, _NO, _EXIT),
        *(_KILL, _ASK, _LAST),
        *(_NO, _go_to(_S.SUPERVISE, _A.RESUME)),
        *(_go_to(_S.UPDATE_SUSPENDED, _A.DUMP), (_A.SUPERVISE, None), _LEARN),
    ),
    _S.UPDATE: (
        *(_go_to(_S.SUPERVISE, _A.SUPERVISE), _go_to(_S.SUPERVISE, _A.SUPERVISE), _EXIT),
        *(_KILL, _ASK, _KEEP),
        *(_go_to(_S.UPDATE_SUSPENDED, _A.STOP), _NO),
        *(_NO, _NO, _LEARN),
    ),
    _S.UPDATE_SUSPENDED: (
        *(_go_to(_S.SUSPENDED, _A.SUPERVISE), _go_to(_S.SUSPENDED, _A.SUPERVISE), _EXIT),
        *(_KILL, _ASK, _KEEP),
        *(_NO, _go_to(_S.UPDATE, _A.RESUME)),
        *(_NO, _NO, _LEARN),
    ),
    _S.UPDATE_QUIT: (
        *(_go_to(_S.SEND_CKPT, _A.CARRY), _ASK, _KEEP),
        *((_A.KILL, None), _NO, _NO),
        *(_NO, _NO),
        *(_NO, (_A.KILL, None), _LEARN),
    ),
    _S.SEND_CKPT: (*(_NO,) * 10, _LEARN),
    _S.TERMINATE: (
        *(_NO, _NO, _EXIT_QUIT),
        *(_KILL, _NO, _NO),
        *(_NO, _NO),
        *(_NO, _KILL, _LEARN),
    ),
    _S.KILLED: (
        *(_NO, _NO, _EXIT_QUIT),
        *((_A.KILL, None), _NO, _NO),
        *(_NO, _NO),
        *(_NO, (_A.KILL, None), _LEARN),
    ),
    _S.PROC_EXIT: (
        *(_NO, _NO, _NO),
        *(_QUIT, _QUIT, _QUIT),
        *(_KEEP, _KEEP),
        *(_NO, _NO, _LEARN),
    ),
    _S.PROC_EXIT_QUIT: (*(_NO,) * 10, _LEARN),
    _S.SEND_OWN: (
        *(_NO, _NO, _NO),
        *(_LEAVE_ONLY, _LEAVE_ONLY, _LEAVE_ONLY),
        *(_KEEP, _KEEP),
        *(_NO, _NO, _LEARN),
    ),
    _S.SEND_OUTPUT: (*(_NO,) * 10, _LEARN),
    _S.SEND_STATUS: (*(_NO,) * 10, _LEARN),
    _S.END: (_NO,) * len(ASYNCHRONOUS),
}

TABLE: dict[tuple[StartState, Event], StartTransition] = {
    (before, event): StartTransition(after, action) for before, event, after, action in _SYNCHRONOUS
} | {
    (state, event): StartTransition(after or state, action)
    for state, answers in _ANSWERS.items()
    for event, (action, after) in zip(ASYNCHRONOUS, answers, strict=True)
}


def step(now: StartState, event: Event) -> StartTransition:
    """Where an event leads and what is to be done.

    Raises:
        StarterStateError: a synchronous event that this state does not come to.
    """
    found = TABLE.get((now, event))
    if found is None:
        possible = ", ".join(listed.value for (before, listed) in TABLE if before is now)
        raise StarterStateError(f"a starter in state {now} cannot come to '{event}'", hint=f"possible now: {possible}")
    return found


class Machine:
    """The state of one start, with the events that were kept for later. Plain state: what is to be done is answered,
    and done by whoever asked.
    """

    def __init__(self) -> None:
        self.state = StartState.START
        self.kept: set[Event] = set()

    def handle_event(self, event: Event) -> list[StartAction]:
        """Take an event in: what is to be done about it, and about what was kept and can be answered now.

        Raises:
            StarterStateError: a synchronous event that the state does not come to.
        """
        actions = self._apply_event(event)
        while (due := self._due()) is not None:
            self.kept.discard(due)
            actions += self._apply_event(due)
        return actions

    def _apply_event(self, event: Event) -> list[StartAction]:
        after, action = step(self.state, event)
        self.state = after
        if action is StartAction.KEEP:
            self._postpone(event)
            return []
        return [] if action is StartAction.NOTHING else [action]

    def _postpone(self, event: Event) -> None:
        if event is Event.CONTINUE:
            self.kept.discard(Event.SUSPEND)
        else:
            self.kept.add(event)

    def _due(self) -> Event | None:
        """The strongest kept event that the state does not keep."""
        for event in ASYNCHRONOUS:
            if event in self.kept and step(self.state, event).action is not StartAction.KEEP:
                return event
        return None


def draw() -> str:
    """The table as a Mermaid state diagram: what leads from one state to another. Asynchronous events in capitals."""
    arrows: dict[tuple[StartState, StartState], list[str]] = {}
    for (before, event), (after, _) in TABLE.items():
        if before is not after:
            arrows.setdefault((before, after), []).append(event.value)
    lines = ["stateDiagram-v2", f"    [*] --> {_label(StartState.START)}"]
    lines += [f'    state "{state}" as {_label(state)}' for state in StartState]
    lines += [f"    {_label(a)} --> {_label(b)}: {', '.join(events)}" for (a, b), events in arrows.items()]
    return "\n".join([*lines, f"    {_label(StartState.END)} --> [*]"]) + "\n"


def moves() -> list[tuple[str, ...]]:
    """The moves from one state to another, for the docs: from, event, to, action."""
    return [
        (before.value, event.value, after.value, action.value)
        for (before, event), (after, action) in TABLE.items()
        if before is not after
    ]


def answers() -> list[tuple[str, ...]]:
    """The answer of every state to every asynchronous event, for the docs: a row for each state; `-` for no use for
    it.
    """
    return [(state.value, *(_answer(state, event) for event in ASYNCHRONOUS)) for state in StartState]


def _answer(state: StartState, event: Event) -> str:
    after, action = TABLE[state, event]
    if action is StartAction.KEEP:
        return "keep"
    if after is not state:
        return f"**{after}**"
    return "-" if action is StartAction.NOTHING else action.value


def _label(state: StartState) -> str:
    return state.name.title().replace("_", "")

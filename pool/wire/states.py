"""The states of the protocol, as tables. What a table does not list is a fault of who sent it.

FRAMES   (phase, frame)     which frames the other side may send when
HALVES   (half, step)       what a step that one side sends makes of its half of a stream
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """Where a connection is, seen from one side."""

    GREETING = 0  # the other side has not said hello
    IDENTIFYING = 1  # it has; who it is is being found out (only where we were connected to)
    READY = 2
    CLOSED = 3


class Frame(IntEnum):
    """What the other side can send."""

    HELLO = 0
    BYE = 1
    REQUEST = 2
    REPLY = 3
    NOTIFICATION = 4
    CANCEL = 5
    STREAM = 6


FRAMES: frozenset[tuple[Phase, Frame]] = frozenset(
    {
        (Phase.GREETING, Frame.HELLO),
        (Phase.GREETING, Frame.BYE),
        (Phase.IDENTIFYING, Frame.BYE),
        (Phase.READY, Frame.BYE),
        (Phase.READY, Frame.REQUEST),
        (Phase.READY, Frame.REPLY),
        (Phase.READY, Frame.NOTIFICATION),
        (Phase.READY, Frame.CANCEL),
        (Phase.READY, Frame.STREAM),
    }
)


class Half(IntEnum):
    """One side's half of a stream."""

    OPEN = 0
    FINISHED = 1  # sends no more items
    ENDED = 2  # is done with the stream


class Step(IntEnum):
    """What a stream frame says."""

    OPEN = 0
    ITEM = 1
    CREDIT = 2
    FINISH = 3
    END = 4


HALVES: dict[tuple[Half, Step], Half] = {
    (Half.OPEN, Step.ITEM): Half.OPEN,
    (Half.OPEN, Step.CREDIT): Half.OPEN,
    (Half.OPEN, Step.FINISH): Half.FINISHED,
    (Half.OPEN, Step.END): Half.ENDED,
    (Half.FINISHED, Step.CREDIT): Half.FINISHED,
    (Half.FINISHED, Step.END): Half.ENDED,
}

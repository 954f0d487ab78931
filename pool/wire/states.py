"""The states of the protocol, as tables. A frame that a table does not list is a fault of its sender.

FRAMES   (phase, frame)     which frames the other side may send when
HALVES   (half, step)       what a step that one side sends makes of its half of a stream
"""

from __future__ import annotations

from enum import IntEnum


class ConnectionPhase(IntEnum):
    """Where a connection is, seen from one side."""

    GREETING = 0  # the other side has not said hello
    IDENTIFYING = 1  # it has; who it is is being found out (only where we were connected to)
    READY = 2
    CLOSED = 3


class FrameKind(IntEnum):
    """The frames that the other side can send."""

    HELLO = 0
    BYE = 1
    REQUEST = 2
    REPLY = 3
    NOTIFICATION = 4
    CANCEL = 5
    STREAM = 6


FRAMES: frozenset[tuple[ConnectionPhase, FrameKind]] = frozenset(
    {
        (ConnectionPhase.GREETING, FrameKind.HELLO),
        (ConnectionPhase.GREETING, FrameKind.BYE),
        (ConnectionPhase.IDENTIFYING, FrameKind.BYE),
        (ConnectionPhase.READY, FrameKind.BYE),
        (ConnectionPhase.READY, FrameKind.REQUEST),
        (ConnectionPhase.READY, FrameKind.REPLY),
        (ConnectionPhase.READY, FrameKind.NOTIFICATION),
        (ConnectionPhase.READY, FrameKind.CANCEL),
        (ConnectionPhase.READY, FrameKind.STREAM),
    }
)


class StreamHalf(IntEnum):
    """One side's half of a stream."""

    OPEN = 0
    FINISHED = 1  # sends no more items
    ENDED = 2  # is done with the stream


class StreamStep(IntEnum):
    """The kinds of a stream frame."""

    OPEN = 0
    ITEM = 1
    CREDIT = 2
    FINISH = 3
    END = 4


HALVES: dict[tuple[StreamHalf, StreamStep], StreamHalf] = {
    (StreamHalf.OPEN, StreamStep.ITEM): StreamHalf.OPEN,
    (StreamHalf.OPEN, StreamStep.CREDIT): StreamHalf.OPEN,
    (StreamHalf.OPEN, StreamStep.FINISH): StreamHalf.FINISHED,
    (StreamHalf.OPEN, StreamStep.END): StreamHalf.ENDED,
    (StreamHalf.FINISHED, StreamStep.CREDIT): StreamHalf.FINISHED,
    (StreamHalf.FINISHED, StreamStep.END): StreamHalf.ENDED,
}

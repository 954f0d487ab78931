"""Job events as data."""

from __future__ import annotations

import msgpack
import pytest

from pool.jobs.events import WHOLE_CLUSTER, EventKind, JobEvent


@pytest.mark.parametrize("kind", EventKind)
def test_the_wire_keeps_an_event(kind: EventKind) -> None:
    event = JobEvent(7, 12, 3, kind, 1234.5, {"why": "so", "code": 3})
    assert JobEvent.from_wire(msgpack.unpackb(msgpack.packb(event.to_wire()))) == event


def test_an_event_not_stored_yet_has_no_number() -> None:
    event = JobEvent(None, 1, WHOLE_CLUSTER, EventKind.SUBMIT, 0.0)
    assert JobEvent.from_wire(event.to_wire()) == event


@pytest.mark.parametrize("wire", [{}, {"number": 1, "cluster": 1, "proc": 0, "kind": "NEWER", "time": 0, "data": {}}])
def test_what_is_no_event_is_refused(wire: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no job event"):
        JobEvent.from_wire(wire)


def test_whom_it_concerns() -> None:
    one = JobEvent(1, 5, 2, EventKind.EXECUTE, 0.0)
    every = JobEvent(2, 5, WHOLE_CLUSTER, EventKind.SUBMIT, 0.0)
    assert one.concerns(5)
    assert one.concerns(5, 2)
    assert not one.concerns(5, 3)
    assert not one.concerns(6)
    assert every.concerns(5, 3)
    assert every.for_proc(3).proc == 3


def test_numbers_and_ends() -> None:
    assert len({kind.code for kind in EventKind}) == len(EventKind)
    assert {kind for kind in EventKind if kind.ends} == {EventKind.TERMINATED, EventKind.ABORTED}
    assert str(EventKind.SUBMIT) == "SUBMIT"

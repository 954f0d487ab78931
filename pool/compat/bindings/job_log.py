"""The look-alike `JobEventLog` and `JobEvent`: a user's event log, from its file."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pool.compat.bindings.connections import LookIOProblem
from pool.compat.bindings.enums import LookJobEventType
from pool.compat.event_log import LoggedEvent, LogReader
from pool.outside import OutsideWorld

#: Seconds between two looks at a log that is quiet.
LOOK = 0.1
_NAMES = {
    0: "SubmitEvent",
    1: "ExecuteEvent",
    2: "ExecutableErrorEvent",
    3: "CheckpointedEvent",
    4: "JobEvictedEvent",
    5: "JobTerminatedEvent",
    6: "JobImageSizeEvent",
    7: "ShadowExceptionEvent",
    8: "GenericEvent",
    9: "JobAbortedEvent",
    10: "JobSuspendedEvent",
    11: "JobUnsuspendedEvent",
    12: "JobHeldEvent",
    13: "JobReleaseEvent",
    14: "NodeExecuteEvent",
    15: "NodeTerminatedEvent",
    16: "PostScriptTerminatedEvent",
    22: "JobDisconnectedEvent",
    23: "JobReconnectedEvent",
    24: "JobReconnectFailedEvent",
    28: "JobAdInformationEvent",
    33: "AttributeUpdateEvent",
    35: "ClusterSubmitEvent",
    36: "ClusterRemoveEvent",
    40: "FileTransferEvent",
}
_EXIT = re.compile(r"\t\((0|1)\) (?:Normal|Abnormal) termination \((?:return value|signal) (-?[0-9]+)\)")
_USAGE = re.compile(r"\t+(Usr [0-9]+ [0-9:]+, Sys [0-9]+ [0-9:]+)  -  (Run|Total) (Remote|Local) Usage")
_BYTES = re.compile(r"\t([0-9.]+)  -  (Run|Total) Bytes (Sent|Received) By (?:Job|Node)")
_HOLD = re.compile(r"\tCode (-?[0-9]+) Subcode (-?[0-9]+)")
_SIZES = re.compile(r"\t([0-9]+)  -  (MemoryUsage|ResidentSetSize|ProportionalSetSize) of job")


def event_fields(event: LoggedEvent) -> dict[str, Any]:
    """The contents of an event, by the names that HTCondor gives them."""
    fields: dict[str, Any] = {
        "MyType": _NAMES.get(event.kind, "FutureEvent"),
        "EventTypeNumber": event.kind,
        "EventTime": datetime.fromtimestamp(event.time).strftime("%Y-%m-%dT%H:%M:%S"),
        "Cluster": event.cluster,
        "Proc": event.proc,
        "Subproc": event.subproc,
    }
    reader = _READERS.get(event.kind)
    if reader is not None:
        fields.update(reader(event))
    return fields


def _host(event: LoggedEvent) -> str:
    return event.text.partition("host: ")[2]


def _submit(event: LoggedEvent) -> Iterator[tuple[str, Any]]:
    yield "SubmitHost", _host(event)
    for name, line in zip(("LogNotes", "UserNotes"), event.lines, strict=False):
        if line.strip():
            yield name, line.strip()


def _execute(event: LoggedEvent) -> Iterator[tuple[str, Any]]:
    yield "ExecuteHost", _host(event)
    for line in event.lines:
        if line.startswith("\tSlotName: "):
            yield "SlotName", line.partition(": ")[2]


def _usage(event: LoggedEvent) -> Iterator[tuple[str, Any]]:
    for line in event.lines:
        if found := _USAGE.match(line):
            yield f"{found[2]}{found[3]}Usage", found[1]
        elif found := _BYTES.match(line):
            yield ("Total" if found[2] == "Total" else "") + f"{found[3]}Bytes", float(found[1])


def _exit(event: LoggedEvent) -> Iterator[tuple[str, Any]]:
    for line in event.lines:
        if found := _EXIT.match(line):
            yield "TerminatedNormally", found[1] == "1"
            yield "ReturnValue" if found[1] == "1" else "TerminatedBySignal", int(found[2])


def _terminated(event: LoggedEvent) -> Iterator[tuple[str, Any]]:
    yield from _exit(event)
    yield from _usage(event)


def _evicted(event: LoggedEvent) -> Iterator[tuple[str, Any]]:
    first = event.lines[0] if event.lines else ""
    requeued = "requeued" in first
    yield "Checkpointed", first.startswith("\t(1)")
    yield "TerminatedAndRequeued", requeued
    if requeued:
        yield from _exit(event)
    else:
        yield "TerminatedNormally", False
    yield from _usage(event)


def _reason(event: LoggedEvent) -> Iterator[tuple[str, Any]]:
    if event.lines and event.lines[0].strip():
        yield "Reason", event.lines[0].strip()


def _held(event: LoggedEvent) -> Iterator[tuple[str, Any]]:
    yield "HoldReason", event.lines[0].strip() if event.lines else ""
    for line in event.lines:
        if found := _HOLD.match(line):
            yield "HoldReasonCode", int(found[1])
            yield "HoldReasonSubCode", int(found[2])


def _image(event: LoggedEvent) -> Iterator[tuple[str, Any]]:
    yield "Size", int(event.text.rpartition(" ")[2] or 0)
    for line in event.lines:
        if found := _SIZES.match(line):
            yield found[2], int(found[1])


def _shadow(event: LoggedEvent) -> Iterator[tuple[str, Any]]:
    yield "Message", event.lines[0].strip() if event.lines else ""
    yield from _usage(event)


_READERS: dict[int, Any] = {
    0: _submit,
    1: _execute,
    3: _usage,
    4: _evicted,
    5: _terminated,
    6: _image,
    7: _shadow,
    8: lambda event: [("Info", event.text)],
    9: _reason,
    12: _held,
    13: _reason,
    35: _submit,
}


class LookJobEvent(Mapping[str, Any]):
    """One event; `JobEvent`."""

    def __init__(self, event: LoggedEvent) -> None:
        self._event = event
        self._fields = event_fields(event)
        self._folded = {name.lower(): name for name in self._fields}

    @property
    def type(self) -> Any:
        try:
            return LookJobEventType(self._event.kind)
        except ValueError:
            return self._event.kind

    @property
    def cluster(self) -> int:
        return self._event.cluster

    @property
    def proc(self) -> int:
        return self._event.proc

    @property
    def timestamp(self) -> int:
        return int(self._event.time)

    def __getitem__(self, key: str) -> Any:
        return self._fields[self._folded.get(key.lower(), key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"JobEvent(type={self.type}, cluster={self.cluster}, proc={self.proc}, timestamp={self.timestamp})"

    def __str__(self) -> str:
        return self._event.whole


class LookJobEventLog:
    """An iterator over the events of a log; `JobEventLog`. It waits for new ones unless `events` says otherwise."""

    def __init__(self, filename: str) -> None:
        if not isinstance(filename, str):
            raise TypeError("filename must be a string")
        if not os.path.exists(filename):
            raise LookIOProblem(f"cannot open the event log {filename}: No such file or directory")
        self._reader: LogReader | None = LogReader(Path(filename))
        self._waiting: list[LoggedEvent] = []
        self._deadline: float | None = None
        self._pause = threading.Event()

    def events(self, stop_after: int | None = None) -> Self:
        """This iterator, which ends when `stop_after` seconds have passed without an event; None waits forever."""
        if stop_after is not None and not isinstance(stop_after, int):
            raise TypeError("deadline must be an integer")
        self._deadline = None if stop_after is None else OutsideWorld().ticks() + stop_after
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LookJobEvent:
        while not self._waiting:
            if self._reader is None:
                raise StopIteration
            self._waiting = list(self._reader.events())
            if self._waiting:
                break
            if self._deadline is not None and OutsideWorld().ticks() >= self._deadline:
                raise StopIteration
            self._pause.wait(LOOK)
        return LookJobEvent(self._waiting.pop(0))

    def close(self) -> None:
        """No more events."""
        self._reader = None
        self._waiting = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._reader is None:
            return {"path": None, "offset": 0}
        unread = sum(len(event.whole.encode("utf-8", "surrogateescape")) + 4 for event in self._waiting)
        return {"path": str(self._reader.path), "offset": self._reader.offset - unread}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._reader = None if state["path"] is None else LogReader(Path(state["path"]), state["offset"])
        self._waiting = []
        self._deadline = None
        self._pause = threading.Event()

"""Event logs: the look-alike JobEventLog beside the reference's, logs that grow, and condor_wait."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path
from typing import Any

import pytest

from pool.compat.bindings.job_log import LookJobEventLog
from pool.compat.entry import status
from pool.compat.event_log import LogReader
from pool.jobs.events import EventKind, JobEvent
from pool.jobs.userlog import render

_EVENTS: tuple[tuple[EventKind, int, dict[str, Any]], ...] = (
    (EventKind.SUBMIT, 0, {"address": "10.0.0.1:9618", "notes": "a note"}),
    (EventKind.SUBMIT, 1, {"address": "10.0.0.1:9618"}),
    (EventKind.EXECUTE, 0, {"slot": "slot1@host"}),
    (EventKind.IMAGE_SIZE, 0, {"image_size": 12, "max_rss": 2048, "memory": 2}),
    (EventKind.EVICTED, 0, {"sent": 1.0, "received": 2.0}),
    (EventKind.HELD, 1, {"why": "it is held", "code": 13, "subcode": 2}),
    (EventKind.RELEASED, 1, {"why": "again"}),
    (EventKind.TERMINATED, 0, {"exit_code": 3, "user_cpu": 5.0, "sent": 10.0, "received": 0.0}),
    (EventKind.ABORTED, 1, {"why": "by its owner"}),
)


def log_of(directory: Path, events: tuple[tuple[EventKind, int, dict[str, Any]], ...] = _EVENTS) -> Path:
    path = directory / "job.log"
    path.write_text("".join(render(JobEvent(None, 12, proc, kind, 1.7e9, data)) for kind, proc, data in events))
    return path


def test_events_say_what_the_references_say(tmp_path: Path) -> None:
    try:
        importlib.import_module("htcondor2.htcondor2_impl")  # the real one, which has a part in C
        reference = importlib.import_module("htcondor2")
    except ImportError:
        pytest.skip("htcondor is not installed")
    path = log_of(tmp_path)
    ours = [dict(event) for event in LookJobEventLog(str(path)).events(0)]
    theirs = [dict(event) for event in reference.JobEventLog(str(path)).events(0)]
    assert ours == theirs
    assert len(ours) == len(_EVENTS)


def test_half_an_event_waits_for_its_rest(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    whole = path.read_bytes()
    reader = LogReader(path)
    found = []
    for end in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:end])
        found += list(reader.events())
    path.write_bytes(whole)
    found += list(reader.events())
    assert [event.kind for event in found] == [0, 0, 1, 6, 4, 12, 13, 5, 9]
    assert reader.offset == len(whole)


def test_a_pickled_log_goes_on_where_it_was(tmp_path: Path) -> None:
    log = LookJobEventLog(str(log_of(tmp_path)))
    first = next(log.events(0))
    again = pickle.loads(pickle.dumps(log))
    assert (first.proc, next(again.events(0)).proc) == (0, 1)
    log.close()
    assert list(log) == []


def test_condor_wait_ends_with_the_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pool.compat.waiting.APPEARS", 0.0)
    path = str(log_of(tmp_path))
    assert status("condor_wait", [path]) == 0
    assert status("condor_wait", [path, "12.1"]) == 0
    assert status("condor_wait", ["-num", "1", path]) == 0
    assert capsys.readouterr().out == "All jobs done.\nAll jobs done.\n"
    assert status("condor_wait", [path, "13"]) == 1
    assert "has no job 13" in capsys.readouterr().err
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    path = str(log_of(unfinished, _EVENTS[:4]))
    assert status("condor_wait", ["-wait", "1", "-status", path, "12.0"]) == 1
    assert capsys.readouterr().out == "12.0.0 submitted\nTime expired.\n"
    assert status("condor_wait", [str(tmp_path / "missing")]) == 1

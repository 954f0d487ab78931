"""The waits of a thread, from what /proc says of all processes of its job."""

from __future__ import annotations

from typing import Any

import pytest

from pool.policy.inspection import (
    InspectedPart,
    InspectedProcess,
    Inspection,
    OpenFile,
    Thread,
    WrongInspection,
    lines,
    with_waits,
)
from pool.policy.inspection.waits import ring

READ, WRITE, POLL, WAIT, EPOLL, FLOCK, SLEEP = 0, 1, 7, 61, 232, 73, 230


def process(
    pid: int, call: int | None, *arguments: int, files: tuple[OpenFile, ...] = (), parent: int = 1, **more: Any
) -> InspectedProcess:
    thread = Thread(pid, f"p{pid}", more.pop("state", "S"), call, arguments, more.pop("polled", ()))
    return InspectedProcess(pid, parent, pid, f"p{pid} --work", 0.0, 0.0, 1024, (thread,), files, **more)


def part(*processes: InspectedProcess, **more: Any) -> InspectedPart:
    return InspectedPart("slot1@m", machine="x86_64", processes=processes, **more)


def reads(fd: int, pipe: int) -> OpenFile:
    return OpenFile(fd, f"pipe:[{pipe}]", "r")


def writes(fd: int, pipe: int) -> OpenFile:
    return OpenFile(fd, f"pipe:[{pipe}]", "w")


def waits(whole: InspectedPart) -> dict[int, str]:
    return {one.pid: one.threads[0].waits for one in with_waits(whole).processes}


def test_a_reader_waits_for_the_writer_of_its_pipe_and_the_other_way_round() -> None:
    found = waits(part(process(2, READ, 0, files=(reads(0, 7),)), process(3, WRITE, 1, files=(writes(1, 7),))))
    assert found == {
        2: "waits for 3 (p3) to write into pipe:[7] (descriptor 0)",
        3: "waits for 2 (p2) to read from pipe:[7] (descriptor 1)",
    }


def test_a_pipe_whose_other_end_nobody_of_the_job_has_is_said_so() -> None:
    found = waits(part(process(2, READ, 0, files=(reads(0, 7), writes(1, 7)))))
    assert found[2] == "waits for input from pipe:[7] (descriptor 0); no other process of the job has its other end"


@pytest.mark.parametrize(
    ("state", "call", "said"),
    [
        ("R", None, "runs"),
        ("T", READ, "is stopped"),
        ("Z", None, "has ended; its parent has not asked for it"),
        ("S", SLEEP, "sleeps for a time that it chose"),
        ("D", None, "waits for a disk or a device"),
        ("S", 9999, "waits"),
    ],
)
def test_other_states(state: str, call: int | None, said: str) -> None:
    assert waits(part(process(2, call, state=state)))[2] == said


def test_a_child_a_lock_a_connection_and_events_are_named() -> None:
    socket = OpenFile(5, "socket:[9]", "rw", peer="tcp 127.0.0.1:80 to 10.0.0.1:443")
    found = waits(
        part(
            process(2, WAIT),
            process(3, FLOCK, 4, files=(OpenFile(4, "/data/lock", "w"),), parent=2),
            process(4, POLL, 0, 1, files=(socket,), polled=(5,)),
            process(5, READ, 5, files=(socket,)),
            process(6, EPOLL, 3, files=(OpenFile(3, "anon_inode:[eventpoll]", "rw", watches=(5,)), socket)),
            locks=((3, 4),),
        )
    )
    assert found == {
        2: "waits for its child 3 (p3) to end",
        3: "waits for the lock on /data/lock, which 4 (p4) has",
        4: "waits for any of tcp 127.0.0.1:80 to 10.0.0.1:443",
        5: "waits for input from tcp 127.0.0.1:80 to 10.0.0.1:443 (descriptor 5)",
        6: "waits for any of tcp 127.0.0.1:80 to 10.0.0.1:443",
    }


def test_processes_that_wait_for_each_other_are_found() -> None:
    stuck = (
        process(2, READ, 0, files=(reads(0, 7), writes(1, 8))),
        process(3, READ, 0, files=(reads(0, 8), writes(1, 7))),
    )
    assert ring(part(*stuck)) == (2, 3)
    text = "\n".join(lines(Inspection("1.0", (part(*stuck),))))
    assert "processes 2, 3 wait for each other: none of them can go on" in text


def test_no_ring_where_one_of_them_can_go_on() -> None:
    waiting = process(2, READ, 0, files=(reads(0, 7), writes(1, 8)))
    other = process(3, READ, 0, files=(reads(0, 8), writes(1, 7)))
    assert ring(part(waiting, process(3, SLEEP, files=other.files))) == ()
    helper = process(4, None, state="R", files=(writes(1, 7),))
    assert ring(part(waiting, other, helper)) == (), "somebody else may write"
    assert ring(part(waiting)) == ()


def test_it_crosses_the_wire() -> None:
    whole = part(process(2, READ, 0, files=(reads(0, 7),)), stage="supervise", still=12.5, locks=((2, 3),), ranks="a")
    assert InspectedPart.from_wire(whole.to_wire()) == whole


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [],
        {},
        {"slot": 7},
        {"slot": "s", "processes": {}},
        {"slot": "s", "processes": [{"pid": "2"}]},
        {"slot": "s", "processes": [{"pid": 2}]},
        {"slot": "s", "processes": [None] * 201},
        {"slot": "x" * 5000},
        {"slot": "s", "locks": [[1]]},
        {"slot": "s", "locks": [[1, True]]},
        {"slot": "s", "still": "now"},
        {"slot": "s", "received": True},
        {"slot": "s", "ranks": 1},
    ],
)
def test_a_machine_that_sends_anything_else_is_not_believed(sent: Any) -> None:
    with pytest.raises(WrongInspection):
        InspectedPart.from_wire(sent)


def test_what_a_job_or_a_machine_calls_itself_cannot_write_to_the_terminal() -> None:
    evil = "a\x1b[2Jb\nc\x07"
    bad = InspectedProcess(2, 1, 2, evil, 0.0, 0.0, 0, (Thread(2, evil, "S", 0, (3,)),), (OpenFile(3, evil, "r"),))
    whole = Inspection(
        "1.0", (InspectedPart(evil, stage=evil, machine="x86_64", processes=(bad,), trouble=evil, ranks=evil),)
    )
    for threads in (False, True):
        for line in lines(whole, threads=threads):
            assert line.isprintable(), line


def test_processes_whose_parents_are_each_other_are_shown_once_or_not_at_all() -> None:
    """A machine may say what it likes: the tree ends."""
    text = lines(Inspection("1.0", (part(process(2, None, parent=3), process(3, None, parent=2)),)))
    assert len(text) < 10


def test_lines_are_cut_for_a_terminal() -> None:
    whole = Inspection("1.0", (part(process(2, READ, 0, files=(OpenFile(0, "/" + "x" * 300, "r", 1 << 30),))),))
    assert all(len(line) <= 60 for line in lines(whole, width=60))
    assert any("at 1 GB" in line for line in lines(whole))

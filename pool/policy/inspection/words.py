"""An inspection put into words: a line for each part, then its processes as a tree, each with what it waits for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pool.policy.inspection.decoding import Decoder
from pool.policy.inspection.model import InspectedPart, InspectedProcess, Inspection, OpenFile, Thread
from pool.policy.inspection.waits import ring
from pool.policy.why.wording import shorten, size
from pool.policy.why.words import ago

#: How far a start of a job is, by the state of its starter (`pool.policy.starter`).
STAGES = {
    "start": "is about to begin",
    "get_exec": "receives its files, and its checkpoint if it has one",
    "leave_early": "leaves its machine before it has begun",
    "spawn_all": "is being started",
    "supervise": "runs",
    "suspended": "is suspended",
    "update": "runs while a checkpoint of it is written",
    "update_suspended": "is suspended while a checkpoint of it is written",
    "update_quit": "is saved, and leaves its machine",
    "send_ckpt": "has left its processes; its checkpoint travels",
    "terminate": "has been asked to end",
    "killed": "has been killed; its last processes end",
    "proc_exit": "has ended",
    "proc_exit_quit": "has ended",
    "send_own": "has ended with a checkpoint of its own, which travels",
    "send_output": "has ended; its output files are on their way to the submit machine",
    "send_status": "has ended; its end is reported",
    "end": "has ended",
}
#: Seconds without a move after which it is said.
STILL = 10.0
#: Characters that a command line takes.
COMMAND = 60


@dataclass(frozen=True, slots=True)
class _Shown:
    """The description of a process, and the architecture that gives its system calls their numbers."""

    threads: bool
    files: bool
    machine: str
    decode: Decoder | None


def lines(
    inspection: Inspection,
    *,
    threads: bool = False,
    files: bool = True,
    width: int | None = None,
    decode: Decoder | None = None,
) -> list[str]:
    """The lines for a terminal of a width, uncut for None.

    Args:
        threads: each thread by itself.
        files: the open files, too.
        decode: gives a thread's system call as text, to be shown with `threads`.
    """
    found: list[str] = []
    for part in inspection.parts:
        found += [""] if found else []
        found += _part(inspection.job, part, _Shown(threads, files, part.machine, decode))
    return [line if width is None or len(line) <= width else line[: width - 1] + "…" for line in found]


def _part(job: str, part: InspectedPart, shown: _Shown) -> Iterator[str]:
    stage = STAGES.get(part.stage) or shorten(part.stage) or "runs"
    yield f"{job} on {shorten(part.slot)}: {stage}{_unchanged_for(part)}"
    if part.trouble:
        yield f"  {shorten(part.trouble, 500)}"
    if part.lent_until is not None:
        moment = time.strftime("%d %b %H:%M:%S", time.localtime(part.lent_until))
        yield f"  its machine is lent by another dedicated scheduler, until {moment}: the job leaves then"
    carried = [f"{_bytes(part.received)} of files came before it began"] if part.received else []
    carried += [f"{_bytes(part.sent)} sent to the submit machine"] if part.sent else []
    if part.transferred is not None:
        carried.append(f"{_bytes(part.transferred)} have been carried so far")
    if carried:
        yield "  " + ", ".join(carried)
    if part.ranks:
        yield f"  {shorten(part.ranks, 500)}"
    if part.network:
        yield f"  network: {shorten(part.network, 500)}"
    stuck = ring(part)
    if stuck:
        yield f"  processes {', '.join(map(str, stuck))} wait for each other: none of them can go on"
    if not part.processes:
        return
    yield f"  {'PID':>8} {'CPU':>10} {'LOAD':>6} {'MEMORY':>9} {'READ/S':>9} {'WRITE/S':>9}  COMMAND"
    for depth, process in _tree(part.processes):
        yield from _process(process, depth, shown)
    if part.more:
        yield f"  and {part.more:,} more processes"


def _unchanged_for(part: InspectedPart) -> str:
    if part.still is None or part.still < STILL:
        return ""
    return f"; nothing of it has moved for {ago(part.still)}"


def _tree(processes: tuple[InspectedProcess, ...]) -> Iterator[tuple[int, InspectedProcess]]:
    """Each process with its depth, children behind their parents."""
    known = {process.pid for process in processes}
    below: dict[int, list[InspectedProcess]] = {}
    for process in processes:
        below.setdefault(process.parent if process.parent in known else 0, []).append(process)
    pending = [(0, process) for process in reversed(below.get(0, []))]
    shown: set[int] = set()
    while pending:
        depth, process = pending.pop()
        if process.pid in shown:
            continue
        shown.add(process.pid)
        yield depth, process
        pending += [(depth + 1, child) for child in reversed(below.get(process.pid, []))]


def _process(process: InspectedProcess, depth: int, shown: _Shown) -> Iterator[str]:
    numbers = (
        f"{process.pid:>8}",
        f"{_seconds(process.cpu):>10}",
        f"{process.load:>5.0%}".rjust(6),
        f"{_bytes(process.memory):>9}",
        f"{_rate(process.read_rate):>9}",
        f"{_rate(process.write_rate):>9}",
    )
    indent = "  " * depth
    yield f"  {' '.join(numbers)}  {indent}{shorten(process.command, COMMAND)}"
    margin = " " * 13 + indent
    if shown.threads:
        for thread in process.threads:
            name = f"thread {thread.tid} ({shorten(thread.name)}, {_seconds(thread.cpu)})"
            yield f"{margin}{name}: {shorten(thread.waits, 200)}"
            if shown.decode is not None:
                yield f"{margin}  {shorten(shown.decode(shown.machine, thread), 200)}"
    else:
        for waits in _summary(process.threads):
            yield f"{margin}{waits}"
    if process.more_threads:
        yield f"{margin}and {process.more_threads:,} more threads"
    if shown.files:
        yield from (f"{margin}{_file(file)}" for file in process.files if not _is_unimportant(file))
        if process.more_files:
            yield f"{margin}and {process.more_files:,} more files"


def _summary(threads: tuple[Thread, ...]) -> list[str]:
    """The waits of a process's threads; alike ones are counted."""
    counted = Counter(shorten(thread.waits, 200) for thread in threads)
    if len(threads) == 1:
        return list(counted)
    return [f"{count} of {len(threads)} threads: {waits}" for waits, count in counted.most_common()]


def _is_unimportant(file: OpenFile) -> bool:
    return file.target == "/dev/null"


def _file(file: OpenFile) -> str:
    text = f"{file.fd:>3} {file.access:<2} {shorten(file.peer or file.target, 200)}"
    if file.position:
        text += f" at {_bytes(file.position)}"
    if file.rate:
        text += f", {_rate(file.rate)}/s"
    return text


def _rate(rate: float | None) -> str:
    return "-" if rate is None else "0" if rate < 1 else _bytes(rate)


def _bytes(count: float) -> str:
    return f"{count:.0f} B" if count < 1024 else size(count / 1024, 0)


def _seconds(seconds: float) -> str:
    """Processor time: with parts of a second while there is little of it."""
    return f"{seconds:.2f} s" if seconds < 60 else ago(seconds)

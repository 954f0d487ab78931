"""Works out what each thread of a job waits for, from /proc's data about all its processes.

A thread sleeps in a system call. The call's file descriptor leads to a file; where that is a pipe, the processes that
have its other end are those that are waited for. From this come the pairs (waiting process, process it waits for), and
a ring of such pairs is a job that waits for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pool.policy.inspection.model import InspectedPart, InspectedProcess, OpenFile, Thread
from pool.policy.inspection.system_calls import For, SystemCall, call_of

#: Processes that are named where several are waited for.
MOST_NAMED = 4


def with_waits(part: InspectedPart) -> InspectedPart:
    """The same part, with `waits` of each of its threads filled in."""
    job = _PartProcesses(part)
    processes = tuple(
        replace(
            process,
            threads=tuple(replace(thread, waits=job.wait_of(process, thread)) for thread in process.threads),
        )
        for process in part.processes
    )
    return replace(part, processes=processes)


def waited_for(part: InspectedPart) -> dict[int, set[int]]:
    """Which processes each process waits for; only of those whose threads all sleep and wait for others of the job."""
    job = _PartProcesses(part)
    found: dict[int, set[int]] = {}
    for process in part.processes:
        others = [job.others_of(process, thread) for thread in process.threads if thread.state != "Z"]
        if others and all(others):
            found[process.pid] = set[int]().union(*others)
    return found


def ring(part: InspectedPart) -> tuple[int, ...]:
    """Processes that wait for each other in a ring, so that none of them can go on; empty where there is none.

    A process that waits for any one of several is in a ring only if all of those are stuck as well.
    """
    waits = waited_for(part)
    stuck = set(waits)
    while True:
        free = {pid for pid in stuck if any(other not in stuck for other in waits[pid])}
        if not free:
            break
        stuck -= free
    if not stuck:
        return ()
    pid, seen = min(stuck), list[int]()
    while pid not in seen:
        seen.append(pid)
        pid = min(waits[pid] & stuck)
    return tuple(seen[seen.index(pid) :])


class _PartProcesses:
    """The processes of one part, and who has which end of which pipe."""

    def __init__(self, part: InspectedPart) -> None:
        self._part = part
        self._by_pid = {process.pid: process for process in part.processes}
        self._readers: dict[str, set[int]] = {}
        self._writers: dict[str, set[int]] = {}
        self._children: dict[int, list[int]] = {}
        self._locks: dict[int, int] = dict(part.locks)
        for process in part.processes:
            self._children.setdefault(process.parent, []).append(process.pid)
            for file in process.files:
                if "r" in file.access:
                    self._readers.setdefault(file.target, set()).add(process.pid)
                if "w" in file.access:
                    self._writers.setdefault(file.target, set()).add(process.pid)

    def wait_of(self, process: InspectedProcess, thread: Thread) -> str:
        """The reason why a thread waits, in words; empty where it runs."""
        if thread.state == "R":
            return "runs"
        if thread.state == "Z":
            return "has ended; its parent has not asked for it"
        if thread.state in ("T", "t"):
            return "is stopped"
        call = call_of(self._part.machine, thread.call)
        if call is None:
            return _by_channel(thread)
        file = _file_of(process, thread, call)
        match call.waits:
            case For.INPUT | For.OUTPUT if file is not None:
                return self._file_reason(process, file, reads=call.waits is For.INPUT)
            case For.INPUT:
                return "waits for input"
            case For.OUTPUT:
                return "waits until it can write"
            case For.CHILD:
                return f"waits for its child {self._named(self._children.get(process.pid, ()))} to end"
            case For.LOCK:
                holder = self._locks.get(process.pid)
                name = file.target if file is not None else "a file"
                return f"waits for the lock on {name}" + (f", which {self._named([holder])} has" if holder else "")
            case For.EVENTS:
                return self._events(process, thread, file)
            case For.CONNECTION:
                where = f" ({file.peer})" if file is not None and file.peer else ""
                return f"waits for a connection{where}"
            case For.DISK:
                return "waits for the disk" + (f" to have {file.target}" if file is not None else "")
            case For.FUTEX:
                return "waits for another thread (a lock or a condition in memory)"
            case For.TIME:
                return "sleeps for a time that it chose"
            case For.SIGNAL:
                return "waits for a signal"
            case For.OPENING:
                return "opens a file: its disk, its server, or the other end of a named pipe does not answer yet"
        return "waits for a message or semaphore of System V"

    def others_of(self, process: InspectedProcess, thread: Thread) -> set[int]:
        """The processes of the job for which a thread waits; empty where it waits for anything else, or runs."""
        call = call_of(self._part.machine, thread.call)
        if thread.state not in ("S", "D") or call is None:
            return set()
        if call.waits is For.LOCK and process.pid in self._locks:
            return {self._locks[process.pid]} & self._by_pid.keys()
        file = _file_of(process, thread, call)
        if file is None or not file.target.startswith("pipe:") or call.waits not in (For.INPUT, For.OUTPUT):
            return set()
        ends = self._writers if call.waits is For.INPUT else self._readers
        return ends.get(file.target, set()) - {process.pid}

    def _file_reason(self, process: InspectedProcess, file: OpenFile, *, reads: bool) -> str:
        where = f"{file.target} (descriptor {file.fd})"
        if file.target.startswith("pipe:"):
            others = (self._writers if reads else self._readers).get(file.target, set()) - {process.pid}
            if others:
                names = self._named(sorted(others))
                return f"waits for {names} to {'write into' if reads else 'read from'} {where}"
            outside = "no other process of the job has its other end"
            return f"waits {'for input from' if reads else 'until it can write to'} {where}; {outside}"
        if file.peer:
            where = f"{file.peer} (descriptor {file.fd})"
        return f"waits {'for input from' if reads else 'until it can write to'} {where}"

    def _events(self, process: InspectedProcess, thread: Thread, file: OpenFile | None) -> str:
        numbers = file.watches if file is not None else thread.polled
        known = {one.fd: one for one in process.files}
        names = [_short(known[number]) for number in numbers if number in known]
        if not names:
            return "waits for events"
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return f"waits for any of {', '.join(names[:MOST_NAMED])}{more}"

    def _named(self, pids: Iterable[int | None]) -> str:
        chosen = [pid for pid in pids if pid is not None]
        named = [_process(self._by_pid, pid) for pid in chosen[:MOST_NAMED]]
        more = f" and {len(chosen) - MOST_NAMED} more" if len(chosen) > MOST_NAMED else ""
        return (", ".join(named) + more) or "process"


def _process(processes: Mapping[int, InspectedProcess], pid: int) -> str:
    known = processes.get(pid)
    return f"{pid} ({known.threads[0].name})" if known is not None and known.threads else str(pid)


def _file_of(process: InspectedProcess, thread: Thread, call: SystemCall) -> OpenFile | None:
    if call.descriptor is None or call.descriptor >= len(thread.arguments):
        return None
    number = thread.arguments[call.descriptor] & 0xFFFFFFFF
    return next((file for file in process.files if file.fd == number), None)


def _short(file: OpenFile) -> str:
    return file.peer or file.target


def _by_channel(thread: Thread) -> str:
    if thread.call == -1:
        return "waits in the kernel, in no system call (a page of memory, a stop)"
    if thread.state == "D":
        return f"waits for a disk or a device{f' ({thread.channel})' if thread.channel else ''}"
    return f"waits{f' in {thread.channel}' if thread.channel else ''}"

"""Reads from /proc what the processes of a job do now: once, or twice with a pause between, for rates.

A process may end while it is looked at; what is missing then is left out. Nothing is stopped for it, and nothing of
the job can notice it. A value that may not be read (the system call of a process of another user, say) stays unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import re
import socket
import struct
from collections.abc import Iterable
from dataclasses import replace

import psutil

from pool.policy.inspection.model import (
    MOST_FILES,
    MOST_PROCESSES,
    MOST_TEXT,
    MOST_THREADS,
    InspectedPart,
    InspectedProcess,
    OpenFile,
    Thread,
)
from pool.policy.inspection.system_calls import call_of

MACHINE = platform.machine()
_ACCESS = {os.O_RDONLY: "r", os.O_WRONLY: "w", os.O_RDWR: "rw"}
#: Lines of a table of sockets or locks that are looked at.
MOST_LINES = 100_000


async def inspect_keeper(keeper: int, seconds: float) -> tuple[InspectedPart, bool]:
    """The processes below a keeper, with their rates over so many seconds, and whether anything moved meanwhile.

    Args:
        keeper: its process; it and its helpers are not of the job.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    before = await asyncio.to_thread(read_part, keeper)
    await asyncio.sleep(seconds)
    after = await asyncio.to_thread(read_part, keeper)
    return with_rates(before, after, loop.time() - began), has_progress(before, after)


def read_part(keeper: int) -> InspectedPart:
    """The processes below a keeper as they are now."""
    pids = job_pids(keeper)
    read = (_read_process(pid) for pid in pids[:MOST_PROCESSES])
    processes = tuple(process for process in read if process is not None)
    locks = tuple(_awaited_locks({process.pid for process in processes}))
    return InspectedPart("", machine=MACHINE, processes=processes, locks=locks, more=max(0, len(pids) - MOST_PROCESSES))


def job_pids(keeper: int) -> list[int]:
    """The processes of a job, parents first: those below the keeper that do not run the keeper's own program."""
    try:
        own = os.stat(f"/proc/{keeper}/exe")
        below = psutil.Process(keeper).children(recursive=True)
    except (OSError, psutil.Error):
        return []
    return [process.pid for process in below if not _runs(process.pid, own)]


def with_rates(before: InspectedPart, after: InspectedPart, seconds: float) -> InspectedPart:
    """The later look, with what has changed since the earlier one for each second of it."""
    earlier = {process.pid: process for process in before.processes}
    processes = tuple(_process_rates(earlier.get(process.pid), process, seconds) for process in after.processes)
    return replace(after, processes=processes, looked=round(seconds, 3))


def has_progress(before: InspectedPart, after: InspectedPart) -> bool:
    """Whether anything of the job has gone on between two looks: it computed, read, wrote, began or ended."""
    return _marks(before) != _marks(after)


def _marks(part: InspectedPart) -> list[tuple[int, float, int | None, int | None]]:
    return [(process.pid, process.cpu, process.read, process.written) for process in part.processes]


def _process_rates(before: InspectedProcess | None, after: InspectedProcess, seconds: float) -> InspectedProcess:
    if before is None or seconds <= 0:
        return after
    positions = {(file.fd, file.target): file.position for file in before.files}

    def rate(was: int | None, now: int | None) -> float | None:
        return None if was is None or now is None else max(0.0, (now - was) / seconds)

    files = tuple(
        replace(file, rate=rate(positions.get((file.fd, file.target)), file.position)) for file in after.files
    )
    return replace(
        after,
        files=files,
        load=max(0.0, (after.cpu - before.cpu) / seconds),
        read_rate=rate(before.read, after.read),
        write_rate=rate(before.written, after.written),
    )


def _runs(pid: int, program: os.stat_result) -> bool:
    try:
        own = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return False
    return (own.st_dev, own.st_ino) == (program.st_dev, program.st_ino)


def _read_process(pid: int) -> InspectedProcess | None:
    """One process; None where it has ended."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times, parent = process.cpu_times(), process.ppid()
            command, memory = " ".join(process.cmdline()) or process.name(), process.memory_info().rss
        tids = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
        inner = _status(pid, "NSpid")
    except (OSError, psutil.Error, ValueError):
        return None
    threads = [thread for tid in tids[:MOST_THREADS] if (thread := _read_thread(pid, tid)) is not None]
    files, more_files = _files(pid)
    read = written = None
    with contextlib.suppress(OSError, psutil.Error):
        counters = process.io_counters()
        read, written = counters.read_chars, counters.write_chars
    return InspectedProcess(
        pid=pid,
        parent=parent,
        inner=int(inner.split()[-1]) if inner else pid,
        command=command[:MOST_TEXT],
        cpu=times.user + times.system,
        load=0.0,
        memory=memory,
        threads=tuple(threads),
        files=tuple(files),
        read=read,
        written=written,
        more_threads=max(0, len(tids) - MOST_THREADS),
        more_files=more_files,
    )


def _read_thread(pid: int, tid: int) -> Thread | None:
    here = f"/proc/{pid}/task/{tid}"
    try:
        head, _, fields = _text(f"{here}/stat").rpartition(") ")
        values = fields.split()
        name, state = head.partition(" (")[2], values[0]
        cpu = (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    call, arguments = None, tuple[int, ...]()
    with contextlib.suppress(OSError, ValueError):
        words = _text(f"{here}/syscall").split()
        if words and words[0] != "running":
            call = int(words[0])
            arguments = tuple(int(word, 16) for word in words[1:7]) if call >= 0 else ()
    channel = ""
    with contextlib.suppress(OSError):
        channel = _text(f"{here}/wchan").strip("0\n")
    polled = tuple(_polled(pid, call, arguments))
    return Thread(tid, name, state, call, arguments, polled, channel, cpu)


def _polled(pid: int, number: int | None, arguments: tuple[int, ...]) -> Iterable[int]:
    """The descriptors in the list of poll(2) and its kin, which lies in the process's memory."""
    call = call_of(MACHINE, number)
    if call is None or call.polls is None or len(arguments) < 2:
        return ()
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            raw = os.pread(memory.fileno(), 8 * min(arguments[1], MOST_FILES), arguments[call.polls])
    except (OSError, ValueError, OverflowError):
        return ()
    return [fd for fd, _, _ in struct.iter_unpack("ihh", raw[: len(raw) // 8 * 8]) if fd >= 0]


def _files(pid: int) -> tuple[list[OpenFile], int]:
    """A process's descriptors, and how many of them are left out."""
    try:
        numbers = sorted(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return [], 0
    peers: dict[str, str] | None = None
    found = []
    for number in numbers[:MOST_FILES]:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
            info = _text(f"/proc/{pid}/fdinfo/{number}")
        except OSError:
            continue
        flags = re.search(r"^flags:\s*([0-7]+)", info, re.MULTILINE)
        access = _ACCESS.get(int(flags[1], 8) & os.O_ACCMODE, "") if flags else ""
        file = OpenFile(number, _clean(target), access)
        if target.startswith("socket:"):
            peers = _peers(pid) if peers is None else peers
            file = replace(file, peer=peers.get(target))
        elif target.startswith("anon_inode:[eventpoll"):
            watches = [int(fd) for fd in re.findall(r"^tfd:\s*([0-9]+)", info, re.MULTILINE)]
            file = replace(file, watches=tuple(watches[:MOST_FILES]))
        elif target.startswith("/"):
            file = _with_position(file, info)
        found.append(file)
    return found, max(0, len(numbers) - MOST_FILES)


def _with_position(file: OpenFile, info: str) -> OpenFile:
    """A file of a file system with its position. It is not asked for its size: its file system may hang."""
    position = re.search(r"^pos:\s*([0-9]+)", info, re.MULTILINE)
    if position is None or file.target.startswith(("/dev/", "/proc/", "/sys/")):
        return file
    return replace(file, position=int(position[1]))


def _peers(pid: int) -> dict[str, str]:
    """The other ends of a process's internet sockets, and the names of its unix sockets, by `socket:[inode]`."""
    found: dict[str, str] = {}
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in _table(f"/proc/{pid}/net/{kind}"):
            words = line.split()
            if len(words) > 9 and words[9] != "0":
                local, remote = _address(words[1]), _address(words[2])
                connected = "" if remote.endswith(":0") else f" to {remote}"
                found[f"socket:[{words[9]}]"] = f"{kind[:3]} {local}{connected}"
    for line in _table(f"/proc/{pid}/net/unix"):
        words = line.split(None, 7)
        if len(words) == 8:
            found[f"socket:[{words[6]}]"] = f"unix {_clean(words[7].strip())}"
    return found


def _address(text: str) -> str:
    """An address and port as the kernel's tables have them, in words of 32 bits in the machine's order."""
    host, _, port = text.partition(":")
    raw = b"".join(struct.pack("=I", int(host[i : i + 8], 16)) for i in range(0, len(host), 8))
    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, raw)}:{int(port, 16)}"


def _awaited_locks(pids: set[int]) -> Iterable[tuple[int, int]]:
    """(waiting process, holder) for each lock on a file that one of these processes waits for."""
    holder = 0
    for line in _table("/proc/locks", head=0):
        words = line.split()
        if len(words) > 5 and words[1] == "->":
            if (waiting := int(words[5])) in pids:
                yield waiting, holder
        elif len(words) > 4:
            holder = int(words[4])


def _table(path: str, head: int = 1) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return [line for _, line in zip(range(MOST_LINES), file, strict=False)][head:]
    except OSError:
        return []


def _status(pid: int, name: str) -> str:
    found = re.search(rf"^{name}:\s*(.*)$", _text(f"/proc/{pid}/status"), re.MULTILINE)
    return found[1] if found else ""


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(MOST_TEXT * 4)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()[:MOST_TEXT]

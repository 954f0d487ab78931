"""The data of an inspection, and how it crosses the wire.

An inspection comes from the machine that runs the job, which the job's owner need not trust: everything is checked
when it is read. Text is kept as it came; whoever prints it makes it printable (`words`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.policy.inspection.decoding import Decoder

#: Bounds for one job on one machine. Items beyond them are counted and not described.
MOST_PROCESSES, MOST_THREADS, MOST_FILES = 200, 64, 256
#: Parts of one job; characters of one text.
MOST_PARTS, MOST_TEXT = 1000, 4096

T = TypeVar("T")


class WrongInspection(PoolError):
    """The data received is no inspection."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """One file descriptor.

    Attributes:
        target: a path, or what the kernel calls it: `pipe:[7]`, `socket:[8]`, `anon_inode:[eventpoll]`.
        access: r, w or rw.
        position: bytes from the beginning, of files that have one.
        rate: bytes a second by which the position moved while it was looked at.
        peer: the other end of a socket, where there is one.
        watches: the descriptors that an epoll descriptor looks at.
    """

    fd: int
    target: str
    access: str = ""
    position: int | None = None
    rate: float | None = None
    peer: str | None = None
    watches: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread.

    Attributes:
        state: the kernel's letter: R runs, S sleeps, D sleeps and cannot be interrupted, T stopped, t traced, Z zombie.
        call: number of the system call in which it sleeps; -1 when it is in none, None when that is not known.
        arguments: of the call, as the kernel has them.
        polled: the descriptors that the call looks at, where it looks at a list of them.
        channel: the kernel's function in which it sleeps.
        cpu: processor time, seconds.
        waits: what it waits for, in words; filled in by `waits.with_waits`.
    """

    tid: int
    name: str
    state: str
    call: int | None = None
    arguments: tuple[int, ...] = ()
    polled: tuple[int, ...] = ()
    channel: str = ""
    cpu: float = 0.0
    waits: str = ""


@dataclass(frozen=True, slots=True)
class InspectedProcess:
    """One process.

    Attributes:
        pid, parent: as the machine has them; `inner`: as the job sees it itself.
        command: its command line.
        cpu: processor time, seconds; `load`: processors it used while it was looked at.
        memory: resident, bytes.
        read, written: bytes by system calls, files and pipes and sockets alike; None where the machine does not tell.
        read_rate, write_rate: of them, bytes a second while it was looked at.
        more_threads, more_files: how many are not described.
    """

    pid: int
    parent: int
    inner: int
    command: str
    cpu: float
    load: float
    memory: int
    threads: tuple[Thread, ...]
    files: tuple[OpenFile, ...] = ()
    read: int | None = None
    written: int | None = None
    read_rate: float | None = None
    write_rate: float | None = None
    more_threads: int = 0
    more_files: int = 0


@dataclass(frozen=True, slots=True)
class InspectedPart:
    """One job, or one part of a job that runs on several machines, on its machine.

    Attributes:
        slot: where it runs.
        stage: how far this start of the job is: a word of `STAGES`.
        machine: the processor's architecture, by which system calls have their numbers.
        received, sent: bytes of files carried to the job before it began, and from it to the submit side.
        transferred: bytes of files that the transfer under way has carried so far; None where none is under way.
        still: seconds since anything of it moved last (processor time, bytes read or written), as far as is known.
        looked: seconds for which it was looked at.
        locks: who waits for whose lock: pairs of process ids.
        more: processes that are not described.
        network: the packets that it has sent to other parts in the job's private network, in words; empty for none.
        ranks: of a node of an MPI job: whom its ranks wait for, in words; empty where none waits.
        trouble: why there is nothing to see, in words.
        lent_until: when the machine is another dedicated scheduler's again, which lends it; wall seconds. The schedd
            says it.
    """

    slot: str
    stage: str = ""
    machine: str = ""
    processes: tuple[InspectedProcess, ...] = ()
    received: int = 0
    sent: int = 0
    transferred: int | None = None
    still: float | None = None
    looked: float = 0.0
    locks: tuple[tuple[int, int], ...] = ()
    more: int = 0
    ranks: str = ""
    network: str = ""
    trouble: str = ""
    lent_until: float | None = None

    def to_wire(self) -> dict[str, Any]:
        """As plain values."""
        plain: dict[str, Any] = _plain(self)
        return plain

    @classmethod
    def from_wire(cls, value: Any) -> InspectedPart:
        """A part as a machine sent it.

        Raises:
            WrongInspection: it is none.
        """
        return _read(cls, value)


@dataclass(frozen=True, slots=True)
class Inspection:
    """A job's parts; `job` is its id."""

    job: str
    parts: tuple[InspectedPart, ...]

    def lines(
        self, *, threads: bool = False, files: bool = True, width: int | None = None, decode: Decoder | None = None
    ) -> list[str]:
        """For people; see `words.lines`."""
        from pool.policy.inspection.words import lines

        return lines(self, threads=threads, files=files, width=width, decode=decode)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_json(self) -> dict[str, Any]:
        """As plain values, what each thread waits for in words."""
        return {"job": self.job, "parts": [part.to_wire() for part in self.parts]}


#: A limit for each list: what a machine sends beyond it is refused.
_MOST = {
    "processes": MOST_PROCESSES,
    "threads": MOST_THREADS,
    "files": MOST_FILES,
    "arguments": 6,
    "polled": MOST_FILES,
    "watches": MOST_FILES,
    "locks": MOST_PROCESSES,
}
_ELEMENTS: dict[str, Any] = {"processes": InspectedProcess, "threads": Thread, "files": OpenFile}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, (InspectedPart, InspectedProcess, Thread, OpenFile)):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


def _read(kind: type[T], value: Any) -> T:
    if not isinstance(value, dict):
        raise _wrong_field(kind.__name__.lower())
    hints, found = get_type_hints(kind), {}
    for name, hint in hints.items():
        if name in value:
            found[name] = _element(name, hint, value[name])
    try:
        return kind(**found)
    except TypeError as error:
        raise _wrong_field(kind.__name__.lower()) from error


def _element(name: str, hint: Any, value: Any) -> Any:
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if value is None and type(None) in kinds:
        return None
    if name in _MOST:
        if not isinstance(value, list) or len(value) > _MOST[name]:
            raise _wrong_field(name)
        if name in _ELEMENTS:
            return tuple(_read(_ELEMENTS[name], one) for one in value)
        if name == "locks":
            if not all(isinstance(pair, list) and len(pair) == 2 and all(map(_number, pair)) for pair in value):
                raise _wrong_field(name)
            return tuple((pair[0], pair[1]) for pair in value)
        if not all(map(_number, value)):
            raise _wrong_field(name)
        return tuple(value)
    if str in kinds and isinstance(value, str) and len(value) <= MOST_TEXT:
        return value
    if float in kinds and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if int in kinds and _number(value):
        return value
    raise _wrong_field(name)


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong_field(name: str) -> WrongInspection:
    return WrongInspection(f"the job's machine says of what the job does what cannot be read ({name})")

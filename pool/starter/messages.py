"""The messages between the node and its keepers, as bytes, by the layouts of pool/checkpoint/messages_table.py.

Packs and unpacks only. Host byte order, one machine, one version: a keeper of another version is refused by
it.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from pool.checkpoint import messages_table as table
from pool.checkpoint.messages_table import (
    MAGIC,
    UNLIMITED,
    VERSION,
    CauseNumber,
    CellState,
    Flag,
    Verb,
)
from pool.jobs.network import PRIVATE
from pool.outside import boot_seconds
from pool.starter.members import (
    FROM_ON_FAILURE,
    ON_FAILURE,
    RawEnd,
    heads_size,
    member_ends,
    pack_heads,
    strings_of,
    unpack_ends,
    unpack_members,
    unpack_pipes,
)
from pool.starter.spec import EndCause, EndReport, JobUsage, KeeperSpec, Member, OnFailure, StartFailed

TOO_BIG, CELL_SPEC, CELL_REPORT, SIGNAL_SHIFT, _TEXT = (
    table.CONSTANTS[name][0] for name in ("TOO_BIG", "CELL_SPEC", "CELL_REPORT", "SIGNAL_SHIFT", "TEXT")
)
_HEAD, _START, _CONTROL, _REPORT, _CELL = (
    layout.packing() for layout in (table.HEAD, table.START, table.CONTROL, table.REPORT, table.CELL)
)
#: Where in a cell the end of the lease stands, and how.
CELL_LEASE, LEASE_END = table.CELL.offset("lease_end_us"), struct.Struct("=Q")
_START_NAMES = table.START.names()
_STRING_COUNT = 9

CAUSES = {
    int(CauseNumber.EXIT): EndCause.EXIT,
    int(CauseNumber.SIGNAL): EndCause.SIGNAL,
    int(CauseNumber.LEASE): EndCause.LEASE,
    int(CauseNumber.KILLED): EndCause.KILLED,
    int(CauseNumber.VACATED): EndCause.VACATED,
    int(CauseNumber.START): EndCause.START,
    int(CauseNumber.MISUSE): EndCause.MISUSE,
    int(CauseNumber.MEMORY): EndCause.MEMORY,
    int(CauseNumber.LOST): EndCause.KILLED,
}
_FILTERS = {"": 0, "plain": int(Flag.FILTER), "nested": int(Flag.FILTER | Flag.NESTED)}
_FULL, _APPEND, _PRIVATE_TMP, _GROUPS, _NO_NETWORK, _IMAGE, _FIXED, _KEPT_ROOT, _PRIVATE_NETWORK, _RESETS = (
    int(Flag.FULL),
    int(Flag.APPEND),
    int(Flag.PRIVATE_TMP),
    int(Flag.GROUPS),
    int(Flag.NO_NETWORK),
    int(Flag.IMAGE),
    int(Flag.FIXED),
    int(Flag.KEPT_ROOT),
    int(Flag.PRIVATE_NETWORK),
    int(Flag.RESET_CONNECTIONS),
)
_START_VERB = int(Verb.START)
_AS_TEXT = json.JSONEncoder(separators=(",", ":")).encode


_FROM_SPEC = [field for field in table.START.fields if field.same or field.length or field.duration or field.limit]


def _microseconds(seconds: float) -> int:
    return int(seconds * 1e6)


def _limit(value: int | None) -> int:
    return UNLIMITED if value is None else min(max(value, 0), UNLIMITED - 1)


#: How each of these is made: the field's name, the attribute of the spec, and the function from that to the number.
_NUMBERS_OF: list[tuple[str, Callable[[KeeperSpec], Any], Callable[[Any], int]]] = [
    (
        field.name,
        attrgetter(field.same or field.length or field.duration or field.limit),
        int if field.same else len if field.length else _microseconds if field.duration else _limit,
    )
    for field in _FROM_SPEC
]


def _from_numbers(numbers: dict[str, int]) -> dict[str, Any]:
    """The attributes of a spec that are fields of its start message."""
    found: dict[str, Any] = {}
    for field in _FROM_SPEC:
        value = numbers[field.name]
        if field.same:
            found[field.same] = value
        elif field.duration:
            found[field.duration] = value / 1e6
        elif field.limit:
            found[field.limit] = None if value == UNLIMITED else value
    return found


def pack_start(spec: KeeperSpec, number: int, cell: int, *, image: bool = False) -> bytes:
    """A start message; with `image` for a job that is restored from one, which follows.

    Raises:
        StartFailed: a string holds a NUL byte, which no program can be given, or it has too many processes.
    """
    flags = (
        (_FULL if spec.isolation == "full" else 0)
        | (_APPEND if spec.append_output else 0)
        | (_PRIVATE_TMP if spec.private_tmp else 0)
        | (_GROUPS if spec.groups is not None else 0)
        | _FILTERS[spec.filter]
        | (_NO_NETWORK if spec.network == "none" else 0)
        | (_PRIVATE_NETWORK if spec.network_setup else 0)
        | (_IMAGE if image else 0)
        | (_FIXED if spec.fixed else 0)
        | (_KEPT_ROOT if spec.root_is_kept else 0)
        | (_RESETS if spec.reset_connections else 0)
    )
    groups = spec.groups or ()
    strings = [
        spec.id,
        _AS_TEXT(spec.claim) if spec.claim else "{}",
        spec.program,
        spec.cwd,
        spec.stdin,
        spec.stdout,
        spec.stderr,
        spec.scratch,
        spec.root,
        *spec.hidden,
        *spec.devices,
        *spec.remote,
        *(path for bind in spec.binds for path in bind),
        *spec.network_setup,
        *spec.argv,
    ]
    strings += [f"{name}={value}" for name, value in spec.env.items()]
    heads = b""
    if spec.members:
        strings += strings_of(spec.members, spec.pipes)
        try:
            heads = pack_heads(spec.members, spec.pipes)
        except ValueError as error:
            raise StartFailed(f"cannot start {spec.id}: {error}", call="exec") from error
    text = "\0".join(strings).encode("utf-8", "surrogateescape")
    if text.count(0) != len(strings) - 1:
        raise StartFailed(
            f"cannot start {spec.id}: an argument, path or environment value holds a NUL character",
            hint="remove it from the job description",
            call="exec",
        )
    size = _START.size + len(heads) + 4 * len(groups) + len(text) + 1
    numbers = {
        "magic": MAGIC,
        "version": VERSION,
        "verb": _START_VERB,
        "number": number,
        "cell": cell,
        "size": size,
        "groups": len(groups),
        "unused": 0,
        "flags": flags,
        "on_failure": ON_FAILURE[spec.on_failure],
        "lease_end_us": boot_us(spec.lease_seconds),
        **{name: number_of(get(spec)) for name, get, number_of in _NUMBERS_OF},
    }
    head = _START.pack(*[numbers[name] for name in _START_NAMES])
    return b"".join((head, heads, struct.pack(f"={len(groups)}I", *groups), text, b"\0"))


def boot_us(seconds: float) -> int:
    """The time so many seconds from now, by the clock that goes on while the machine sleeps, microseconds."""
    return int((boot_seconds() + max(seconds, 0.0)) * 1e6)


def unpack_start(data: bytes) -> KeeperSpec:
    """The spec of a start message, as it lies in a cell.

    Raises:
        ValueError: it is cut off or not one.
    """
    if len(data) < _START.size:
        raise ValueError("cut off")
    numbers = dict(zip(_START_NAMES, _START.unpack_from(data), strict=True))
    size, flags, ngroups, argc, envc = (numbers[name] for name in ("size", "flags", "groups", "argc", "envc"))
    nhidden, ndevices, nremote, nbinds, nnetwork = (
        numbers[name] for name in ("hides", "devices", "remotes", "binds", "network")
    )
    nmembers, npipes = numbers["members"], numbers["pipes"]
    if (numbers["magic"], numbers["version"], numbers["verb"]) != (MAGIC, VERSION, _START_VERB) or size > len(data):
        raise ValueError("not a start message of this version")
    after_heads = _START.size + heads_size(nmembers, npipes)
    groups = struct.unpack_from(f"={ngroups}I", data, after_heads)
    strings = data[after_heads + 4 * ngroups : size].decode("utf-8", "surrogateescape").split("\0")[:-1]
    seen = nhidden + ndevices + nremote + 2 * nbinds + nnetwork
    one = _STRING_COUNT + seen + argc + envc
    strings, more = strings[:one], strings[one:]
    members = unpack_members(data, _START.size, nmembers, more)
    pipes = unpack_pipes(data, _START.size + heads_size(nmembers, 0), npipes, more)
    if len(strings) != one or more:
        raise ValueError("strings are missing")
    id, claim, program, cwd, stdin, stdout, stderr, scratch, root = strings[:_STRING_COUNT]
    hidden = strings[_STRING_COUNT : _STRING_COUNT + nhidden]
    devices = strings[_STRING_COUNT + nhidden : _STRING_COUNT + nhidden + ndevices]
    places = strings[_STRING_COUNT + nhidden + ndevices : _STRING_COUNT + seen]
    rest = strings[_STRING_COUNT + seen :]
    setup = tuple(places[nremote + 2 * nbinds :])
    return KeeperSpec(
        id=id,
        argv=tuple(rest[:argc]),
        env={name: value for name, _, value in (entry.partition("=") for entry in rest[argc:])},
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        append_output=bool(flags & Flag.APPEND),
        groups=groups if flags & Flag.GROUPS else None,
        scratch=scratch,
        root=root,
        root_is_kept=bool(flags & Flag.KEPT_ROOT),
        reset_connections=bool(flags & Flag.RESET_CONNECTIONS),
        fixed=bool(flags & Flag.FIXED),
        isolation="full" if flags & Flag.FULL else "shared",
        hidden=tuple(hidden),
        devices=tuple(devices),
        remote=tuple(places[:nremote]),
        binds=tuple(zip(*[iter(places[nremote : nremote + 2 * nbinds])] * 2, strict=True)),
        private_tmp=bool(flags & Flag.PRIVATE_TMP),
        filter="nested" if flags & Flag.NESTED else "plain" if flags & Flag.FILTER else "",
        network="none" if flags & Flag.NO_NETWORK else PRIVATE if setup else "host",
        network_setup=setup,
        program=program,
        members=members,
        pipes=pipes,
        on_failure=FROM_ON_FAILURE.get(numbers["on_failure"], OnFailure.END),
        claim=json.loads(claim),
        **_from_numbers(numbers),
    )


def pack_control(verb: int, number: int, cell: int, value: int = 0, sequence: int = 0) -> bytes:
    """A message to a keeper."""
    return _CONTROL.pack(MAGIC, VERSION, verb, number, cell, _CONTROL.size, value, sequence)


def pack_ping(number: int) -> bytes:
    """A message that the fork server answers when it has done all before it."""
    return _HEAD.pack(MAGIC, VERSION, Verb.PING, number, 0, _HEAD.size)


class Report(NamedTuple):
    """Any message to the node; fields that a verb does not use are 0. Times in microseconds."""

    verb: int
    number: int
    cell: int
    pid: int
    code: int
    signal: int
    core: int
    cause: int
    err: int
    condition: int
    processes: int
    user_us: int
    system_us: int
    wall_us: int
    max_rss_kib: int
    rss_kib: int
    started_us: int
    ended_us: int
    sequence: int
    call: str
    text: str
    ends: tuple[RawEnd, ...] = ()


def unpack_report(data: bytes) -> Report:
    """A message to the node.

    Raises:
        ValueError: it is cut off or not one.
    """
    if len(data) < _REPORT.size:
        raise ValueError("cut off")
    magic, version, verb, number, cell, size, *numbers, call = _REPORT.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION) or size > len(data):
        raise ValueError("not a report of this version")
    text = data[_REPORT.size : min(size, _REPORT.size + _TEXT)].partition(b"\0")[0].decode("utf-8", "replace")
    ends = unpack_ends(data[_REPORT.size + _TEXT : size])
    name = call.partition(b"\0")[0].decode("ascii", "replace")
    return Report._make((verb, number, cell, *numbers, name, text, ends))


def end_report(report: Report, members: Sequence[Member] = ()) -> EndReport:
    """The report of a job's end for the starter; `members` as the job was started with them."""
    return EndReport(
        code=report.code if report.code >= 0 else None,
        signal=report.signal if report.signal >= 0 else None,
        core=bool(report.core),
        user_cpu=report.user_us / 1e6,
        system_cpu=report.system_us / 1e6,
        wall=report.wall_us / 1e6,
        max_rss=report.max_rss_kib,
        cause=CAUSES.get(report.cause, EndCause.KILLED),
        error=report.text,
        started=report.started_us / 1e6,
        ended=report.ended_us / 1e6,
        members=member_ends(members, report.ends),
        lost=report.cause == CauseNumber.LOST,
    )


def usage_of(report: Report) -> JobUsage:
    """The resources that a running job has used."""
    return JobUsage(
        user_cpu=report.user_us / 1e6,
        system_cpu=report.system_us / 1e6,
        max_rss=report.max_rss_kib,
        rss=report.rss_kib,
        processes=report.processes,
        wall=report.wall_us / 1e6,
    )


_HINTS = {
    "open image": "the image must be a directory of that machine that the job's owner may enter, beside the node's own",
    "chdir": "the job's directory must exist where the job runs",
    "open stdin": "the input file must exist where the job runs",
    "open stdout": "the output's directory must exist and be writable by the job's owner",
    "open stderr": "the error file's directory must exist and be writable by the job's owner",
    "setuid": "only a node that runs as root can run jobs as other users",
    "setgroups": "only a node that runs as root can run jobs with other groups",
    "setgid": "only a node that runs as root can run jobs with other groups",
    "network": "this machine cannot give a job a network of its own, nor none: run it where that is not asked for",
    "clone": "a limit on processes or namespaces of this machine may be too low",
}
#: Steps that fail for the machine's sake, not the job's: another start may succeed.
_MACHINE = (
    "clone",
    "fork",
    "lock",
    "write",
    "open_tree",
    "mount",
    "mount tmpfs",
    "pipe",
    "socket",
    "bind",
    "malloc",
    "start",
)
#: How a file call fails whose file system's server has died, and one whose supervisor has (seccomp_unotify(2)).
_SERVER_DIED = (errno.ECONNABORTED, errno.ENOTCONN, errno.ENOSYS)


#: Where a job with a file tree of its own looks for a path.
_SEEN = "among what the job sees: the system's directories, its own files, and its machine's SHOW_PATHS"
_SEEN_IN_IMAGE = "in the job's image, or among its own files"


def start_failed(spec: KeeperSpec, report: Report) -> StartFailed:
    """A start that failed, in words: the step, the thing, the kernel's reason, and more where the keeper
    knows more. Of a path that is not there: where the job would see it.
    """
    path, note, name, *_ = [*report.text.split("\n"), "", "", ""]
    reason, id = note or os.strerror(report.err).lower(), spec.id
    if report.err == errno.ENOENT and path.startswith("/") and spec.isolation == "full":
        reason += f" {_SEEN_IN_IMAGE if spec.root else _SEEN}"
    if name:
        id = f"{id}, process {name}"
    thing = f"{report.call} {path}".strip()
    if died := bool(spec.remote) and report.err in _SERVER_DIED:
        reason = "the server of its remote files died"
    return StartFailed(
        f"cannot start {id}: {thing}: {reason}",
        hint=_HINTS.get(report.call, ""),
        retry=died or report.call in _MACHINE,
        call=report.call,
        path=path,
        errno=report.err,
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """The content of a cell of the directory; the lease's end in microseconds of the boot clock, 0: none."""

    state: int
    pid: int
    number: int
    born_us: int
    lease_end_us: int
    report: Report | None
    spec: KeeperSpec | None


def unpack_cell(data: bytes) -> Cell | None:
    """The content of a cell file; None when it is empty, or of a form that this version cannot read."""
    if len(data) < _CELL.size:
        return None
    magic, version, state, pid, number, born, _, checksum, _, lease_end = _CELL.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION):
        return None
    report = spec = None
    try:
        if state == CellState.ENDED:
            raw = data[CELL_REPORT:]
            size = _HEAD.unpack_from(raw)[5]
            report = unpack_report(raw[:size]) if zlib.crc32(raw[:size]) == checksum else None
        if state != CellState.FREE:
            spec = unpack_start(data[CELL_SPEC:])
    except (ValueError, struct.error):
        pass
    return Cell(state, pid, number, born, lease_end, report, spec)

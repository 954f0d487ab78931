"""The messages between a node and its keepers: numbers, layouts and their meaning, in one table for both sides.

The Python side (`pool/starter/messages.py`) imports this table. The C side includes `common/messages_layout.h`, which
`python -m pool.checkpoint.messages_table` writes from it. A change of a layout raises VERSION. Host byte order,
natural alignment: all messages are local to one machine and one version of the package.
"""

from __future__ import annotations

import struct
import textwrap
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag
from pathlib import Path

MAGIC = 0x4B504F4F  # "OOPK"
VERSION = 13
UNLIMITED = 0xFFFFFFFFFFFFFFFF
HEADER = Path(__file__).resolve().parent / "common" / "messages_layout.h"

#: Constants of the C side by their names there, each with a note.
CONSTANTS: dict[str, tuple[int, str]] = {
    "VERSION": (VERSION, ""),
    "TOO_BIG": (65536, "bytes; a larger start message is sent as a memory file"),
    "TEXT": (768, "bytes of a report's text"),
    "MARK_SHIFT": (8, "in CHECKPOINT's value, above its flags: the moment's number on the submit side; 0: none"),
    "SIGNAL_SHIFT": (56, "in VACATE's value, above the grace in microseconds: the signal; 0: the start message's"),
    "MEMBERS_MOST": (64, "processes of a job"),
    "PIPES_MOST": (256, "pipes of a job"),
    "CELL_SPEC": (4096, "offset of the start message in a cell"),
    "CELL_REPORT": (64, "offset of the report of the end in a cell"),
}


class _Noted(IntEnum):
    """Numbers, each with a note."""

    note: str

    def __new__(cls, value: int, note: str = "") -> _Noted:
        member = int.__new__(cls, value)
        member._value_ = value
        member.note = note
        return member


class _NotedFlag(IntFlag):
    """Bits, each with a note."""

    note: str

    def __new__(cls, value: int, note: str = "") -> _NotedFlag:
        member = int.__new__(cls, value)
        member._value_ = value
        member.note = note
        return member


class Verb(_Noted):
    """The kind of a message: to the fork server, to a keeper (in brackets the value of struct control), to the node."""

    START = 1, "struct start and its strings; above TOO_BIG bytes in a memory file. Also to a waiting keeper"
    PING = 2, "answered by PONG with the same number"
    ADOPT = 8, "[none] with a file descriptor: the socket for answers from now on"
    SIGNAL = 9, "[number] to the job's members, not to the processes that they forked"
    SUSPEND = 10
    RESUME = 11
    VACATE = 12, "[grace in us] sends the soft signal now, and kills all processes after the grace"
    KILL = 13
    RENEW = 14, "[us of the boot clock] the end of the lease; an absolute time, since the message may be read late"
    USAGE = 15
    CHECKPOINT = 16, "[enum checkpoint] with a file descriptor of the directory for the image"
    IMAGE = 17, "[none] to a keeper started with FLAG_IMAGE, with a file descriptor of the image's directory"
    REMOTE = 18, "[none] if the job has remote trees, with a file descriptor: a stream to the submit side"
    END = 19, "[index of a pipe] if the job has a pipe to another machine, with a file descriptor: the job's end"
    WIRE = 20, "[none] of a job with a network of its own, with a socket, on which a packet socket of its wire is sent"
    CONNECT = 21, "[port, and 65536 for IPv6] of the job, with a socket, on which the connection to the port is sent"
    SHELL = 22, "[none] with a socket: a shell in the job, see keeper/shell.c"
    RETIRE = 31, "to a waiting keeper: exit"
    HELLO = 32, "the fork server is ready; code = abilities, text = one line for each ability that is missing"
    PONG = 33
    STARTED = 34, "the job's program runs"
    FAILED = 35, "the job could not be started; call, text, err: the reason"
    ENDED = 36, "of a job with members: the whole struct report, then a struct member_end for each"
    USED = 37
    CHECKPOINTED = (
        38,
        "code = 1 done, 2 refused, 3 failed; user_us = time frozen, wall_us = duration, system_us = bytes of memory; "
        "text = one line for each thing that cannot be saved, or the failure; if done, for each pipe in order a 1 if "
        "it leads to another machine and a process of the image holds its end, else a 0",
    )
    LET_GO = 39, "the job runs again, while its image is still being written; text as for CHECKPOINTED"
    GONE = 63, "a waiting keeper died; the number is of its last run"


class CheckpointFlag(_NotedFlag):
    """Options of a checkpoint."""

    STOP = 1, "the job ends with it"
    EXAMINE = 2, "nothing is written: only tests whether the job can be saved"
    LOOSE = 4, "the image is stored elsewhere, so it need not be synchronised to disk here"
    CARRY = 8, "includes mapped parts of programs and libraries, for a machine with other versions"


class KeeperCondition(_NotedFlag):
    """The condition of a keeper, in a report."""

    SUSPENDED = 1
    WAITING = 2


class CauseNumber(_Noted):
    """Why a job ended. LOST: its keeper was killed by others, and with it the job."""

    EXIT = 1
    SIGNAL = 2
    LEASE = 3
    KILLED = 4
    VACATED = 5
    START = 6
    MISUSE = 7
    MEMORY = 8
    LOST = 9


class Ability(_NotedFlag):
    """Abilities of a machine."""

    USER = 1, "user namespace made, or not needed because the fork server has the capabilities"
    PID = 2, "pid namespace: a keeper that dies takes its job with it"
    MOUNT = 4, "mount namespace"
    IPC = 8, "ipc namespace: System V objects end with the job"
    PROC = 16, "a /proc of the job's own"
    ROOT = 32, "the file tree of isolation `full`"
    SETUID = 64, "can run a job with another user id"
    GROUP = 128, "a cgroup (v2) for each job"
    MEMORY = 256, "... that also limits memory"
    NETWORK = 512, "a network namespace for a job without network"
    FILTER = 1024, "a system-call filter"
    COUNT = 2048, "a cgroup that limits the number of processes"
    CHECKPOINT = 4096, "can stop a job's processes, and fork processes with given pids"
    FUSE = 8192, "can show a job the submit machine's files by FUSE (remote/)"
    NOTIFY = 16384, "... without FUSE, by answering their system calls (remote_notify/)"
    TIME = 32768, "time namespaces: monotonic clocks of a restored job continue"
    TRACK = 65536, "dirty tracking: an image can build on the one before"
    WAITS = 131072, "the kernel reports since when a thread waits"
    PRIVATE_NETWORK = 262144, "a network of a job's own, with an address and a wire"
    HIDE_SOCKETS = 524288, "can hide the lists of such a network's sockets from other users"
    SAME_VDSO = 1 << 30, "can only be switched off, for tests: then each vdso counts as another kernel's"


class Flag(_NotedFlag):
    """Flags of a start."""

    FULL = 1
    APPEND = 2
    PRIVATE_TMP = 4
    GROUPS = 8
    FILTER = 16, "system calls are filtered (sandbox/filter.c)"
    NESTED = 32, "... but it may create namespaces"
    NO_NETWORK = 64, "no network but its own loopback"
    IMAGE = 128, "is restored from a checkpoint, which an IMAGE message brings"
    FIXED = 256, "in `full` its scratch directory is /job, on every machine"
    KEPT_ROOT = 512, "the root is an image that the node keeps, in a directory that is hidden from jobs"
    PRIVATE_NETWORK = 1024, "a network of its own (sandbox/network.c)"
    RESET_CONNECTIONS = 2048, "a restore resets connections to processes outside the job; otherwise no image is made"


class FailurePolicy(_Noted):
    """The effect on a job when one of its members fails."""

    ENDS = 0, "the job ends at once"
    WAITS = 1, "the job fails when all members have ended"
    IGNORED = 2, "the job does not fail"


class MemberFlag(_NotedFlag):
    """Flags of a member."""

    APPEND_OUT = 1
    APPEND_ERRORS = 2
    ERRORS_TO_OUT = 4, "stderr goes to the same file as stdout"


class MemberState(_NotedFlag):
    """The state of a member at its end."""

    OVER = 1
    WITH_JOB = 2, "killed with the job"
    FAILED = 4


class CellState(_Noted):
    """The state of a cell."""

    FREE = 0
    RUNNING = 1
    ENDED = 2


@dataclass(frozen=True, slots=True)
class Enumeration:
    """An enum of the C side: its name, the prefix of its members, and the class above."""

    name: str
    prefix: str
    members: type[Enum]


ENUMERATIONS = (
    Enumeration("verb", "", Verb),
    Enumeration("checkpoint", "CHECKPOINT_", CheckpointFlag),
    Enumeration("condition", "", KeeperCondition),
    Enumeration("cause", "CAUSE_", CauseNumber),
    Enumeration("ability", "ABLE_", Ability),
    Enumeration("flag", "FLAG_", Flag),
    Enumeration("on_failure", "FAILURE_", FailurePolicy),
    Enumeration("member_flag", "MEMBER_", MemberFlag),
    Enumeration("member_state", "MEMBER_", MemberState),
    Enumeration("state", "CELL_", CellState),
)

#: Types of fields: their names in C, and their codes in struct.
_TYPES = {
    "u16": ("uint16_t", "H"),
    "u32": ("uint32_t", "I"),
    "i32": ("int32_t", "i"),
    "u64": ("uint64_t", "Q"),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message.

    Attributes:
        type: u16, u32, i32, u64, head, `bytes N` or `text N` (read by C only).
        limit: the attribute of a KeeperSpec that holds this limit; None there is UNLIMITED here.
        duration: the attribute of a KeeperSpec in seconds; here in microseconds.
        same: the attribute of a KeeperSpec with the same value.
        length: the attribute of a KeeperSpec that has this length.
    """

    name: str
    type: str
    note: str = ""
    limit: str = ""
    duration: str = ""
    same: str = ""
    length: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """A struct of the C side."""

    name: str
    note: str
    fields: tuple[Field, ...]
    size: int

    def names(self) -> tuple[str, ...]:
        """The names of the fields that `packing` packs, in its order."""
        return tuple(
            name
            for field in self.fields
            for name in (
                HEAD.names() if field.type == "head" else () if field.type.startswith("text") else (field.name,)
            )
        )

    def offset(self, name: str) -> int:
        """The offset of a field in bytes."""
        before = self.fields[: [field.name for field in self.fields].index(name)]
        return Layout("", "", before, 0).packing().size

    def packing(self) -> struct.Struct:
        """The struct of its bytes, without a text at its end."""
        return struct.Struct("=" + self._codes())

    def _codes(self) -> str:
        codes = ""
        for field in self.fields:
            kind, _, size = field.type.partition(" ")
            if kind == "head":
                codes += HEAD._codes()
            elif kind == "bytes":
                codes += f"{size}s"
            elif kind != "text":
                codes += _TYPES[kind][1]
        return codes


HEAD = Layout(
    "head",
    "The head of every message.",
    (
        Field("magic", "u32"),
        Field("version", "u16"),
        Field("verb", "u16"),
        Field("number", "u64", "of the run; one more than the highest in the directory's cells"),
        Field("cell", "u32"),
        Field("size", "u32", "of the whole message"),
    ),
    24,
)
START = Layout(
    "start",
    "A job to start. Its strings follow it (see messages.h).",
    (
        Field("head", "head"),
        Field("uid", "u32", same="uid"),
        Field("gid", "u32", same="gid"),
        Field("groups", "u32"),
        Field("argc", "u32", length="argv"),
        Field("envc", "u32", length="env"),
        Field("nice", "i32", same="nice"),
        Field("flags", "u32"),
        Field("soft_signal", "u32", same="soft_signal"),
        Field("hides", "u32", length="hidden"),
        Field("devices", "u32", length="devices"),
        Field("members", "u32", length="members"),
        Field("pipes", "u32", length="pipes"),
        Field("on_failure", "u32", "see enum"),
        Field("remotes", "u16", length="remote"),
        Field("binds", "u16", length="binds"),
        Field("network", "u32", "strings about the job's network: sandbox/network.c", length="network_setup"),
        Field("unused", "u32"),
        Field("static_remotes", "u64", "bit i: the job only reads tree i (remote/unopened.c)", same="static_remotes"),
        Field("lease_us", "u64", "0: none", duration="lease_seconds"),
        Field("lease_end_us", "u64", "boot clock; valid however late the message is read"),
        Field("grace_us", "u64", duration="grace"),
        Field("memory", "u64", "UNLIMITED here and below: the node's own limit", limit="memory"),
        Field("cpu", "u64", limit="cpu"),
        Field("core", "u64", limit="core"),
        Field("fsize", "u64", limit="fsize"),
        Field("nofile", "u64", limit="nofile"),
        Field("stack", "u64", limit="stack"),
        Field("processes", "u64", "number of processes at a time", limit="processes"),
        Field("cpus", "u64", "share of CPU time", limit="cpus"),
    ),
    184,
)
MEMBER_HEAD = Layout(
    "member_head",
    "A member of a job.",
    (
        Field("argc", "u32"),
        Field("envc", "u32"),
        Field("flags", "u32"),
        Field("unused", "u32"),
        Field("fails", "bytes 32", "one bit for each exit code that is a failure"),
    ),
    48,
)
PIPE_HEAD = Layout(
    "pipe_head",
    "A pipe of a job.",
    (
        Field("writer", "i32", "index of the member; -1: on another machine"),
        Field("reader", "i32"),
        Field("capacity", "u64", "of the kernel's pipe, bytes; 0: the kernel's default"),
        Field("buffer", "u64", "bytes that a mapped pipe may store on disk"),
        Field("short_reads", "u32", "1: the reader of a mapped pipe accepts short reads: it is a kernel's pipe"),
        Field("unused", "u32"),
    ),
    32,
)
MEMBER_END = Layout(
    "member_end",
    "How a member ended. Code and signal are -1 if there is none; the wall time counts from the job's start.",
    (
        Field("code", "i32"),
        Field("signal", "i32"),
        Field("core", "u32"),
        Field("state", "u32", "enum member_state"),
        Field("user_us", "u64"),
        Field("system_us", "u64"),
        Field("wall_us", "u64"),
        Field("max_rss_kib", "u64"),
    ),
    48,
)
CONTROL = Layout(
    "control",
    "A request to a keeper.",
    (Field("head", "head"), Field("value", "u64"), Field("sequence", "u64")),
    40,
)
REPORT = Layout(
    "report",
    "A message to the node. Code and signal are -1 if there is none.",
    (
        Field("head", "head"),
        Field("pid", "i32", "of the keeper, as the node sees it"),
        Field("code", "i32"),
        Field("signal", "i32"),
        Field("core", "u32"),
        Field("cause", "u32"),
        Field("err", "i32"),
        Field("condition", "u32"),
        Field("processes", "u32"),
        Field("user_us", "u64"),
        Field("system_us", "u64"),
        Field("wall_us", "u64"),
        Field("max_rss_kib", "u64"),
        Field("rss_kib", "u64"),
        Field("started_us", "u64"),
        Field("ended_us", "u64"),
        Field("sequence", "u64"),
        Field("call", "bytes 24"),
        Field("text", "text TEXT"),
    ),
    144,
)
CELL = Layout(
    "cell",
    "The head of a cell's file (see messages.h).",
    (
        Field("magic", "u32"),
        Field("version", "u32"),
        Field("state", "u32"),
        Field("pid", "i32"),
        Field("number", "u64"),
        Field("born_us", "u64", "start of the keeper, CLOCK_BOOTTIME"),
        Field("started_us", "u64", "start of the run, wall time"),
        Field("checksum", "u32", "CRC-32 of the report"),
        Field("unused", "u32"),
        Field("lease_end_us", "u64", "boot clock; 0: none. Node and keeper record each renewal"),
    ),
    56,
)
LAYOUTS = (HEAD, START, MEMBER_HEAD, PIPE_HEAD, MEMBER_END, CONTROL, REPORT, CELL)


def c_header() -> str:
    """The text of common/messages_layout.h."""
    parts = [
        _comment(
            "Numbers and layouts of the messages. Written by `python -m pool.checkpoint.messages_table`: change the "
            "table there, not this file."
        ),
        "#ifndef POOL_MESSAGES_LAYOUT_H\n#define POOL_MESSAGES_LAYOUT_H\n\n#include <stdint.h>\n",
        f"#define MAGIC {MAGIC:#x}u\n#define UNLIMITED UINT64_MAX",
        *(f"#define {name} {value}{_as_comment(note)}" for name, (value, note) in CONSTANTS.items()),
        "",
        *(_enumeration(each) for each in ENUMERATIONS),
        *(_structure(each) for each in LAYOUTS),
        "#endif",
    ]
    return "\n".join(parts) + "\n"


def _comment(text: str, width: int = 118) -> str:
    return "\n".join(textwrap.wrap(f"/* {text} */", width, subsequent_indent=" * "))


def _as_comment(note: str) -> str:
    return f" /* {note} */" if note else ""


def _enumeration(each: Enumeration) -> str:
    lines = [_comment((each.members.__doc__ or "").strip()), f"enum {each.name} {{"]
    for name, member in each.members.__members__.items():
        row = f"    {each.prefix}{name} = {int(member.value)},"
        note = getattr(member, "note", "")
        if len(row + _as_comment(note)) <= 120:
            lines.append(row + _as_comment(note))
        else:
            lines += ["    " + line for line in _comment(note, 114).split("\n")] + [row]
    return "\n".join([*lines, "};\n"])


def _structure(each: Layout) -> str:
    lines = [_comment(each.note), f"struct {each.name} {{"]
    for field in each.fields:
        kind, _, size = field.type.partition(" ")
        if kind == "head":
            declared = f"struct head {field.name};"
        elif kind == "text":
            declared = f"char {field.name}[{size}];"
        elif kind == "bytes":
            declared = f"{'uint8_t' if field.name == 'fails' else 'char'} {field.name}[{size}];"
        else:
            declared = f"{_TYPES[kind][0]} {field.name};"
        lines.append(f"    {declared}{_as_comment(field.note)}")
    text = any(field.type.startswith("text") for field in each.fields)
    size = f"{each.size} + TEXT" if text else str(each.size)
    return "\n".join([*lines, "};", f'_Static_assert(sizeof(struct {each.name}) == {size}, "{each.name}");\n'])


if __name__ == "__main__":
    HEADER.write_text(c_header())
    print(HEADER)

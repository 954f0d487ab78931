"""The parts of keepers' messages that are about jobs of several processes (pool/checkpoint/messages_table.py).

Packs and unpacks only. A job of one process has none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pool.checkpoint import messages_table as table
from pool.checkpoint.messages_table import FailurePolicy, MemberFlag, MemberState
from pool.starter.spec import Member, MemberEnd, OnFailure, Pipe

MEMBERS_MOST, PIPES_MOST = (table.CONSTANTS[name][0] for name in ("MEMBERS_MOST", "PIPES_MOST"))

_MEMBER, _PIPE, _END = (layout.packing() for layout in (table.MEMBER_HEAD, table.PIPE_HEAD, table.MEMBER_END))
_APPEND_OUT, _APPEND_ERRORS, _ERRORS_TO_OUT = (
    int(flag) for flag in (MemberFlag.APPEND_OUT, MemberFlag.APPEND_ERRORS, MemberFlag.ERRORS_TO_OUT)
)
_OVER, _WITH_JOB, _FAILED = (int(state) for state in (MemberState.OVER, MemberState.WITH_JOB, MemberState.FAILED))
_FIXED = 6

ON_FAILURE = {
    OnFailure.END: int(FailurePolicy.ENDS),
    OnFailure.WAIT: int(FailurePolicy.WAITS),
    OnFailure.IGNORE: int(FailurePolicy.IGNORED),
}
FROM_ON_FAILURE = {number: what for what, number in ON_FAILURE.items()}


def pack_heads(members: Sequence[Member], pipes: Sequence[Pipe]) -> bytes:
    """The records of fixed size.

    Raises:
        ValueError: more than a message can have, or a pipe to a process that is not there.
    """
    if len(members) > MEMBERS_MOST:
        raise ValueError(f"a job has at most {MEMBERS_MOST} processes")
    if len(pipes) > PIPES_MOST:
        raise ValueError(f"a job has at most {PIPES_MOST} pipes")
    records = []
    for member in members:
        flags = (_APPEND_OUT if member.append_stdout else 0) | (_APPEND_ERRORS if member.append_stderr else 0)
        flags |= _ERRORS_TO_OUT if member.stderr_to_stdout else 0
        fails = sum(1 << code for code in member.fails if 0 <= code < 256).to_bytes(32, "little")
        records.append(_MEMBER.pack(len(member.argv), len(member.env), flags, 0, fails))
    for pipe in pipes:
        if not all(-1 <= end < len(members) for end in (pipe.writer, pipe.reader)):
            raise ValueError("a pipe leads to a process that the job does not have")
        records.append(_PIPE.pack(pipe.writer, pipe.reader, pipe.capacity, pipe.buffer, pipe.short_reads, 0))
    return b"".join(records)


def strings_of(members: Sequence[Member], pipes: Sequence[Pipe]) -> Iterator[str]:
    """Their strings, in the order of the message."""
    for member in members:
        yield from (member.name, member.program, member.cwd, member.stdin, member.stdout, member.stderr)
        yield from member.argv
        yield from (f"{name}={value}" for name, value in member.env.items())
    for pipe in pipes:
        yield from (pipe.writer_file, pipe.reader_file)


def heads_size(members: int, pipes: int) -> int:
    """Bytes of the records of so many."""
    return members * _MEMBER.size + pipes * _PIPE.size


def unpack_members(data: bytes, at: int, count: int, strings: list[str]) -> tuple[Member, ...]:
    """`count` members whose records begin at `at`; their strings are taken off the front of `strings`.

    Raises:
        ValueError: strings are missing.
    """
    members = []
    for index in range(count):
        argc, envc, flags, _, fails = _MEMBER.unpack_from(data, at + index * _MEMBER.size)
        mine, strings[: _FIXED + argc + envc] = strings[: _FIXED + argc + envc], []
        if len(mine) < _FIXED + argc + envc:
            raise ValueError("strings are missing")
        name, program, cwd, stdin, stdout, stderr, *rest = mine
        bits = int.from_bytes(fails, "little")
        members.append(
            Member(
                name=name,
                argv=tuple(rest[:argc]),
                env={key: value for key, _, value in (entry.partition("=") for entry in rest[argc:])},
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                program=program,
                append_stdout=bool(flags & _APPEND_OUT),
                append_stderr=bool(flags & _APPEND_ERRORS),
                stderr_to_stdout=bool(flags & _ERRORS_TO_OUT),
                fails=frozenset(code for code in range(256) if bits >> code & 1),
            )
        )
    return tuple(members)


def unpack_pipes(data: bytes, at: int, count: int, strings: list[str]) -> tuple[Pipe, ...]:
    """`count` pipes, as `unpack_members`."""
    pipes = []
    for index in range(count):
        writer, reader, capacity, buffer, short_reads, _ = _PIPE.unpack_from(data, at + index * _PIPE.size)
        mine, strings[:2] = strings[:2], []
        if len(mine) < 2:
            raise ValueError("strings are missing")
        pipes.append(Pipe(writer, reader, mine[0], mine[1], capacity, buffer, bool(short_reads)))
    return tuple(pipes)


#: One row of the table behind a report: code, signal, core, state, user, system and wall time in us, KiB.
RawEnd = tuple[int, int, int, int, int, int, int, int]


def unpack_ends(data: bytes) -> tuple[RawEnd, ...]:
    """The table behind a whole report."""
    whole = len(data) - len(data) % _END.size
    return tuple(_END.iter_unpack(data[:whole]))


def member_ends(members: Sequence[Member], rows: Sequence[RawEnd]) -> tuple[MemberEnd, ...]:
    """The table in words; rows that belong to nobody are left out."""
    return tuple(
        MemberEnd(
            name=member.name,
            code=code if code >= 0 else None,
            signal=signal if signal >= 0 else None,
            core=bool(core),
            over=bool(state & _OVER),
            with_job=bool(state & _WITH_JOB),
            failed=bool(state & _FAILED),
            user_cpu=user / 1e6,
            system_cpu=system / 1e6,
            wall=wall / 1e6,
            max_rss=rss,
        )
        for member, (code, signal, core, state, user, system, wall, rss) in zip(members, rows, strict=False)
    )

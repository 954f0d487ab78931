"""Parallel jobs: `universe = parallel` and `mpi`, `machine_count`, `dedicated` (WR 3, 6.5, 6.8).

    machine_count = 4                   one job of four nodes: the same program, started together or not at all
    output        = part.$(Node).out    each node has its number, from 0 up
    queue

Several queue statements in one description are one job whose nodes differ, as in HTCondor: each statement has its own
`machine_count`, and may have its own executable, arguments, files and demands on machines. The nodes are numbered
through, in the order of the statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pool.classad import ParseError, parse_expr
from pool.decimals import clipped_number
from pool.errors import PoolError
from pool.jobs.description.diagnostics import SourcePosition
from pool.jobs.description.expressions import Wire
from pool.jobs.description.job import JobDraft
from pool.jobs.description.pipes.processes import on_failure
from pool.jobs.description.sections.program import NULL
from pool.jobs.gangs import (
    DEDICATED,
    EXPECTED_DURATION,
    MOST_KINDS,
    MOST_PARTS,
    MPI,
    NODE_MARKS,
    NUMBERED,
    PARALLEL,
    PARTS,
    POLICIES,
    POLICY,
    RESERVATION,
    GangPart,
    attributes_of,
    may_be_own,
)
from pool.jobs.time_lengths import time_length

_RESERVATION = re.compile(r"r[1-9][0-9]{0,17}")
_COUNT = re.compile(r"\s*[-+]?[0-9]+")
#: The attributes that each statement sets anew and the job has as a whole.
_COUNTED = frozenset({"minhosts", "maxhosts", "gangparts", "gangapart"})
_REQUIREMENTS = "Requirements"


def is_parallel(job: JobDraft) -> bool:
    """Whether the job being written is of one or several numbered nodes."""
    if job.facts.as_reference:
        return False
    return job.nature.universe in NODE_MARKS or (job.is_true("WantParallelScheduling") and _counted(job) is not None)


def _counted(job: JobDraft) -> str | None:
    return job.param("machine_count", "MachineCount") or job.param("node_count", "NodeCount")


def several_machines(job: JobDraft) -> None:
    """`machine_count`: how many machines a parallel job runs on at once; `dedicated`."""
    if job.nature.universe in NODE_MARKS or job.is_true("WantParallelScheduling"):
        _machine_count(job)
    elif not job.facts.as_reference and (text := _counted(job)) and text.strip() != "1":
        name = "machine_count" if job.param("machine_count", "MachineCount") else "node_count"
        raise job.refuse(name, f"'{name}' is of parallel jobs", "write universe = parallel, or queue for more jobs")
    if job.nature.universe == PARALLEL and job.facts.as_reference:
        job.set("WantIOProxy", True)
        job.set("JobRequiresSandbox", True)
    _dedicated(job)


def _machine_count(job: JobDraft) -> None:
    text = _counted(job)
    if text:
        digits = _COUNT.match(text)
        count = clipped_number(digits[0].strip()) if digits else 0
        if not job.facts.as_reference and not (digits and digits.end() == len(text.rstrip()) and count > 0):
            raise job.refuse(
                "machine_count", f"expected a number of machines for 'machine_count', not {text!r}", other="node_count"
            )
        if not job.facts.as_reference and count > MOST_PARTS:
            raise job.refuse(
                "machine_count", f"a job has at most {MOST_PARTS} nodes, not {count}", "queue more jobs of fewer nodes"
            )
        job.set("MinHosts", count)
        job.set("MaxHosts", count)
        job.nodes = range(job.nodes.start, job.nodes.start + max(1, count))
    elif job.lookup("MaxHosts") is None and job.nature.universe == MPI and not job.facts.as_reference:
        job.set("MinHosts", 1)
        job.set("MaxHosts", 1)
    elif job.lookup("MaxHosts") is None and (job.nature.universe in NODE_MARKS or job.facts.as_reference):
        raise job.refuse("universe", "a parallel job needs a number of machines", "write machine_count = NUMBER")
    if not job.parent:
        job.set("RequestCpus", 1)


def _dedicated(job: JobDraft) -> None:
    """`dedicated`: whether the job is for the dedicated scheduler; a parallel one is without it (WR 6.8)."""
    wish = job.boolean("dedicated", DEDICATED)
    if wish is not None:
        if job.nature.universe in (7, 12):
            raise job.refuse("dedicated", "'dedicated' is for jobs that are sent to machines", "leave it out")
        job.set(DEDICATED, wish)
    if not job.facts.as_reference:
        _planned(job)


def _planned(job: JobDraft) -> None:
    """`expected_duration` and `reservation`, of jobs that are for the dedicated scheduler."""
    length = job.param("expected_duration", EXPECTED_DURATION)
    reservation = job.param("reservation", RESERVATION)
    for name, text in (("expected_duration", length), ("reservation", reservation)):
        if text is not None and not _is_dedicated(job):
            raise job.refuse(
                name,
                f"'{name}' is for jobs of the dedicated scheduler",
                "write dedicated = true, or leave it out",
                other=EXPECTED_DURATION if name == "expected_duration" else RESERVATION,
            )
    if length is not None:
        seconds = time_length(length)
        if seconds is None or seconds <= 0:
            raise job.refuse(
                "expected_duration",
                f"expected a length of time for 'expected_duration', not {length!r}",
                "such as 3600, 30 m or 2h",
                other=EXPECTED_DURATION,
            )
        job.set(EXPECTED_DURATION, int(seconds) if seconds == int(seconds) else seconds)
    if reservation is not None:
        name = reservation.strip().strip('"')
        if not _RESERVATION.fullmatch(name):
            raise job.refuse(
                "reservation",
                f"expected a reservation for 'reservation', not {reservation!r}",
                "such as r7; `poolnode reserve --list` has them",
                other=RESERVATION,
            )
        job.set(RESERVATION, name)


def _is_dedicated(job: JobDraft) -> bool:
    """Whether the job asks for the dedicated scheduler; attributes that the description adds (`+`) count."""
    wish = job.boolean("dedicated", DEDICATED)
    if wish is None:
        wish = job.boolean(f"MY.{DEDICATED}")
    if wish is None:
        wish = is_parallel(job) or job.is_true("WantParallelScheduling") or job.boolean("MY.WantParallelScheduling")
    return bool(wish)


def nodes(job: JobDraft) -> None:
    """Write the nodes of one queue statement down, and look for what does not go together."""
    if not is_parallel(job):
        return
    if job.several:
        raise job.refuse(
            "universe",
            "the nodes of a parallel job are one program each, not several with pipes",
            "leave universe out, and write spread = on (docs/pipes.md), or start the pipeline from a script",
        )
    count = job.lookup("MaxHosts")
    if count is None:
        return  # `machine_count` is refused already
    if not isinstance(count, int):
        raise job.refuse("universe", "a parallel job needs a number of machines", "write machine_count = NUMBER")
    _policy(job)
    on_failure(job)
    _refused(job)
    _numbers(job)
    if count > 1:
        _own_files(job)
    for name, value in attributes_of([GangPart(count=count)], apart=False).items():
        job.set(name, value)


def _policy(job: JobDraft) -> None:
    wish = job.lookup(POLICY)
    if wish is not None and (not isinstance(wish, str) or wish.upper() not in POLICIES):
        raise job.refuse(
            f"MY.{POLICY}",
            f"expected one of {', '.join(POLICIES)} for '+{POLICY}', not {wish!r}",
            f'write +{POLICY} = "{POLICIES[1]}"',
        )


def _refused(job: JobDraft) -> None:
    """The commands that a job of one node can have, and one of several cannot."""
    for command, attribute in (
        ("remote_io", "RemoteIO"),
        ("checkpoint_exit_code", "SuccessCheckpointExitCode"),
        ("deferral_time", "DeferralTime"),
    ):
        if job.lookup(attribute) is not None and job.lookup(attribute) is not False:
            raise job.refuse(command, f"'{command}' is not for jobs of several machines", "leave it out")


def _numbers(job: JobDraft) -> None:
    """The node's number is known where the node starts, and not before."""
    mark = NODE_MARKS.get(job.nature.universe, NODE_MARKS[PARALLEL])
    numbered = {name.lower() for name in NUMBERED}
    for key, value in {**job.parent, **job.own}.items():
        texts = value if isinstance(value, list) else [value]
        if key not in numbered and any(isinstance(text, str) and mark in text for text in texts):
            raise job.refuse(
                key,
                f"$(Node) stands in {job.names[key]}, which is of the whole job",
                "write it in arguments, environment, input, output, error, or the lists of files",
            )


def _own_files(job: JobDraft) -> None:
    """Each node writes files of its own: two that write one file leave a mixture."""
    mark = NODE_MARKS.get(job.nature.universe, NODE_MARKS[PARALLEL])
    iwd = job.iwd
    for command, attribute in (("output", "Out"), ("error", "Err")):
        name = job.text_of(attribute)
        if not name or name == NULL or mark in name or mark in iwd:
            continue
        first, dot, last = name.rpartition(".")
        better = f"{first}.$(Node).{last}" if dot and "/" not in last and first else f"{name}.$(Node)"
        said = f"{job.lookup('MaxHosts')} nodes would write one '{command}', {name}"
        raise job.refuse(command, said, f"write {command} = {better}")


def add_statement(job: JobDraft, parts: list[GangPart], where: SourcePosition) -> None:
    """Another queue statement of a parallel job has been written: what its nodes have of their own is one more part.

    Args:
        parts: those of the statements before; the first statement's is added where there is none yet.
        where: the statement's line.

    Raises:
        CommandRefused: there are too many nodes, or two of them write one file.
    """
    if not parts:
        parts.append(GangPart(count=_hosts(job.parent)))
    if len(parts) >= MOST_KINDS:
        raise job.refuse(
            "queue",
            f"a parallel job has at most {MOST_KINDS:,} queue statements",
            "write $(Node) where alike nodes differ and give machine_count, or submit several jobs",
        )
    count = _hosts({**job.parent, **job.own})
    own: dict[str, Wire] = {}
    for key, value in job.own.items():
        if key in _COUNTED:
            continue
        if not may_be_own(key):
            job.reporter.error(
                where,
                f"{job.names[key]} differs between the queue statements of one parallel job, which has one as a whole",
                "write it once, before the first queue",
            )
            continue
        own[job.names[key]] = value
    parts.append(GangPart((), own, count))
    if sum(part.count for part in parts) > MOST_PARTS:
        raise job.refuse("machine_count", f"a job has at most {MOST_PARTS} nodes", "queue more jobs of fewer nodes")
    _check_outputs(job, parts)


def _hosts(attributes: Mapping[str, Any]) -> int:
    count = attributes.get("maxhosts", 1)
    return count if isinstance(count, int) else 1


def _check_outputs(job: JobDraft, parts: Iterable[GangPart]) -> None:
    """A file that has no node's number in its name is of one statement alone."""
    mark = NODE_MARKS.get(job.nature.universe, NODE_MARKS[PARALLEL])
    seen: set[str] = set()
    for part in parts:
        whole = {**job.parent, **{name.lower(): value for name, value in part.own.items()}}
        mine = set()
        for command, attribute in (("output", "out"), ("error", "err")):
            name = whole.get(attribute)
            if isinstance(name, str) and name and name != NULL and mark not in name:
                mine.add(job.full_path(name, str(whole.get("iwd") or job.iwd)))
                if mine & seen:
                    said = f"several nodes would write one '{command}', {name}"
                    raise job.refuse(command, said, "add $(Node) to it")
        seen |= mine


def combine_parts(attributes: Mapping[str, Wire], parts: list[GangPart]) -> dict[str, Wire]:
    """The attributes of a job of several statements: those of the first, with all parts and their number.

    Where machines have to be different, the job as a whole asks for one that suits some part, and each part asks for
    its own: what is added to the job's Requirements later holds for all.
    """
    made = dict(attributes)
    asked = [part.own.get(_REQUIREMENTS, made.get(_REQUIREMENTS)) for part in parts]
    if any(one != asked[0] for one in asked):
        parts = [
            GangPart(part.processes, {**part.own, _REQUIREMENTS: one}, part.count)
            for part, one in zip(parts, asked, strict=True)
        ]
        texts = dict.fromkeys(one[0] if isinstance(one, list) else str(one).lower() for one in asked)
        made[_REQUIREMENTS] = [" || ".join(f"({text})" for text in texts)]
    total = sum(part.count for part in parts)
    ours = attributes_of(parts, apart=False)
    try:
        parse_expr(ours[PARTS][0])
    except ParseError as error:
        raise PoolError(
            f"the {len(parts):,} queue statements of this parallel job are too much for one job's ad: {error.message}",
            hint="write what they have in common before the first of them, or submit several jobs",
        ) from error
    return {**made, "MinHosts": total, "MaxHosts": total, **ours}

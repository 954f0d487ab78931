"""Jobs that run on several machines at once: the parts that a job's ad describes, and the start that each is sent.

A *gang* is a job with `GangParts`: so many claims, started together or not at all. There are two sorts:

- A pipe job that is spread over machines (VS 5.2: sub jobs). Each part has some of the job's processes. A pipe between
  processes of two parts is a *crossing*: each side has one end of it, and the bytes travel between the machines.
- A parallel job (WR 3, 6.5, 6.8; HTCondor's parallel universe). Each part is a *node*: one program with a number from 0
  up. Where the node's number belongs, the ad's texts have a mark, as HTCondor's have.

Alike parts are one record with a count: a job of 1,000 nodes of one program has one record. Plain data; what gathers
the claims is `pool.policy.gangs`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs import mpi
from pool.jobs.activation import Activation
from pool.jobs.pipes.model import Joint

#: The ad's list of parts; and whether they have to be on different machines.
PARTS, APART = "GangParts", "GangApart"
#: In a part's record: the names of its processes, between commas; how many parts are like that.
PROCESSES, COUNT = "Processes", "Count"
#: So many parts a job may have.
MOST_PARTS = 10_000
#: So many kinds of them: each has a record of its own in the ad, whose expression is bounded.
MOST_KINDS = 1_000
#: The universes of parallel jobs, and what stands in their ads where the node's number belongs.
MPI, PARALLEL = 8, 11
NODE_MARKS = {MPI: "#MpInOdE#", PARALLEL: "#pArAlLeLnOdE#"}
#: The attributes in which it may stand; `_NUMBERED` has what becomes of them in a start.
NUMBERED = (
    *("Arguments", "Args", "Environment", "Env", "In", "Out", "Err", "TransferInput", "TransferOutput"),
    "TransferOutputRemaps",
)
#: The attributes, in lower case, that a part may have in place of the job's, beside all that begin with `request`.
OWN = frozenset(
    {
        *("cmd", "args", "arguments", "env", "envdelim", "environment", "in", "out", "err", "iwd"),
        *("transferin", "transferout", "transfererr", "streamin", "streamout", "streamerr", "transferexecutable"),
        *("transferinput", "transferoutput", "transferoutputremaps", "imagesize", "diskusage", "executablesize"),
        *("requirements", "rank", "requiregpus", "commoninputfiles", "publicinputfiles", "transferinputsizemb"),
        *("rankspermachine", "mpirun"),
    }
)
#: The job asks for the dedicated scheduler, or says that it does not need it: `dedicated` in a description.
DEDICATED = "WantDedicated"
#: How long a job will run, as its user says: it only plans. Seconds.
EXPECTED_DURATION = "ExpectedDuration"
#: The reservation in whose machines it is to run.
RESERVATION = "ReservationId"
#: The end of a parallel job: that of node 0, of all nodes, or of any (`ParallelShutdownPolicy`, HTCondor's name).
POLICY = "ParallelShutdownPolicy"
NODE0, ALL, ANY = POLICIES = ("WAIT_FOR_NODE0", "WAIT_FOR_ALL", "WAIT_FOR_ANY")
#: In a node's environment: its number and the number of nodes, by HTCondor's names; the addresses of all, by number.
NUMBER, NUMBERS, HOSTS = "_CONDOR_PROCNO", "_CONDOR_NPROCS", "POOLNODE_HOSTS"


@dataclass(frozen=True, slots=True)
class GangPart:
    """The processes of a job that run on one machine.

    Attributes:
        processes: by name, in the order of the description; none for a node of a parallel job.
        own: attributes in wire form that this part has in place of the job's.
        count: how many parts are like that.
    """

    processes: tuple[str, ...] = ()
    own: dict[str, Any] = field(default_factory=dict)
    count: int = 1


class GangParts(Sequence[GangPart]):
    """The parts of a job by number; alike ones are one `Part`.

    Args:
        kinds: in the order of their numbers.
    """

    def __init__(self, kinds: Sequence[GangPart]) -> None:
        self.kinds = tuple(kinds)
        self._first: list[int] = []
        total = 0
        for kind in self.kinds:
            self._first.append(total)
            total += kind.count
        self._total = total

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, number: Any) -> Any:
        return self.kinds[self.kind_of(number)]

    def __iter__(self) -> Iterator[GangPart]:
        return (kind for kind in self.kinds for _ in range(kind.count))

    def kind_of(self, number: int) -> int:
        """Which of the kinds a part is of.

        Raises:
            IndexError: there is no such part.
        """
        if not 0 <= number < self._total:
            raise IndexError(number)
        return bisect_right(self._first, number) - 1

    def numbers_of(self, kind: int) -> range:
        """The numbers of the parts of a kind."""
        return range(self._first[kind], self._first[kind] + self.kinds[kind].count)


def attributes_of(parts: Sequence[GangPart], *, apart: bool) -> dict[str, Any]:
    """The ad's attributes in wire form.

    Expressions of a part lie there as lists of their text: they mean something in the ad of a job only.
    """
    records = []
    for part in parts:
        record: dict[str, Any] = {PROCESSES: ",".join(part.processes)} if part.processes else {}
        if part.count != 1 or not part.processes:
            record[COUNT] = part.count
        records.append(ClassAd({**record, **part.own}))
    return {**ClassAd({PARTS: records}).to_wire(), APART: apart}


def parts_of(ad: ClassAd) -> GangParts:
    """The parts of a job's ad; none for a job that runs on one machine.

    Raises:
        PoolError: the attribute is not what `attributes_of` makes.
    """
    if ad.get(PARTS) is None:
        return GangParts(())
    value = ad.value(PARTS, None)
    if not isinstance(value, (tuple, list)) or not value or not all(isinstance(one, ClassAd) for one in value):
        raise PoolError(f"the job's attribute {PARTS} is not a list of ads", hint="submit it from a description file")
    parts = GangParts([_part(one) for one in value])
    if not all(1 <= part.count <= MOST_PARTS for part in parts.kinds) or len(parts) > MOST_PARTS:
        raise PoolError(
            f"the job's attribute {PARTS} has no number of parts from 1 to {MOST_PARTS}",
            hint="submit it from a description file",
        )
    return parts


def _part(record: ClassAd) -> GangPart:
    own: dict[str, Any] = {name: record.value(name, None) for name in record if name not in (PROCESSES, COUNT)}
    own = {name: list(value) if isinstance(value, (tuple, list)) else value for name, value in own.items()}
    processes = tuple(name for name in str(record.value(PROCESSES, "")).split(",") if name)
    count = record.value(COUNT, 1)
    return GangPart(processes, own, count if type(count) is int else 0)


def may_be_own(name: str) -> bool:
    """Whether a part may have an attribute of its own."""
    return name.lower() in OWN or name.lower().startswith("request")


def holders_of(parts: GangParts, name: str) -> list[int]:
    """The numbers of the parts that have an attribute in place of the job's."""
    kinds = [number for number, kind in enumerate(parts.kinds) if name.lower() in {one.lower() for one in kind.own}]
    return [number for kind in kinds for number in parts.numbers_of(kind)]


def is_parallel(ad: ClassAd) -> bool:
    """Whether the parts of a job are numbered nodes, each one program."""
    return ad.get(PARTS) is not None and ad.get("Processes") is None


def wants_dedicated(ad: ClassAd) -> bool:
    """Whether a job is for the dedicated scheduler (WR 3.1, 6.8): a parallel one unless it says `dedicated = false`, a
    serial one or a pipe job that says `dedicated = true`. HTCondor's `WantParallelScheduling` asks for the same."""
    wish = ad.value(DEDICATED, None)
    if isinstance(wish, bool):
        return wish
    return ad.value("JobUniverse", None) in NODE_MARKS or ad.value("WantParallelScheduling", False) is True


def name_of(part: GangPart, number: int) -> str:
    """A part as people know it: its processes, or the node's number."""
    return " ".join(part.processes) or f"node {number}"


def policy_of(ad: ClassAd) -> str:
    """The rule for the end of a parallel job, of `POLICIES`."""
    wish = str(ad.value(POLICY, NODE0)).upper()
    return wish if wish in POLICIES else NODE0


def file_of(wire: Mapping[str, Any], name: str, number: int) -> str:
    """A file that an ad names, as one node has it; as the job has it where there are no nodes.

    Args:
        wire: the job's ad in wire form.
        name: the attribute: Out, Err.

    Raises:
        PoolError: there is no such node.
    """
    own: Mapping[str, Any] = {}
    if wire.get(PARTS) is not None and wire.get("Processes") is None:
        parts = parts_of(ClassAd.from_wire({PARTS: wire[PARTS]}))
        if not 0 <= number < len(parts):
            raise PoolError(f"the job has no node {number}", hint=f"its nodes are 0 to {len(parts) - 1}")
        own = parts[number].own
    elif number:
        raise PoolError("the job has no nodes: it is no parallel job", hint="leave the node out")
    text = {**wire, **own}.get(name)
    return str(_numbered(text, number)) if isinstance(text, str) else ""


def part_of(start: Activation, parts: Sequence[GangPart], number: int, gang: str) -> Activation:
    """The data that one part of a pipe job is started with.

    Args:
        start: that of the whole job on the part's slot.
        gang: the secret that the parts of this start know each other by.
    """
    where = {name: index for index, part in enumerate(parts) for name in part.processes}
    pipes: list[Joint] = []
    crossings: list[tuple[int, int, int]] = []
    for stream, joint in enumerate(start.pipes):
        sides = {where.get(joint.writer), where.get(joint.reader)}
        if number not in sides:
            continue
        if len(sides) > 1:
            (other,) = sides - {number}
            crossings.append((len(pipes), stream, -1 if other is None else other))
        pipes.append(joint)
    return replace(
        start,
        processes=tuple(process for process in start.processes if where.get(process.name) == number),
        pipes=tuple(pipes),
        gang=gang,
        part=number,
        parts=len(parts),
        crossings=tuple(crossings),
    )


def node_of(start: Activation, parts: int, number: int, gang: str, hosts: str) -> Activation:
    """The data that one node of a parallel job is started with.

    Args:
        start: that of all nodes alike, with the mark where the number belongs.
        parts: how many nodes there are.
        gang: the secret that the nodes of this start know each other by.
        hosts: the addresses of all nodes by number, with blanks between them.
    """
    variables = {NUMBER: str(number), NUMBERS: str(parts), HOSTS: hosts}
    changes = {name: value for name in _NUMBERED if (value := _numbered(was := getattr(start, name), number)) != was}
    env = {**_numbered(start.env, number), **variables}
    return replace(start, **changes, env=env, gang=gang, part=number, parts=parts)


def with_ranks(start: Activation, parts: GangParts, job: Mapping[str, Any]) -> Activation:
    """The start of a node of an MPI job: it has the ranks of all nodes, and its ranker's pipes.

    Args:
        start: the node's, from `node_of`.
        job: the job's ad in wire form.
    """
    if not start.mpi:
        return start
    pipes, crossings = mpi.pipes_of(start.part, start.parts)
    kinds = [(kind.own.get(mpi.RANKS, job.get(mpi.RANKS, 1)), kind.count) for kind in parts.kinds]
    layout, application = mpi.layout_of(kinds), parts.kind_of(start.part)
    return replace(start, ranks=layout, application=application, pipes=pipes, crossings=crossings)


#: The fields of a start in which the mark may stand, beside its environment.
_NUMBERED = ("argv", "stdin", "stdout", "stderr", "inputs", "outputs", "remaps")


def _numbered(value: Any, number: int) -> Any:
    if isinstance(value, str):
        for mark in NODE_MARKS.values():
            value = value.replace(mark, str(number))
    elif isinstance(value, tuple):
        return tuple(_numbered(one, number) for one in value)
    elif isinstance(value, dict):
        return {name: _numbered(one, number) for name, one in value.items()}
    return value

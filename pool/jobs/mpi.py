"""MPI jobs as plain data: which MPI a program uses, how many ranks each node has, and how the nodes are joined.

An MPI job is a parallel job (`pool.jobs.gangs`) whose nodes start ranks of one MPI program. On each node a ranker
(`pool.mpi`) starts that node's ranks. The rankers form a tree with node 0 at its root: two pipes between a node and the
one above it, which cross machines as any pipe of a job.

Two families of MPI differ in how ranks find each other (Flux RFC 13; PMIx): MPICH's (MPICH, Intel MPI, MVAPICH, Cray:
PMI-1 or PMI-2) and Open MPI's (PMIx). A program's family is seen in the names of its libraries. The ranker serves both;
for PMIx it needs the library of PMIx, and where there is none, Open MPI's own mpirun starts the ranks.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.checkpoint_precheck import interpreter_of, libraries, library_folders
from pool.jobs.pipes.model import DESCRIPTOR, Joint

#: In the ad: how the ranks are started, how many each node has, and the paths of Open MPI's mpirun and of the library
#: of PMIx where they are not the system's.
FAMILY, RANKS, MPIRUN, PMIX_LIBRARY = "MpiFamily", "RanksPerMachine", "MpiRun", "PmixLibrary"
#: By PMI-1 and PMI-2; by Open MPI's mpirun; by PMIx.
MPICH, OPENMPI, PMIX = FAMILIES = ("mpich", "openmpi", "pmix")
#: Ranks of one node, and of one job.
MOST_RANKS, MOST_IN_ALL = 4096, 1 << 20
#: So many nodes hang below one in the tree of rankers.
FANOUT = 16
#: The name of the ranker in the list of a node's pipes.
RANKER = "ranker"
#: The first descriptor of its pipes.
_FIRST_DESCRIPTOR = 10
#: Libraries by their names: the number behind `.so.` is that of the family's binary interface.
_MPICH = re.compile(r"lib(mpi|mpicxx|mpifort|mpi_cray|mpich|mpichcxx|mpichfort|fmpich)\.so\.12\b|libmpich\w*\.so\.")
_OPENMPI = re.compile(r"lib(mpi|mpi_cxx|mpi_mpifh|mpi_usempi\w*)\.so\.(20|40|80)\b|libopen-(rte|pal)\.so\.")
_PYTHON = re.compile(r"python[0-9.]*$")
#: A file's bytes, and the files that a pattern matches; errors are OSError.
Reader = Callable[[str], bytes]
Matcher = Callable[[str], Iterable[str]]


class NoFamily(PoolError):
    """It cannot be seen which MPI a program uses."""


def family_of_libraries(names: Iterable[str]) -> str | None:
    """The family of the MPI among a program's libraries; None where none of them is one."""
    for name in names:
        if _MPICH.match(name):
            return MPICH
        if _OPENMPI.match(name):
            return OPENMPI
    return None


def family_of(program: str, read: Reader, matching: Matcher) -> str:
    """Which MPI a program uses: seen in its file; of Python, and of a script of Python's, in its package mpi4py.

    Args:
        program: its path.
        read: reads a file.
        matching: the files that a pattern matches.

    Raises:
        NoFamily: it is linked with none, or not in a way that can be seen.
    """
    try:
        data = read(program)
        words = interpreter_of(data)
        if words:
            program = words[0] if posixpath.basename(words[0]) != "env" else next(iter(words[1:]), "")
            if not program.startswith("/"):
                program = next((path for path in map(f"{{}}/{program}".format, _PATH) if matching(path)), program)
        if _PYTHON.match(posixpath.basename(program)):
            return _of_python(program, read, matching)
        if (found := family_of_libraries(libraries(data))) is not None:
            return found
    except OSError as error:
        raise NoFamily(f"cannot read {program}: {error.strerror or error}", hint=_HINT) from None
    raise NoFamily(f"{program} names no MPI library that this pool knows", hint=_HINT)


_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_HINT = "write mpi = mpich or mpi = openmpi, or mpi = none for a program without MPI"


def _of_python(python: str, read: Reader, matching: Matcher) -> str:
    """By the modules of mpi4py: its wheels have one for each family, and use that whose library is beside Python."""
    prefix = posixpath.dirname(posixpath.dirname(python))
    places = (f"{prefix}/lib/python3*/site-packages", f"{prefix}/lib/python3/dist-packages")
    modules = [path for place in places for path in matching(f"{place}/mpi4py/MPI*.so")]
    families = {family_of_libraries(libraries(read(module))) for module in modules} - {None}
    if len(families) > 1:
        families = {family_of_libraries([posixpath.basename(path)]) for path in matching(f"{prefix}/lib/libmpi.so.*")}
    if len(families) == 1 and (found := families.pop()) is not None:
        return found
    what = "has no package mpi4py" if not modules else "has mpi4py for both families"
    raise NoFamily(f"the Python of {prefix} {what}", hint=_HINT)


def mpirun_of(program: str, read: Reader, matching: Matcher) -> str:
    """The mpirun beside the Open MPI that a program is linked with, where the program names the library's directory
    (RUNPATH); else empty: it is then looked for along PATH."""
    try:
        folders = library_folders(read(program))
        for folder in folders:
            beside = posixpath.join(posixpath.dirname(folder.rstrip("/")), "bin", "mpirun")
            if folder.startswith("/") and "$" not in folder and any(matching(beside)):
                return beside
    except OSError:
        pass
    return ""


def pmix_library_of(program: str, read: Reader, matching: Matcher) -> str | None:
    """The library of PMIx that belongs to a program's Open MPI: its path, where it lies beside the MPI that the program
    names (RUNPATH) or in Python's directory; empty for the system's; None where there is none."""
    try:
        data = read(program)
        words = interpreter_of(data)
        named = library_folders(data)
        folders = [folder.rstrip("/") for folder in named if folder.startswith("/") and "$" not in folder]
        if _PYTHON.match(posixpath.basename(words[0] if words else program)):
            folders.append(posixpath.join(posixpath.dirname(posixpath.dirname(words[0] if words else program)), "lib"))
        for folder in folders:
            if folder.startswith("/usr/lib"):
                continue
            for beside in ("", "openmpi/"):
                if any(matching(path := f"{folder}/{beside}{_PMIX_LIBRARY}")):
                    return path
            if any(matching(f"{folder}/libmpi.so.*")):
                return None  # an Open MPI of its own, with a PMIx inside that only its mpirun serves
    except OSError:
        pass
    return "" if any(any(matching(f"{place}/{_PMIX_LIBRARY}")) for place in _SYSTEM_FOLDERS) else None


_PMIX_LIBRARY = "libpmix.so.2"
_SYSTEM_FOLDERS = ("/usr/lib", "/usr/lib/*-linux-gnu*", "/usr/lib64", "/usr/local/lib")


def family_in(ad: ClassAd) -> str:
    """The family of an MPI job's ad; empty for other jobs.

    Raises:
        PoolError: the attribute has another value.
    """
    value = ad.value(FAMILY, "")
    if value in ("", *FAMILIES):
        return str(value)
    raise PoolError(f"the job's attribute {FAMILY} is {value!r}", hint=f"it may be {' or '.join(FAMILIES)}")


def layout_of(kinds: Iterable[tuple[int, int]]) -> str:
    """How many ranks the nodes have, as the ranker reads it: `2x3,4x1` are three nodes of two ranks and one of four.

    Args:
        kinds: ranks of a node, and how many nodes are like that, in the order of the nodes.

    Raises:
        PoolError: more ranks than a node or a job may have.
    """
    rows: list[list[int]] = []
    for ranks, nodes in kinds:
        if not 1 <= ranks <= MOST_RANKS:
            raise PoolError(f"an MPI job has 1 to {MOST_RANKS} ranks on each machine, not {ranks}")
        if rows and rows[-1][0] == ranks:
            rows[-1][1] += nodes
        else:
            rows.append([ranks, nodes])
    if sum(ranks * nodes for ranks, nodes in rows) > MOST_IN_ALL:
        raise PoolError(f"an MPI job has at most {MOST_IN_ALL} ranks")
    return ",".join(f"{ranks}x{nodes}" for ranks, nodes in rows)


def children(node: int, nodes: int) -> range:
    """The nodes below one in the tree of rankers."""
    return range(min(nodes, node * FANOUT + 1), min(nodes, (node + 1) * FANOUT + 1))


def parent(node: int) -> int:
    """The node above one that is not the root."""
    return (node - 1) // FANOUT


def links_of(node: int, nodes: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """The links of a node's ranker: the other node, and the ranker's descriptors to read from and to write to. The
    first is the one to the node above, where there is one."""
    others = [parent(node)] if node else []
    for number, other in enumerate([*others, *children(node, nodes)]):
        first = _FIRST_DESCRIPTOR + 2 * number
        yield other, (first, first + 1)


def pipes_of(node: int, nodes: int) -> tuple[tuple[Joint, ...], tuple[tuple[int, int, int], ...]]:
    """The pipes of a node's ranker, and what `Activation.crossings` says of them: index, number of the stream, node."""
    pipes: list[Joint] = []
    crossings: list[tuple[int, int, int]] = []
    for other, (reads, writes) in links_of(node, nodes):
        lower = max(node, other)
        up, down = 2 * lower, 2 * lower + 1
        there = f"{RANKER}{other}"
        for stream in (up, down):
            mine = (stream == up) == (lower == node)
            crossings.append((len(pipes), stream, other))
            ends = (RANKER, there) if mine else (there, RANKER)
            files = (f"{DESCRIPTOR}{writes}", "") if mine else ("", f"{DESCRIPTOR}{reads}")
            pipes.append(Joint(*ends, *files))
    return tuple(pipes), tuple(crossings)


def ranker_options(node: int, nodes: int, layout: str, application: int = 0) -> Sequence[str]:
    """The ranker's options about the job's shape: see pool/mpi/ranker/main.c."""
    words = ["--part", str(node), "--layout", layout, *(["--appnum", str(application)] if application else [])]
    for other, (reads, writes) in links_of(node, nodes):
        words += ["--up" if other < node else "--down", f"{reads},{writes}"]
    return words

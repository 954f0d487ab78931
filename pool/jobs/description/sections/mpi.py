"""MPI jobs: `mpi` and `ranks_per_machine`.

    universe      = mpi
    executable    = heat
    machine_count = 2        without it 1
    request_cpus  = 4        ranks on each machine: 8 in all
    queue

`mpi = auto`, which universe mpi has without the command, reads the program's file: which MPI is it linked with? The
ranks of Open MPI are started by PMIx where its library is, and else by Open MPI's own mpirun.
"""

from __future__ import annotations

import re

from pool.jobs.description.job import JobDraft
from pool.jobs.description.sections.parallel import is_parallel
from pool.jobs.gangs import ALL, MPI, NODE_MARKS, POLICY
from pool.jobs.mpi import (
    FAMILY,
    MOST_RANKS,
    MPICH,
    MPIRUN,
    OPENMPI,
    PMIX,
    PMIX_LIBRARY,
    RANKS,
    NoFamily,
    family_of,
    mpirun_of,
    pmix_library_of,
)

_NUMBER = re.compile(r"[0-9]{1,6}")
#: `openmpi` is either of the two behind it.
_VALUES = ("auto", MPICH, OPENMPI, PMIX, "mpirun", "none")
#: Bytes of a program's file that are read: its headers and its table of names lie anywhere in it.
_MOST = 1 << 30


def mpi(job: JobDraft) -> None:
    """Both commands; behind `request_cpus`."""
    if job.facts.as_reference:
        return
    wish = job.param("mpi", FAMILY)
    if not is_parallel(job):
        for command in ("mpi", "ranks_per_machine"):
            if job.param(command):
                raise job.refuse(
                    command, f"'{command}' is for jobs of universe mpi and parallel", "write universe = mpi"
                )
        return
    value = (wish or ("auto" if job.nature.universe == MPI else "none")).lower()
    if value not in _VALUES:
        raise job.refuse("mpi", f"expected one of {', '.join(_VALUES)} for 'mpi', not {wish!r}", other=FAMILY)
    if value == "none":
        if job.param("ranks_per_machine"):
            raise job.refuse("ranks_per_machine", "a job without MPI has no ranks", "leave it out, or write mpi = auto")
        return
    family = _family(job, value)
    if job.parent and job.parent.get(FAMILY.lower()) not in (None, family):
        raise job.refuse("mpi", "the programs of one MPI job are of one family of MPI", "link them with one MPI")
    if family == OPENMPI:
        _one_program(job)
    if not job.parent:
        job.set(FAMILY, family)
        job.set(POLICY, ALL)  # the ranks of all nodes end together; a description may say otherwise
    job.set(RANKS, _ranks(job))


def _family(job: JobDraft, wish: str) -> str:
    """How the ranks are started: as the description wishes, unless the program's file contradicts it."""
    path = job.full_path(job.text_of("Cmd"))
    if job.nature.docker or job.nature.container:
        if wish == "auto":
            hint = "write mpi = mpich or mpi = openmpi"
            raise job.refuse("mpi", "auto cannot look into an image", hint, other="universe")
        return OPENMPI if wish == "mpirun" else wish
    try:
        seen = family_of(path, lambda name: job.files.head(name, _MOST), job.files.matching)
    except NoFamily as trouble:
        if wish == "auto":
            raise job.refuse("mpi", trouble.message, trouble.hint, other="universe") from None
        seen = MPICH if wish == MPICH else OPENMPI
    if (wish == MPICH and seen != MPICH) or (wish in (OPENMPI, "mpirun") and seen != OPENMPI):
        raise job.refuse(
            "mpi", f"{path} is linked with the libraries of {seen}", f"write mpi = {seen}, or leave it out"
        )
    if seen == MPICH and wish != PMIX:
        return MPICH
    return _of_open_mpi(job, path, wish)


def _of_open_mpi(job: JobDraft, path: str, wish: str) -> str:
    """By PMIx where its library is, or where the description says so; else by mpirun."""

    def read(name: str) -> bytes:
        return job.files.head(name, _MOST)

    library = pmix_library_of(path, read, job.files.matching) if wish != "mpirun" else None
    if library is not None or wish == PMIX:
        if library:
            job.set(PMIX_LIBRARY, library)
        return PMIX
    if mpirun := mpirun_of(path, read, job.files.matching):
        job.set(MPIRUN, mpirun)
    return OPENMPI


def _one_program(job: JobDraft) -> None:
    """mpirun gets the program and the arguments of node 0, and starts them on all machines."""
    for command, attributes in (("executable", ("cmd",)), ("arguments", ("args", "arguments"))):
        if job.parent and any(job.own.get(name, job.parent.get(name)) != job.parent.get(name) for name in attributes):
            raise job.refuse(
                command,
                f"with Open MPI's mpirun a job has one '{command}' for all machines",
                f"write {command} once, or mpi = pmix where the machines have the library of PMIx",
            )
    if any(mark in job.text_of(name) for name in ("Args", "Arguments") for mark in NODE_MARKS.values()):
        raise job.refuse(
            "arguments",
            "with Open MPI's mpirun all ranks have the same arguments: $(Node) would be 0 for each",
            "write environment = NODE=$(Node), or mpi = pmix where the machines have the library of PMIx",
        )


def _ranks(job: JobDraft) -> int:
    """As many ranks as processors, unless fewer are wished: a rank that waits for its turn makes all others wait."""
    cpus, text = job.lookup("RequestCpus"), job.param("ranks_per_machine", RANKS)
    written = job.param("request_cpus", "RequestCpus")
    if text is None:
        if not isinstance(cpus, int) or isinstance(cpus, bool) or cpus < 1:
            raise job.refuse(
                "request_cpus",
                "the number of ranks on each machine is that of its processors, which is not known yet",
                "write request_cpus = NUMBER, or ranks_per_machine = NUMBER",
                other="universe",
            )
        if cpus > MOST_RANKS:
            raise job.refuse("request_cpus", f"an MPI job has at most {MOST_RANKS} ranks on each machine, not {cpus}")
        return cpus
    if not _NUMBER.fullmatch(text.strip()) or not 1 <= int(text) <= MOST_RANKS:
        raise job.refuse(
            "ranks_per_machine", f"expected a number from 1 to {MOST_RANKS} for 'ranks_per_machine', not {text!r}"
        )
    ranks = int(text)
    if written is None:
        job.set("RequestCpus", ranks)
    elif isinstance(cpus, int) and cpus < ranks:
        raise job.refuse(
            "ranks_per_machine",
            f"{ranks} ranks on {cpus} processors would wait for each other most of the time",
            f"write request_cpus = {ranks}, or fewer ranks",
        )
    return ranks

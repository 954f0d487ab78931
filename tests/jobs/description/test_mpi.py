"""`universe = mpi`, `mpi` and `ranks_per_machine`: what the ad has, and what is refused in one line with a way out."""

from __future__ import annotations

from typing import Any

import pytest

from pool.jobs.gangs import parts_of
from tests.jobs.description.support import attributes, read, refusal
from tests.jobs.description.test_parallel import ad_of

MPI = "universe = mpi\nexecutable = /bin/heat\nmpi = mpich\n"


def said(text: str) -> tuple[str, str]:
    """The one error of a description, and its way out."""
    (found,) = refusal(text).diagnostics
    return found.message, found.hint


@pytest.mark.parametrize(
    ("commands", "cpus", "ranks"),
    [
        ("", 1, 1),
        ("request_cpus = 4", 4, 4),
        ("request_cpus = 4\nranks_per_machine = 2", 4, 2),
        ("ranks_per_machine = 3", 3, 3),
        ("request_cpus = ifThenElse(true, 2, 4)\nranks_per_machine = 2", None, 2),
    ],
)
def test_a_machine_has_as_many_ranks_as_processors_or_fewer(commands: str, cpus: int | None, ranks: int) -> None:
    found = attributes(f"{MPI}{commands}\nqueue\n")
    assert (found["RanksPerMachine"], found["MpiFamily"], found["JobUniverse"]) == (ranks, "mpich", 8)
    assert cpus is None or found["RequestCpus"] == cpus
    assert (found["MaxHosts"], found["ParallelShutdownPolicy"]) == (1, "WAIT_FOR_ALL")


def test_a_parallel_job_may_be_one_of_mpi() -> None:
    found = attributes("universe = parallel\nexecutable = /bin/heat\nmachine_count = 3\nmpi = OpenMPI\nqueue\n")
    assert (found["MpiFamily"], found["RanksPerMachine"], found["JobUniverse"]) == ("openmpi", 1, 11)
    assert "MpiFamily" not in attributes("universe = parallel\nexecutable = /bin/heat\nmachine_count = 3\nqueue\n")


def test_statements_have_ranks_and_programs_of_their_own() -> None:
    text = f"{MPI}request_cpus = 2\nqueue\nexecutable = /bin/other\nrequest_cpus = 4\nmachine_count = 3\nqueue\n"
    first, second = parts_of(ad_of(text)).kinds
    assert (first.count, second.count) == (1, 3)
    assert (second.own["RanksPerMachine"], second.own["Cmd"]) == (4, "/bin/other")


@pytest.mark.parametrize(
    ("text", "words", "way_out"),
    [
        ("mpi = lam", "expected one of auto, mpich, openmpi, pmix, mpirun, none for 'mpi', not 'lam'", ""),
        ("mpi = auto", "cannot read /bin/heat", "write mpi = mpich or mpi = openmpi, or mpi = none"),
        ("mpi = none\nranks_per_machine = 2", "a job without MPI has no ranks", "leave it out, or write mpi = auto"),
        ("ranks_per_machine = 0", "expected a number from 1 to 4096 for 'ranks_per_machine', not '0'", ""),
        ("ranks_per_machine = -1", "expected a number from 1 to 4096", ""),
        ("ranks_per_machine = 4097", "expected a number from 1 to 4096", ""),
        ("ranks_per_machine = 1.5", "expected a number from 1 to 4096", ""),
        ("ranks_per_machine = ²", "expected a number from 1 to 4096", ""),
        ("ranks_per_machine = " + "9" * 5000, "expected a number from 1 to 4096", ""),
        ("ranks_per_machine = all", "expected a number from 1 to 4096", ""),
        ("request_cpus = 5000", "at most 4096 ranks on each machine, not 5000", ""),
        ("request_cpus = 2\nranks_per_machine = 4", "4 ranks on 2 processors would wait", "write request_cpus = 4"),
        ("request_cpus = TotalCpus", "its processors, which is not known yet", "ranks_per_machine = NUMBER"),
        ("universe = vanilla", "'mpi' is for jobs of universe mpi and parallel", "write universe = mpi"),
        ("queue\nmpi = openmpi", "the programs of one MPI job are of one family", "link them with one MPI"),
        ("mpi = openmpi\nqueue\nexecutable = /bin/b", "a job has one 'executable' for all machines", "once"),
        ("mpi = openmpi\narguments = a\nqueue\narguments = b", "a job has one 'arguments' for all machines", "once"),
        ("mpi = openmpi\narguments = $(Node)", "$(Node) would be 0 for each", "environment = NODE=$(Node)"),
    ],
)
def test_anything_else_is_refused_with_a_way_out(text: str, words: str, way_out: str) -> None:
    message, hint = said(f"{MPI}{text}\nqueue\n")
    assert words in message
    assert way_out in hint


def test_ranks_are_for_mpi_alone() -> None:
    message, hint = said("executable = /bin/heat\nranks_per_machine = 2\nqueue\n")
    assert (message, hint) == (
        "'ranks_per_machine' is for jobs of universe mpi and parallel",
        "write universe = mpi",
    )


@pytest.mark.parametrize("more", ["environment = N=$(Node)\n", "queue\n", "queue\nmachine_count = 2\n"])
def test_the_rest_may_differ_with_open_mpi(more: str) -> None:
    found: Any = read(f"{MPI}mpi = openmpi\narguments = a\n{more}queue\n").clusters[0].attributes
    assert found["MpiFamily"] == "openmpi"


@pytest.mark.parametrize(
    ("wish", "library", "family"),
    [
        ("openmpi", True, "pmix"),
        ("openmpi", False, "openmpi"),
        ("pmix", True, "pmix"),
        ("pmix", False, "pmix"),
        ("mpirun", True, "openmpi"),
        ("mpich", True, "mpich"),
    ],
)
def test_ranks_of_open_mpi_are_started_by_pmix_where_its_library_is(wish: str, library: bool, family: str) -> None:
    files = {"/usr/lib/libpmix.so.2": ""} if library else {}
    found = attributes(f"{MPI}mpi = {wish}\nqueue\n", files=files)
    assert found["MpiFamily"] == family


def test_with_pmix_each_node_has_a_program_and_arguments_of_its_own() -> None:
    text = f"{MPI}mpi = pmix\narguments = $(Node)\nqueue\nexecutable = /bin/other\nqueue\n"
    _, second = parts_of(ad_of(text)).kinds
    assert (attributes(text)["MpiFamily"], second.own["Cmd"]) == ("pmix", "/bin/other")

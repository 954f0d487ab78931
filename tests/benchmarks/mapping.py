"""The cost of mapping names of files to pipes: bytes through one, an open that is asked about, other calls.

Beside the same program with a shell's pipe, or without a mapping, in turns.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from statistics import median

from pool.checkpoint.build import compiler
from pool.starter.keeper import NativeKeepers
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.checkpoint.mapping.support import job, program

BLOCKS = (4096, 8192, 65536, 131072)


@benchmark("mapping")
async def mapping(effort: Effort) -> list[Row]:
    """Bytes through a mapped pipe beside a shell's; open and close in a job with mapped files; getppid in one."""
    with tempfile.TemporaryDirectory() as name:
        flow = Path(name) / "flow"
        source = Path(__file__).with_name("flow.c")
        subprocess.run([*compiler().split(), "-O2", "-o", flow, source], check=True)  # noqa: ASYNC221
        keepers = NativeKeepers(Path(name) / "keepers")
        await keepers.open()
        try:
            rows = [await _bytes(keepers, flow, block, effort) for block in BLOCKS]
            rows.append(await _bytes(keepers, flow, 131072, effort, readers=2))
            rows += [await _bytes(keepers, flow, block, effort, short_reads=True) for block in BLOCKS]
            opened = await _beside(keepers, flow, "open", str(flow), str(effort.of(20_000)))
            called = await _beside(keepers, flow, "call", str(effort.of(1_000_000)))
        finally:
            await keepers.close(kill=True)
    rows.append(Row("open and close, asked about", opened[0], "us", Goal("at most", 20), "without mapping", opened[1]))
    more = (called[0] - called[1]) * 1000
    rows.append(Row("more for a call that is not asked about", more, "ns", Goal("at most", 100)))
    return rows


async def _bytes(
    keepers: NativeKeepers, flow: Path, block: int, effort: Effort, readers: int = 1, *, short_reads: bool = False
) -> Row:
    amount, ours, shell = str(effort.of(1000)), [], []
    for _ in range(effort.of(5)):
        members = (
            program(flow.parent, "w", str(flow), "w", "fort.10", str(block), amount),
            *(program(flow.parent, f"r{n}", str(flow), "r", "fort.11", str(block)) for n in range(readers)),
        )
        asked = job(flow.parent, members, *((0, "fort.10", n + 1, "fort.11", short_reads) for n in range(readers)))
        end = await (await keepers.start(asked)).ended
        assert end.code == 0, end.error
        ours.append(float((flow.parent / "r0.out").read_text()))
        line = f"{flow} w - {block} {amount} | {flow} r - {block}"
        done = subprocess.run(line, shell=True, check=True, capture_output=True, text=True)  # noqa: ASYNC221
        shell.append(float(done.stdout))
    what = f"through a mapped pipe, {block} bytes at a time" + (f", {readers} readers" if readers > 1 else "")
    what += ", short reads" if short_reads else ""
    goal = Goal("at least", 0.9 if short_reads else 0.95, "ratio") if readers == 1 else None
    return Row(what, median(ours), "GB/s", goal, "shell pipe", median(shell))


async def _beside(keepers: NativeKeepers, flow: Path, *arguments: str) -> tuple[float, float]:
    """The same in a process with a mapped file and in one without."""
    ours, plain = [], []
    for _ in range(3):
        members = tuple(program(flow.parent, name, str(flow), *arguments) for name in ("a", "b"))
        end = await (await keepers.start(job(flow.parent, members[:1], (0, "x", 0, "x")))).ended
        assert end.code == 0, end.error
        ours.append(float((flow.parent / "a.out").read_text()))
        end = await (await keepers.start(job(flow.parent, members[1:]))).ended
        plain.append(float((flow.parent / "b.out").read_text()))
    return min(ours), min(plain)

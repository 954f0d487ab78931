"""Jobs of every kind for the flock of real pools: copied, shared and remote files, pipes, mapped files, checkpoints.

Each kind runs `reporter.c`, which reports over a way that no fault cuts, and makes files whose bytes follow from its
input alone. So a copy too many, a byte too many and a byte too few are seen.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.chaos.record import JobName

#: Bytes that a job changes in a tick (`reporter.c`).
PART = 4096


class JobKind(StrEnum):
    """The ways in which a job uses its files."""

    COPIED = "files are copied"
    SAVED = "files are copied, with checkpoints"
    REMOTE = "remote files"
    REMOTE_SAVED = "remote files, with checkpoints"
    PIPE = "three programs with pipes, with checkpoints"
    MAPPED = "two programs, a file of one is a pipe to the other"
    SPREAD = "three programs on machines of two pools with pipes, with checkpoints"


#: Those that are saved take long enough for it.
TICKS = {kind: (15, 40) if "checkpoints" in kind else (1, 10) for kind in JobKind}


@dataclass(slots=True)
class FlockJob:
    """One job.

    Attributes:
        label: its name in reports.
        pool: where it is submitted.
        ticks: of a tenth of a second, that it takes.
        seed: how it changes its input.
        home: the directory of its files.
        name: once it is in the queue.
        tried: whether a submit was tried.
    """

    label: str
    kind: JobKind
    pool: str
    ticks: int
    seed: int
    home: Path
    name: JobName | None = None
    tried: bool = False

    def description(self, program: Path, reports: Path) -> dict[str, str]:
        """The submit commands; the program is the reporter, which reports there."""
        words = f"{reports} {self.label} {self.ticks} {self.seed}"
        saved = "checkpoints" in self.kind
        commands = {
            "error": "err",
            "log": "log",
            "checkpoint": "auto" if saved else "off",
            "on_exit_remove": "ExitBySignal =!= true",  # a signal is a fault's, and no end of the job
            "request_memory": "16",
            "request_disk": "2M",
        }
        match self.kind:
            case JobKind.REMOTE | JobKind.REMOTE_SAVED:
                commands["remote_io"] = "on"
            case _:
                commands |= {"should_transfer_files": "yes", "transfer_input_files": "in"}
        match self.kind:
            case JobKind.PIPE:
                return commands | {"executable": f"{program} {words} | tee copy | wc -l > count"}
            case JobKind.SPREAD:
                return commands | {
                    "executable": f"a={program} {words} | b=tee copy | c=wc -l > count",
                    "a.requirements": "FlockPool =?= undefined",
                    "b.requirements": "FlockPool =!= undefined",
                    "c.requirements": "FlockPool =?= undefined",
                }
            case JobKind.MAPPED:
                return commands | {
                    "executable": f"first={program} second=/bin/cat",
                    "pipe": "first > out - > second",
                    "first.arguments": words,
                    "first.output": "stdout",
                    "second.output": "copied",
                }
            case _:
                return commands | {"executable": str(program), "arguments": words, "output": "stdout"}

    def prepare(self) -> None:
        """Make its directory and its input."""
        self.home.mkdir(parents=True)
        (self.home / "in").write_bytes(self._input())

    def outputs(self) -> dict[str, bytes]:
        """The right content of its files in the end."""
        given = self._input()
        parts = [given[at : at + PART] for at in range(0, len(given), PART)]
        changed = b"".join(
            bytes(byte ^ (self.seed + tick & 0xFF) for byte in part) for tick, part in enumerate(parts, 1)
        )
        counted = "".join(f"{tick}\n" for tick in range(1, self.ticks + 1)).encode()
        match self.kind:
            case JobKind.PIPE | JobKind.SPREAD:
                return {"out": changed, "copy": counted, "count": f"{self.ticks}\n".encode()}
            case JobKind.MAPPED:
                return {"copied": changed, "stdout": counted}
            case _:
                return {"out": changed, "stdout": counted}

    def wrong_outputs(self) -> list[str]:
        """The files that are not as they have to be."""
        found = []
        for name, right in self.outputs().items():
            path = self.home / name
            is_there = path.read_bytes() if path.exists() else None
            if is_there != right:
                size = "is missing" if is_there is None else f"has {len(is_there)} bytes"
                found.append(f"{self}: {path} {size} and is not its {len(right)} bytes")
        return found

    def _input(self) -> bytes:
        return random.Random(self.label).randbytes(self.ticks * PART)

    def __str__(self) -> str:
        name = "a job that is in no queue" if self.name is None else f"{self.name[1]}.{self.name[2]}"
        return f"{name} of {self.pool} ({self.kind})"


def draw_jobs(seed: int, count: int, pools: dict[str, float], homes: dict[str, Path]) -> list[FlockJob]:
    """So many jobs, at least one of each kind if there are enough.

    Args:
        pools: where jobs come from, with the weight of each.
        homes: the directory of each pool's users.
    """
    chance = random.Random(f"flock jobs {seed}")
    kinds = [*JobKind] * (count // len(JobKind) + 1)
    jobs = []
    for number, kind in enumerate(chance.sample(kinds[: max(count, len(JobKind))], count)):
        (pool,) = chance.choices(list(pools), list(pools.values()))
        label = f"{seed}-{pool}-{number}"
        jobs.append(FlockJob(label, kind, pool, chance.randint(*TICKS[kind]), number, homes[pool] / label))
    return jobs

"""A link between two pools that is down for an hour, with a thousand jobs across it, on the virtual clock.

All machines are in one pool, all jobs come from the other. The link falls silent while the jobs run. Each job runs on
for its lease, and is killed there; its schedd waits for the lease's end, too, before it starts it anywhere else. When
the link is back the job goes on from its last checkpoint, if it has one.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from pool.testing.flock_status import FlockStatus
from pool.testing.keepers import Behaviour
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

HOUR = 3600.0
BORROWER, LENDER = "physics", "chem"


@dataclass(frozen=True, slots=True)
class LinkSize:
    """The size of a run.

    Attributes:
        slots: on each machine of the pool that lends.
        interval: seconds between two checkpoints. Jobs with an odd number cannot be checkpointed.
        shortest, longest: seconds that a job runs.
        breaks: seconds after the submit.
    """

    jobs: int
    machines: int
    slots: int
    interval: float = 600.0
    shortest: float = 2000.0
    longest: float = 6000.0
    breaks: float = 1500.0


WHOLE = LinkSize(1000, 50, 20)
SMALL = LinkSize(8, 2, 4, shortest=1700.0, longest=2500.0)


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """Counts of jobs.

    Attributes:
        stuck: in the queue a day after the link was back. twice: two copies at a time. lost: in no queue and no
            history, or more than once there.
        interrupted: with a checkpoint, killed while the link was down. restored: of those, went on from it.
        most_redone: of what such a job had done when the link broke, the most that was done again, seconds.
        begun_anew: without a checkpoint, killed while the link was down.
        broken: instants at which a program ran that its schedd did not call running, or on a slot that was not busy.
        seconds: from the link's return until all had ended.
    """

    stuck: int
    twice: int
    lost: int
    interrupted: int
    restored: int
    most_redone: float
    begun_anew: int
    broken: int
    seconds: float


def run_link(size: LinkSize, directory: Path, seed: int = 1) -> LinkFigures:
    """Run it on a virtual clock of its own; queues and checkpoints are in the directory."""
    return run_virtual(_run(size, directory, seed))


def _behaviour(size: LinkSize, seed: int, proc: int) -> Behaviour:
    seconds = random.Random(f"{seed} {proc}").uniform(size.shortest, size.longest)
    return Behaviour(seconds, saving=None if proc % 2 else 1.0)


async def _run(size: LinkSize, directory: Path, seed: int) -> LinkFigures:
    async with SimFlock([BORROWER, LENDER], seed, directory=directory) as flock:
        flock.agree(lender=LENDER, borrower=BORROWER)
        await flock.add_pool(
            LENDER,
            size.machines,
            behave=lambda spec: _behaviour(size, seed, int(spec.id.split(".")[1])),
            settings={"SLOTS": str(size.slots)},
        )
        await flock.add_pool(BORROWER, 0)
        await flock.run_until(lambda: bool(flock.machines_shown(BORROWER)), within=600)
        status = FlockStatus(flock)
        await flock.submit(BORROWER, count=size.jobs, ad={"CheckpointInterval": size.interval})
        await flock.run_until(lambda: len(flock.witness.running) == size.jobs, within=600)
        await flock.settle(size.breaks)
        broke = flock.now()
        flock.network.drop_silently(head(BORROWER), head(LENDER))
        await flock.settle(HOUR)
        back = flock.now()
        flock.network.restore_links()
        status.begin(0.0 if size.jobs <= SMALL.jobs else 10.0)
        try:
            await flock.run_until(lambda: not flock.queued(), within=24 * HOUR)
        except TimeoutError:
            pass
        ended = Counter(f"{ad['ClusterId']}.{ad['ProcId']}" for ad in await flock.pool(BORROWER).ended(head(BORROWER)))
        runs = _runs(flock)
        redone: list[float] = []
        interrupted = restored = begun_anew = 0
        for job, spans in runs.items():
            proc = int(job.rpartition(".")[2])
            needs = _behaviour(size, seed, proc).seconds
            cut = next((until for since, until in spans if since < broke <= until < back), None)
            if cut is None or len(spans) == 1:
                continue
            if proc % 2:
                begun_anew += 1
                continue
            interrupted += 1
            again = sum(until - since for since, until in spans) - needs
            redone.append(again - (cut - broke))
            restored += spans[-1][1] - spans[-1][0] < needs - 1.0
        return LinkFigures(
            flock.queued(),
            len(flock.witness.doubles),
            size.jobs - flock.queued() - sum(count == 1 for count in ended.values()),
            interrupted,
            restored,
            max(redone, default=0.0),
            begun_anew,
            len(status.broken),
            flock.now() - back,
        )


def _runs(flock: SimFlock) -> dict[str, list[tuple[float, float]]]:
    """When each job began and ended, each time."""
    begins: dict[str, list[float]] = {}
    ends: dict[str, list[float]] = {}
    for found, events in ((begins, flock.witness.starts), (ends, flock.witness.ends)):
        for job, _, at in events:
            found.setdefault(job, []).append(at)
    return {job: list(zip(began, ends.get(job, []), strict=False)) for job, began in begins.items()}


@benchmark("flock_link")
async def flock_link(effort: Effort) -> list[Row]:
    """A link between two pools that is down for an hour, 1,000 jobs across it; real roles, virtual clock."""
    size = WHOLE if effort.share >= 1 else LinkSize(effort.of(1000, least=40), 4, effort.of(250, least=10))
    with tempfile.TemporaryDirectory(prefix="poolnode-bench-") as directory:
        # The benchmark is on a loop itself, and the virtual clock is a loop of its own.
        found = await asyncio.to_thread(run_link, size, Path(directory))
    note = f"{size.jobs:,} jobs on {size.machines * size.slots:,} slots of the other pool"
    nothing = Goal("at most", 0)
    return [
        Row("jobs stuck a day after the link was back", found.stuck, "jobs", nothing, note=note),
        Row("jobs of which two copies ran at a time", found.twice, "jobs", nothing),
        Row("jobs lost, or ended more than once", found.lost, "jobs", nothing),
        Row("with a checkpoint and killed by the lease: went on from it", found.restored, "jobs",
            Goal("at least", 1, "ratio"), peer="killed by the lease", peer_value=found.interrupted),
        Row("most that such a job did again of its work before the break", found.most_redone, "s",
            Goal("at most", 1.01, "ratio"), peer="checkpoint interval", peer_value=size.interval),
        Row("without a checkpoint: begun anew", found.begun_anew, "jobs"),
        Row("instants after it at which status and machines differed", found.broken, "instants", nothing),
    ]  # fmt: skip

"""The dedicated scheduler on a supercomputer's workload: Wright 3.3, holes lent, backfill, saving, plans; its cycle.

The real decisions run in virtual time (`pool.testing.dedicated`), with first come first served, EASY and conservative
backfill written for themselves beside them on the same jobs in the same run (`scheduling_peers`). Only the cycles are
measured in real time, as processor time. The workload is drawn from the model of Lublin and Feitelson for 256 machines,
scaled to a load of 0.85. If `POOLNODE_TRACES` names a directory with `lublin_256.swf.gz` or `hpc2n-excerpt.swf.gz`,
these are used; the goals that name seconds are for the former.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pool.policy.dedicated import (
    WRIGHT,
    Backfill,
    Decisions,
    DedicatedJob,
    DedicatedMachine,
    DedicatedRun,
    DedicatedSettings,
    MachineState,
    PartClass,
    QueueOrder,
    Share,
    UserQueue,
    decide,
    group_machines,
    make_plan,
)
from pool.testing.dedicated import Durations, Metrics, SimulatedCosts, Simulation, TraceJob, lublin, read_swf, scaled
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.benchmarks.scheduling_peers import PeerFigures, conservative, easy, fcfs, peer

MACHINES, LOAD, JOBS = 256, 0.85, 10_000
EASY = replace(WRIGHT, backfill=Backfill.EASY)
CONSERVATIVE = replace(WRIGHT, backfill=Backfill.CONSERVATIVE)
SHARING = replace(WRIGHT, time_sharing=True)
#: Of an opportunistic job of some 100 MB, evicted until it runs elsewhere: 1.0 to 1.3 s measured, 8.5 s on a busy day.
HOLES = SimulatedCosts(negotiate=1.0, reclaim=5.0, resume=3.0, refill=2.0)
#: Seconds for which a gang's machines compute nothing, for each save and again for each restore. One of 100 MB a part
#: needs about 2 s; 30 s is what some gigabytes a part need.
SAVES = (10.0, 30.0, 120.0)


def workload(effort: Effort) -> tuple[str, list[TraceJob]]:
    """The jobs, and where they are from."""
    count = effort.of(JOBS, least=400)
    trace = traced("lublin_256.swf.gz")
    if trace is not None:
        return "Lublin-256", scaled(read_swf(trace, MACHINES, JOBS), MACHINES, LOAD)[:count]
    return "Lublin-256, drawn", scaled(lublin(random.Random(256), count, MACHINES), MACHINES, LOAD)


def traced(name: str) -> Path | None:
    """A trace's file, if there is one."""
    folder = os.environ.get("POOLNODE_TRACES")
    path = Path(folder or ".") / name
    return path if folder and path.exists() else None


@benchmark("dedicated")
async def dedicated(effort: Effort) -> list[Row]:
    """Parallel jobs on dedicated machines: Wright 3.3, holes, backfill, saving, plans, cycles."""
    where, jobs = workload(effort)
    peers = {rule.__name__: peer(jobs, MACHINES, rule) for rule in (fcfs, easy, conservative)}
    rows = [*_wright(where, jobs, peers["fcfs"]), *_backfill(where, jobs, peers)]
    rows += _saving(where, jobs, peers)
    rows += _plans(where, jobs[: effort.of(3000, least=400)])
    rows += _estimates()
    rows += [_cycle(count, number, goal) for count, number, goal in ((10_000, 10_000, 1.0), (100_000, 10_000, 10.0))]
    return rows


def _run(jobs: Sequence[TraceJob], settings: DedicatedSettings, machines: int = MACHINES, **more: object) -> Metrics:
    return Simulation(jobs, machines, settings, **more).run()  # type: ignore[arg-type]


def _wright(where: str, jobs: Sequence[TraceJob], first: PeerFigures) -> list[Row]:
    plain = _run(jobs, WRIGHT)
    lent = _run(jobs, replace(WRIGHT, lend=True), costs=HOLES, opportunistic=True)
    name = "first come, first served"
    return [
        Row(
            f"{where}: Wright 3.3: utilisation",
            plain.utilisation,
            "",
            Goal("at least", 0.99, "ratio"),
            name,
            first.utilisation,
        ),
        Row(
            f"{where}: the same, holes lent: machines busy",
            lent.busy,
            "",
            Goal("at least", 0.95),
            name,
            first.utilisation,
        ),
        Row(
            "computing time of opportunistic jobs in holes", lent.goodput, "of all", note=f"{lent.reclaims:,} reclaims"
        ),
        Row("a gang starts later by reclaims, longest", lent.head_delay, "s", Goal("at most", HOLES.reclaim)),
        Row("opportunistic and gang work lost", lent.lost, "machine s", Goal("at most", 0.0)),
    ]


def _backfill(where: str, jobs: Sequence[TraceJob], peers: dict[str, PeerFigures]) -> list[Row]:
    rows = []
    for rule, settings in (("easy", EASY), ("conservative", CONSERVATIVE)):
        ours, theirs = _run(jobs, settings, durations=Durations.PERFECT), peers[rule]
        goal = Goal("at most", 1.05, "ratio")
        name = {"easy": "EASY", "conservative": "conservative backfill"}[rule]
        rows.append(Row(f"{where}: durations, {rule}: mean wait", ours.wait, "s", goal, name, theirs.wait))
        rows.append(Row("the same: bounded slowdown", ours.slowdown, "", goal, name, theirs.slowdown))
    return rows


def _saving(where: str, jobs: Sequence[TraceJob], peers: dict[str, PeerFigures]) -> list[Row]:
    best = min(peers["easy"].slowdown, peers["conservative"].slowdown)
    rows = []
    for cost in SAVES:
        costs = SimulatedCosts(save=cost, restore=cost)
        ours = _run(jobs, SHARING, costs=costs, saveable=True)
        what = f"{where}: saved, no durations, {cost:.0f} s a save and {cost:.0f} s a restore"
        note = f"mean wait {ours.wait:,.0f} s, {ours.saves:,} saves, {ours.overhead:.1%} of the machines' time"
        goal = Goal("at most", 1.0, "ratio")
        rows.append(Row(f"{what}: bounded slowdown", ours.slowdown, "", goal, "best backfill", best, note))
        rows.append(Row("the same: work lost", round(ours.lost, 3) + 0.0, "machine s", Goal("at most", 0.0)))
    return rows


def _estimates() -> list[Row]:
    path = traced("hpc2n-excerpt.swf.gz")
    if path is None:
        return []
    # Of jobs of one second the shorter goes first, as the peers have it: their order in the trace says nothing.
    jobs = sorted(read_swf(path, 240), key=lambda job: (job.submitted, job.runtime, job.size))
    jobs = [replace(job, number=number) for number, job in enumerate(jobs, 1)]
    theirs = peer(jobs, 240, easy)
    rows = []
    users = replace(EASY, order=QueueOrder.USERS)
    for what, settings, more in (
        ("EASY by users' estimates", EASY, {"durations": Durations.SAID}),
        ("the same, a queue for each user", users, {"durations": Durations.SAID}),
        ("EASY by earlier runs, a queue for each user", users, {"durations": Durations.PREDICTED}),
        (
            "saved (30 s and 30 s), no durations",
            SHARING,
            {"costs": SimulatedCosts(save=30.0, restore=30.0), "saveable": True},
        ),
    ):
        ours = _run(jobs, settings, 240, **more)
        goal = Goal("at most", 1.0, "ratio")
        rows.append(Row(f"HPC2N: {what}: bounded slowdown", ours.slowdown, "", goal, "EASY", theirs.slowdown))
    rows += [
        _plan_row(f"HPC2N, {how.value}", jobs, 240, EASY, how, 20) for how in (Durations.SAID, Durations.PREDICTED)
    ]
    return rows


def _plans(where: str, jobs: Sequence[TraceJob]) -> list[Row]:
    return [
        _plan_row(f"{where}, durations known", jobs, MACHINES, EASY, Durations.PERFECT, 50),
        _plan_row(f"{where}, no durations, Wright 3.3", jobs, MACHINES, WRIGHT, Durations.PREDICTED, 500),
    ]


def _plan_row(
    where: str, jobs: Sequence[TraceJob], machines: int, settings: DedicatedSettings, durations: Durations, every: int
) -> Row:
    """How far expected starts are off, at each `every`th cycle, for all gangs that wait then."""
    said: list[tuple[str, float, float]] = []
    cycles = 0

    def observe(sim: Simulation, now: float, decisions: Decisions) -> None:
        nonlocal cycles
        cycles += 1
        if cycles % every == 0:
            plan = make_plan(
                sim.queue_state(),
                tuple(sim.running.values()),
                sim.machine_state(),
                now,
                sim.settings,
                guess=sim.predictor.mean,
            )
            said.extend((start.job, now, start.start) for start in plan.starts if start.start is not None)

    simulation = Simulation(jobs, machines, settings, durations=durations, observer=observe)
    simulation.run()
    done = {str(job.number): job for job in simulation.finished}
    errors = [
        abs(expected - done[job].started) / max(60.0, done[job].started - done[job].submitted)
        for job, now, expected in said
        if done[job].started > now
    ]
    note = f"{len(errors):,} expectations"
    goal = Goal("at most", 0.2)
    return Row(f"{where}: expected start, median error", statistics.median(errors), "of the wait", goal, note=note)


def _cycle(machines: int, jobs: int, goal: float) -> Row:
    """The dearest of the disciplines on a mixed pool, half of it busy."""
    dearest, of = 0.0, ""
    for settings, saveable in (
        (DedicatedSettings(), False),
        (DedicatedSettings(backfill=Backfill.CONSERVATIVE), False),
        (DedicatedSettings(time_sharing=True), True),
        (DedicatedSettings(strict=False), False),
    ):
        queues, running, there = mixed_pool(machines, jobs, saveable)
        before = time.process_time()
        decide(queues, running, group_machines(there, 1000.0, 300.0), 1000.0, settings)
        took = time.process_time() - before
        if took > dearest:
            sharing = "time sharing" if settings.time_sharing else settings.backfill.value
            dearest, of = took, sharing if settings.strict else "best fit"
    note = f"the dearest of four disciplines: {of}"
    return Row(
        f"cycle: {machines:,} machines of 8 kinds, {jobs:,} parallel jobs",
        dearest,
        "s",
        Goal("at most", goal),
        note=note,
    )


def mixed_pool(
    machines: int, jobs: int, saveable: bool
) -> tuple[list[UserQueue], list[DedicatedRun], list[DedicatedMachine]]:
    """Half of the machines busy; gangs of 1 to 2,000 parts of fifty users, each fifth with two kinds of parts."""
    chance = random.Random(3)
    kinds = [f"k{number}" for number in range(8)]
    everything = [DedicatedMachine(f"slot1@node{n:06}", kinds[n % 8], MachineState.UNCLAIMED) for n in range(machines)]
    running: list[DedicatedRun] = []
    place = 0
    while place < machines // 2:
        size = min(chance.choice([1, 2, 4, 8, 16, 32, 64]), machines // 2 - place)
        by_kind: dict[str, list[str]] = {}
        for machine in everything[place : place + size]:
            by_kind.setdefault(machine.kind, []).append(machine.name)
        place += size
        user, duration = f"u{len(running) % 50}", None if saveable else chance.uniform(2000, 90000)
        alike = (PartClass(size, tuple(by_kind)),)
        job = DedicatedJob(f"r{len(running)}.0", user, alike, 0.0, duration=duration, saveable=saveable)
        running.append(DedicatedRun(job, 0.0, tuple(Share(0, kind, tuple(names)) for kind, names in by_kind.items())))
    states = [MachineState.CLAIMED_IDLE, MachineState.UNCLAIMED, MachineState.OCCUPIED]
    rest = [replace(machine, state=chance.choice(states)) for machine in everything[place:]]
    queues: dict[str, list[DedicatedJob]] = {}
    for number in range(jobs):
        size = chance.choice([1, 2, 3, 4, 8, 16, 100, 500, 1000, 2000])
        fits = tuple(sorted(chance.sample(kinds, chance.choice([2, 4, 8]))))
        workers = PartClass(size, fits, "worker")
        parts: tuple[PartClass, ...] = (workers,) if number % 5 else (PartClass(1, fits[:1], "master"), workers)
        duration = None if saveable else chance.uniform(100, 9000)
        user = f"u{number % 50}"
        cost = 10.0 if saveable else 0.0
        job = DedicatedJob(
            f"{number}.0",
            user,
            parts,
            number / 10,
            duration=duration,
            saveable=saveable,
            save_seconds=cost,
            restore_seconds=cost,
        )
        queues.setdefault(user, []).append(job)
    return [UserQueue(user, tuple(found), chance.uniform(0, 1e6)) for user, found in queues.items()], running, rest

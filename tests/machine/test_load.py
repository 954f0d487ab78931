"""The owner's load apart from the pool's (A5): against a model of the kernel's average, and on real processes."""

from __future__ import annotations

import contextlib
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from pool.machine.load import MINUTE, READS, TICK, Count, Damped, Loads, OwnerLoad, ProcessTrees, running_tasks


def test_damping_is_the_kernels() -> None:
    damped = Damped()
    for _ in range(12):
        damped.add_sample(1.0, TICK)
    assert damped.value == pytest.approx(1 - math.exp(-1), abs=1e-9)
    # However the minute is divided.
    assert Damped().add_sample(1.0, MINUTE) == pytest.approx(damped.value)
    assert Damped(3.0).add_sample(5.0, 0.0) == 3.0
    assert Damped(3.0).add_sample(5.0, -10.0) == 3.0


class Machine:
    """A machine whose kernel counts tasks at times of its own, with an owner and jobs."""

    def __init__(self, phase: float, jobs: Callable[[float], Count], owner: Callable[[float], Count]) -> None:
        self.jobs, self.owner = jobs, owner
        self._tick = phase
        self._kernel = Damped()

    def whole(self, now: float) -> float:
        while self._tick <= now:
            self._kernel.add_sample(self.jobs(self._tick).total + self.owner(self._tick).total, TICK)
            self._tick += TICK
        return self._kernel.value

    def run(self, seconds: float, every: float = 5.0, start: float = 0.0) -> list[tuple[float, float]]:
        measured = OwnerLoad()
        found = []
        for step in range(int(start / every), int(seconds / every)):
            now = step * every
            whole = self.whole(now)
            own = self.jobs(now)
            running = own.running + self.owner(now).running
            found.append((now, measured.sample(whole, running, own, now)))
        return found


def nothing(now: float) -> Count:
    return Count()


@pytest.mark.parametrize("phase", [0.0, 0.01, 2.5, 4.9])
@pytest.mark.parametrize("tasks", [1, 8, 64])
def test_a_job_that_begins_and_ends_is_not_the_owner(phase: float, tasks: int) -> None:
    """The reason for counting directly: by subtraction sixty-four tasks look like an owner with a load of five."""
    machine = Machine(phase, lambda now: Count(tasks if 100.2 < now < 700.3 else 0), nothing)
    assert max(load for _, load in machine.run(1200)) <= 0.01 * tasks


def test_by_subtraction_it_would_be() -> None:
    machine = Machine(0.01, lambda now: Count(64 if now > 100 else 0), nothing)
    pool, worst = Damped(), 0.0
    for step in range(1, 100):
        now = step * 5.0
        pool.add_sample(machine.jobs(now - 1e-9).total, 5.0)
        worst = max(worst, machine.whole(now + 0.02) - pool.value)
    assert worst > 4


@pytest.mark.parametrize("phase", [0.01, 2.5, 4.9])
def test_an_owner_beside_busy_jobs_is_seen_as_quickly_as_alone(phase: float) -> None:
    def owner(now: float) -> Count:
        return Count(2 if now > 600 else 0)

    def crossing(machine: Machine) -> float:
        return next(now for now, load in machine.run(1000) if load > 1.5) - 600

    alone = crossing(Machine(phase, nothing, owner))
    beside = crossing(Machine(phase, lambda now: Count(32), owner))
    assert abs(beside - alone) <= 5
    assert alone < 100


def test_a_pipe_job_that_comes_and_goes_is_not_the_owner() -> None:
    """VS 7.4: the load of a job of several processes goes up and down with its phases."""
    chance = random.Random(4)
    phases = [chance.randint(0, 8) for _ in range(2000)]
    machine = Machine(1.3, lambda now: Count(phases[int(now)]), nothing)
    loads = [load for _, load in machine.run(1900)]
    assert max(loads) < 1.5
    assert sum(loads) / len(loads) < 0.3


def test_an_owner_who_only_waits_for_the_disk_is_seen_beside_steady_jobs() -> None:
    machine = Machine(1.0, lambda now: Count(4, 1), lambda now: Count(0, 3 if now > 600 else 0))
    loads = dict(machine.run(1000))
    assert max(load for now, load in loads.items() if now <= 600) < 0.1
    assert loads[995.0] == pytest.approx(3, abs=0.1)


def test_a_node_that_begins_beside_its_jobs_takes_them_for_its_own() -> None:
    machine = Machine(1.0, lambda now: Count(8), nothing)
    machine.run(600)
    assert max(load for _, load in machine.run(1200, start=600)) < 0.2


def test_a_node_that_begins_beside_a_busy_owner_sees_it_at_once() -> None:
    machine = Machine(1.0, nothing, lambda now: Count(2))
    machine.run(600)
    assert machine.run(1200, start=600)[0][1] == pytest.approx(2, abs=0.1)


def test_the_owners_load_is_never_more_than_the_whole() -> None:
    measured = OwnerLoad()
    for now in range(0, 100, 5):
        assert 0 <= measured.sample(0.2, 50.0, Count(), float(now)) <= 0.2


# --- process trees, made of files


def process(root: Path, number: int, tasks: dict[int, tuple[str, list[int]]], name: str = "a (b) c") -> None:
    for task, (state, children) in tasks.items():
        directory = root / str(number) / "task" / str(task)
        directory.mkdir(parents=True)
        (directory / "stat").write_text(f"{task} ({name}) {state} 1 2 3")
        (directory / "children").write_text(" ".join(map(str, children)) + " ")


def test_trees_are_counted_with_threads_and_children(tmp_path: Path) -> None:
    process(tmp_path, 10, {10: ("S", [20]), 11: ("R", [30])})
    process(tmp_path, 20, {20: ("D", [40, 41])})
    process(tmp_path, 30, {30: ("R", [])}, ") R ) S")
    process(tmp_path, 40, {40: ("T", [])})
    process(tmp_path, 99, {99: ("R", [])})
    trees = ProcessTrees(str(tmp_path))
    assert trees.count([10]) == Count(2, 1)
    assert trees.count([20, 10, 20, 10]) == Count(2, 1)
    assert trees.count([12345]) == Count()
    assert trees.count([]) == Count()


def test_a_tree_too_large_to_be_read_is_estimated(tmp_path: Path) -> None:
    process(tmp_path, 10, {task: ("R" if task % 2 else "S", []) for task in range(10, 410)})
    trees = ProcessTrees(str(tmp_path), reads=100)
    assert trees.count([10]).running == pytest.approx(200, abs=60)


def test_a_tree_of_too_many_processes_is_estimated(tmp_path: Path) -> None:
    process(tmp_path, 10, {10: ("S", list(range(100, 400)))})
    for number in range(100, 400):
        process(tmp_path, number, {number: ("R" if number % 2 else "S", [])})
    assert ProcessTrees(str(tmp_path), reads=100).count([10]).running == pytest.approx(150, abs=30)


def test_many_jobs_take_turns(tmp_path: Path) -> None:
    for number in range(100, 150):
        process(tmp_path, number, {number: ("R", [])})
    trees = ProcessTrees(str(tmp_path), reads=20)
    counts = [trees.count(range(100, 150)).running for _ in range(6)]
    assert counts == [10, 20, 30, 40, 50, 50]
    assert trees.count(range(100, 120)).running == 20


@pytest.mark.parametrize("roots", [range(100, 300), [1]])
def test_reads_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roots: Iterable[int]) -> None:
    process(tmp_path, 1, {1: ("S", list(range(100, 300)))})
    for number in range(100, 300):
        process(tmp_path, number, {number: ("R", [])})
    opened = 0
    really = os.open

    def counted(*arguments: object, **named: object) -> int:
        nonlocal opened
        opened += 1
        return really(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", counted)
    ProcessTrees(str(tmp_path)).count(roots)
    assert opened <= READS + 2


def test_many_jobs_are_told_apart_without_comparing_each_with_each(tmp_path: Path) -> None:
    """A look at 5,000 jobs took 55 ms, in which the node did nothing else."""
    compared = 0

    class Root(int):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    trees = ProcessTrees(str(tmp_path), reads=4000)
    for _ in range(2):
        trees.count([Root(number) for number in range(2, 1002)])
    assert compared < 20_000


def test_the_machines_running_tasks(tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text("0.20 0.18 0.12 3/80 11206\n")
    assert running_tasks(str(tmp_path / "loadavg")) == 3
    assert running_tasks(str(tmp_path / "nowhere")) == 0
    assert running_tasks() >= 1


# --- and of real processes


@contextlib.contextmanager
def spinning(processes: int) -> Iterator[int]:
    """A process whose children are busy until it ends."""
    script = (
        "import os, sys\n"
        "kids = []\n"
        f"for _ in range({processes}):\n"
        "    kid = os.fork()\n"
        "    if not kid:\n"
        "        while True: pass\n"
        "    kids.append(kid)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
        "for kid in kids: os.kill(kid, 9)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        parent.stdout.readline()
        try:
            yield parent.pid
        finally:
            parent.stdin.close()


def test_children_that_are_busy_are_counted_below_their_parent() -> None:
    with spinning(2) as parent:
        # The parent itself may still be on its way to sleep.
        assert ProcessTrees().count([parent]).running in (2, 3)
        assert ProcessTrees().count([os.getpid()]).running >= 2


def test_each_trees_load_is_damped_as_the_kernels() -> None:
    loads = Loads()
    for second in range(0, 300, 5):
        found = loads.sample({1: Count(2.0), 2: Count(0.0, 1.0)}, float(second))
    assert found[1] == pytest.approx(2.0, abs=0.05)
    assert found[2] == pytest.approx(1.0, abs=0.05)
    assert loads.sample({2: Count()}, 360.0) == {2: pytest.approx(math.exp(-1), abs=0.05)}

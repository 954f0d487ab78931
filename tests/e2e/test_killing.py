"""kill -9 of every kind of process at random moments of a run: no job is lost, doubled, or reported twice (A3)."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import psutil
import pytest

from pool.client import Pool
from tests.e2e.support import HEAD, Node, Nodes, Took, asked, client, family, program, slots, token, until

JOBS, KILLS, MARK = 32, 10, "killed-8642.sh"
#: Holds a lock while it or a child of it lives: a second copy would not get it (status 1 of flock). A signal is
#: no end for these jobs, and may hit any process of theirs, flock's too.
TEXT = """
exec 9> lock.$1
flock -n 9
[ $? != 1 ] || echo $1 >> doubles
echo $1 >> began
sleep 0.$2
echo $1 >> ended
"""
VICTIMS = ("head", "run", "fork server", "keeper", "job")
LEASE = "3"  # seconds


class Killer:
    """Kills the named victim, and starts nodes again as a service manager would."""

    def __init__(self, nodes: Nodes, chance: random.Random, head: Node, run: Node) -> None:
        self._nodes = nodes
        self._chance = chance
        self.head = head
        self.run = run
        self.killed: Counter[str] = Counter()
        self.times: list[str] = []

    async def kill(self, victim: str) -> None:
        self.times.append(f"{datetime.now().time()} {victim}")
        if victim == "head":
            self.head.crash()
            self.head = self._nodes.start("head", HEAD, CLAIM_LEASE=LEASE).ready()
        elif victim == "run":
            self.run.crash()
            self.run = self._nodes.start("run", "startd", SLOTS="4", CLAIM_LEASE=LEASE).ready()
        else:
            # One that was there a moment ago may be over: the next will do.
            there = {"fork server": self._fork_servers, "keeper": self._keepers, "job": jobs}[victim]
            found = await until(there, f"a {victim} to kill")
            with contextlib.suppress(psutil.NoSuchProcess):
                self._chance.choice(found).kill()
        self.killed[victim] += 1

    def _fork_servers(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return [one for one in psutil.Process(self.run.process.pid).children() if "keeper" in one.name()]
        return []

    def _keepers(self) -> list[psutil.Process]:
        fork_servers = {one.pid for one in self._fork_servers()}
        return [one for one in family() if _is(one, lambda p: "keeper" in p.name()) and one.pid not in fork_servers]


def jobs() -> list[psutil.Process]:
    return [one for one in family() if _is(one, lambda p: any(MARK in word for word in p.cmdline()))]


def _is(process: psutil.Process, what: Callable[[psutil.Process], bool]) -> bool:
    try:
        return what(process)
    except psutil.NoSuchProcess:
        return False


def begun(home: Path, count: int) -> bool:
    return len(lines(home / "began")) >= count


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def logged(path: Path, count: int) -> str:
    """The user's log, once it has so many ends; empty before: it is written behind the queue."""
    text = path.read_text()
    return text if text.count("\n005 (") + text.startswith("005 (") >= count else ""


def told_about(home: Path, procs: set[int]) -> str:
    """The events of these jobs in the user's log."""
    events = (home / "log").read_text().split("...\n")
    return "\n".join(event for proc in sorted(procs) for event in events if f".{proc:03d}.000)" in event)


async def what_is_left(pool: Pool, home: Path) -> str:
    """The jobs of the queue, why they wait, and the user's log about them: for a failure's report."""
    found: list[str] = []
    for ad in await pool.jobs():
        job = f"{ad.value('ClusterId')}.{ad.value('ProcId')}"
        found += [str(ad), str(await pool.why(job)), told_about(home, {int(ad.value("ProcId"))})]
    found += [str(ad) for ad in await pool.machines(attributes=["Name", "State", "Activity", "JobId", "ClientMachine"])]
    for process in family():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(f"{process.pid} {process.status()} {process.name()} {process.cmdline()}")
    return "\n".join(found)


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_doubled_or_told_twice(nodes: Nodes, seed: int) -> None:
    chance = random.Random(seed)
    home = nodes.directory("home")
    head = nodes.start("head", HEAD, CLAIM_LEASE=LEASE).ready()
    run = nodes.start("run", "startd", join=await token(head, "startd"), SLOTS="4", CLAIM_LEASE=LEASE).ready()
    async with client(head) as pool:
        await slots(pool, 1)
        cluster = await pool.submit(
            {
                "executable": program(home, TEXT, MARK),
                "arguments": "$(Process) $RANDOM_INTEGER(1,4)",
                "on_exit_remove": "ExitBySignal =!= true",
                "log": "log",
                "queue": JOBS,
            },
            iwd=str(home),
        )
    killer = Killer(nodes, chance, head, run)
    # Every kind once, and the rest as chance has it; each after some more jobs have begun.
    victims = [*VICTIMS, *chance.choices(VICTIMS, k=KILLS - len(VICTIMS))]
    chance.shuffle(victims)
    for victim in victims:
        more = min(len(lines(home / "began")) + chance.randint(1, 4), JOBS)
        await until(partial(begun, home, more), f"{more} jobs to begin (seed {seed})")
        await killer.kill(victim)
    async with client(killer.head) as pool:

        async def over() -> bool:
            return not await pool.jobs(attributes=["ClusterId"])

        try:
            await asked(over, f"the queue to be empty (seed {seed}, killed {dict(killer.killed)})")
        except Took as trouble:
            trouble.add_note(await what_is_left(pool, home))
            raise
        history = await pool.history()
        assert sorted(ad.value("ProcId") for ad in history) == list(range(JOBS)), "each is in the history once"
        assert {(ad.value("JobStatus"), ad.value("ExitCode")) for ad in history} == {(4, 0)}
        told: Counter[tuple[str, int]] = Counter()
        async for batch in pool.events(cluster=cluster.cluster):
            if not batch:
                break
            told.update((event["kind"], event["proc"]) for event in batch)
    assert [told["TERMINATED", proc] for proc in range(JOBS)] == [1] * JOBS
    assert sum(count for (kind, _), count in told.items() if kind in ("ABORTED", "HELD")) == 0
    twice = lines(home / "doubles")
    assert twice == [], f"two copies ran at a time; {told_about(home, set(map(int, twice)))} {killer.times}"
    assert set(map(int, lines(home / "ended"))) == set(range(JOBS)), "each has run to its end"
    await until(lambda: not jobs(), "nothing to be left running")
    text = await until(partial(logged, home / "log", JOBS), "each end to be in the user's log")
    assert [text.count(f"005 ({cluster.cluster:03d}.{proc:03d}.") for proc in range(JOBS)] == [1] * JOBS

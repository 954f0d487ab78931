"""Kills in the middle of a set: a job of several parts that talk TCP all the time, and kill -9 of what serves it.

The middle is seen from outside, by the files that grow: the keeper's image on a machine, the chunks on the submit side,
and the image that is put together on the next machine. Where a moment passed unseen, the next set is taken.

    parts exchange numbered messages  ->  a first set  ->  the moment of the next set: kill -9  ->  end, compare
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pool.client.handles import Cluster
from pool.errors import PoolError
from tests.e2e import support
from tests.e2e.support import HEAD, Node, Nodes, client, slots, token, until
from tests.starter.support import PYTHON, is_named

VICTIMS = ("node", "relay", "keeper", "submit side")
#: A set is made; its images go to the submit side; they come back to other machines.
MOMENTS = ("checkpoint", "going", "coming")
MACHINES = ("one", "two", "three")
#: Of memory that each part has and writes again and again: no set finds its chunks on the submit side already. It is
#: the same noise each time, beginning at another byte: to draw new noise would keep a processor busy.
MEGABYTES = 50
#: MB that a machine sends a second of its images: their way has a middle that can be hit.
BANDWIDTH = "60"
#: Looks at files that grow. Seconds.
LOOK = 0.002
#: A line of output follows on so many exchanges.
SAID = 50
LINKS = 4
SETTINGS: dict[str, Any] = {"SLOTS": "2", "CHECKPOINT_WORTH": "0", "CHECKPOINT_BANDWIDTH": BANDWIDTH}

#: A ring: each part sends number n to the next part while it gets number n from the part before, by its links in turn.
#: Rank 0 says at which number all end.
PROGRAM = """
import hashlib, os, socket, struct, sys, time
part, megabytes, links, said = map(int, sys.argv[1:5])
parts, home = int(os.environ["_CONDOR_NPROCS"]), sys.argv[5]
with open(f"{home}/began.{part}", "a") as began:
    began.write("began\\n")
noise = os.urandom(1 << 20)
def other(number):
    begin = number * 977 % len(noise)
    return noise[begin:] + noise[:begin]
memory = [other(-1 - place) for place in range(megabytes)]
server = socket.create_server(("", 5000), backlog=64)
def connect():
    for _ in range(2400):
        try:
            return socket.create_connection((f"rank{(part + 1) % parts}", 5000), 60)
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the next part does not answer")
to = [connect() for _ in range(links)]
of = [server.accept()[0] for _ in range(links)]
for number, link in enumerate(to):
    link.settimeout(None)
    link.sendall(bytes([number]))
of = [link for _, link in sorted((link.recv(1)[0], link) for link in of)]
def message(sender, number):
    return hashlib.shake_128(b"%d %d" % (sender, number)).digest(1 + number * 7919 % 30000)
def take(link, size):
    data = bytearray()
    while len(data) < size:
        some = link.recv(size - len(data))
        if not some:
            raise SystemExit(f"cut off at {number}")
        data += some
    return bytes(data)
chain, number, last = hashlib.md5(), 0, 0
before = (part - 1) % parts
while not last or number < last:
    if part == 0 and not last and os.path.exists(f"{home}/enough"):
        last = number + 100
    data = message(part, number)
    to[number % links].sendall(struct.pack("!QQI", number, last, len(data)) + data)
    found, end, size = struct.unpack("!QQI", take(of[number % links], 20))
    if found != number:
        raise SystemExit(f"{found} came in place of {number}")
    data = take(of[number % links], size)
    if data != message(before, number):
        raise SystemExit(f"the bytes of {number} are wrong")
    last = last or end
    chain.update(data)
    if number % said == 0:
        print(number, chain.hexdigest(), flush=True)
    memory[number % megabytes] = other(number)
    number += 1
    time.sleep(0.004)
print("end", number, chain.hexdigest(), flush=True)
"""


@dataclass(frozen=True)
class Kill:
    """One kill: its victim and its moment.

    Attributes:
        share: how much of all parts' memory is there at the moment.
    """

    victim: str
    moment: str
    share: float


async def start(nodes: Nodes) -> None:
    """A head, and three machines that share its files."""
    head = nodes.start("head", HEAD).ready()
    for name in MACHINES:
        nodes.start(name, "startd", join=await token(head, "startd"), **SETTINGS).ready()
    async with client(head) as pool:
        await slots(pool, len(MACHINES))


class Struck:
    """A job of that many parts, and the nodes that it runs on."""

    def __init__(self, nodes: Nodes, home: Path, parts: int, seed: object = "") -> None:
        self.nodes, self.home, self.parts, self.log = nodes, home, parts, home / "log"
        self.chance = random.Random(f"{parts} {seed}")
        self.left_out = "none"

    async def plays(self, kill: Kill) -> None:
        """Run it, strike once, and see that every exchange was there once, and none of the work before the last set
        was done again from the beginning.
        """
        (self.home / "ring.py").write_text(PROGRAM)
        async with client(self._node("head")) as pool:
            cluster = await pool.submit(self._description(), iwd=str(self.home))
            await until(lambda: all(self._said(part) for part in range(self.parts)), "all parts to talk")
            done = await cluster.checkpoint()
            assert done.done == 1, done
        saved = self._least()
        while not await self._strike(kill, cluster.cluster):
            pass
        await until(lambda: self._least() > saved + 4, "the job to go on")
        more = self._least() + 2
        await until(lambda: self._least() >= more, "the job to go on for a while")
        (self.home / "enough").touch()
        async with client(self._node("head")) as pool:
            (result,) = await pool.cluster(cluster.cluster, 1).wait(support.PATIENCE, until_stuck=True)
            assert result.ok, (result, self._errors())
        self._is_whole()

    # -- what came of it ----------------------------------------------------------------------------------

    def _is_whole(self) -> None:
        ends = set()
        for part in range(self.parts):
            *lines, end = self._lines(part)
            word, count, _ = end.split()
            assert word == "end", (part, end)
            expected = expected_lines((part - 1) % self.parts, int(count))
            assert [*lines, end] == expected, (part, lines[-3:], expected[-3:])
            assert (self.home / f"began.{part}").read_text() == "began\n", "it began anew in spite of its set"
            ends.add(count)
        assert len(ends) == 1, ends
        text = self.log.read_text()
        assert text.count("\n005 (") == 1, text
        assert "012 (" not in text, text

    def _errors(self) -> list[str]:
        return [(self.home / f"err.{part}").read_text() for part in range(self.parts)]

    # -- the job ------------------------------------------------------------------------------------------

    def _description(self) -> str:
        return f"""
        universe = parallel
        executable = {PYTHON}
        transfer_executable = false
        arguments = ring.py $(Node) {MEGABYTES} {LINKS} {SAID} {self.home}
        machine_count = {self.parts}
        +ParallelShutdownPolicy = "WAIT_FOR_ALL"
        job_network = private
        checkpoint = auto
        requirements = {self._places()}
        output = out.$(Node)
        error = err.$(Node)
        log = log
        queue
        """

    def _places(self) -> str:
        """Each of two parts has a machine of its own; three share two machines."""
        apart = " && TARGET.SlotID == 1" if self.parts == 2 else ""
        return f'TARGET.Machine != "{self.left_out}"{apart}'

    def _lines(self, part: int) -> list[str]:
        path = self.home / f"out.{part}"
        return path.read_text().splitlines() if path.exists() else []

    def _said(self, part: int) -> int:
        return len(self._lines(part))

    def _least(self) -> int:
        return min(self._said(part) for part in range(self.parts))

    def _events(self, number: str) -> int:
        text = self.log.read_text() if self.log.exists() else ""
        return sum(line.startswith(f"{number} (") for line in text.splitlines())

    # -- the moment ---------------------------------------------------------------------------------------

    async def _strike(self, kill: Kill, number: int) -> bool:
        """Have a set made, or the job moved, and kill in the middle. False: the moment passed unseen."""
        await until(lambda: self._events("001") > self._events("004"), "the job to run")
        await until(lambda: len(self._processes()) >= self.parts, "all parts to be there")
        size = kill.share * self.parts * MEGABYTES * 2**20
        async with client(self._node("head")) as pool:
            cluster = pool.cluster(number, 1)
            acting = asyncio.create_task(self._act(cluster, kill.moment))
            try:
                struck = await self._struck_at(kill, size)
            finally:
                await asyncio.wait([acting], timeout=support.PATIENCE)
                acting.cancel()
        return struck

    async def _act(self, cluster: Cluster, moment: str) -> None:
        with contextlib.suppress(PoolError, OSError):  # what it asks may be killed
            if moment == "coming":
                self.left_out = self.chance.choice([name for name in MACHINES if name != self.left_out])
                await cluster.edit(Requirements=self._places())
                await cluster.vacate()
            else:
                await cluster.checkpoint()

    async def _struck_at(self, kill: Kill, size: float) -> bool:
        if kill.moment == "coming":
            evicted = self._events("004")
            await until(lambda: self._events("004") > evicted, "the last set to be kept")
            starts = self._events("001")
            grown = self._growing(self._places_of_images, (starts + 1, "001"))
        elif kill.moment == "going":
            grown = self._growing(lambda: [self.nodes.state("head") / "spool" / "checkpoints"], (self._kept() + 1, ""))
        else:
            grown = self._growing(self._places_of_images, (self._kept() + 1, ""))
        if not await grown(size):
            return False
        await self._kill(kill)
        return True

    def _places_of_images(self) -> list[Path]:
        return [place for name in MACHINES for place in (self.nodes.state(name) / "images").glob("*.schedd/incoming")]

    def _kept(self) -> int:
        """Sets that the submit side has."""
        return sum("all parts are saved" in str(line.get("message")) for line in self._node("head").log)

    def _growing(
        self, places: Callable[[], Iterable[Path]], over: tuple[int, str]
    ) -> Callable[[float], Awaitable[bool]]:
        """Waits until so many bytes more are there; False where what ends the moment was there first."""
        began = written(places())
        most, event = over

        def passed() -> bool:
            return (self._events(event) if event else self._kept()) >= most

        async def grown(size: float) -> bool:
            deadline = time.monotonic() + support.PATIENCE
            while True:
                came = sum(max(0, now - began.get(path, 0)) for path, now in written(places()).items())
                if passed():
                    return False
                if came > size:
                    return True
                if time.monotonic() > deadline:
                    raise support.Took(f"waited in vain for {size} bytes, there are {came}")
                await asyncio.sleep(LOOK)

        return grown

    # -- the kill -----------------------------------------------------------------------------------------

    async def _kill(self, kill: Kill) -> None:
        if kill.victim == "submit side":
            self._start_again("head", HEAD)
        elif kill.victim == "node":
            self._start_again(self._machine(), "startd", **SETTINGS)
        else:
            found = self._keepers if kill.victim == "keeper" else self._relays

            def killed() -> bool:
                with contextlib.suppress(psutil.NoSuchProcess, IndexError):  # it may end now
                    self.chance.choice(found()).kill()
                    return True
                return False

            await until(killed, f"a {kill.victim} to kill")

    def _start_again(self, name: str, roles: str, **settings: Any) -> None:
        node = self._node(name)
        node.crash()
        self.nodes.all.remove(node)
        self.nodes.start(name, roles, **settings).ready()

    def _node(self, name: str) -> Node:
        return next(node for node in self.nodes.all if node.state == self.nodes.state(name))

    def _machine(self) -> str:
        """A machine with a part, or one where an image grows."""
        with_parts = [name for name in MACHINES if below(self._node(name), self._is_part)]
        return self.chance.choice(with_parts or [name for name in MACHINES if name != self.left_out])

    def _is_part(self, process: psutil.Process) -> bool:
        return any(word == "ring.py" for word in process.cmdline()) and not is_named(process, "keeper")

    def _processes(self) -> list[psutil.Process]:
        return [one for one in support.processes_with("ring.py") if not is_named(one, "keeper")]

    def _relays(self) -> list[psutil.Process]:
        return support.processes_with("network/bin/relay")

    def _keepers(self) -> list[psutil.Process]:
        """The keepers of the parts; where none runs yet, those that are to start them."""
        running = [one for rank in self._processes() for one in rank.parents()[:1] if is_named(one, "keeper")]
        if running:
            return running
        forked = [below(self._node(name), lambda one: is_named(one, "keeper")) for name in MACHINES]
        above = [(one, one.parent()) for found in forked for one in found]
        return [one for one, parent in above if parent is not None and is_named(parent, "keeper")]


def expected_lines(sender: int, count: int) -> list[str]:
    """Everything that the part after that one prints, by the end."""
    chain, lines = hashlib.md5(), []
    for number in range(count):
        chain.update(hashlib.shake_128(b"%d %d" % (sender, number)).digest(1 + number * 7919 % 30000))
        if number % SAID == 0:
            lines.append(f"{number} {chain.hexdigest()}")
    return [*lines, f"end {count} {chain.hexdigest()}"]


def written(places: Iterable[Path]) -> dict[Path, int]:
    """The bytes on disk of all files there."""
    found: dict[Path, int] = {}
    for place in places:
        for path in place.rglob("*"):
            with contextlib.suppress(OSError):
                status = path.lstat()
                found[path] = status.st_blocks * 512
    return found


def below(node: Node, what: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """The node's processes that are so."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in psutil.Process(node.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if what(one):
                    found.append(one)
    return found

"""The way out of a job's network: new connections a second, and what a job's flood does to others on the machine.

By real keepers, relays and ways out, without a node. The peers are the same programs over the machine's own loopback,
and through slirp4netns where that is installed (Debian: slirp4netns).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from pool.checkpoint import program as keeper_program
from pool.network import program as relay_program
from pool.network import way_out_program
from tests.benchmarks.network import compiled
from tests.benchmarks.rows import Effort, Row, benchmark
from tests.e2e.support import free_port
from tests.network.outside import HOST, Machine, Rules
from tests.starter.support import opened, soon

#: So often each is taken, in turns; the median counts.
ROUNDS = 3
FLOOD = """
import socket, sys, time
udp, end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), time.monotonic() + float(sys.argv[2])
links = []
while time.monotonic() < end:
    for port in range(1024, 65536):
        try: udp.sendto(b"?" * 100, (sys.argv[1], port))
        except OSError: pass
        if port % 64 == 0:
            links.append(socket.socket())
            links[-1].setblocking(False)
            links[-1].connect_ex((sys.argv[1], port))
            if len(links) > 900 or time.monotonic() > end: break
    links.clear()
"""
RUN = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


def _figures(text: str) -> list[float]:
    return [float(word) for word in text.split()]


def _output(command: list[str]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout


def _by_slirp(command: list[str]) -> str | None:
    """The output of a command in a network of slirp4netns; None where there is none."""
    if shutil.which("slirp4netns") is None or os.geteuid() != 0:
        return None
    ready, told = os.pipe()
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE) as inside:
        assert inside.stdout is not None
        inside.stdout.readline()
        words = ["slirp4netns", "--configure", "--mtu=65520", f"--ready-fd={told}", str(inside.pid), "tap0"]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(words, pass_fds=(told,), stdin=quiet, stdout=quiet, stderr=quiet) as slirp:
            os.close(told)
            try:
                os.read(ready, 1)
                return _output(["nsenter", f"--net=/proc/{inside.pid}/ns/net", *command])
            finally:
                os.close(ready)
                slirp.kill()
                inside.kill()


class _Bench:
    def __init__(self, machine: Machine, program: Path, place: Path) -> None:
        self.machine = machine
        self.program = str(program)
        self.place = place
        self._count = 0

    async def job(self, *arguments: object) -> list[float]:
        """The figures of the program as a job."""
        scratch = self._scratch()
        shutil.copy(self.program, scratch / "network")  # the job has a /tmp of its own
        job = await self.machine.start(scratch, RUN, "./network", *arguments)
        return _figures(await job.end())

    async def flood(self, seconds: float) -> Any:
        """A job that floods, for so long."""
        return await self.machine.start(self._scratch(), FLOOD, HOST, seconds)

    def _scratch(self) -> Path:
        self._count += 1
        made = self.place / f"job{self._count}"
        made.mkdir()
        return made


@benchmark("way_out")
async def way_out(effort: Effort) -> list[Row]:
    """New connections a second through a way out, and a flood's effect on a round trip of others."""
    count, turns, port = effort.of(1500, 200), effort.of(10_000, 500), free_port()
    found: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        program = compiled(place)
        answering = await asyncio.create_subprocess_exec(program, "answer", str(port))
        async with opened(place, keeper_program()) as keepers:
            rules = Rules(way_out_program(), "localhost:1024-65535")
            machine = Machine(keepers, relay_program(), rules)
            bench = _Bench(machine, program, place)
            for _ in range(ROUNDS if effort.share >= 1 else 1):
                add("new", (await bench.job("connect", HOST, port, count))[0])
                add(
                    "new host",
                    _figures(
                        await asyncio.to_thread(_output, [str(program), "connect", "127.0.0.1", str(port), str(count)])
                    )[0],
                )
                by_slirp = await asyncio.to_thread(
                    _by_slirp, [str(program), "connect", "10.0.2.2", str(port), str(count)]
                )
                if by_slirp is not None:
                    add("new slirp", _figures(by_slirp)[0])
                for flooded in ("", " flooded"):
                    flood = await bench.flood(600.0) if flooded else None
                    add("trip" + flooded, (await bench.job("trips", HOST, port, turns))[0])
                    alone = [str(program), "trips", "127.0.0.1", str(port), str(turns)]
                    add("trip host" + flooded, _figures(await asyncio.to_thread(_output, alone))[0])
                    if flood is not None:
                        await flood.kill()
            await soon(machine.close())
        answering.kill()
        await answering.wait()
    figure = {name: statistics.median(values) for name, values in found.items()}
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} CPUs"
    new, us, slirp = "connections/s", "us", figure.get("new slirp")
    calm = {"peer": "the same without", "note": "one flooding job on the machine"}
    return [
        Row("new connections through a way out", figure["new"], new, None, "host loopback", figure["new host"], load),
        Row("... beside slirp4netns", figure["new"], new, None, "slirp4netns", slirp),
        Row("round trip of a job beside a flood", figure["trip flooded"], us, None, peer_value=figure["trip"], **calm),
        Row("... of the machine's user", figure["trip host flooded"], us, None, peer_value=figure["trip host"], **calm),
    ]

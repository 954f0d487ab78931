"""A job's own network: one TCP stream and a round trip between two parts, beside the host's loopback and a job's pipe.

Both parts on one machine, then on two nodes of this machine, with the pool's encryption between them. The loopback peer
is the same program without the pool. The peer between nodes is a pipe of a job (a lane), measured in the same run. A
part's set-up is the difference between jobs with and without a network of their own, from keepers alone.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from pool.checkpoint import program as keeper_program
from pool.jobs.network import setup_of
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.benchmarks.spread import _by_pool as lane_rate
from tests.e2e import support
from tests.e2e.support import HEAD, client, slots, token
from tests.starter.support import opened, spec, to_end

#: So often each is taken, in turns; the median counts.
ROUNDS = 3
PORT = 5000


def compiled(place: Path) -> Path:
    source = Path(__file__).with_name("network.c")
    target = place / "network"
    place.chmod(0o755)
    subprocess.run(["cc", "-O2", "-std=c11", "-o", target, source], check=True)
    target.chmod(0o755)
    return target


def _figures(text: str) -> tuple[float, float]:
    rate, trip = text.split()
    return float(rate), float(trip)


def _by_loopback(program: Path, size: int, turns: int) -> tuple[float, float]:
    port = str(support.free_port())
    with subprocess.Popen([program, "serve", port], stdin=subprocess.DEVNULL):
        command = [str(program), "measure", "127.0.0.1", port, str(size), str(turns)]
        return _figures(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


async def _by_job(nodes: support.Nodes, program: Path, where: str, size: int, turns: int) -> tuple[float, float]:
    home = nodes.directory("home")
    (home / "both.sh").write_text(
        f'#!/bin/sh\n[ "$1" = 0 ] && exec {program} serve {PORT}\nexec {program} measure rank0 {PORT} {size} {turns}\n'
    )
    (home / "both.sh").chmod(0o755)
    text = f"""
    universe = parallel
    executable = {home}/both.sh
    arguments = $(Node)
    output = out.$(Node)
    error = err.$(Node)
    machine_count = 2
    job_network = private
    requirements = {where}
    +ParallelShutdownPolicy = "WAIT_FOR_ALL"
    queue
    """
    async with client(nodes.all[0]) as pool:
        (result,) = await (await pool.submit(text, iwd=str(home))).wait(120.0)
    assert result.ok, (result, (home / "err.0").read_text(), (home / "err.1").read_text())
    return _figures((home / "out.1").read_text())


async def _by_way_out(nodes: support.Nodes, program: Path, port: int, size: int, turns: int) -> tuple[float, float]:
    """To a server on the machine's loopback, from a job whose network has a way out to it."""
    home = nodes.directory("home")
    text = f"""
    executable = {program}
    transfer_executable = false
    arguments = measure 192.0.2.253 {port} {size} {turns}
    output = way.out
    error = way.err
    job_network = private+out
    queue
    """
    serving = await asyncio.create_subprocess_exec(program, "serve", str(port), stdin=asyncio.subprocess.DEVNULL)
    async with client(nodes.all[0]) as pool:
        (result,) = await (await pool.submit(text, iwd=str(home))).wait(120.0)
    await serving.wait()
    assert result.ok, (result, (home / "way.err").read_text())
    return _figures((home / "way.out").read_text())


async def _set_up(count: int) -> float:
    """Seconds that a job with a network of its own takes longer than one without, from the start to its end."""
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place) / "scratch"
        scratch.mkdir()
        async with opened(Path(place), keeper_program()) as keepers:
            own = {"network": "private", "network_setup": tuple(setup_of(0, ("here",)))}
            took: dict[bool, list[float]] = {True: [], False: []}
            for turn in range(2 * count):
                more = own if turn % 2 else {"network": "none"}
                # a directory of its own for each, so that no keeper is used again
                claim = {"claim": f"c{turn}"}
                began = time.perf_counter()
                await to_end(keepers, spec(scratch, "/bin/true", isolation="full", claim=claim, **more))
                took[bool(turn % 2)].append(time.perf_counter() - began)
    return statistics.median(took[True]) - statistics.median(took[False])


async def _idle(nodes: support.Nodes) -> tuple[float, float]:
    """MiB of a relay's memory, and its processor milliseconds in a second of a job that says nothing."""
    text = """
    universe = parallel
    executable = /bin/sleep
    arguments = 60
    transfer_executable = false
    machine_count = 2
    job_network = private
    queue
    """
    async with client(nodes.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(nodes.directory("home")))
        family = psutil.Process(os.getpid())

        def found() -> list[psutil.Process]:
            return [one for one in family.children(recursive=True) if one.name() == "relay"]

        await support.until(found, "a relay runs")
        await asyncio.sleep(1.0)
        (relay, *_) = found()
        before, begun = relay.cpu_times(), time.monotonic()
        await asyncio.sleep(3.0)
        after, lasted = relay.cpu_times(), time.monotonic() - begun
        memory = relay.memory_full_info().uss / 2**20
        await cluster.remove()
    return memory, (after.user + after.system - before.user - before.system) / lasted * 1e3


@benchmark("network")
async def network(effort: Effort) -> list[Row]:
    """One connection between two parts, on one machine and on two; the cost of such a network."""
    size, turns = effort.of(2_000_000_000, 20_000_000), effort.of(20_000, 500)
    one, two, loopback, lane, out = [], [], [], [], []
    port = support.free_port()
    with support.nodes() as nodes, tempfile.TemporaryDirectory() as place:
        program = compiled(Path(place))
        head = nodes.start("head", HEAD).ready()
        allowed = f"localhost:{port}"
        for name in ("one", "two"):
            nodes.start(
                name, "startd", join=await token(head, "startd"), SLOTS="2", JOB_NETWORK_DESTINATIONS=allowed
            ).ready()
        async with client(head) as pool:
            await slots(pool, 2)
        for _ in range(ROUNDS if effort.share >= 1 else 1):
            one.append(await _by_job(nodes, program, '(Machine == "one")', size, turns))
            loopback.append(_by_loopback(program, size, turns))
            two.append(await _by_job(nodes, program, "TARGET.SlotID == 1", size, turns))
            lane.append(await lane_rate(size, nodes))
            out.append(await _by_way_out(nodes, program, port, size, turns))
        memory, idle = await _idle(nodes)
    stream, trip = (statistics.median(values) for values in zip(*one, strict=True))
    outside, outside_trip = (statistics.median(values) for values in zip(*out, strict=True))
    far, far_trip = (statistics.median(values) for values in zip(*two, strict=True))
    host, host_trip = (statistics.median(values) for values in zip(*loopback, strict=True))
    set_up = await _set_up(effort.of(40, 4))
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} CPUs"
    gb, us = "GB/s", "us"
    by_lane = statistics.median(lane)
    loop = {"peer": "host loopback"}
    return [
        Row("one TCP stream, one machine", stream / 1e9, gb, Goal("at least", 1.5), note=load),
        Row("... beside loopback", stream / 1e9, gb, Goal("at least", 0.6, "ratio"), peer_value=host / 1e9, **loop),
        Row("one TCP stream, two nodes", far / 1e9, gb, Goal("at least", 0.9, "ratio"), "a lane", by_lane / 1e9),
        Row("round trip, one machine", trip, us, Goal("at most", 2 * host_trip + 40), peer_value=host_trip, **loop),
        Row("round trip, two nodes", far_trip, us, Goal("at most", 2 * host_trip + 80), peer_value=host_trip, **loop),
        Row("one TCP stream through a way out", outside / 1e9, gb, None, "host loopback", host / 1e9),
        Row("round trip through a way out", outside_trip, us, None, "host loopback", host_trip),
        Row("set-up for a part", set_up * 1e3, "ms", Goal("at most", 5)),
        Row("a relay's memory, idle", memory, "MB", Goal("at most", 1)),
        Row("a relay's processor time, idle", idle, "ms/s", Goal("at most", 0)),
    ]


if __name__ == "__main__":
    for row in asyncio.run(network(Effort(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0))):
        print(row)

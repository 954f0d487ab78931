"""A job's network between machines that do not reach each other, by the schedd's node, beside a direct link.

Both are between nodes of this machine, in the same run: in namespaces that reach only the schedd's, and on loopback.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.network import ROUNDS, _by_job, compiled
from tests.benchmarks.rows import Effort, Row, benchmark
from tests.e2e import support
from tests.e2e.support import HEAD, client, slots, token
from tests.network.islands import Islands


async def _begin(nodes: support.Nodes, middle: Sequence[str], machines: Sequence[Sequence[str]], listen: str) -> None:
    """A schedd's node and two others, each after the words of its machine. `listen`: addresses, by number from 0."""
    head = nodes.start("head", HEAD, machine=middle, LISTEN=listen.format("0.1")).ready()
    for number, (name, machine) in enumerate(zip(("one", "two"), machines, strict=True), 1):
        joins, at = await token(head, "startd"), listen.format(f"{number}.2")
        nodes.start(name, "startd", join=joins, machine=machine, LISTEN=at, SLOTS="1").ready()
    async with client(head) as pool:
        await slots(pool, 2)


@benchmark("network_third")
async def network_third(effort: Effort) -> list[Row]:
    """One connection between two parts by a third node, and by a direct link."""
    size, turns = effort.of(1_000_000_000, 20_000_000), effort.of(10_000, 500)
    third, direct = [], []
    islands = Islands()
    try:
        with tempfile.TemporaryDirectory() as place:
            program = compiled(Path(place))
            for _ in range(ROUNDS if effort.share >= 1 else 1):
                with support.nodes() as nodes:
                    await _begin(nodes, islands.middle, islands.machines, "10.98.{}:0")
                    third.append(await _by_job(nodes, program, "true", size, turns))
                with support.nodes() as nodes:
                    await _begin(nodes, (), ((), ()), "127.0.0.1:0")
                    direct.append(await _by_job(nodes, program, "true", size, turns))
    finally:
        islands.close()
    far, far_trip = (statistics.median(values) for values in zip(*third, strict=True))
    near, near_trip = (statistics.median(values) for values in zip(*direct, strict=True))
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} CPUs"
    peer = "a direct link"
    return [
        Row("one TCP stream by a third node", far / 1e9, "GB/s", None, peer, near / 1e9, note=load),
        Row("round trip by a third node", far_trip, "us", None, peer, near_trip),
    ]


if __name__ == "__main__":
    for row in asyncio.run(network_third(Effort(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0))):
        print(row)

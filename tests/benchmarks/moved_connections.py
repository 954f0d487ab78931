"""TCP connections in a checkpoint: freeze and restore of a job with connections, beside the same job without."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from pool.jobs.network import setup_of
from pool.starter.keeper import KeeperSpec, NativeKeepers
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.starter.support import until

#: Has that many connections to itself and that many MB, says so, and then sends and reads on some of them for ever.
PROGRAM = """
import os, resource, socket, sys, time
count, size = int(sys.argv[1]), int(sys.argv[2])
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
memory = [os.urandom(1 << 20) for _ in range(size)]
server = socket.create_server(("127.0.0.1", 0), backlog=64)
ends = []
for number in range(count):
    client = socket.create_connection(server.getsockname())
    accepted = server.accept()[0]
    client.send(b"unread" * 20)
    ends.append((client, accepted))
print("ready", flush=True)
while True:
    time.sleep(0.01)
    for client, accepted in ends[:20]:
        client.send(b"turn")
        accepted.recv(4)
    print("turn", flush=True)
"""


@benchmark("moved_connections")
async def moved_connections(effort: Effort) -> list[Row]:
    """Restore of 1,000 connections, and the freeze of 20 with 100 MB (issue 14), each beside none."""
    count = effort.of(1000, least=50)
    rounds = effort.of(10, least=3)
    with tempfile.TemporaryDirectory(dir=_memory()) as place:
        keepers = NativeKeepers(Path(place) / "keepers")
        await keepers.open()
        try:
            none, many = [], []
            still: dict[int, list[float]] = {0: [], 20: []}
            for turn in range(rounds):
                none.append(await _restore(keepers, Path(place) / f"none{turn}", 0))
                many.append(await _restore(keepers, Path(place) / f"many{turn}", count))
                for connections, times in still.items():
                    times += await _freezes(keepers, Path(place) / f"freeze{connections}.{turn}", connections)
        finally:
            await keepers.close(kill=True)
    more = statistics.median(many) - statistics.median(none)
    note = f"median of {rounds}; the job without connections {1e3 * statistics.median(none):.0f} ms"
    return [
        Row(f"restore of {count:,} connections: more than without", 1e3 * more, "ms", Goal("at most", 100), note=note),
        Row(
            "a job of 100 MB with 20 connections stands still",
            1e3 * statistics.median(still[20]),
            "ms",
            Goal("at most", 10),
            "the same without connections",
            1e3 * statistics.median(still[0]),
        ),
    ]


def _spec(place: Path, connections: int, megabytes: int) -> KeeperSpec:
    place.mkdir()
    return KeeperSpec(
        id="1.0.0",
        argv=("/usr/bin/python3", "-c", PROGRAM, str(connections), str(megabytes)),
        env={},
        cwd=str(place),
        uid=os.getuid(),
        gid=os.getgid(),
        stdout=str(place / "out"),
        stderr=str(place / "err"),
        isolation="shared",
        network="private",
        network_setup=setup_of(0, ["here"]),
    )


def _memory() -> str | None:
    """Where images cost no disk, if that is there."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _size(place: Path) -> int:
    return (place / "out").stat().st_size


async def _restore(keepers: NativeKeepers, place: Path, connections: int) -> float:
    """Seconds from the start from an image to the program's next line."""
    spec = _spec(place, connections, 1)
    keeper = await keepers.start(spec)
    await until(lambda: (place / "out").exists() and "ready" in (place / "out").read_text(), 60)
    report = await keeper.checkpoint(place / "image", stop=True)
    assert not report.refused, report.refused
    await keeper.ended
    await keeper.forget()
    size = _size(place)
    began = time.perf_counter()
    keeper = await keepers.start(spec, image=place / "image")
    await until(lambda: _size(place) > size, 60)
    took = time.perf_counter() - began
    await keeper.kill()
    await keeper.ended
    await keeper.forget()
    return took


async def _freezes(keepers: NativeKeepers, place: Path, connections: int) -> list[float]:
    """Seconds of standstill: of a first image, and of two that follow it."""
    keeper = await keepers.start(_spec(place, connections, 100))
    await until(lambda: (place / "out").exists() and "ready" in (place / "out").read_text(), 60)
    times, parent = [], None
    for number in range(3):
        image = place / f"image{number}"
        report = await keeper.checkpoint(image, parent=parent)
        assert not report.refused, report.refused
        times.append(report.standstill)
        parent = image
    await keeper.kill()
    await keeper.ended
    await keeper.forget()
    return times

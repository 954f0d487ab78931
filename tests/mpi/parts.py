"""The rankers of one job as processes of the test, joined by pipes as the parts of a job are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pool.jobs.mpi import layout_of, links_of, ranker_options
from pool.starter.ranks import RanksStatus, status_of

#: Seconds for the whole of a small job on a busy machine.
LIMIT = 60.0


class Parts:
    """A job of some parts, each with a directory of its own below `place`.

    Args:
        kinds: ranks of a part, and how many parts are like that; each kind is an application of its own.
        more: options of the rankers.
    """

    def __init__(
        self,
        ranker: Path,
        place: Path,
        kinds: Sequence[tuple[int, int]],
        command: Sequence[object],
        *,
        stdin: bytes = b"",
        more: Sequence[object] = (),
        **environment: str,
    ) -> None:
        self.place, self.count = place, sum(parts for _, parts in kinds)
        self.processes: list[subprocess.Popen[bytes]] = []
        ends = self._pipes()
        self.name = f"test-{os.urandom(8).hex()}"
        env = {**os.environ, "POOLNODE_MPI_NAME": self.name, **environment}
        (place / "input").write_bytes(stdin)
        applications = [number for number, (_, parts) in enumerate(kinds) for _ in range(parts)]
        for part, application in enumerate(applications):
            status = place / f"{part}.status"
            status.touch()
            options = [*ranker_options(part, self.count, layout_of(kinds), application), "--status", str(status)]
            options += map(str, more)

            def put_in_place(own: dict[int, int] = ends[part]) -> None:
                for target, fd in own.items():
                    os.dup2(fd, target)

            with (
                (place / f"{part}.out").open("wb") as out,
                (place / f"{part}.err").open("wb") as err,
                (place / "input").open("rb") as given,
            ):
                process = subprocess.Popen(
                    [str(ranker), *options, "--", *map(str, command)],
                    preexec_fn=put_in_place,
                    close_fds=False,
                    stdin=given,
                    stdout=out,
                    stderr=err,
                    env=env,
                )
            self.processes.append(process)
        for own in ends:
            for fd in own.values():
                os.close(fd)

    def _pipes(self) -> list[dict[int, int]]:
        """By part: the descriptor that its ranker has, and ours. Ours are above all of theirs."""
        ends: list[dict[int, int]] = [{} for _ in range(self.count)]
        for part in range(self.count):
            for other, (reads, _) in links_of(part, self.count):
                writes = next(own[1] for back, own in links_of(other, self.count) if back == part)
                reading, writing = os.pipe()
                ends[part][reads], ends[other][writes] = _high(reading), _high(writing)
        return ends

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def codes(self, limit: float = LIMIT) -> list[int]:
        """The end of each part: a code, or less than zero a signal."""
        return [process.wait(limit) for process in self.processes]

    def out(self, part: int = 0) -> str:
        return (self.place / f"{part}.out").read_text()

    def err(self, part: int = 0) -> str:
        return (self.place / f"{part}.err").read_text()

    def printed(self) -> list[str]:
        """The lines of all parts, sorted."""
        return sorted(line for part in range(self.count) for line in self.out(part).splitlines())

    def status(self, part: int = 0) -> RanksStatus | None:
        return status_of((self.place / f"{part}.status").read_text())


def _high(fd: int) -> int:
    import fcntl

    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 256)
    os.close(fd)
    return high

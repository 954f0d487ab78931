"""Where a job's outputs belong: the shadow's answer to what an execute machine sends, a client's to what a schedd does.

Pure. Neither side trusts a path from the other. The submit side hears the name of an output in the job's directory, and
finds its place from the job's own description.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pool.errors import PoolError
from pool.jobs.activation import NOTHING, Activation


def full_path(start: Activation, path: str) -> str:
    """A path of the job's, from its initial directory on."""
    return path if path.startswith("/") else posixpath.join(start.iwd, path)


@dataclass(frozen=True, slots=True)
class OutputPlaces:
    """The places of one job's outputs.

    Attributes:
        log: the job's log; None where it has none.
    """

    start: Activation
    log: str | None = None

    def target(self, item: Sequence[Any]) -> tuple[str, int, int]:
        """Where an announced file goes: its path, mode and size.

        Args:
            item: ["stdout", size], ["stderr", size], ["stream", name, size], or ["file", name, mode, size].

        Raises:
            PoolError: the job has no such output.
        """
        kind = item[0]
        if kind in ("stdout", "stderr"):
            path = self.start.stdout if kind == "stdout" else self.start.stderr
            return full_path(self.start, path), 0o644, item[1]
        if kind == "stream":
            return self._stream(item[1]), 0o644, item[2]
        return self.place_of(item[1]), item[2], item[3]

    def place_of(self, name: str) -> str:
        """Where a file or directory belongs: its own new place, or in that of the nearest directory that has one."""
        start = self.start
        if posixpath.isabs(name) or ".." in name.split("/"):
            raise PoolError(f"refused to write outside the job's directory: {name!r}")
        if not start.may_bring(name):
            raise PoolError(f"refused an output that the job was not asked for: {name!r}")
        if start.processes and (place := start.layout.submit_path_of(name)) is not None:
            return place
        rest = ""
        above = name
        while above:
            if above in start.remaps:
                return full_path(start, posixpath.join(start.remaps[above], rest).rstrip("/"))
            above, _, last = above.rpartition("/")
            rest = posixpath.join(last, rest)
        return full_path(start, name)

    def is_named(self, name: str, path: str) -> bool:
        """Whether the job's description names what is written to a path on the submit side: as an output, or as an
        input it may change.

        An output that the description does not name replaces no file of the owner's, whoever runs the execute machine.
        It is not written over a file that the job itself needs.

        Raises:
            PoolError: the path is the job's program, standard input or log.
        """
        start = self.start
        listing = start.manifest != "" and name.partition("/")[0] == start.manifest
        if start.outputs is not None or name in start.remaps or listing:
            return True
        own = [start.executable, *([start.stdin] if start.stdin != NOTHING else []), *([self.log] if self.log else [])]
        own += [process.cmd for process in start.processes]
        if posixpath.normpath(path) in {posixpath.normpath(full_path(start, one)) for one in own}:
            raise PoolError(
                f"refused an output in the place of the job's own {posixpath.basename(path)}",
                hint="name it in transfer_output_files if it is an output",
            )
        return any(posixpath.normpath(full_path(start, one)) == posixpath.normpath(path) for one in start.inputs)

    def _stream(self, name: str) -> str:
        for one in self.start.layout.streams.values():
            if one.name == name:
                return one.submit_path
        raise PoolError(f"refused an output that no process of the job has: {name!r}")

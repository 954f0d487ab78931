"""Helpers for the tests of mapped files: jobs of small programs joined by files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pool.starter.keeper import KeeperSpec
from pool.starter.spec import Member, Pipe
from tests.starter.support import PYTHON, spec

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def sh(scratch: Path, name: str, script: str, **more: Any) -> Member:
    """A member that runs a script in `scratch`, its output in NAME.out and NAME.err there."""
    return program(scratch, name, "/bin/sh", "-c", script, **more)


def python(scratch: Path, name: str, script: str, **more: Any) -> Member:
    return program(scratch, name, PYTHON, "-c", script, **more)


def program(scratch: Path, name: str, *argv: str, **more: Any) -> Member:
    given: dict[str, Any] = {
        "env": PATH,
        "cwd": str(scratch),
        "stdout": str(scratch / f"{name}.out"),
        "stderr": str(scratch / f"{name}.err"),
        **more,
    }
    return Member(name, argv, **given)


def job(scratch: Path, members: tuple[Member, ...], *pipes: tuple[Any, ...], **more: Any) -> KeeperSpec:
    """A job of `members` and pipes (writer, its file, reader, its file, short reads), which may hold 64 MiB."""
    made = tuple(Pipe(w, r, from_file, to_file, 0, 64 << 20, *short) for w, from_file, r, to_file, *short in pipes)
    return spec(scratch, "x", members=members, pipes=made, **more)

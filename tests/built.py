"""Programs that are built once for all processes of one run of the tests."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path


def built_once(program: Path, build: Callable[[Path], object]) -> Path:
    """The program: built by the process that needs it first, while the others wait. Every user may run it who may go
    through the directories above its own.

    Args:
        program: in a directory that all these processes have in common.
        build: builds it at this place.

    Raises:
        Exception: any that `build` raises; the next process tries again.
    """
    program.parent.mkdir(exist_ok=True)
    program.parent.chmod(0o755)
    with program.with_name(f"{program.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            build(program)
            program.chmod(0o755)
    return program

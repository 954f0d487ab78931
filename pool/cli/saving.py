"""What `submit --check` says of checkpoints: whether a job can be saved, as far as description and file tell (C7)."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Mapping
from typing import Any

from pool.jobs.examining import FIRST_LINE, interpreter_of, program_trouble
from pool.policy.checkpoints import Wish

#: Interpreters of interpreters that are followed.
DEEPEST = 4
_LOOKED = "nothing in its file speaks against it; what it opens is looked at when it runs"


def checkpoints(folded: Mapping[str, Any]) -> str:
    """One line on checkpoints.

    Args:
        folded: the first job's attributes by lower-case name.
    """
    wish = str(folded.get("jobcheckpoint") or ("self" if "successcheckpointexitcode" in folded else "auto"))
    if wish == Wish.OFF:
        return "off: what it has done is lost with its machine"
    if wish == Wish.SELF:
        return "its own"
    found = _troubles(str(folded.get("cmd") or ""), str(folded.get("iwd") or "/"))
    gpus = folded.get("requestgpus")
    if isinstance(gpus, int) and gpus > 0:
        found.append("what it keeps on a GPU cannot be saved")
    if not found:
        return _LOOKED
    lost = "it would be held" if wish == Wish.REQUIRED else "it runs, and what it has done is lost with its machine"
    return f"cannot be made: {'; '.join(dict.fromkeys(found))}: {lost}"


def _troubles(program: str, directory: str) -> list[str]:
    """What speaks against a program, or against the interpreter of a script."""
    for _ in range(DEEPEST):
        path = os.path.join(directory, program)
        try:
            with open(path, "rb") as file:
                words = interpreter_of(file.read(FIRST_LINE))
                if not words:
                    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                        return program_trouble(data[:], os.fstat(file.fileno()).st_mode)
        except (OSError, ValueError):  # it is not here, or empty: other checks say so
            return []
        named = words[1] if os.path.basename(words[0]) == "env" and len(words) > 1 else words[0]
        program = shutil.which(named) or named
    return []

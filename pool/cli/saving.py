"""The part of `submit --check` about checkpoints: whether a job can be saved, as far as description and file show, and
on which machines of the pool, where a pool can be reached (C7).
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pool.classad import ClassAd, requirements_accept
from pool.jobs.arguments import QuotingError, arguments_of
from pool.jobs.checkpoint_precheck import FIRST_LINE, interpreter_of, known_as, network_hints, program_trouble
from pool.jobs.network import JOB_NETWORK, NONE, PRIVATE
from pool.policy.checkpoints import CheckpointWish

#: Interpreters of interpreters that are followed.
DEEPEST = 4
#: Machines that are named one by one.
MOST_NAMED = 5
_LOOKED = "nothing in its file speaks against it; what it opens is looked at when it runs"


#: Bytes of a script that are looked at.
SCRIPT = 1 << 20


def checkpoints(folded: Mapping[str, Any], refusals: Mapping[str, str] | None = None) -> str:
    """One line on checkpoints.

    Args:
        folded: the first job's attributes by lower-case name.
        refusals: why programs could not be saved when they ran last, by the name that they are known as.
    """
    wish = str(folded.get("jobcheckpoint") or ("self" if "successcheckpointexitcode" in folded else "auto"))
    if wish == CheckpointWish.OFF:
        return "off: what it has done is lost with its machine"
    if wish == CheckpointWish.SELF:
        return "its own"
    found = _troubles(str(folded.get("cmd") or ""), str(folded.get("iwd") or "/"))
    gpus = folded.get("requestgpus")
    if isinstance(gpus, int) and gpus > 0:
        found.append("what it keeps on a GPU cannot be saved")
    if not found:
        return _checkpoint_doubts(folded, wish, refusals or {}) or _LOOKED
    lost = (
        "it would be held"
        if wish == CheckpointWish.REQUIRED
        else "it runs, and what it has done is lost with its machine"
    )
    return f"cannot be made: {'; '.join(dict.fromkeys(found))}: {lost}"


def known_program(folded: Mapping[str, Any]) -> str:
    """By which name a schedd remembers a job's program."""
    return known_as(str(folded.get("cmd") or ""), str(folded.get("iwd") or "/"), _arguments(folded))


def earlier(program: str, why: str) -> str:
    """The reason why a checkpoint of a program was refused, in one line."""
    return f"{program} could not be checkpointed when it ran last: {why}"


def _arguments(folded: Mapping[str, Any]) -> list[str]:
    try:
        return arguments_of({name: folded.get(name.lower()) for name in ("Arguments", "Args")})
    except QuotingError:
        return []


def _checkpoint_doubts(folded: Mapping[str, Any], wish: str, refusals: Mapping[str, str]) -> str:
    """The prospects by earlier runs and the program's file; "" where there are none."""
    found: list[str] = []
    program = known_program(folded)
    if why := refusals.get(program):
        found.append(earlier(program, why))
    hints = _hints(program.split(" "), str(folded.get("iwd") or "/"), _arguments(folded))
    if hints and folded.get(JOB_NETWORK.lower()) not in (PRIVATE, NONE):
        found.append(f"{', '.join(hints)}: what it has open on the network cannot be saved (job_network = private)")
    held = "; it is held where it cannot be" if wish == CheckpointWish.REQUIRED else ""
    return f"{'; '.join(found)}{held}" if found else ""


def _hints(files: Sequence[str], directory: str, arguments: Sequence[str]) -> list[str]:
    """Of its own file and the script that it is given, not of an interpreter, which can do anything."""
    modules = [word for flag, word in pairwise(arguments) if flag == "-m"]
    found = [hint for module in modules for hint in network_hints(module.partition(".")[0], b"")]
    for path in files if len(files) == 1 else files[1:]:
        for data in _contents(os.path.join(directory, path)):
            found += network_hints(os.path.basename(path), data)
    return list(dict.fromkeys(found))


def _contents(path: str) -> Iterator[bytes]:
    """The whole of a program, or the beginning of a script; nothing of what cannot be read."""
    try:
        with open(path, "rb") as file:
            yield file.read() if file.peek(4)[:4] == b"\x7fELF" else file.read(SCRIPT)
    except OSError:
        return


def saves(folded: Mapping[str, Any]) -> bool:
    """Whether the keeper is to save such a job, so that machines matter for it; attributes by lower-case name."""
    wish = folded.get("jobcheckpoint")
    return wish not in (CheckpointWish.OFF, CheckpointWish.SELF) and (
        wish is not None or "successcheckpointexitcode" not in folded
    )


def checkpoint_machines(job: ClassAd, machines: Iterable[ClassAd], now: float) -> str:
    """On which machines a job could be saved, and restored.

    Args:
        machines: ads of the pool's slots.
        now: wall time, seconds.
    """
    taking = {str(ad.value("Machine")): ad for ad in machines if requirements_accept(job, ad, now)}
    if not taking:
        return "no machine of the pool would take it now"
    able = {name: ad for name, ad in taking.items() if ad.value("HasCheckpoint") is True}
    unable = sorted(taking.keys() - able.keys())
    machines_of = f"{len(taking):,} machine{'s' if len(taking) != 1 else ''} that would take it"
    if not able:
        return f"on no machine that would take it could it be saved: their kernels do not allow that{_lacks(taking)}"
    text = f"it could be saved and restored on {'each' if not unable else f'{len(able):,}'} of the {machines_of}"
    if len(taking) == 1:
        text = "it could be saved and restored on the one machine that would take it"
    if unable:
        text += f" (not on {', '.join(unable[:MOST_NAMED])}{', ...' if len(unable) > MOST_NAMED else ''})"
    steps = Counter(str(ad.value("Microarch") or ad.value("Arch") or "unknown") for ad in able.values())
    if len(steps) > 1:
        text += "".join(f"; what {step} began on {_machines_at_least(steps, step):,}" for step in sorted(steps))
    kernels = sorted({str(ad.value("KernelVersion") or "unknown") for ad in able.values()}, key=_numbers)
    return f"{text}; kernel {kernels[0]}" + (f" to {kernels[-1]}" if len(kernels) > 1 else "") + _lacks(able)


def _lacks(machines: Mapping[str, ClassAd]) -> str:
    """The kernel features for checkpoints that machines lack, each with the machines."""
    lacking: dict[str, list[str]] = {}
    for name, ad in sorted(machines.items()):
        if isinstance(lacks := ad.value("CheckpointLacks", None), str):
            lacking.setdefault(lacks, []).append(name)
    return "".join(f"; {', '.join(who[:MOST_NAMED])}: {lacks}" for lacks, who in lacking.items())


def _machines_at_least(steps: Counter[str], step: str) -> int:
    """How many machines have a processor of that step or a higher one of the same kind."""
    kind = step.rpartition("-")[0]
    return sum(count for other, count in steps.items() if other.rpartition("-")[0] == kind and other >= step)


def _numbers(kernel: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", kernel)]


def _troubles(program: str, directory: str) -> list[str]:
    """The reasons against a program, or against the interpreter of a script."""
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

"""`spread`, `process.requirements` and `process.request_...`: which processes of a job run where (VS 5.2).

    spread = off             all on one machine; also where nothing is said
    spread = on              each on a machine of its own
    spread = a b, c          a and b on one machine, c on another
    a.requirements = ...     processes that ask for the same run on one machine, others on another or on another slot

`parts` groups the processes while they are read; `spread` makes of it what the schedd reads (`pool.jobs.gangs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pool.jobs.description.expressions import ExpressionError, size_of, wire_of
from pool.jobs.description.job import JobDraft
from pool.jobs.gangs import GangPart, attributes_of

Commands = Mapping[str, Mapping[str, str]]

_OFF, _ON = ("off", "false", "no", "0"), ("on", "true", "yes", "1")
#: The resources that a process may ask for: the command, the attribute, and the bytes of a number without a unit.
_AMOUNTS = (
    ("request_cpus", "RequestCpus", 1),
    ("request_memory", "RequestMemory", 2**20),
    ("request_disk", "RequestDisk", 1024),
)
WISHES = ("requirements", *(command for command, _, _ in _AMOUNTS))


def parts(job: JobDraft, names: Sequence[str], commands: Commands) -> tuple[list[list[str]], bool]:
    """The processes of each part, and whether parts may not share a machine. One part where the job is not spread.

    Args:
        names: the processes' in the order of the description.
        commands: process -> command -> its full name.
    """
    text = (job.param("spread") or "").strip()
    if text.lower() in _ON:
        return [[name] for name in names], True
    if text.lower() in _OFF and text:
        return [list(names)], False
    if text:
        return _listed(job, text, names), True
    alike: dict[tuple[str | None, ...], list[str]] = {}
    for name in names:
        own = commands.get(name, {})
        alike.setdefault(tuple(job.param(own[wish]) if wish in own else None for wish in WISHES), []).append(name)
    return list(alike.values()), False


def _listed(job: JobDraft, text: str, names: Sequence[str]) -> list[list[str]]:
    known = {name.lower(): name for name in names}
    groups = [group.split() for group in text.split(",")]
    said = [name.lower() for group in groups for name in group]
    for name in said:
        if name not in known:
            raise job.refuse(
                "spread",
                f"'spread' has {name!r}, which is no process of the job",
                f"the processes are {', '.join(names)}",
            )
    left = [name for name in names if said.count(name.lower()) != 1]
    if left or not all(groups):
        raise job.refuse(
            "spread",
            f"'spread' does not say once where {left[0]} runs" if left else f"a machine without processes in {text!r}",
            "write on, off, or every process once: spread = foo bar, baz",
        )
    return [[known[name.lower()] for name in group] for group in groups]


def spread(job: JobDraft) -> None:
    """Write the parts down."""
    if not job.parts:
        return
    made = [GangPart(tuple(names), _own_resources(job, names)) for names in job.parts]
    if len(made) == 1:
        for attribute, value in made[0].own.items():
            job.set(attribute, value)
        return
    _check(job)
    for attribute, value in attributes_of(made, apart=job.apart).items():
        job.set(attribute, value)


def _check(job: JobDraft) -> None:
    """The commands that only work on one machine."""
    refused = (
        ("remote_io", job.lookup("RemoteIO") is True, "leave it out: files are carried, or opened where they are"),
        ("checkpoint_exit_code", job.lookup("SuccessCheckpointExitCode") is not None, "leave it out"),
        ("transfer_output_files", job.lookup("TransferOutput") is not None, "leave it out: new files are sent back"),
    )
    for command, wrong, hint in refused:
        if wrong:
            raise job.refuse(command, f"'{command}' is not for processes that are spread over several machines", hint)
    if job.lookup("RemoteIO") is not None:
        job.set("RemoteIO", False)


def _own_resources(job: JobDraft, names: Sequence[str]) -> dict[str, Any]:
    """The resources that a part asks for in place of the job's."""
    own: dict[str, Any] = {}
    clauses = list(dict.fromkeys(text for name in names if (text := job.param(f"{name}.requirements"))))
    for text in clauses:
        try:
            wire_of(text)
        except ExpressionError as trouble:
            where = next(name for name in names if job.param(f"{name}.requirements") == text)
            raise job.refuse(f"{where}.requirements", f"expected an expression, not {text!r}: {trouble}") from None
    if clauses:
        base = job.lookup("Requirements")
        whole = base[0] if isinstance(base, list) else "true" if base is None else str(base).lower()
        own["Requirements"] = wire_of(" && ".join((f"({whole})", *(f"({text})" for text in clauses))))
    for command, attribute, unit in _AMOUNTS:
        sizes = [_size(job, f"{name}.{command}", unit) for name in names if job.param(f"{name}.{command}")]
        if sizes:
            own[attribute] = sum(sizes)
    return own


def _size(job: JobDraft, command: str, unit: int) -> int:
    text = job.param(command) or ""
    size = size_of(text, unit)
    if size is None or size.amount < 1:
        raise job.refuse(command, f"expected a size for '{command}', not {text!r}")
    return size.amount

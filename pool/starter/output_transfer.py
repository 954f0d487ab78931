"""A job's outputs on their way to the submit side from its scratch directory: which they are, and how each is
announced.

The submit side decides which files are wanted and under which names they arrive (`pool.shadow`); files are read as
`staging` does.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from pool.jobs.activation import NOTHING, STDERR, STDOUT, Activation
from pool.safe_directory import Owner, SafeDirectory
from pool.starter import manifest, staging


def open_scratch(path: Path, owner: Owner) -> SafeDirectory:
    """The scratch directory that outputs are read from.

    Raises:
        StagingError: it cannot be opened. It is on this machine: no later try would find it.
    """
    try:
        return SafeDirectory(path, owner)
    except OSError as error:
        raise staging.StagingError(f"cannot open its scratch directory {path}: {error.strerror}") from error


def manifest_of(scratch: SafeDirectory, name: str) -> list[staging.Output]:
    """The job's manifest, written now that all of its outputs are there.

    Raises:
        StagingError: it cannot be written.
    """
    try:
        return manifest.write_after(name, scratch)
    except OSError as error:
        raise staging.StagingError(f"cannot write the job's manifest {name}: {error.strerror}") from error


def outputs_of(
    activation: Activation, scratch: SafeDirectory, before: dict[str, tuple[int, int]]
) -> list[staging.Output]:
    """The files that are sent to the submit side beside standard output and error.

    Args:
        before: what the scratch directory held when the job began: name to size and time of the last change.

    Raises:
        StagingError: an output is missing or cannot be read.
    """
    if activation.processes:
        return staging.outputs_of_several(scratch, before, activation.outputs, activation.layout)
    standard = standard_files(activation)
    own = {STDOUT, STDERR, os.path.basename(activation.executable)}
    if activation.stdin != NOTHING:
        own.add(os.path.basename(activation.stdin))
    asked = activation.outputs
    if asked is not None:  # the others are sent in any case; a file of the same name would take their place
        asked = tuple(name for name in asked if name not in standard.values() or scratch.exists(name))
    found = staging.outputs(scratch, before, asked, activation.remaps, keeps_paths=activation.keeps_paths)
    found = [output for output in found if activation.outputs is not None or output.name not in own]
    return _with_core(activation, scratch, before, found) if activation.is_node else found


def _with_core(
    activation: Activation, scratch: SafeDirectory, before: dict[str, tuple[int, int]], found: list[staging.Output]
) -> list[staging.Output]:
    """The outputs of a node with its core file under the node's own name, wanted or not: it tells what went wrong."""
    new = [name for name, mark in staging.top_level(scratch).items() if before.get(name) != mark]
    if activation.mpi:  # the ranker has named them
        cores = [name for name in new if activation.is_core(name)]
        rest = [output for output in found if output.path not in cores]
        return rest + [staging.Output(name, name) for name in cores]
    cores = [name for name in new if re.fullmatch(r"core(\.[0-9]+)?", name)][:1]
    rest = [output for output in found if output.path not in cores]
    return rest + [staging.Output(name, activation.core_name) for name in cores]


async def send_outputs(stream: Any, activation: Activation, scratch: SafeDirectory, found: list[staging.Output]) -> int:
    """Carry outputs to the submit side; the bytes that travelled once the submit side has them.

    Raises:
        StagingError: one cannot be read, or the submit side does not confirm them.
        WireError: the submit side cannot be reached, or refused.
    """
    total = 0
    for head, name in _standard_files(activation):
        if scratch.exists(name):
            total += await staging.send_file(stream, head, scratch, name)
    for output in found:
        try:
            mode = scratch.status(output.path).st_mode & 0o777
        except OSError as error:
            raise staging.StagingError(f"cannot read the job's output {output.name}: {error.strerror}") from error
        if output.directory:
            await stream.send(["dir", output.name, mode])
        else:
            total += await staging.send_file(stream, ["file", output.name, mode], scratch, output.path)
    await stream.send(["done"])
    await stream.finish()
    async for item in stream:
        if item and item[0] == "ok":
            return total
    raise staging.StagingError("the submit side did not confirm the outputs", retry=True)


def standard_files(activation: Activation) -> dict[str, str]:
    """The files that stdout and stderr go to: name in the scratch directory, path on the submit side as the description
    has it.
    """
    if activation.processes:
        return {one.name: one.submit_path for one in activation.layout.streams.values()}
    kinds = ((STDOUT, activation.stdout), (STDERR, activation.stderr))
    return {name: path for name, path in kinds if path != NOTHING}


def _standard_files(activation: Activation) -> list[tuple[list[Any], str]]:
    """The job's stdout and stderr: how each is announced, and where it lies."""
    if activation.processes:
        return [(["stream", one.name], one.name) for one in activation.layout.streams.values()]
    kinds = (("stdout", STDOUT, activation.stdout), ("stderr", STDERR, activation.stderr))
    return [([kind], name) for kind, name, path in kinds if path != NOTHING]

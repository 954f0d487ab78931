"""From the processes of a start to the members and pipes of a keeper's order (VS 3.6.1).

Plain data. Where the files of a job lie that are carried is `pool.jobs.pipes.directories`'s.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from typing import Any

from pool.jobs.activation import NOTHING, Activation
from pool.jobs.pipes.directories import PipeDirectories
from pool.jobs.pipes.model import Joint, PipelineProcess
from pool.starter.spec import EndReport, Member, OnFailure, Pipe


def members_of(activation: Activation, env: Mapping[str, str], own: str | None) -> tuple[Member, ...]:
    """The processes as a keeper starts them.

    Args:
        env: the job's whole environment; each process's own variables come on top.
        own: the scratch directory as the job sees it, where files are carried; None where they are opened on the submit
        side.
    """
    layout = activation.layout
    return tuple(_member(process, layout, env, own) for process in activation.processes)


def pipes_of(activation: Activation) -> tuple[Pipe, ...]:
    """The pipes between them, by number; one to a process that is not there is refused with the start. An end on
    another machine has no number and no file."""
    places = activation.ends_here
    crossing = {pipe for pipe, _, _ in activation.crossings}
    short = {process.name for process in activation.processes if process.short_reads}

    def pipe(index: int, joint: Joint) -> Pipe:
        none = -1 if index in crossing else len(places)
        writer, reader = places.get(joint.writer, none), places.get(joint.reader, none)
        return Pipe(
            writer,
            reader,
            joint.writer_file if writer >= 0 else "",
            joint.reader_file if reader >= 0 else "",
            buffer=activation.pipe_buffer,
            short_reads=reader >= 0 and joint.reader in short,
        )

    return tuple(pipe(index, joint) for index, joint in enumerate(activation.pipes))


def on_failure_of(activation: Activation) -> OnFailure:
    """The fate of the job when a process of it fails."""
    return OnFailure(activation.on_process_failure)


def ends_of(end: EndReport) -> list[dict[str, Any]]:
    """How each process ended, for the submit side: see `pool.jobs.pipes.model.ENDS`."""
    return [
        {
            "name": one.name,
            "code": one.code,
            "signal": one.signal,
            "core": one.core,
            "with_job": one.with_job,
            "failed": one.failed,
            "user_cpu": one.user_cpu,
            "system_cpu": one.system_cpu,
            "wall": one.wall,
            "max_rss": one.max_rss,
        }
        for one in end.members
    ]


def _member(process: PipelineProcess, layout: PipeDirectories, env: Mapping[str, str], own: str | None) -> Member:
    program = layout.program(process) if own is not None else None
    path = os.path.join(own or "", program) if program is not None else os.path.join(process.iwd, process.cmd)
    stdout, stderr = (_output(process, layout, file, own) for file in (process.stdout, process.stderr))
    return Member(
        name=process.name,
        argv=(path, *process.arguments),
        env={**env, **process.variables()},
        cwd=process.iwd if own is None else os.path.join(own, layout.folder(process)).rstrip("/"),
        stdin=_input(process, layout, own),
        stdout=stdout,
        stderr=stderr,
        append_stdout=process.append_stdout,
        append_stderr=process.append_stderr,
        stderr_to_stdout=process.errors_to_stdout,
        fails=frozenset(range(256)) - frozenset(process.codes_ok) if process.codes_ok is not None else frozenset(),
    )


def _input(process: PipelineProcess, layout: PipeDirectories, own: str | None) -> str:
    name = layout.stdin(process)
    if name is None:
        return NOTHING
    return os.path.join(process.iwd, process.stdin) if own is None else os.path.join(own, name)


def _output(process: PipelineProcess, layout: PipeDirectories, path: str, own: str | None) -> str:
    if not path:
        return NOTHING
    return os.path.join(process.iwd, path) if own is None else os.path.join(own, layout.output(process, path))

"""Where the files of a job of several processes lie while they are carried: the same answers on both sides (G6).

On the submit side each process has its initial directory. On the execute machine the job's own is the scratch directory
itself, and every other one a directory in it; processes with one initial directory have one there too. Programs,
standard input and what goes to files from stdout and stderr lie under names that no program sees. Names are relative to
the scratch directory. Nothing here reads anything.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pool.jobs.pipes.model import PipelineProcess

#: All of it; hidden, so that it is no output.
OWN = ".poolnode"
PROGRAMS, FOLDERS, INPUTS, STREAMS = (f"{OWN}/{name}" for name in ("programs", "folders", "inputs", "streams"))


@dataclass(frozen=True, slots=True)
class StreamFile:
    """A file on the submit side that stdout or stderr of processes go to, and its name in the scratch directory
    meanwhile.

    `append`: what it has already goes along, and comes back with it.
    """

    submit_path: str
    name: str
    append: bool


@dataclass(frozen=True, slots=True)
class TransferredFile:
    """A file that goes to the job: from where on the submit side, below which directory, under which name ('': its
    own).
    """

    submit_path: str
    under: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class PipeDirectories:
    """The places of one job.

    Args:
        iwd: the job's initial directory.
        processes: in the order of the description.
        shown: names for stdout and stderr of the last process, which can be followed while it runs.
    """

    iwd: str
    processes: Sequence[PipelineProcess]
    shown: tuple[str, str]
    folders: dict[str, str] = field(init=False)
    streams: dict[str, StreamFile] = field(init=False)

    def __post_init__(self) -> None:
        folders = {self.iwd: ""}
        for process in self.processes:
            folders.setdefault(process.iwd, f"{FOLDERS}/{process.name}")
        object.__setattr__(self, "folders", folders)
        streams: dict[str, StreamFile] = {}
        for process in reversed(self.processes):
            last = process is self.processes[-1]
            for number, (path, append) in enumerate(_written(process)):
                if not path:
                    continue
                submit_path = posixpath.normpath(posixpath.join(process.iwd, path))
                name = self.shown[number] if last and submit_path not in streams else f"{STREAMS}/{len(streams)}"
                before = streams.get(submit_path)
                streams[submit_path] = StreamFile(
                    submit_path, before.name if before else name, append or bool(before and before.append)
                )
        object.__setattr__(self, "streams", streams)

    def folder(self, process: PipelineProcess) -> str:
        """A process's directory; '' is the scratch directory itself."""
        return self.folders[process.iwd]

    def program(self, process: PipelineProcess) -> str | None:
        """A process's program; None when the machine has it."""
        return f"{PROGRAMS}/{process.name}/{posixpath.basename(process.cmd)}" if process.carried else None

    def stdin(self, process: PipelineProcess) -> str | None:
        """A process's standard input; None when it has none that is a file."""
        return f"{INPUTS}/{process.name}" if process.stdin else None

    def output(self, process: PipelineProcess, path: str) -> str:
        """Where what a process writes to a file of its description lies."""
        return self.streams[posixpath.normpath(posixpath.join(process.iwd, path))].name

    def directories(self) -> list[str]:
        """The directories below the scratch directory, from the top down."""
        names = {*self.folders.values(), *(posixpath.dirname(stream.name) for stream in self.streams.values())}
        names |= {carried.under for carried in self.inputs()}
        names |= {posixpath.dirname(name) for process in self.processes if (name := self.program(process)) is not None}
        found = set()
        for name in names:
            while name:
                found.add(name)
                name = posixpath.dirname(name)
        return sorted(found)

    def inputs(self) -> Iterator[TransferredFile]:
        """The files that go to the job beside the whole job's own, without programs and without streams that are
        appended to.
        """
        for process in self.processes:
            stdin = self.stdin(process)
            if stdin is not None:
                yield TransferredFile(posixpath.join(process.iwd, process.stdin), INPUTS, process.name)
            for path in process.inputs:
                yield TransferredFile(posixpath.join(process.iwd, path), self.folder(process))

    def submit_path_of(self, name: str) -> str | None:
        """Where a file that a process left in a directory of its own belongs; None for other names, and hidden ones."""
        for iwd, folder in self.folders.items():
            rest = name.removeprefix(f"{folder}/")
            if folder and rest not in ("", name) and "/" not in rest and not rest.startswith("."):
                return posixpath.join(iwd, rest)
        return None


def _written(process: PipelineProcess) -> Iterator[tuple[str, bool]]:
    yield process.stdout, process.append_stdout
    yield process.stderr, process.append_stderr

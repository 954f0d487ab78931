"""A job of several processes as its ad has it: `Processes`, `Pipes`, `ProcessEnvironments`, `OnProcessFailure`.

Plain data, to and from the ad's expressions. `pool.jobs.description` says what a description file may hold,
`pool.starter.spec` what a keeper gets. The structure is the paper's (VS 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pool.classad import ClassAd
from pool.decimals import whole_number
from pool.errors import PoolError
from pool.jobs.arguments import join_words, split_words
from pool.jobs.environment import environment_of

MOST_PROCESSES, MOST_PIPES = 64, 256
#: A pipe's end that is a descriptor the process is born with begins so.
DESCRIPTOR = "/dev/fd/"
#: The fate of the job when one of its processes fails.
ON_FAILURE = ("end", "wait", "ignore")
#: Bytes that a pipe with a file at an end may hold on disk, unless `pipe_buffer` says otherwise.
BUFFER = 1 << 30


@dataclass(frozen=True, slots=True)
class PipelineProcess:
    """One process of a job.

    Attributes:
        name: unique in the job; its commands in the description begin with it.
        cmd: its program; `carried` when that goes along where files are carried.
        iwd: absolute initial directory; stdin, stdout, stderr are meant against it, '' is /dev/null.
        append_stdout, append_stderr: the file is not emptied. errors_to_stdout: stderr goes where stdout goes.
        codes_ok: exit codes that are no failure; None for all.
        short_reads: its mapped files may give fewer bytes than a read asked for, as any pipe does.
        inputs: further files carried into its directory.
    """

    name: str
    cmd: str
    arguments: tuple[str, ...] = ()
    iwd: str = "/"
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    append_stdout: bool = False
    append_stderr: bool = False
    errors_to_stdout: bool = False
    codes_ok: tuple[int, ...] | None = None
    short_reads: bool = False
    carried: bool = True
    inputs: tuple[str, ...] = ()
    environment: str = ""

    def variables(self) -> dict[str, str]:
        """Its own variables, beside the job's."""
        return environment_of({"Environment": self.environment})


@dataclass(frozen=True, slots=True)
class Joint:
    """A pipe by the names of its processes; a file is '' for stdout or stdin, /dev/fd/N for a descriptor."""

    writer: str
    reader: str
    writer_file: str = ""
    reader_file: str = ""

    def __str__(self) -> str:
        if not self.writer_file and not self.reader_file:
            return f"{self.writer} | {self.reader}"
        return f"{self.writer} > {self.writer_file or '-'} {self.reader_file or '-'} > {self.reader}"


#: The facts about the end of each process, in events and reports: the key, and the name in the ad's `ProcessEnds`.
#: Times in seconds, `wall` from the job's start, `max_rss` in KiB; code and signal are None where there is none. The
#: nodes of a parallel job have the slot where each ran, and the wall time of its end.
ENDS = (
    ("name", "Name"),
    ("code", "ExitCode"),
    ("signal", "ExitSignal"),
    ("core", "CoreDumped"),
    ("with_job", "EndedWithJob"),
    ("failed", "Failed"),
    ("user_cpu", "RemoteUserCpu"),
    ("system_cpu", "RemoteSysCpu"),
    ("wall", "WallClockTime"),
    ("max_rss", "ResidentSetSize"),
    ("host", "Host"),
    ("at", "EndedAt"),
)

#: The facts about nodes alone.
OF_NODES = ("host", "at")
_FLAGS = ("core", "with_job", "failed")

_TEXTS = (("In", "stdin"), ("Out", "stdout"), ("Err", "stderr"))
_TRUTHS = (
    ("AppendOut", "append_stdout"),
    ("AppendErr", "append_stderr"),
    ("ErrToOut", "errors_to_stdout"),
    ("ShortReads", "short_reads"),
)


def attributes_of(processes: Sequence[PipelineProcess], joints: Sequence[Joint]) -> dict[str, Any]:
    """The ad's attributes in wire form."""
    ads = []
    for process in processes:
        ad: dict[str, Any] = {"Name": process.name, "Cmd": process.cmd, "Iwd": process.iwd}
        if process.arguments:
            ad["Arguments"] = join_words(process.arguments)
        ad |= {name: getattr(process, field) for name, field in (*_TEXTS, *_TRUTHS) if getattr(process, field)}
        if process.codes_ok is not None:
            ad["ExitCodesOK"] = ",".join(map(str, process.codes_ok))
        if not process.carried:
            ad["TransferExecutable"] = False
        if process.inputs:
            ad["TransferInput"] = ",".join(process.inputs)
        ads.append(ClassAd(ad))
    pipes = [
        ClassAd({"From": joint.writer, "FromFile": joint.writer_file, "To": joint.reader, "ToFile": joint.reader_file})
        for joint in joints
    ]
    made = ClassAd({"Processes": ads, "Pipes": pipes})
    if any(process.environment for process in processes):
        made["ProcessEnvironments"] = [process.environment for process in processes]
    return dict(made.to_wire())


def ends_attributes(ends: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The ad's attributes, in wire form, for the ends of all: `ProcessEnds`, and `FailedProcess` by number."""
    rows = [
        ClassAd({name: end[key] for key, name in ENDS if end.get(key) is not None and end[key] is not False})
        for end in ends
    ]
    failed = next((number for number, end in enumerate(ends) if end.get("failed")), None)
    return {**ClassAd({"ProcessEnds": rows}).to_wire(), "FailedProcess": failed}


class Ad(Protocol):
    """The part of an ad that is read here."""

    def value(self, name: str, default: Any = None) -> Any: ...


def ends_of(ad: Ad) -> list[dict[str, Any]]:
    """The ends of the processes of a job, as events have them; empty where none are known."""
    value = ad.value("ProcessEnds", None)
    if not isinstance(value, (tuple, list)):
        return []
    rows = [one for one in value if isinstance(one, ClassAd)]
    known = [{key: one.value(name, None) for key, name in ENDS} for one in rows]
    return read_ends([{key: value for key, value in one.items() if value is not None} for one in known])


def read_ends(value: object) -> list[dict[str, Any]]:
    """The ends that an ad or another machine reports, with every key and of the right kind; wrong values become None.

    Keys of nodes are there where they are known.
    """
    if not isinstance(value, (tuple, list)):
        return []
    rows = [one for one in value if isinstance(one, Mapping)][:MOST_PROCESSES]
    return [{key: _plain(key, one.get(key)) for key, _ in ENDS if key in one or key not in OF_NODES} for one in rows]


def _plain(key: str, value: object) -> str | bool | int | float | None:
    if key in ("name", "host"):
        return value[:200] if isinstance(value, str) else "?" if key == "name" else None
    if key in _FLAGS:
        return value is True
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**53 else None
    if key in ("code", "signal"):
        return None if number is None else int(number)
    if key == "at" and number is None:
        return None
    return max(number or 0, 0) if key != "max_rss" else int(max(number or 0, 0))


def end_in_words(end: Mapping[str, Any]) -> str:
    """How a process ended: `exited with 3`, `signal 11, core file`, `killed with the job`."""
    if end.get("with_job"):
        return "killed with the job"
    if end.get("signal") is not None:
        return f"signal {end['signal']}{', core file' if end.get('core') else ''}"
    return "did not end" if end.get("code") is None else f"exited with {end['code']}"


def is_several(ad: ClassAd) -> bool:
    """Whether the ad describes a job of several processes."""
    return ad.get("Processes") is not None


def processes_of(ad: ClassAd) -> tuple[PipelineProcess, ...]:
    """The processes of a job's ad; none for a job of one process.

    Raises:
        PoolError: the attribute is not what `attributes_of` makes.
    """
    environments = ad.value("ProcessEnvironments", ())
    return tuple(
        _process(one, environments[index] if index < len(environments) else "")
        for index, one in enumerate(_records(ad, "Processes"))
    )


def joints_of(ad: ClassAd) -> tuple[Joint, ...]:
    """The pipes of a job's ad.

    Raises:
        PoolError: as `processes_of`.
    """
    return tuple(
        Joint(_text(one, "From"), _text(one, "To"), _text(one, "FromFile"), _text(one, "ToFile"))
        for one in _records(ad, "Pipes")
    )


def _records(ad: ClassAd, name: str) -> Sequence[ClassAd]:
    if ad.get(name) is None:
        return ()
    value = ad.value(name, None)
    if not isinstance(value, (tuple, list)) or not all(isinstance(one, ClassAd) for one in value):
        raise PoolError(f"the job's attribute {name} is not a list of ads", hint="submit it from a description file")
    return value


def _process(ad: ClassAd, environment: object) -> PipelineProcess:
    codes = ad.value("ExitCodesOK", None)
    fields: dict[str, Any] = {field: _text(ad, name) for name, field in _TEXTS}
    fields |= {field: ad.value(name, False) is True for name, field in _TRUTHS}
    return PipelineProcess(
        name=_text(ad, "Name"),
        cmd=_text(ad, "Cmd"),
        arguments=tuple(split_words(_text(ad, "Arguments"))),
        iwd=_text(ad, "Iwd") or "/",
        codes_ok=None if codes is None else _whole_numbers(str(codes)),
        carried=ad.value("TransferExecutable", True) is not False,
        inputs=tuple(one for one in _text(ad, "TransferInput").split(",") if one),
        environment=environment if isinstance(environment, str) else "",
        **fields,
    )


def _text(ad: ClassAd, name: str) -> str:
    value = ad.value(name, "")
    return value if isinstance(value, str) else ""


def _whole_numbers(text: str) -> tuple[int, ...]:
    return tuple(number for number in map(whole_number, text.split(",")) if number is not None)

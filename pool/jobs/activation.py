"""The data that the submit side sends the execute side to start a job: everything the starter needs, and nothing else.

Made by the shadow from the job's ad and the slot's; pure data on both sides. The user id the job runs under is not
among it: the execute side derives that from the authenticated owner (EV 2.9.1, second hazard).

A job runs in one of three *modes*. In `shared`, the execute machine has the submit machine's file system (the same
FileSystemDomain), and files are opened where they are. In `remote`, files are opened under their own names and worked
on at the submit side (B1). In `transfer`, inputs are first copied into the job's scratch directory, and outputs are
sent to the submit side at the end (B4).
"""

from __future__ import annotations

import os.path
import signal
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any

from pool.classad import ClassAd
from pool.decimals import has_digits_only
from pool.errors import PoolError
from pool.jobs import activation_fields
from pool.jobs.arguments import arguments_of
from pool.jobs.environment import environment_of
from pool.jobs.huge_pages import HUGE_PAGES, WISHES
from pool.jobs.mpi import MPIRUN, PMIX_LIBRARY, RANKER, family_in
from pool.jobs.network import JOB_NETWORK, OUTSIDE_CONNECTIONS, REFUSE, RESET
from pool.jobs.nice import is_nice
from pool.jobs.pipes.directories import PipeDirectories
from pool.jobs.pipes.model import BUFFER, ON_FAILURE, Joint, PipelineProcess, joints_of, processes_of
from pool.jobs.urls import is_fetched, submit_path

NOTHING = "/dev/null"
#: Names in a scratch directory that are the starter's own and never go to the submit side.
STDOUT, STDERR = ".poolnode.out", ".poolnode.err"


#: In the ad of a claimed slot: its jobs run as nobody there, and can open none of their owner's files.
AS_NOBODY = "JobRunsAsNobody"
#: The directory of the job that an image is unpacked to, and the suffixes of image files.
UNPACKED_IMAGE, UNPACKED = ".image", (".tar", ".sif")
#: The attributes of a slot by which a start differs: on slots that have the same values a job is started alike.
OF_SLOT = ("FileSystemDomain", AS_NOBODY, "HasRemoteIO", "JavaPath")
#: The number of the java universe.
JAVA = 10
#: The attributes that list a job's inputs: its own, and those that many jobs may share.
_INPUTS = ("TransferInput", "PublicInputFiles", "CommonInputFiles")


class FileMode(StrEnum):
    """How a job gets at its files."""

    SHARED = "shared"
    REMOTE = "remote"
    TRANSFER = "transfer"

    @property
    def in_place(self) -> bool:
        """Whether the job works on its owner's files where they are."""
        return self is not FileMode.TRANSFER


class CannotStart(PoolError):
    """The job's ad describes something that can never be started; the job is held with this reason."""


@dataclass(frozen=True, slots=True)
class Activation:
    """One start of one job.

    Attributes:
        carries_executable: the executable comes along (transfer mode); else it is on the machine.
        run: how often the job has been started, this time included; (job, run) is never used twice.
        executable: path on the submit machine; `digest` names its stored copy (A12) in transfer mode.
        argv, env: complete; argv[0] is what the program sees as its name.
        stdin, stdout, stderr: paths, relative ones are meant against `iwd`.
        inputs: paths, or URLs to fetch from, to copy into the scratch directory before the start (transfer mode).
        outputs: names in the scratch directory to send to the submit side; None sends new and changed files that are
            not hidden.
        most_input, most_output: bytes that may be carried each way (max_transfer_*_mb); None for any.
        keeps_paths: inputs and outputs that are named relatively keep the directories in their names.
        manifest: the name of a directory for lists of the job's directory before and after its run; empty for none.
        image: the directory that is the job's root: a path on the machine, or a name in its scratch directory; empty
            for the machine's own tree.
        image_source: the URL, archive or SIF file that is unpacked to it before the start; empty where it is there.
        image_program: "alone" where the image's own program runs, with the job's arguments if there are any; "behind"
            where the job's stands behind the image's entrypoint; empty where it is the job's own.
        remaps: output name to the path it gets on the submit side.
        soft_signal, grace: what asks the job to end, and seconds until it is killed.
        network: false takes all network but its own loopback from it (want_job_networking).
        huge_pages: its wish about huge pages, see `huge_pages.is_wanted`.
        reset_connections: a restore from a checkpoint resets its connections to the outside.
        begins_in: the directory in which the program begins; empty for iwd, and where files are transferred.
        job_network: the network that it asks for, of `pool.jobs.network.MODES`; empty for the machine's own default.
        on_failure_too: bring outputs to the submit side also when the job is evicted (ON_EXIT_OR_EVICT).
        checkpoint_code: the code with which the job ends when it has written a checkpoint and wants to go on.
        checkpoint_signal: what asks the job to write a checkpoint.
        checkpoint_files: names in the scratch directory that are its checkpoint; None for the outputs.
        append_output: it goes on from a checkpoint of its own where its files are: its standard files are not emptied.
        checkpoint: the stored checkpoint that this start goes on from.
        checkpoint_from: address and ticket of the machine that made it, where that may have it yet.
        processes, pipes: of a job of several processes; executable and argv are then its first's, stdin is none, and
            stdout and stderr are the last's, to be followed.
        on_process_failure: what becomes of it when one of them fails.
        pipe_buffer: bytes that a pipe with a file at an end may hold on disk.
        not_before: seconds after the order before which the program does not begin (deferral_time).
        gang: of a part of a job that runs on several machines: the secret that its parts know each other by; processes
            and pipes are then the part's. part, parts: its number, and how many there are.
        crossings: the pipes that lead to other parts: the index in `pipes`, the stream's number, the other part.
        mpi: of a node of an MPI job: the family of its MPI. Its pipes are then those of its ranker (`pool.jobs.mpi`).
        pmix_library: the path of the library of PMIx that belongs to its MPI, where that is not the system's.
        mpirun: the path of Open MPI's mpirun, where the program's libraries say it; else it is looked for along PATH.
        ranks: how many ranks the nodes of the job have, as the ranker reads it: `2x3,4x1`.
        application: which of the job's queue statements the node is of, from 0 up: MPI_APPNUM of its ranks.
    """

    job: tuple[int, int]
    run: int
    owner: str
    mode: FileMode
    executable: str
    digest: str | None
    argv: tuple[str, ...]
    env: dict[str, str]
    iwd: str
    carries_executable: bool = False
    stdin: str = NOTHING
    stdout: str = NOTHING
    stderr: str = NOTHING
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] | None = None
    remaps: dict[str, str] = field(default_factory=dict)
    image: str = ""
    image_source: str = ""
    image_program: str = ""
    keeps_paths: bool = False
    manifest: str = ""
    most_input: int | None = None
    most_output: int | None = None
    soft_signal: int = signal.SIGTERM
    grace: float = 600.0
    core_limit: int | None = None
    stack_limit: int | None = None
    nice: int = 0
    on_failure_too: bool = False
    network: bool = True
    reset_connections: bool = False
    huge_pages: str = ""
    begins_in: str = ""
    append_output: bool = False
    checkpoint_code: int | None = None
    checkpoint_files: tuple[str, ...] | None = None
    checkpoint_signal: int | None = None
    checkpoint: int | None = None
    checkpoint_from: tuple[str, str] | None = None
    processes: tuple[PipelineProcess, ...] = ()
    pipes: tuple[Joint, ...] = ()
    on_process_failure: str = "end"
    pipe_buffer: int = BUFFER
    not_before: float = 0.0
    gang: str = ""
    part: int = 0
    parts: int = 1
    crossings: tuple[tuple[int, int, int], ...] = ()
    mpi: str = ""
    mpirun: str = ""
    pmix_library: str = ""
    ranks: str = ""
    application: int = 0
    job_network: str = ""

    @property
    def name(self) -> str:
        return f"{self.job[0]}.{self.job[1]}"

    @property
    def is_node(self) -> bool:
        """Whether it is of one node of a parallel job."""
        return bool(self.gang) and not self.processes

    @property
    def stands_alone(self) -> bool:
        """Whether it is of a node that no stream of its machine's poolnode joins to the other nodes."""
        return self.is_node and not self.crossings and not self.job_network

    @property
    def core_name(self) -> str:
        """The name of its core file on the submit side: those of several nodes come into one directory."""
        return f"core.{self.part}" if self.is_node else "core"

    def is_core(self, name: str) -> bool:
        """Whether this is the name of the node's core file, or of a rank's of an MPI job."""
        rank = name.removeprefix(f"{self.core_name}.")
        return name == self.core_name or bool(self.mpi and rank != name and has_digits_only(rank))

    @property
    def saved_as(self) -> str:
        """The name of its checkpoints on its machine, which may run several parts of a job."""
        return f"{self.name}.{self.part}" if self.gang else self.name

    @property
    def mark(self) -> tuple[int, int, int]:
        """Which start this is: cluster, process, run."""
        return (*self.job, self.run)

    def to_wire(self, since: Activation | None = None) -> dict[str, Any]:
        """All of it, or only what is not as in a start that the other side has."""
        values = VALUES(self)
        if since is None:
            return _plainly(dict(zip(FIELDS, values, strict=True)))
        before = VALUES(since)
        last = len(FIELDS) if values[2:] != before[2:] else 2  # mostly they differ in job and run alone
        return _plainly({FIELDS[i]: values[i] for i in range(last) if values[i] != before[i]})

    @classmethod
    def from_wire(cls, wire: dict[str, Any], since: Activation | None = None) -> Activation:
        """The reverse of `to_wire` with the same `since`.

        Raises:
            WrongStart: no program is named, and no image whose own program runs.
        """
        values = {name: value for name, value in wire.items() if name in FIELDS}
        if "job" in values:
            values["job"] = (int(wire["job"][0]), int(wire["job"][1]))
        if "mode" in values:
            values["mode"] = FileMode(wire["mode"])
        for name in ("argv", "inputs", "outputs", "checkpoint_files", "checkpoint_from"):
            if values.get(name) is not None:
                values[name] = tuple(values[name])
        if "processes" in values:
            values["processes"] = tuple(_process(one) for one in values["processes"])
        if "pipes" in values:
            values["pipes"] = tuple(Joint(**one) for one in values["pipes"])
        if "crossings" in values:
            values["crossings"] = tuple((int(pipe), int(stream), int(part)) for pipe, stream, part in wire["crossings"])
        if since is not None and values.keys() <= {"job", "run"}:
            return since.for_job(values.get("job", since.job), values.get("run", since.run))
        if since is not None:
            values = dict(zip(FIELDS, VALUES(since), strict=True)) | values
        start = cls(**values)
        activation_fields.check_program(start.executable, start.image, start.image_program)
        return start

    def may_bring(self, name: str) -> bool:
        """Whether an execute machine may send an output under this name (relative, `..` excluded already).

        The outputs that were requested, under their names on the submit side. Where none were, the files at the scratch
        directory's top that are not hidden: another user's machine must not leave a `.profile` in the owner's
        directory.
        """
        first = name.partition("/")[0]
        if self.manifest and first == self.manifest:
            return True
        if self.processes and self.layout.submit_path_of(name) is not None:
            return self.outputs is None or os.path.basename(name) in self.outputs
        if self.is_node and self.is_core(name):
            return True
        if self.outputs is None:
            return "/" not in name and not hidden(name)
        for asked in self.outputs:
            if asked.endswith("/"):
                if not hidden(first):
                    return True
                continue
            submit_name = asked if asked in self.remaps or self.keeps_paths else os.path.basename(asked)
            if name == submit_name or name.startswith(f"{submit_name}/"):
                return True
        return False

    @property
    def ends_here(self) -> dict[str, int]:
        """The ends of its pipes on this machine, by name, with its number among the job's processes here."""
        if self.mpi:
            return {RANKER: 0}
        return {process.name: index for index, process in enumerate(self.processes)}

    @property
    def layout(self) -> PipeDirectories:
        """Where the files of a job of several processes lie while they are carried."""
        return PipeDirectories(self.iwd, self.processes, (STDOUT, STDERR))

    def for_job(self, job: tuple[int, int], run: int) -> Activation:
        """The same start for another job of the cluster that differs in nothing else."""
        return Activation(job, run, *VALUES(self)[2:])


def _plainly(wire: dict[str, Any]) -> dict[str, Any]:
    for name in ("processes", "pipes"):
        if wire.get(name):
            wire[name] = [asdict(one) for one in wire[name]]
    return wire


def _process(wire: dict[str, Any]) -> PipelineProcess:
    tuples = {name: tuple(value) for name, value in wire.items() if isinstance(value, (list, tuple))}
    return PipelineProcess(**{**wire, **tuples})


#: Job and run come first.
FIELDS = tuple(entry.name for entry in fields(Activation))
VALUES = attrgetter(*FIELDS)


def hidden(name: str) -> bool:
    """Whether a file of this name is left where it is unless it is asked for: its name begins with a dot."""
    return name.startswith(".")


def mode_for(job: ClassAd, slot: ClassAd) -> FileMode:
    """How the job's files are reached: directly, on the submit side, or by copying them (B2, B1 and B4).

    RemoteIO is true where the job has to be on the submit side, "auto" where it may also get copies.

    Raises:
        CannotStart: the job forbids copying, and on that machine it cannot open its owner's files.
    """
    wish = str(job.value("ShouldTransferFiles", "IF_NEEDED")).upper()
    if in_image(job):
        if wish != "NO":
            return FileMode.TRANSFER
        raise CannotStart("a job in an image works on copies of its files", hint="leave should_transfer_files out")
    shared = job.value("FileSystemDomain", "") == slot.value("FileSystemDomain", None)
    same = shared and slot.value(AS_NOBODY, False) is not True
    remote = job.value("RemoteIO", False)
    able = slot.value("HasRemoteIO", False) is True
    if remote is True or (remote == "auto" and able):
        if same and wish != "YES":
            return FileMode.SHARED
        if able:
            return FileMode.REMOTE
        raise CannotStart(
            "remote_io = on, but the machine cannot show a job its owner's files",
            hint="write remote_io = auto to have them copied there",
        )
    fetches = any(is_fetched(name) for name in _list(_text(job, "TransferInput")))
    if wish == "YES" or (wish != "NO" and (fetches or not same)):
        return FileMode.TRANSFER
    if shared and not same:
        raise CannotStart(
            f"should_transfer_files = NO, but on {slot.value('Machine', 'its machine')} it would run as nobody, "
            "who cannot open its owner's files",
            hint="set should_transfer_files = IF_NEEDED, or submit as a user who has an account there",
        )
    if not same:
        raise CannotStart(
            "should_transfer_files = NO, but the machine does not share the submit machine's file system",
            hint="set should_transfer_files = IF_NEEDED",
        )
    return FileMode.SHARED


def mode_with_checkpoint(job: ClassAd, slot: ClassAd, made_in: FileMode | None) -> FileMode:
    """How the job's files are reached where it has a checkpoint: as when that was made, if that is possible here, too.

    A job whose files were copied to a machine of another pool, and that comes home, goes on with copies.

    Args:
        made_in: of its newest checkpoint; None where there is none.

    Raises:
        CannotStart: as `mode_for`.
    """
    usual = mode_for(job, slot)
    if usual is not FileMode.SHARED:
        return usual
    wish, remote = str(job.value("ShouldTransferFiles", "IF_NEEDED")).upper(), job.value("RemoteIO", False)
    if made_in is FileMode.TRANSFER and wish != "NO" and remote is not True:
        return made_in
    if made_in is FileMode.REMOTE and remote is not False and slot.value("HasRemoteIO", False) is True:
        return made_in
    return usual


def activation(
    job: ClassAd,
    slot: ClassAd,
    run: int,
    digest: str | None,
    checkpoint: int | None = None,
    made_in: FileMode | None = None,
) -> Activation:
    """The start of a job on a slot.

    Args:
        checkpoint: the stored checkpoint to go on from, if there is one.
        made_in: how the job's files were reached when its newest checkpoint was made.

    Raises:
        CannotStart: arguments or environment that cannot be read, or files that cannot be reached.
    """
    mode = mode_with_checkpoint(job, slot, made_in)
    executable = _text(job, "Cmd")
    java = job.value("JobUniverse") == JAVA
    if java:
        executable = _text(slot, "JavaPath")
    if not executable and not in_image(job):
        raise CannotStart("the job has no executable", hint="set executable in the description file")
    try:
        arguments = arguments_of(_plain(job, "Arguments", "Args"))
        if java:
            arguments = [*_java_arguments(job, transfer=mode is FileMode.TRANSFER), *arguments]
        env = environment_of(_plain(job, "Environment", "Env", "EnvDelim"))
        processes, pipes, family = processes_of(job), joints_of(job), family_in(job)
        for process in processes:
            process.variables()
    except PoolError as error:
        raise CannotStart(error.message, hint=error.hint) from error
    iwd = _text(job, "Iwd") or "/"
    transfer = mode is FileMode.TRANSFER
    image, inputs = _image(job, slot, iwd), _inputs(job) if transfer else ()
    if image.startswith("/"):  # it is there
        inputs = tuple(name for name in inputs if os.path.join(iwd, name).rstrip("/") != image)
    packed = "://" in image or image.endswith(UNPACKED) or job.value("ContainerImageIsLayout", False) is True
    source = image if packed else ""
    wanted = bool(executable) and job.value("TransferExecutable", True) is not False
    carries = wanted and transfer and not processes and not java
    outputs = _text(job, "TransferOutput")
    has_outputs = job.get("TransferOutput") is not None
    code = job.value("SuccessCheckpointExitCode")
    start = Activation(
        job=(int(job.value("ClusterId", 0)), int(job.value("ProcId", 0))),
        run=run,
        owner=_text(job, "Owner"),
        mode=mode,
        executable=executable if not executable or os.path.isabs(executable) else os.path.join(iwd, executable),
        digest=digest if carries else None,
        carries_executable=carries,
        argv=(executable, *arguments),
        env=env,
        iwd=iwd,
        stdin=NOTHING if processes else _path(job, "In"),
        stdout=_path(job, "Out"),
        stderr=_path(job, "Err"),
        inputs=inputs,
        image=UNPACKED_IMAGE if source else image,
        image_source=source,
        image_program=_image_program(job, executable) if image else "",
        outputs=_list(outputs) if transfer and has_outputs else None,
        remaps=_remaps(_text(job, "TransferOutputRemaps")) if transfer else {},
        keeps_paths=transfer and job.value("PreserveRelativePaths", False) is True,
        manifest=_manifest(job) if transfer else "",
        most_input=_bytes(job, "MaxTransferInputMB"),
        most_output=_bytes(job, "MaxTransferOutputMB"),
        soft_signal=signal_number(job.value("KillSig", "SIGTERM")),
        grace=float(_number(job, "JobMaxVacateTime", _number(job, "KillSigTimeout", 600))),
        core_limit=int(job.value("CoreSize", -1)) if job.get("CoreSize") is not None else None,
        stack_limit=_positive(job, "StackSize"),
        nice=10 if is_nice(job.value("AcctGroup", ""), job.value("NiceUser", False)) else 0,
        append_output=mode.in_place and type(code) is int and _number(job, "NumCkpts", 0) > 0,
        checkpoint_code=code if type(code) is int else None,
        checkpoint_signal=signal_number(job.value("CheckpointSig")) if job.get("CheckpointSig") is not None else None,
        checkpoint_files=_list(kept) if (kept := _text(job, "TransferCheckpoint")) else None,
        checkpoint=checkpoint,
        on_failure_too=_text(job, "WhenToTransferOutput").upper() == "ON_EXIT_OR_EVICT",
        network=job.value("WantJobNetworking", True) is not False and job.value("DockerNetworkType") != "none",
        huge_pages=wish if (wish := _text(job, HUGE_PAGES).lower()) in WISHES else "",
        reset_connections=job.value(OUTSIDE_CONNECTIONS, REFUSE) == RESET,
        begins_in="" if transfer else _text(job, "RemoteIwd"),
        processes=processes,
        pipes=pipes,
        on_process_failure=wish if (wish := _text(job, "OnProcessFailure").lower()) in ON_FAILURE else "end",
        pipe_buffer=int(_number(job, "PipeBuffer", BUFFER)),
        mpi=family,
        mpirun=_text(job, MPIRUN) if family else "",
        job_network=_text(job, JOB_NETWORK),
        pmix_library=_text(job, PMIX_LIBRARY) if family else "",
    )
    try:  # no machine would take it: said once, here, and not by each of them
        activation_fields.check(start.to_wire())
    except activation_fields.WrongStart as error:
        raise CannotStart(error.message, hint="correct the description, and submit it again") from error
    return start


def in_image(job: ClassAd) -> bool:
    """Whether a job asks for an image to run in."""
    return job.value("WantContainer", False) is True or job.value("WantDocker", False) is True


def _image(job: ClassAd, slot: ClassAd, iwd: str) -> str:
    """The job's root, or what is unpacked to it: where the submit side's files are seen, in its place; else a copy."""
    name = _text(job, "ContainerImage")
    if in_image(job) and (reference := _text(job, "DockerImage")):
        return f"docker://{reference.removeprefix('docker://')}"
    if not in_image(job) or not name or "://" in name:
        return name if in_image(job) else ""
    if _text(job, "ContainerImageSource") == "local":
        return os.path.join(iwd, name).rstrip("/")
    shared = job.value("FileSystemDomain", "") == slot.value("FileSystemDomain", None)
    if shared and slot.value(AS_NOBODY, False) is not True:
        return os.path.join(iwd, _text(job, "ContainerImageFullPath") or name).rstrip("/")
    return os.path.basename(name.rstrip("/"))


def _image_program(job: ClassAd, executable: str) -> str:
    """See `Activation.image_program`. With docker an image's entrypoint gets the executable as its first argument."""
    if not executable:
        return "alone"
    docker = job.value("WantDocker", False) is True
    return "behind" if docker and job.value("DockerOverrideEntrypoint", False) is not True else ""


def _manifest(job: ClassAd) -> str:
    name = _text(job, "ManifestDir")
    if name or job.value("ManifestDesired", False) is not True:
        return name
    return f"{job.value('ClusterId', 0)}_{job.value('ProcId', 0)}_manifest"


def _inputs(job: ClassAd) -> tuple[str, ...]:
    """All that is to be in the job's directory: files on the submit side, and URLs that are fetched where it runs."""
    names = (name for attribute in _INPUTS for name in _list(_text(job, attribute)))
    return tuple(dict.fromkeys(submit_path(name) for name in names))


def _java_arguments(job: ClassAd, *, transfer: bool) -> list[str]:
    """The arguments between the Java machine and its main class: its own, and the class path."""
    given = {"Arguments": job.value("JavaVMArguments"), "Args": job.value("JavaVMArgs")}
    options = arguments_of({name: value for name, value in given.items() if value is not None})
    places = ["."]
    for name in (*_list(_text(job, "TransferInput")), *_list(_text(job, "JarFiles"))):
        if name.endswith(".jar"):
            places.append(os.path.basename(name) if transfer else name)
        elif name.endswith(".class") and not transfer:
            places.append(os.path.dirname(name) or ".")
    return [*options, "-classpath", ":".join(dict.fromkeys(places))]


def _plain(ad: ClassAd, *names: str) -> dict[str, object]:
    return {name: ad.value(name) for name in names if ad.get(name) is not None}


def _text(ad: ClassAd, name: str) -> str:
    value = ad.value(name, "")
    return value if isinstance(value, str) else ""


def _number(ad: ClassAd, name: str, otherwise: float) -> float:
    value = ad.value(name, otherwise)
    return value if isinstance(value, (int, float)) else otherwise


def _positive(ad: ClassAd, name: str) -> int | None:
    number = _number(ad, name, 0)
    return int(number) if number >= 1 else None


def _bytes(ad: ClassAd, name: str) -> int | None:
    number = _number(ad, name, -1)
    return int(number * 2**20) if number >= 0 else None


def _path(ad: ClassAd, name: str) -> str:
    return _text(ad, name) or NOTHING


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _remaps(text: str) -> dict[str, str]:
    pairs = (part.split("=", 1) for part in text.split(";") if "=" in part)
    return {name.strip(): path.strip() for name, path in pairs}


def signal_number(value: Any) -> int:
    """The number of a signal that an ad names, SIGTERM where there is no such signal."""
    if isinstance(value, int):
        return value if 1 <= value <= 64 else int(signal.SIGTERM)
    try:
        return int(signal.Signals[str(value).upper()])
    except KeyError:
        return int(signal.SIGTERM)

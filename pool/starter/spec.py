"""The order for a keeper to run a job, and its report of the job's end. Plain data; nothing here starts or reads
anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pool.errors import PoolError

#: The name of a scratch directory inside of 'full' where it is `fixed` (pool/checkpoint/sandbox/namespaces.c).
SEEN = "/job"
#: For a job none of whose pipes leads to another machine.
NO_ENDS: Mapping[int, int] = MappingProxyType({})


class KeeperError(PoolError):
    """The keepers of this machine cannot be used: the program is missing, the directory is in use, a disk is
    full.
    """


class StartFailed(PoolError):
    """A job's program could not be started.

    Args:
        call: the step that failed ('exec', 'chdir', 'open stdout', 'setuid', ...).
        path: the file or thing it failed on.
        errno: the kernel's reason; 0 when there is none.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        retry: bool = False,
        call: str = "",
        path: str = "",
        errno: int = 0,
    ) -> None:
        super().__init__(message, hint=hint, retry=retry)
        self.call = call
        self.path = path
        self.errno = errno


class EndCause(StrEnum):
    """Why a job is over. START: its keeper died before the program ran. MISUSE: one of its processes did to a pipe what
    only works on a file. MEMORY: it used more memory than its limit.
    """

    EXIT = "exit"
    SIGNAL = "signal"
    LEASE = "lease"
    KILLED = "killed"
    VACATED = "vacated"
    START = "start"
    MISUSE = "misuse"
    MEMORY = "memory"


class OnFailure(StrEnum):
    """The fate of a job when a process of it fails: it ends at once; it counts when all have ended; nothing."""

    END = "end"
    WAIT = "wait"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Member:
    """One of the processes of a job that consists of several. As in `KeeperSpec`; besides:

    Attributes:
        name: what the job's description calls it; unique in the job.
        append_stdout, append_stderr: do not empty that file. stderr_to_stdout: its stderr is where its stdout is, a
            pipe or a file. A file that several members write to is added to by all.
        fails: exit codes that are a failure of this process; a signal always is, but for SIGPIPE of one that
            writes to a pipe of the job.
    """

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    stdin: str = "/dev/null"
    stdout: str = "/dev/null"
    stderr: str = "/dev/null"
    program: str = ""
    append_stdout: bool = False
    append_stderr: bool = False
    stderr_to_stdout: bool = False
    fails: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Pipe:
    """A pipe between two processes of a job (VS 4.2).

    Attributes:
        writer, reader: index of the member; -1 when that end is outside this machine's part of the job.
        writer_file, reader_file: '' for stdout and stdin, '/dev/fd/N' for a descriptor that the process is born with,
            anything else a file that the process opens. Several pipes may begin at one file of a process.
        capacity: bytes of the kernel's pipe; 0 leaves the kernel's own.
        buffer: bytes that a pipe with a file at an end may hold on disk.
        short_reads: the reader's file may give fewer bytes than a read asked for, as any pipe does.
    """

    writer: int
    reader: int
    writer_file: str = ""
    reader_file: str = ""
    capacity: int = 0
    buffer: int = 0
    short_reads: bool = False


@dataclass(frozen=True, slots=True)
class KeeperSpec:
    """One job, as it is to be started.

    Attributes:
        id: unique among the keepers of the directory, e.g. '12.0.3' for cluster 12, process 0, third run.
        argv: the program and its arguments. A program without a slash is looked for in `cwd`, then along PATH
            in `env`.
        env: the whole environment; nothing is inherited from the node.
        cwd, stdin, stdout, stderr: paths as the job sees them, opened with the job's rights; '' is / or
            /dev/null. stdout and stderr may be one file; they are emptied unless `append_output`.
        uid, gid, groups: whom it runs as; groups None leaves the node's. Another uid than the node's needs
            root.
        scratch: host path of its own directory, under the same name inside; '' for none.
        root: host path of a directory that is the job's root in 'full', read-only; empty for the system's own tree.
        root_is_kept: it is an image that the node keeps for its jobs, in a directory that is hidden from them.
        fixed: inside of 'full' it is `SEEN` instead, on every machine.
        isolation: 'full' sees the system read-only, its scratch and a /tmp of its own; 'shared' sees the host
            but for `hidden`. Both have process numbers, /proc and System V objects of their own where the
            machine allows it.
        hidden: host directories it may not look into (the node's state).
        devices: accelerators that it sees in 'full' (/dev/nvidia0); no others.
        remote: directories of the submit machine that it sees under these names, in 'full'; served over the streams
            that the keeper is handed (pool/checkpoint/keeper/remote_files.c). None lies below another.
        static_remotes: bit i is set where it only reads `remote[i]`, and the submit side tells of changes there.
        binds: (directory of this machine, name under which it sees it in 'full'), to read and write.
        private_tmp: a /tmp of its own in 'shared' too, which is its /var/tmp and /dev/shm as well.
        reset_connections: a restore resets its connections to processes outside the job.
        filter: '' lets it make every system call; 'plain' refuses those that no job needs; 'nested' the same but for
            those that make namespaces.
        network: 'host'; 'none' for a loopback of its own only; 'private' for a network of its own.
        network_setup: of the latter its name and addresses: `pool.jobs.network.Setup` as texts.
        memory: bytes the whole job may use. cpu: seconds for each process. core, fsize: bytes.
            nofile: descriptors. stack: bytes of a thread's. None leaves what the node has.
        processes: at most so many processes and threads at a time. cpus: its share when processors are short.
        lease_seconds: it is killed when not renewed for so long, the node alive or not; 0 for no lease.
        nice: added to the node's niceness.
        soft_signal, grace: what `vacate` sends first, and seconds until everything is killed.
        program: what to execute when it is not argv[0].
        members: its processes, when it has several; argv, env, cwd, program and the three files then count for nothing.
            At most 64.
        pipes: between the members. At most 256.
        on_failure: what becomes of the job when a member fails.
        claim: whatever the starter needs to know again after a restart; plain JSON values.
    """

    id: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    uid: int
    gid: int
    stdin: str = "/dev/null"
    stdout: str = "/dev/null"
    stderr: str = "/dev/null"
    append_output: bool = False
    groups: tuple[int, ...] | None = None
    scratch: str = ""
    root: str = ""
    root_is_kept: bool = False
    fixed: bool = False
    isolation: str = "full"
    hidden: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    remote: tuple[str, ...] = ()
    static_remotes: int = 0
    binds: tuple[tuple[str, str], ...] = ()
    private_tmp: bool = False
    reset_connections: bool = False
    filter: str = ""
    network: str = "host"
    network_setup: tuple[str, ...] = ()
    memory: int | None = None
    cpu: int | None = None
    core: int | None = None
    fsize: int | None = None
    nofile: int | None = None
    stack: int | None = None
    processes: int | None = None
    cpus: int | None = None
    lease_seconds: float = 0.0
    nice: int = 0
    soft_signal: int = 15
    grace: float = 10.0
    program: str = ""
    members: tuple[Member, ...] = ()
    pipes: tuple[Pipe, ...] = ()
    on_failure: OnFailure = OnFailure.END
    claim: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemberEnd:
    """How one process of a job of several ended (VS 6.3.3). Seconds; KiB.

    Attributes:
        name: what the job's description calls it.
        over: False when the job was over before it.
        with_job: it was killed because the job was over.
        failed: it ended in a way that is a failure.
        wall: from the job's start to its end.
    """

    name: str
    code: int | None
    signal: int | None
    core: bool
    over: bool
    with_job: bool
    failed: bool
    user_cpu: float
    system_cpu: float
    wall: float
    max_rss: int


@dataclass(frozen=True, slots=True)
class EndReport:
    """How a job ended. Times in seconds, `max_rss` (of its largest process) in KiB, started and ended in wall
    time.

    `code` is None unless its first process exited, `signal` None unless it was killed by one. `cause` is a
    `EndCause`. `error` is one line, empty where the cause says all. Of a job of several processes code and signal are
    those of the first that failed, or without one those of the last in its description; `members` has them all.
    `lost`: its keeper was killed, not by the node, and the job with it.
    """

    code: int | None
    signal: int | None
    core: bool
    user_cpu: float
    system_cpu: float
    wall: float
    max_rss: int
    cause: str
    error: str = ""
    started: float = 0.0
    ended: float = 0.0
    members: tuple[MemberEnd, ...] = ()
    lost: bool = False

    def report(self) -> dict[str, Any]:
        """The part of a report to the schedd that every end has."""
        return {
            "cause": self.cause,
            "code": self.code,
            "signal": self.signal,
            "core": self.core,
            "user_cpu": self.user_cpu,
            "system_cpu": self.system_cpu,
            "wall": self.wall,
            "max_rss": self.max_rss,
            "started": self.started,
        }


@dataclass(frozen=True, slots=True)
class JobUsage:
    """The resources that a running job has used: seconds of all its processes, exited ones too; KiB."""

    user_cpu: float
    system_cpu: float
    max_rss: int
    rss: int = 0
    processes: int = 0
    wall: float = 0.0


@dataclass(frozen=True, slots=True)
class Abilities:
    """The powers of keepers on this machine.

    Attributes:
        remote: how jobs are shown the submit machine's files: fuse, notification; empty: they cannot be.
        remote_why: why not by fuse, or why not at all; empty where it is by fuse.
        reduced: one plain line for each thing that is missing.
        saving: those of them that concern checkpoints: why there are none, or what they do without.
    """

    user: bool = True
    pid: bool = True
    mount: bool = True
    ipc: bool = True
    proc: bool = True
    full: bool = True
    other_users: bool = True
    cgroup: bool = True
    memory: bool = True
    network: bool = True
    private_network: bool = True
    private_network_why: str = ""
    filter: bool = True
    checkpoint: bool = True
    fuse: bool = True
    remote: str = "fuse"
    remote_why: str = ""
    reduced: list[str] = field(default_factory=list)
    saving: list[str] = field(default_factory=list)

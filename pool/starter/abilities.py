"""The abilities of a machine for jobs, in words, from its fork server's first message."""

from __future__ import annotations

from pool.checkpoint.messages_table import Ability as Able
from pool.starter.messages import Report
from pool.starter.spec import Abilities

#: REMOTE_IO_WAY: what a keeper is to do without for each.
WITHOUT = {"auto": Able(0), "fuse": Able.NOTIFY, "notify": Able.FUSE, "stage": Able.FUSE | Able.NOTIFY}


#: (ability, line) for each that a machine may lack.
_LINES = {
    Able.USER: "no user namespaces: jobs are not closed off from this machine's files and processes",
    Able.PID: "no process namespaces: a job's processes are followed from parent to child",
    Able.MOUNT: "no mount namespaces: jobs see this machine's files with the rights of the user they run as",
    Able.IPC: "no ipc namespaces: System V shared memory that a job leaves behind stays",
    Able.PROC: "no /proc of their own for jobs: they see the process numbers of this machine",
    Able.ROOT: "jobs with transferred files see this machine's files too",
    Able.CHECKPOINT: "running jobs cannot be checkpointed: who is evicted begins again",
    Able.TIME: "no time namespaces: the monotonic clocks of a job that goes on here jump",
    Able.TRACK: "what jobs write is not noted: each checkpoint is a whole one, and is sent whole",
    Able.WAITS: "the kernel does not say since when a thread waits: a wait with a time-out starts anew at a checkpoint",
    Able.FUSE: "no /dev/fuse for jobs: the submit machine's files are shown to them by answering their system calls",
    Able.NOTIFY: "no system call notification: without /dev/fuse the submit machine's files are carried to jobs",
    Able.GROUP: "no cgroups: a job's memory is measured every two seconds, not limited by the kernel",
    Able.NETWORK: "no network namespaces: jobs that are to have no network are refused",
    Able.PRIVATE_NETWORK: "no networks of their own for jobs: those that ask for one are refused",
    Able.HIDE_SOCKETS: "other users of this machine can list the sockets of jobs' networks, but with hidepid=invisible",
    Able.FILTER: "no system call filter: jobs may make every system call that the kernel lets them",
    Able.MEMORY: "no memory cgroups: a job's memory is measured every two seconds, not limited by the kernel",
}


#: The abilities that a checkpoint can do without, and those that every checkpoint needs.
_SAVING = Able.TIME | Able.TRACK | Able.WAITS
_FOR_SAVING = Able.USER | Able.PID | Able.MOUNT | Able.PROC | Able.CHECKPOINT


def abilities_of(report: Report) -> Abilities:
    """The content of a fork server's first message, in words; a lack that another lack explains is left out."""
    able = Able(report.code)
    why = dict(line.partition(": ")[::2] for line in report.text.splitlines())
    reasons = {
        Able.USER: why.get("user namespace"),
        Able.PID: why.get("pid namespace"),
        Able.MOUNT: why.get("mount namespace"),
        Able.IPC: why.get("ipc namespace"),
        Able.NETWORK: why.get("network namespace"),
        Able.PRIVATE_NETWORK: why.get("private network"),
        Able.HIDE_SOCKETS: why.get("hidden sockets"),
        Able.FILTER: why.get("system call filter"),
        Able.PROC: why.get("own /proc"),
        Able.CHECKPOINT: why.get("checkpoint"),
        Able.TIME: why.get("time namespace"),
        Able.TRACK: why.get("notes of writes"),
        Able.WAITS: why.get("waits"),
        Able.FUSE: why.get("remote files"),
        Able.NOTIFY: why.get("notification"),
        Able.ROOT: next((reason for what, reason in why.items() if what.startswith("file tree")), None),
    }
    explained = Able(0)
    if not able & Able.USER:
        explained |= Able.PID | Able.MOUNT | Able.IPC | Able.PROC | Able.ROOT | Able.FUSE | Able.NOTIFY
        explained |= Able.NETWORK | Able.PRIVATE_NETWORK | Able.HIDE_SOCKETS
    if not able & Able.NETWORK:
        explained |= Able.PRIVATE_NETWORK | Able.HIDE_SOCKETS
    if not able & Able.MOUNT:
        explained |= Able.PROC | Able.ROOT
    if not able & Able.PID:
        explained |= Able.PROC
    if not able & Able.CHECKPOINT:
        explained |= Able.TIME | Able.TRACK | Able.WAITS
    if not able & Able.ROOT:
        explained |= Able.FUSE | Able.NOTIFY
    if able & Able.FUSE:
        explained |= Able.NOTIFY
    if not able & Able.GROUP:
        explained |= Able.MEMORY
    lacks = {}
    for bit, line in _LINES.items():
        if not able & bit and not explained & bit:
            reason = reasons.get(bit)
            lacks[bit] = f"{line} ({reason.lower()})" if reason else line
    saving = _SAVING if able & Able.CHECKPOINT else _FOR_SAVING
    return Abilities(
        user=bool(able & Able.USER),
        pid=bool(able & Able.PID),
        mount=bool(able & Able.MOUNT),
        ipc=bool(able & Able.IPC),
        proc=bool(able & Able.PROC),
        full=bool(able & Able.ROOT),
        other_users=bool(able & Able.SETUID),
        cgroup=bool(able & Able.GROUP),
        memory=bool(able & Able.MEMORY),
        network=bool(able & Able.NETWORK),
        private_network=bool(able & Able.PRIVATE_NETWORK),
        private_network_why=_network_why(able, reasons),
        filter=bool(able & Able.FILTER),
        checkpoint=bool(able & Able.CHECKPOINT),
        fuse=bool(able & Able.FUSE and able & Able.ROOT),
        remote=_remote(able),
        remote_why=_remote_why(able, reasons),
        reduced=list(lacks.values()),
        saving=[line for bit, line in lacks.items() if saving & bit],
    )


def _network_why(able: Able, reasons: dict[Able, str | None]) -> str:
    """Why jobs get no network of their own there; empty where they do."""
    if able & Able.PRIVATE_NETWORK:
        return ""
    for bit, what in (
        (Able.USER, "user namespaces"),
        (Able.NETWORK, "network namespaces"),
        (Able.PRIVATE_NETWORK, "pairs of devices (veth)"),
    ):
        if not able & bit:
            return f"there are no {what} ({(reasons.get(bit) or 'switched off').lower()})"
    return ""


def _remote(able: Able) -> str:
    if not able & Able.ROOT:
        return ""
    return "fuse" if able & Able.FUSE else "notification" if able & Able.NOTIFY else ""


def _remote_why(able: Able, reasons: dict[Able, str | None]) -> str:
    """Why not by FUSE, and why not at all; empty with it."""
    if not able & Able.ROOT:
        return "jobs get no file tree of their own there"
    missing = [
        f"{what} ({(reasons.get(bit) or 'not there').lower()})"
        for bit, what in ((Able.FUSE, "/dev/fuse"), (Able.NOTIFY, "system call notification"))
        if not able & bit
    ]
    if able & Able.FUSE or not missing:
        return ""
    return f"there is no {' and no '.join(missing)}"

"""The file server of one user's jobs: a process that became the user, and answers the jobs' requests (B5, EV 2.2).

    python -m pool.remoteio.file_server UID GID GROUP...        with a SOCK_SEQPACKET socket on descriptor 3

It gives up root for good before it looks at the first message. One for each user, however many jobs: a job takes a
handful of threads while it asks, and a slow disk of one holds up no other. It ends when the socket does; what it had
in hand its journals know (`journal`), and another one goes on.

Messages are JSON, {"id", "do", ...} and {"id", "cpu", ...} in return (processor seconds that went to the job since the
last answer about it), or {"event": "why", "job", "why"} where a job's changes can no longer be undone:

    open     job, run, back_to, allowed, trees, reads, writes, hidden, limit, watches, nonce + descriptors of its
             journal and its connection: a start of the job, or its connection again; a new run is first rolled back to
             mark `back_to` if that is not null, to the oldest there is if -1. It reaches what lies both in `allowed`
             (the administrator's trees) and in `trees` (the job's; null: the directories of the files that it reads
             and writes). Answers what the job is shown, and `probes` (see `direct`) where there is a nonce
    probed   probes: they have been looked for
    secure   job, mark, run + its journal: answered when the disk has what was done until now, and the way back to each
             mark, that of this checkpoint of this start among them
    commit   job, mark: what is older is not needed any more
    settle   job, mark + its journal: its program has ended, and what it did is there to stay. Within the same start the
             program may be run once more: its requests then begin at 1 again, and are no repeated ones
    leave    job, run: this start is over, and may be rolled back; a later one is not meant
    finish   job + its journal: it is over for good
"""

from __future__ import annotations

import json
import os
import posixpath
import pwd
import resource
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from pool.identity import SOCKET, become
from pool.remoteio import direct, frames
from pool.remoteio.changes import Changes
from pool.remoteio.file_operations import FileOperations
from pool.remoteio.journal import ChangeJournal, Flushes, MarkForgotten, rollback
from pool.remoteio.leases import DirectoryWatches, FileLeases
from pool.remoteio.path_lookup import Places
from pool.remoteio.session import RemoteSession
from pool.remoteio.thread_times import seconds_of
from pool.remoteio.trees import Tree, granted, is_below, trees_of, wishes_of

#: Bytes of a message.
LONGEST = 256 * 1024


class ServedJob:
    """One job that is here.

    Args:
        journal: descriptor of its journal's directory; ours from here on.
    """

    def __init__(
        self,
        message: dict[str, Any],
        journal: int,
        incarnation: int,
        flushes: Flushes,
        tell: Callable[[dict[str, Any]], None],
        watches: DirectoryWatches,
        changes: Changes,
    ) -> None:
        self.name = str(message["job"])
        self.run = int(message["run"])
        self._tell = tell
        top = [entry.name for entry in os.scandir("/") if entry.is_dir()]
        trees = granted(trees_of(str(message["allowed"])), top, _granted_trees(message))
        self._incarnation = incarnation
        self._flushes = flushes
        self._directory = journal
        # The files that one job may have open leave room for other jobs, and for those that each request opens for a
        # moment.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        self.work = FileOperations(Places(trees, message["hidden"]), most, changes, self._not_kept)
        self.journal = self.work.journal = ChangeJournal(
            journal,
            self.name,
            self.work.places,
            int(message["limit"]),
            self.work.is_open,
            lambda why: tell({"event": "why", "job": self.name, "why": why}),
        )
        self.journal.write_ahead()
        self.session = RemoteSession(self.work, self._hello)
        self.work.leases = FileLeases(watches, self.work.places, self.session.send_notice)
        self._static = _static_trees(trees, self.work.places, watches)

    def _not_kept(self, why: str) -> None:
        self._tell({"event": "not kept", "job": self.name, "why": why})

    def begin(self, back_to: int | None) -> list[str]:
        """A new run puts everything back as it is to be, a run that is known is left alone."""
        if self.journal.run == self.run:
            return []
        problems: list[str] = []
        if back_to is not None and self.journal.run:  # it was here before
            try:
                problems = rollback(self.journal, back_to if back_to >= 0 else self.journal.first, self._flushes)
            except MarkForgotten:
                # Reported once. The next start of the job takes its files as they are.
                self.journal.forget()
                raise
        self.journal.begin_run(self.run)
        return problems

    def _hello(self) -> tuple[Any, ...]:
        trees = self.work.places.trees
        paths = [(os.fsencode(tree.path),) for tree in trees]
        return (frames.VERSION, self._incarnation, paths, [tree.readonly for tree in trees], os.getuid(), os.getgid())

    def close(self) -> None:
        """Nothing is done for it any more."""
        self.session.close()
        assert self.work.leases is not None
        self.work.leases.close()
        self.work.close_all()
        self.journal.close()
        self.work.places.close()
        os.close(self._directory)

    def facts(self) -> dict[str, Any]:
        """The facts for the schedd."""
        return {
            "trees": [[tree.path, tree.readonly] for tree in self.work.places.trees],
            "static": [path for path, why in self._static.items() if not why],
            "not static": [[path, why] for path, why in self._static.items() if why],
            "uid": os.getuid(),
            "gid": os.getgid(),
            "home": _home_directory(os.getuid()),
            "why": self.journal.why,
        }


class UserFileServer:
    """All jobs of one user.

    Args:
        send: tells the node something.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._jobs: dict[str, ServedJob] = {}
        self._busy: dict[str, threading.Lock] = {}
        self._flushes = Flushes()
        self._watches = DirectoryWatches()
        self._changes = Changes()
        with open("/proc/self/stat", "rb") as handle:
            started = int(handle.read().rpartition(b")")[2].split()[19])
        self._incarnation = started << 22 | os.getpid()

    def handle_message(self, message: dict[str, Any], fds: list[int]) -> None:
        """Do what a message asks for, in a thread of its own: undoing may take long."""
        lock = self._busy.setdefault(str(message["job"]), threading.Lock())
        threading.Thread(target=self._answer, args=(message, fds, lock), daemon=True).start()

    def _answer(self, message: dict[str, Any], fds: list[int], lock: threading.Lock) -> None:
        answer: dict[str, Any] = {"id": message["id"]}
        with lock if message["do"] != "secure" else nullcontext():  # a disk may take long, and a job end meanwhile
            try:
                answer |= getattr(self, f"_do_{message['do']}")(message, fds) or {}
            except MarkForgotten as error:
                answer |= {"unreachable": str(error)}
            except OSError as error:
                answer |= {"errno": error.errno or 5, "path": str(error.filename or "")}
            except Exception as error:
                answer |= {"error": f"{type(error).__name__}: {error}"}
            finally:
                for fd in fds:
                    os.close(fd)
        job = self._jobs.get(str(message["job"]))
        answer["cpu"] = seconds_of(threading.get_native_id()) + (job.session.times.since_report() if job else 0.0)
        self._send(answer)

    def _do_open(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        name, run = str(message["job"]), int(message["run"])
        job = self._jobs.get(name)
        problems: list[str] = []
        if job is None or job.run != run:
            if job is not None:
                del self._jobs[name]
                job.close()
            self._watches.limit = int(message["watches"])
            shared = self._incarnation, self._flushes, self._send, self._watches, self._changes
            job = ServedJob(message, os.dup(fds[0]), *shared)
            try:
                problems = job.begin(message["back_to"])
            except BaseException:
                job.close()
                raise
            self._jobs[name] = job
        job.session.connect(socket.socket(fileno=fds.pop()))
        probes = direct.place_probes(job.work.places, _named(message), message["nonce"]) if message["nonce"] else []
        return {**job.facts(), "problems": problems, "probes": probes}

    def _do_probed(self, message: dict[str, Any], fds: list[int]) -> None:
        direct.remove_probes(message["probes"])

    def _do_commit(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        job = self._jobs.get(str(message["job"]))
        if job is None:
            return {"missing": True}
        job.journal.commit(int(message["mark"]))
        return {"why": job.journal.why}

    def _do_secure(self, message: dict[str, Any], fds: list[int]) -> None:
        name = str(message["job"])
        of = {"mark": int(message["mark"]), "run": int(message["run"])}
        job = self._jobs.get(name)
        if job is not None and job.journal.secure(self._flushes, **of):
            return
        with self._busy[name]:
            if name in self._jobs:  # just begun: what it has not changed is as it was
                self._jobs[name].journal.secure(self._flushes, **of)
                return
            with _closed(name, fds[0]) as journal:
                journal.secure(self._flushes, **of)

    def _do_settle(self, message: dict[str, Any], fds: list[int]) -> None:
        name, mark = str(message["job"]), int(message["mark"])
        job = self._jobs.pop(name, None)
        if job is not None:
            job.close()
        with _closed(name, fds[0]) as journal:
            journal.keep_changes(mark)

    def _do_leave(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        job = self._jobs.get(str(message["job"]))
        if job is not None and job.run <= int(message["run"]):
            del self._jobs[job.name]
            job.close()
        return {"why": job.journal.why if job is not None else ""}

    def _do_finish(self, message: dict[str, Any], fds: list[int]) -> None:
        job = self._jobs.pop(str(message["job"]), None)
        if job is not None:
            job.close()
        with _closed(str(message["job"]), fds[0]) as journal:
            journal.finish()


def _named(message: dict[str, Any]) -> list[str]:
    """All that the job's description names."""
    return [*message["writes"], *message["reads"]]


def _granted_trees(message: dict[str, Any]) -> list[Tree]:
    """The trees that the job asks for, or else the directories of what it names: never the whole machine."""
    if message["trees"] is not None:
        return list(wishes_of(str(message["trees"])))
    writes, reads = (
        {path if os.path.isdir(path) else posixpath.dirname(path) for path in map(str, paths)} - {"/"}
        for paths in (message["writes"], message["reads"])
    )
    reads = {path for path in reads if not any(is_below(path, written) for written in writes)}
    return [Tree(path) for path in sorted(writes)] + [Tree(path, readonly=True) for path in sorted(reads)]


def _static_trees(trees: Iterable[Tree], places: Places, watches: DirectoryWatches) -> dict[str, str]:
    """The static trees of a job, each with why it is served as any other; empty where it is not."""
    mounted = {tree.path: tree for tree in places.trees}
    found = {}
    for tree in trees:
        if tree.static and tree.path in mounted:
            found[tree.path] = (
                watches.why_not(os.fsencode(tree.path).rstrip(b"/"), places)
                if mounted[tree.path].static
                else "a directory in it is not static"
            )
        elif tree.static:
            found[tree.path] = "the directory around it is not static"
    return found


@contextmanager
def _closed(name: str, directory: int) -> Iterator[ChangeJournal]:
    """The journal of a job that is not here."""
    places = Places(trees_of("/"))
    try:
        journal = ChangeJournal(directory, name, places, sys.maxsize, lambda _: False)
        try:
            yield journal
        finally:
            journal.close()
    finally:
        places.close()


def _home_directory(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/"


def main() -> None:
    """Serve until the socket ends."""
    uid, gid, *groups = (int(word) for word in sys.argv[1:])
    become(uid, gid, groups)
    os.chdir("/")
    os.umask(0)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    control = socket.socket(fileno=SOCKET)
    sending = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        try:
            with sending:
                control.send(json.dumps(message).encode())
        except OSError:
            return  # the node has gone, and so do we

    home = UserFileServer(send)
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(control, LONGEST, 4)
        except ConnectionResetError:
            return
        if not data:
            return
        home.handle_message(json.loads(data), fds)


if __name__ == "__main__":
    main()

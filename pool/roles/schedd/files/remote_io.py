"""The submit side of running jobs' remote system calls (B1, B2, B5): which file server answers a job, and for how long.

A start's file system opens a stream of its own (`serve`), again after each lost connection. Before the first stream,
the owner's file server restores the owner's files to the checkpoint that the start continues from, or to the beginning.
When a checkpoint is safe, older undo records go (`checkpoint_stored`). The end of a start leaves the journal for the
next start (`left`); the end of the job deletes it. Decides nothing about the job itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import socket
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from pool.config.places import PRIVATE
from pool.config.settings import Settings
from pool.errors import PoolError
from pool.identity import identity_of
from pool.images import Manifest
from pool.jobs.activation import NOTHING, Activation, FileMode
from pool.jobs.events import EventKind
from pool.jobs.pipes.model import DESCRIPTOR
from pool.policy.bandwidth import FairBandwidth
from pool.policy.queue import QueuedJob
from pool.remoteio.frames import VERSION, version_mismatch
from pool.remoteio.relay import forward
from pool.remoteio.serving import FileServers
from pool.remoteio.trees import BadTree, is_below, trees_of, wishes_of
from pool.roles.schedd.checkpoints.place import CheckpointPlace, name_of
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.ledger import JobChange
from pool.shadow.shadow import NotThisRun
from pool.starter.start_checkpoints import MARK_SECONDS
from pool.wire import CannotConnect, ConnectionLost, DeadlineExceeded, Stream
from pool.wire.errors import NotPermitted
from pool.wire.identity import user_name
from pool.wire.parameter_checks import PLACES, check_item

#: The attribute of a job that names the trees it works on.
TREES = "RemoteIOTrees"
#: Added to the way a job reaches its files, where that is true of it.
OWN_LOCKS = (
    "\n\tlocks on them bind its own processes only: neither other jobs nor programs of the submit machine respect them"
)
#: The same for trees that it reads without asking at each open.
STATIC = "\n\tstatic: {}: locks there bind its own processes only"
#: The name in a checkpoint's manifest of its mark on the submit side.
MARK = "mark"
#: Bytes that are on their way between a file server and its node at most.
ROOM = 1 << 20
#: Seconds that the end of a job waits at most for its file server.
SETTLED = 5.0


class BandwidthGate:
    """The bandwidth of all jobs of a schedd, as those who send see it."""

    def __init__(self, rate: float) -> None:
        self._share = FairBandwidth(rate)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def bound(self, rate: float) -> None:
        """From now on so many bytes in a second; 0 for no bound."""
        self._share.rate = rate

    async def __call__(self, job: str, size: int) -> None:
        """Wait until a job may send so many bytes."""
        loop = asyncio.get_running_loop()
        if self._share.rate <= 0 and not self._waiting:
            return
        number = self._share.request(job, size, loop.time())
        turn = self._waiting[number] = loop.create_future()
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            self._share.withdraw(number)
            raise
        finally:
            self._waiting.pop(number, None)

    def _grant(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        given, again = self._share.grant(loop.time())
        for number in given:
            turn = self._waiting.get(number)
            if turn is not None and not turn.done():
                turn.set_result(None)
        if again is not None:
            self._timer = loop.call_at(again, self._grant)


class RemoteFiles:
    """The file servers of a schedd's jobs: one for each owner.

    Args:
        place: where checkpoints are stored, with their marks.
        state: the node's directory; None where nothing is kept, and no job reaches its owner's files.
        user: the name that the node's own user goes by; None looks it up.
    """

    def __init__(
        self,
        context: ScheddContext,
        place: CheckpointPlace,
        state: Path | None,
        settings: Settings,
        *,
        user: str | None,
    ) -> None:
        self._ledger = context.ledger
        self._claims = context.claims
        self._state = state
        self._place = place
        self._outside = context.outside
        self._log = context.log
        self._spawn = context.spawn
        self._journals = state / "spool" / "remote" if state is not None else None
        own = user if user is not None else _name_of(os.geteuid())
        self._user = own
        self.file_servers = FileServers(self._identity_of, on_event=self._on_server_event)
        self.gate = BandwidthGate(0.0)
        self.reload(settings)
        there = self._journals is not None and self._journals.is_dir()
        self._known = set(os.listdir(self._journals)) if there else set()

    def reload(self, settings: Settings) -> None:
        """Take the settings in; trees count for the next start of a job."""
        self._trees = settings.text("REMOTE_IO_TREES")
        try:
            trees_of(self._trees)
        except BadTree as error:
            self._log.error("REMOTE_IO_TREES is not understood, and no tree is shown", extra={"word": str(error)})
            self._trees = ""
        self._limit = int(settings.number("REMOTE_IO_UNDO") * 2**20)
        self._watches = int(settings.number("REMOTE_IO_WATCHES"))
        self.gate.bound(settings.number("REMOTE_IO_BANDWIDTH") * 1e6)

    async def close(self) -> None:
        """End the file servers; their journals have everything that was under way."""
        await self.file_servers.close()

    def check_wish(self, ad: Mapping[str, Any]) -> None:
        """Look at the trees that a job asks for before it is queued.

        Raises:
            PoolError: one is no tree, or the administrator allows nothing of it.
        """
        wish = ad.get(TREES)
        if wish is None:
            return
        try:
            trees = wishes_of(wish) if isinstance(wish, str) else None
        except BadTree as error:
            raise PoolError(
                f"cannot queue: remote_io_trees names {error}, which is no absolute path of a directory",
                hint="write /path, /path:ro to read only, or /path:static, with commas between them",
            ) from error
        if trees is None:
            raise PoolError("cannot queue: RemoteIOTrees is no text")
        for tree in trees:
            if not any(is_below(tree.path, one.path) or is_below(one.path, tree.path) for one in trees_of(self._trees)):
                raise PoolError(
                    f"cannot queue: remote_io_trees names {tree.path}, which this submit machine shows no job",
                    hint=f"it shows {self._trees or 'nothing'} (REMOTE_IO_TREES)",
                )

    # -- a running job -----------------------------------------------------------------------------------

    async def serve(self, params: dict[str, Any], stream: Stream) -> None:
        """Answer a job's file system: {claim, run, again, frames: their version}.

        Sends ["open", facts], takes ["found", [[here, home], ...], how], then carries frames both ways.
        """
        if (other := params.get("frames", 1)) != VERSION:
            raise PoolError(
                f"the machine cannot reach the job's files here: {version_mismatch(other)}",
                hint="run versions of poolnode on both machines that are nearer to each other",
            )
        claim, job, start = self._present(params)
        first = not params.get("again")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
            with theirs:
                facts = await self._open(claim, job, start, theirs, first=first)
            if "unreachable" in facts:
                raise PoolError(
                    f"cannot restore the files of {start.name} as they were at its checkpoint: {facts['unreachable']}",
                    hint="release the job to have it start with the files as they are now",
                )
            shown = {key: facts[key] for key in ("trees", "static", "uid", "gid", "home", "probes")}
            await stream.send(["open", {**shown, "frames": VERSION}])
            _, found, how = check_item(await stream.receive(), {"found": (PLACES, str)})
            if facts["probes"]:
                await self.file_servers.request(claim.owner, "probed", job=start.name, probes=facts["probes"])
            self._present(params)
            if first:
                await self._record_access(job, str(how), [str(tree[1]) for tree in found], facts)
            with contextlib.suppress(OSError):  # the file server has died
                await forward(stream, ours, lambda size: self.gate(start.name, size))
        except (EOFError, ConnectionLost, DeadlineExceeded):
            return  # whoever still wants it comes again
        finally:
            ours.close()

    async def _open(
        self, claim: HeldClaim, job: QueuedJob, start: Activation, end: socket.socket, *, first: bool
    ) -> dict[str, Any]:
        journal = self._journal(start.name, claim.owner)
        writes, reads = named(start, job)
        try:
            return await self.file_servers.request(
                claim.owner,
                "open",
                (journal, end.fileno()),
                job=start.name,
                run=start.run,
                back_to=await asyncio.to_thread(self._back_to, start),
                allowed=self._trees,
                trees=wish if isinstance(wish := job.get(TREES), str) else None,
                writes=writes,
                reads=reads,
                hidden=[str(self._state / name) for name in PRIVATE] if self._state is not None else [],
                limit=self._limit,
                watches=self._watches,
                nonce=self._outside.secret(16) if first else "",
            )
        finally:
            os.close(journal)

    def _back_to(self, start: Activation) -> int:
        """The mark that a start's files are restored to: 0 the beginning, -1 the oldest that is known."""
        if start.checkpoint is not None and self._place.store is not None:
            return mark_of(self._place.store.manifest(start.name, start.checkpoint))
        return -1 if start.checkpoint_code is not None else 0

    async def _record_access(self, job: QueuedJob, how: str, direct: list[str], facts: dict[str, Any]) -> None:
        """How the job's files are reached this time, for its log and its ad."""
        trees = [path for path, _ in facts["trees"] if path not in direct]
        parts = [f"{', '.join(direct)} directly" if direct else "", f"{', '.join(trees)} by {how}" if trees else ""]
        text = "its owner's files: " + ("; ".join(part for part in parts if part) or "none are shown to it")
        if trees and how.startswith("notification"):
            text += OWN_LOCKS
        elif static := [path for path in trees if path in facts["static"]]:
            text += STATIC.format(", ".join(static))
        for path, why in facts["not static"]:
            text += f"\n\t{path}: read only, but not served as static: {why}" if path not in direct else ""
        for problem in facts["problems"]:
            text += f"\n\tnot as at its checkpoint: {problem}"
        facts = {"RemoteIOHow": how, "RemoteIODirect": ", ".join(direct)}
        await self._ledger.commit(JobChange(job, None, facts, EventKind.NOTICE, {"text": text}))

    def _on_server_event(self, event: dict[str, Any]) -> None:
        """A file server reports that a job's changes can be undone no longer, or that written data is not kept."""
        for claim in self._claims.values():
            if claim.job is not None and claim.start is not None and claim.start.name == event.get("job"):
                text = f"until its next checkpoint its files cannot be restored: {event.get('why')}"
                if event.get("event") == "not kept":
                    text = str(event.get("why"))
                self._spawn(
                    self._ledger.commit(JobChange(claim.job, None, {}, EventKind.NOTICE, {"text": text})), "undo"
                )

    # -- afterwards --------------------------------------------------------------------------------------

    async def secure(self, job: QueuedJob, manifest: Manifest) -> None:
        """A checkpoint of the job is coming: have its files of that moment on the disk before it counts."""
        name = name_of(job)
        mark = mark_of(manifest)
        if mark and name in self._known and self._journals is not None:
            journal = os.open(self._journals / name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                run = mark >> MARK_SECONDS
                await self.file_servers.request(
                    str(job.get("Owner")), "secure", (journal,), job=name, mark=mark, run=run
                )
            finally:
                os.close(journal)

    async def checkpoint_stored(self, job: QueuedJob) -> None:
        """A checkpoint of the job is safe: let go of what is older than the oldest that there is."""
        name, owner = name_of(job), str(job.get("Owner"))
        store = self._place.store
        if store is None or name not in self._known:
            return
        try:
            generations = await asyncio.to_thread(store.generations, name)
            marks = [mark_of(await asyncio.to_thread(store.manifest, name, number)) for number in generations]
            if marks and min(marks) > 0:
                await self.file_servers.request(owner, "commit", job=name, mark=min(marks))
        except (PoolError, OSError) as error:
            self._log.warning("what undoes a job's changes is kept longer", extra={"job": name, "why": str(error)})

    async def keep_changes(self, job: QueuedJob, run: int) -> None:
        """The job's program has ended, and has saved itself in its owner's files: they stay as they are now."""
        name, owner = name_of(job), str(job.get("Owner"))
        if name in self._known:
            mark = (run << MARK_SECONDS) + int(self._outside.wall())
            journal = self._journal(name, owner)
            try:
                await self.file_servers.request(owner, "settle", (journal,), job=name, mark=mark)
            finally:
                os.close(journal)

    async def drop_journal(self, job: QueuedJob, run: int) -> None:
        """The job has ended by itself: what was kept to undo it goes before anybody is told, so that nobody finds it.

        Were its end lost after that, with this schedd and its machine both, the job would be held, not silently begun
        again on changed files. A home that does not answer holds no end up for long.
        """
        if self.file_servers.pid(str(job.get("Owner"))) is None:
            return
        try:
            async with asyncio.timeout(SETTLED):
                await self.keep_changes(job, run)
        except (PoolError, TimeoutError) as error:
            self._log.warning("what undoes a job's changes goes later", extra={"job": name_of(job), "why": str(error)})

    def run_ended(self, job: QueuedJob, run: int, *, over: bool) -> None:
        """A start of the job has ended, or with `over` the job itself; the next one may have begun already."""
        name = name_of(job)
        if name in self._known:
            self._spawn(self._close_journal(name, str(job.get("Owner")), over, run), "remote", alone=True)

    async def tidy(self, queued: Container[str]) -> None:
        """Take away the journals of jobs that are in the queue no more."""
        for name in [name for name in self._known if name not in queued]:
            assert self._journals is not None
            try:
                owner = user_name((self._journals / name).stat().st_uid)
            except CannotConnect as error:
                self._log.warning("a job's undo journal stays for now", extra={"job": name, "why": str(error)})
                continue
            await self._close_journal(name, owner, True, 0)

    async def _close_journal(self, name: str, owner: str, over: bool, run: int) -> None:
        assert self._journals is not None
        try:
            if not over:
                if self.file_servers.pid(owner) is not None:
                    await self.file_servers.request(owner, "leave", job=name, run=run)
                return
            journal = os.open(self._journals / name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                await self.file_servers.request(owner, "finish", (journal,), job=name)
            finally:
                os.close(journal)
            await asyncio.to_thread(shutil.rmtree, self._journals / name, True)
            self._known.discard(name)
        except (PoolError, OSError) as error:
            self._log.warning("a job's undo journal stays for now", extra={"job": name, "why": str(error)})

    # -- small things ------------------------------------------------------------------------------------

    def _present(self, params: dict[str, Any]) -> tuple[HeldClaim, QueuedJob, Activation]:
        claim = self._claims.get(str(params.get("claim")))
        if claim is not None and claim.job is not None and claim.start is None:
            raise NotThisRun("the schedd was started again and has not reached this job's machine yet", retry=True)
        if claim is None or claim.job is None or claim.start is None or claim.run != int(params.get("run", -1)):
            raise NotThisRun.for_claim(claim, int(params.get("run", -1)))
        if claim.start.mode is not FileMode.REMOTE:
            raise NotPermitted(
                f"this start of job {claim.start.name} does not work on its owner's files here",
                hint="only a job with remote_io may, on a machine that shows it the files",
            )
        return claim, claim.job, claim.start

    def _identity_of(self, owner: str) -> tuple[int, int, list[int]]:
        return identity_of(owner, self._user)

    def _journal(self, name: str, owner: str) -> int:
        """A descriptor of the directory of a job's journal, which is its owner's."""
        if self._journals is None:
            raise PoolError("this schedd keeps nothing, so that no job can work on its owner's files from elsewhere")
        directory = self._journals / name
        try:
            if name not in self._known:
                self._journals.mkdir(mode=0o711, parents=True, exist_ok=True)
                directory.mkdir(mode=0o700, exist_ok=True)
                uid, gid, _ = self._identity_of(owner)
                if uid != os.geteuid():
                    os.chown(directory, uid, gid)
                self._known.add(name)
            return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise PoolError(
                f"cannot keep an undo journal in {directory}: {(error.strerror or str(error)).lower()}", retry=True
            ) from error


def mark_of(manifest: Manifest) -> int:
    """The mark of a checkpoint on the submit side; 0 where it has none."""
    mark = dict(manifest.facts).get(MARK, 0)
    return mark if isinstance(mark, int) else 0


def copied(job: QueuedJob, claim: HeldClaim, start: Activation) -> JobChange | None:
    """The notice for a start that copies files although the job asks to be shown them; None for any other start."""
    if start.mode is not FileMode.TRANSFER or job.get("RemoteIO") != "auto":
        return None
    how = f"copied, as {claim.ad.value('RemoteIOWhy', '') or 'its machine cannot show them'}"
    return JobChange(job, None, {"RemoteIOHow": how}, EventKind.NOTICE, {"text": f"its owner's files: {how}"})


def named(start: Activation, job: QueuedJob) -> tuple[list[str], list[str]]:
    """The absolute paths that a job's description names: those it writes (where it begins, too), those it reads."""
    writes = [(start.iwd, "."), (start.iwd, start.stdout), (start.iwd, start.stderr)]
    reads = [(start.iwd, start.executable), (start.iwd, start.stdin)]
    inputs = job.get("TransferInput")
    reads += [(start.iwd, path.strip()) for path in inputs.split(",")] if isinstance(inputs, str) else []
    places = {}
    for process in start.processes:
        places[process.name] = process.iwd
        writes += [(process.iwd, path) for path in (".", process.stdout, process.stderr)]
        reads += [(process.iwd, path) for path in (process.cmd, process.stdin, *process.inputs)]
    for pipe in start.pipes:
        for name, path in ((pipe.writer, pipe.writer_file), (pipe.reader, pipe.reader_file)):
            writes.append((places.get(name, start.iwd), "" if path.startswith(DESCRIPTOR) else path))
    return _joined(writes), _joined(reads)


def _joined(paths: Iterable[tuple[str, str]]) -> list[str]:
    found = (os.path.normpath(os.path.join(iwd, path)) for iwd, path in paths if path not in ("", NOTHING))
    return [path for path in dict.fromkeys(found) if "://" not in path]


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid{uid}"

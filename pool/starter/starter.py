"""The starter: looks after one job on the execute side, from the empty scratch directory to the reported end.

    prepare -> stage in -> start (keeper) -> wait -> stage out -> done

One coroutine for each running job. The table of `pool.policy.starter` decides what follows from events of the job and
from the owner's wishes (suspend, continue, vacate, die). The keeper's part of that is done here, the rest by the holder
of the claim. The starter knows nothing of claims; it reaches the submit side through a `SubmitSide`. After a restart of
the node it is made again around a keeper that was found (`Starter.found`) and goes on waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from pool.errors import PoolError
from pool.images import Assembly, Draft, ImageError, ImageStore, Manifest
from pool.images.priority import run_low_priority
from pool.images.transfer import Pace
from pool.jobs.activation import STDERR, STDOUT, Activation, FileMode
from pool.jobs.urls import is_fetched
from pool.pipes.remote_pipes import Cards, RemotePipes
from pool.policy.starter import Event, Machine, StartAction, StartState
from pool.safe_directory import SafeDirectory
from pool.starter import freezing, increments, manifest, programs, ranks, resuming, saving, scratch, staging, urls
from pool.starter.checkpointing import CheckpointReport
from pool.starter.files import Seen, StartFiles
from pool.starter.job_image import JobImage
from pool.starter.keeper import Keeper, Keepers
from pool.starter.order import one_output, order_of
from pool.starter.output_transfer import manifest_of, open_scratch, outputs_of, send_outputs
from pool.starter.place import ExecutionSite, StartRefused, UnixAccount
from pool.starter.progress import CountedStream
from pool.starter.spec import NO_ENDS, EndReport, KeeperSpec, StartFailed
from pool.wire import RemoteError

#: The keeper's words for a failed restore when not the image but the machine is at fault
#: (pool/checkpoint/restore/restore.c).
UNFIT = "machine"
#: The submit side's number of a checkpoint: the number of the start, then so many bits of its time, so that they only
#: grow.
MARK_SECONDS = 32
#: Seconds in which the submit side is reached, or a checkpoint waits until it is whole.
MOMENT = 1.0
#: The commands to the keeper.
ON_KEEPER = frozenset({StartAction.STOP, StartAction.RESUME, StartAction.ASK, StartAction.KILL})
#: The events that end a start whose program does not run yet: nothing is lost with it.
LEAVING = frozenset({Event.DIE, Event.VACATE, Event.CKPT_AND_VACATE})
#: The ends by the job itself, as against those that were forced on it.
BY_ITSELF = ("exit", "signal", "misuse")
#: Seconds in which a program has to run from when its keeper was asked for it, and bytes of a checkpoint for one more.
START_MOST = 300.0
RESTORED_A_SECOND = 2e6
#: Seconds that are left of a lease now: files may travel for long before a job begins.
Lease = Callable[[], float]


class SubmitSide(Protocol):
    """How a starter reaches its job's shadow."""

    async def fetch(self, activation: Activation, executable_wanted: bool) -> Any: ...
    async def store(self, activation: Activation) -> Any: ...
    async def remote_io(self, run: int, again: bool) -> Any: ...
    @property
    def reachable(self) -> bool: ...
    async def keep_image(self, activation: Activation, last: bool = False, number: str | None = None) -> Any: ...
    def kept_image(self, activation: Activation, images: ImageStore, manifest: Manifest) -> None: ...
    async def image(self, activation: Activation) -> Any: ...
    async def nearer(self, activation: Activation) -> Any: ...
    def coming(self, activation: Activation) -> Callable[[str, int, bytes], None] | None: ...
    async def prepared(self, activation: Activation) -> Assembly | None: ...


class Starter:
    """One job on this machine."""

    def __init__(
        self,
        activation: Activation,
        account: UnixAccount,
        place: ExecutionSite,
        keepers: Keepers,
        home: SubmitSide,
        remote_pipes: RemotePipes | None = None,
    ) -> None:
        self.activation = activation
        self.account = account
        self.place = place
        self.keeper: Keeper | None = None
        self._keepers = keepers
        self._home = home
        #: Bytes of files carried to the job before it began, and from it to the submit side (B4).
        self.received = 0
        self.sent = 0
        #: The latest transfer of files, in either direction.
        self.transfer: CountedStream | None = None
        self._before: dict[str, tuple[int, int]] = {}
        #: Whether its program was started once more, after a checkpoint that it wrote itself.
        self._goes_on = False
        #: Where this start is.
        self.machine = Machine()
        #: The checkpoint that this start goes on from.
        self.resumed: resuming.Resumed | None = None
        self.scratch = place.scratch
        self._frozen = freezing.Frozen(place.scratch, account.owner)
        self._earlier = increments.Earlier()
        self._left = False
        #: The way to its owner's files, and what it sees of them, where it works on them from here.
        self._files: StartFiles | None = None
        self._seen: Seen | None = None
        self._mark = 0
        self._on_its_way: saving.OnItsWay | None = None
        self._spawning: asyncio.Task[Keeper] | None = None
        #: Its keeper while its program does not run yet.
        self._asked: Keeper | None = None
        #: Set when the job has to leave before it began.
        self._leaves = asyncio.Event()
        self._job_image = JobImage(place)
        #: The signal that asks the job to end where its owner removes or holds it; None: the ordinary one.
        self.asked_by: int | None = None
        #: The pipes to other machines, where the job runs on several.
        self.remote_pipes = remote_pipes

    @property
    def id(self) -> str:
        start = self.activation
        return f"{start.name}.{start.run}" + (f".{start.part}" if start.gang else "")

    @classmethod
    def found(
        cls,
        keeper: Keeper,
        activation: Activation,
        account: UnixAccount,
        place: ExecutionSite,
        keepers: Keepers,
        home: SubmitSide,
    ) -> Starter:
        """The starter of a job whose keeper outlived the node."""
        starter = cls(activation, account, place, keepers, home)
        starter.keeper = keeper
        starter._job_image = JobImage(place, keeper.spec.root)
        starter.received = int(keeper.spec.claim.get("received") or 0)
        if keeper.spec.remote:
            starter._files = StartFiles(activation.name, activation.run, home, _way(keepers))
            starter._files.take_up(keeper)
        starter._before = {
            str(name): (int(size), int(changed))
            for name, (size, changed) in dict(keeper.spec.claim.get("before") or {}).items()
        }
        return starter

    async def happen(self, event: Event) -> list[StartAction]:
        """Take in what has happened or is wished; answers what is to be done beside what the keeper does."""
        keeper = self.keeper
        left: list[StartAction] = []
        actions = self.machine.happen(event)
        if self.machine.state is StartState.LEAVE_EARLY:
            self._leaves.set()
        for action in actions:
            if action is StartAction.CLEAN:
                await self.done()
            elif keeper is None or action not in ON_KEEPER:
                left.append(action)
            elif action is StartAction.STOP:
                await keeper.suspend()
            elif action is StartAction.RESUME:
                await keeper.resume()
            elif action is StartAction.ASK:
                await keeper.vacate(self.asked_by or 0)  # which kills after the job's grace
            else:
                await keeper.kill()
        if event in LEAVING and self._spawning is not None:
            self._spawning.cancel()
        return left

    async def start(self, lease: Lease, claim: dict[str, Any]) -> list[StartAction]:
        """Prepare and start the job; answers what is to be done now that it runs.

        Args:
            lease: seconds the keeper lets the job run without being renewed, as they are when it begins.
            claim: kept with the keeper, to find again after a restart of the node.

        Raises:
            StartRefused: with the part that failed; nothing is left behind.
        """
        try:
            arrived = asyncio.get_running_loop().time()
            self._prepare()
            await self.happen(Event.DEFAULT)
            if self.activation.checkpoint is not None:
                await self._fetch_checkpoint()
            if self._own_files:
                await self._place_files()
            if self.activation.image:
                await self._job_image.prepare(self.activation, self.scratch, self.account, self._leaves)
            await self._wait_for_its_moment(arrived)
            cards: Cards = await self._meet() if self.remote_pipes is not None else []
            await self.happen(Event.SUCCESS)
            if self.machine.state is not StartState.SPAWN_ALL:
                raise StartRefused("the job was stopped before it started", where="start", retry=True)
            if self._before:
                claim = {**claim, "before": self._before}
            if self.received:
                claim = {**claim, "received": self.received}
            await self._start_keeper(lease, claim)
            if self.remote_pipes is not None:
                self.remote_pipes.begin(cards)
        except StartFailed as error:
            self._not_started()
            where = "start" if self._image is None else "checkpoint"
            unfit = self._image is not None and error.path == UNFIT
            raise StartRefused(
                error.message, where=where, hint=error.hint, retry=error.retry, unfit=unfit, step=error.call
            ) from error
        except OSError as error:
            self._not_started()
            raise StartRefused(
                f"cannot prepare the job's scratch directory: {error.strerror or error}",
                where="machine",
                retry=True,
            ) from error
        except BaseException:
            self._not_started()
            raise
        finally:
            if self.resumed is not None:
                await asyncio.to_thread(self.resumed.drop)
        return await self.happen(Event.SUCCESS)

    async def _wait_for_its_moment(self, arrived: float) -> None:
        """All is ready; a deferred job begins when its moment has come, or leaves before that."""
        left = arrived + self.activation.not_before - asyncio.get_running_loop().time()
        if self.activation.not_before and left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._leaves.wait()

    async def _meet(self) -> Cards:
        """The other parts of the job are ready to begin, too; what each brought."""
        assert self.remote_pipes is not None
        try:
            return await self.remote_pipes.meet(self.account.owner, self._image)
        except ImageError as error:
            raise StartRefused(error.message, where="checkpoint", hint=error.hint, retry=True) from error
        except RemoteError as error:
            raise StartRefused(error.message, where="gang", retry=True) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise StartRefused("the job was stopped before it started", where="start", retry=True) from None

    @property
    def _image(self) -> Path | None:
        """The keeper's image that this start restores."""
        return self.resumed.directory if self.resumed is not None and not self.resumed.own else None

    async def _start_keeper(self, lease: Lease, claim: dict[str, Any]) -> None:
        if self.activation.mpi:
            await asyncio.to_thread(ranks.place_ranker, self.scratch, self.account.owner, self.activation.mpi)
        if self.activation.mode is not FileMode.REMOTE:
            ends = self.remote_pipes.ends if self.remote_pipes is not None else NO_ENDS
            spec = self._spec(lease, claim)
            starting = self._keepers.start(spec, image=self._image, ends=ends, asked=self._ask)
            self.keeper = await self._spawn(starting)
            return
        self._files = StartFiles(self.activation.name, self.activation.run, self._home, _way(self._keepers))
        account = self.account
        try:
            self._seen, end = await self._files.begin(account.uid, account.gid, self.place.hidden)
            with end or contextlib.nullcontext():
                spec, remote = self._spec(lease, claim), end.fileno() if end is not None else None
                starting = self._keepers.start(spec, image=self._image, remote=remote, asked=self._ask)
                self.keeper = await self._spawn(starting)
            self._files.runs(self.keeper)
        except BaseException:
            await self._files.end()
            raise

    def _ask(self, keeper: Keeper) -> None:
        self._asked = keeper

    def renew(self, seconds: float) -> None:
        """The lease now ends so many seconds from now, also of a job that is just being started."""
        keeper = self._asked if self._asked is not None else self.keeper
        if keeper is not None:
            keeper.renew(seconds)

    async def _spawn(self, starting: Coroutine[Any, Any, Keeper]) -> Keeper:
        """Wait until the program runs, however often the lease is renewed meanwhile, but not for ever.

        Raises:
            StartRefused: it took too long.
        """
        most = START_MOST + (self.resumed.manifest.size / RESTORED_A_SECOND if self.resumed is not None else 0.0)
        try:
            async with asyncio.timeout(most):
                return await self._begun(starting)
        except TimeoutError:
            text = f"it could not be {'put back' if self._image else 'started'} within {most:.0f} s"
            raise StartRefused(text, where="start", retry=True) from None
        finally:
            self._asked = None

    async def _begun(self, starting: Coroutine[Any, Any, Keeper]) -> Keeper:
        """Wait until the program runs, or the job is to leave: a keeper that hangs in the start is ended then."""
        self._spawning = asyncio.get_running_loop().create_task(starting)
        try:
            return await self._spawning
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise StartRefused("the job was stopped before it started", where="start", retry=True) from None
        finally:
            self._spawning = None

    def _not_started(self) -> None:
        if self.machine.state is not StartState.SEND_STATUS:
            self.machine.happen(Event.FAILURE)
        self.clean()

    async def wait(self) -> EndReport:
        """Until no process of the job is left."""
        assert self.keeper is not None
        return await asyncio.shield(self.keeper.ended)

    def has_outputs(self, report: EndReport, wanted: bool = False) -> bool:
        """Whether files have to go to the submit side after this end; `wanted`: its job has ended elsewhere."""
        brings = wanted or report.cause in BY_ITSELF or self.activation.on_failure_too
        return self.activation.mode is FileMode.TRANSFER and brings

    async def save(self, created: float) -> int:
        """Carry the job's own checkpoint to the submit side; returns the bytes that travelled once it is on disk there.

        Raises:
            StagingError: a file of it is missing or cannot be read.
            ImageError: it cannot be kept here.
            WireError: the submit side cannot be reached, or refused.
        """
        assert self.place.images is not None
        images, name = self.place.images(), self.activation.name
        with self._safe_scratch() as safe:
            found = await asyncio.to_thread(saving.outputs_of, self.activation, safe, self._before)
            kept = await asyncio.to_thread(saving.keep, images, name, created, safe, found)
        return await self.carry(kept)

    @property
    def can_dump(self) -> bool:
        """Whether the running job can be saved from outside: the machine allows it, and its files have the same names
        on every machine, on the submit side or in a fixed directory."""
        able = self._keepers.abilities.checkpoint and self.place.images is not None
        fixed = self.keeper is not None and self.keeper.spec.fixed
        return able and (self.activation.mode is FileMode.SHARED or fixed)

    @property
    def _own_files(self) -> bool:
        """Whether the job has files on this machine that belong to what is saved of it."""
        return self.activation.mode is not FileMode.SHARED

    async def dump(
        self,
        created: float,
        *,
        stop: bool,
        pace: Callable[[int], Pace] | None = None,
        stood: Callable[[], None] = lambda: None,
        number: str | None = None,
    ) -> tuple[CheckpointReport, Manifest | None]:
        """Save the running job; with `stop` it ends with it, and the image begins its way to the submit side at once.
        No manifest where the job cannot be saved.

        Args:
            pace: that of an image of so many bytes, for one that is on its way at once.
            stood: called when a part of a job has stood still for its image, which is still being written.
            number: of the set that the image of a part belongs to.

        Raises:
            CheckpointFailed, ImageError: there is no checkpoint this time.
        """
        assert self.keeper is not None
        assert self.place.images is not None
        images = await asyncio.to_thread(self.place.images)
        directory, earlier = images.room(), self._earlier
        frozen = self._frozen if self._own_files else None
        mark = 0
        if self.activation.mode is FileMode.REMOTE:
            mark = self._mark = max(self._mark + 1, (self.activation.run << MARK_SECONDS) + int(created))
        with images.begin(self.activation.saved_as) as draft:
            try:
                taken = None
                if frozen is not None:
                    taken = await run_low_priority(frozen.settled, draft, self.keeper.pid, created)
                parent = await asyncio.to_thread(earlier.parent, images)
                report = await self._keepers_image(
                    stood, directory, stop=stop, taken=taken, loose=True, parent=parent, carry=True, mark=mark
                )
                if report.refused:
                    return report, None
                if stop:
                    await self._begin_sending(images, draft, pace(report.bytes) if pace is not None else None, number)
                facts = created, frozen, self._before, self.activation.run, mark, earlier
                kept = await run_low_priority(saving.keep_dump, draft, directory, *facts)
                if not stop:
                    await run_low_priority(earlier.keep, images, directory, kept)
            except BaseException:
                self._stop_sending()
                raise
            finally:
                await asyncio.to_thread(earlier.settle, directory, self.keeper.ended.done())
        return report, kept

    async def _keepers_image(self, stood: Callable[[], None], directory: Path, **how: Any) -> CheckpointReport:
        """The data of the keeper's image, and of a part of a job that of its pipes to others."""
        keeper, remote_pipes = self.keeper, self.remote_pipes
        assert keeper is not None
        if remote_pipes is None:
            return await keeper.checkpoint(directory, **how)
        noted = False

        def note(held: frozenset[int]) -> None:
            nonlocal noted
            if not noted:
                remote_pipes.frozen(held)
                noted = True
                stood()

        remote_pipes.freeze()
        try:
            report = await keeper.checkpoint(directory, **how, let_go=note)
            if not report.refused:
                note(report.held)
                await asyncio.to_thread(remote_pipes.save, directory)
            return report
        finally:
            if not how["stop"]:
                remote_pipes.thaw()

    async def _begin_sending(self, images: ImageStore, draft: Draft, pace: Pace | None, number: str | None) -> None:
        draft.on_piece = onward = self._home.coming(self.activation)
        if not self._home.reachable:
            return
        try:
            async with asyncio.timeout(MOMENT):
                stream = await self._home.keep_image(self.activation, last=True, number=number)
        except (PoolError, OSError, TimeoutError):
            return  # it is sent when it is whole
        home = self._on_its_way = saving.OnItsWay(images, stream, pace)

        def both(name: str, index: int, digest: bytes) -> None:
            home.have(name, index, digest)
            if onward is not None:
                onward(name, index, digest)

        draft.on_piece = both

    def _stop_sending(self) -> None:
        if self._on_its_way is not None:
            self._on_its_way.give_up()
            self._on_its_way = None

    async def tentative(self) -> Manifest | None:
        """A checkpoint of this start that lies here, since an earlier run of the node did not come to sending it."""
        if self.place.images is None:
            return None
        images = await asyncio.to_thread(self.place.images)
        return saving.tentative(images, self.activation.saved_as, self.activation.run)

    async def carry(self, manifest: Manifest, pace: Pace | None = None, number: str | None = None) -> int:
        """Send a checkpoint to the submit side and drop it here; may be called again where that could not be done.

        Args:
            pace: awaited with the bytes about to be sent.
            number: of the set that it belongs to, where it is of a part of a job.

        Raises:
            WireError: the submit side cannot be reached, or refused.
        """
        assert self.place.images is not None
        images = self.place.images()
        ahead, self._on_its_way = self._on_its_way, None
        if ahead is not None:
            sent = await ahead.finish(manifest)
        else:
            stream = await self._home.keep_image(self.activation, number=number)
            sent = await saving.send_home(images, manifest, stream, pace)
        self._home.kept_image(self.activation, images, manifest)
        await asyncio.to_thread(images.drop, self.activation.saved_as)
        return sent

    async def drop(self, manifest: Manifest) -> None:
        """A checkpoint that was taken in here is of no use any more."""
        assert self.place.images is not None
        await asyncio.to_thread(self.place.images().drop, self.activation.name, manifest.generation)

    async def again(self, lease: Lease, claim: dict[str, Any]) -> list[StartAction]:
        """Start the program once more in the same scratch directory, after it has written a checkpoint; as `start`.

        Raises:
            StartRefused: it cannot be started.
        """
        assert self.keeper is not None
        await self._earlier.drop()
        await self.keeper.forget()
        self._goes_on = True
        try:
            spec = self._spec(lease, {**claim, "before": self._before})
            self.keeper = await self._spawn(self._keepers.start(spec, asked=self._ask))
        except StartRefused:
            await self.happen(Event.FAILURE)
            raise
        except StartFailed as error:
            await self.happen(Event.FAILURE)
            raise StartRefused(
                error.message, where="start", hint=error.hint, retry=error.retry, step=error.call
            ) from error
        return await self.happen(Event.SUCCESS)

    async def bring_home(self) -> None:
        """Carry the outputs to the submit side; may be called again after a lost connection.

        Raises:
            StagingError: an output is missing or cannot be read.
            WireError: the submit side cannot be reached, or refused.
        """
        with open_scratch(self.scratch, self.account.owner) as safe:
            found = await asyncio.to_thread(outputs_of, self.activation, safe, self._before)
            if name := self.activation.manifest:
                found += await asyncio.to_thread(manifest_of, safe, name)
            async with await self._home.store(self.activation) as stream:
                self.transfer = CountedStream(stream)
                self.sent = await send_outputs(self.transfer, self.activation, safe, found)

    async def done(self) -> None:
        """The end has been reported: forget the keeper and leave nothing behind (A14).

        May be called again, also when the scratch directory's name is another job's.
        """
        if self._files is not None:
            await self._files.end()
            self._files = None
        await self._earlier.drop()
        if self.keeper is not None:
            await self.keeper.forget()
        if not self._left:
            self._left = True
            self.clean()

    def clean(self) -> None:
        """Leave the scratch directory empty, or none."""
        self._job_image.release()
        try:
            if self.place.empty is not None and os.stat(self.scratch).st_mtime_ns == self.place.empty:
                return
            left = os.listdir(self.scratch)
        except FileNotFoundError:
            left = []
        self.place.empty = None
        if left:
            scratch.empty(self.scratch)

    def output(self, which: str) -> Path:
        """Where the job's standard output or error lies on this machine while it runs."""
        if self.activation.mode is FileMode.TRANSFER:
            return self.scratch / (STDOUT if which == "out" or one_output(self.activation) else STDERR)
        path = self.activation.stdout if which == "out" else self.activation.stderr
        return Path(self.activation.iwd, path)

    # -- steps -------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        if self.place.empty is not None:
            return
        with contextlib.suppress(FileExistsError):  # left by the job before, and empty: `clean` saw to it
            os.mkdir(self.scratch, 0o700)
        if self.account.switch:
            os.chown(self.scratch, self.account.uid, self.account.gid)
        self.place.empty = os.stat(self.scratch).st_mtime_ns

    async def _stage_in(self) -> None:
        activation = self.activation
        digest = activation.digest
        if digest and not programs.DIGEST.fullmatch(digest):
            raise StartRefused(f"{digest[:80]!r} is no digest of an executable", where="input")
        stored = self.place.executables / digest if digest else None
        wanted = activation.carries_executable and (stored is None or not stored.exists())
        try:
            offered: dict[str, str] = {}
            signed: dict[str, str] = {}
            async with await self._home.fetch(activation, wanted) as stream:
                if activation.processes:
                    offered = await programs.ask(stream, self.place.executables)
                self.transfer = CountedStream(stream)
                self.received = await staging.receive(self.transfer, self.scratch, self.account.owner, signed)
            self._job_image.login = signed.get(activation.image_source, "")
            await self._fetch_urls(signed)
            with self._safe_scratch() as safe:
                if offered:
                    await programs.settle(offered, activation.layout, safe, self.place.executables)
                program = os.path.basename(activation.executable)
                if stored is not None and wanted and safe.exists(program):
                    await asyncio.to_thread(programs.keep, safe, program, stored)
                elif stored is not None and not wanted:
                    await asyncio.to_thread(programs.place, stored, safe, program)
                if activation.manifest:
                    await asyncio.to_thread(manifest.write_before, activation.manifest, safe, activation.env)
                self._before = await asyncio.to_thread(self._marks, safe)
        except staging.StagingError as error:
            where = "machine" if isinstance(error, staging.DiskRefused) else "input"
            raise StartRefused(error.message, where=where, hint=error.hint, retry=error.retry) from error

    async def _fetch_urls(self, signed: dict[str, str]) -> None:
        """The inputs that are URLs, by a process that becomes the job's user."""
        wanted = {name: signed.get(name, name) for name in self.activation.inputs if is_fetched(name)}
        if not wanted:
            return
        most = self.activation.most_input
        directory = os.open(self.scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            left = None if most is None else max(0, most - self.received)
            self.received += await urls.fetch(wanted, directory, self.account, self.place.plugins, left, self._leaves)
        except urls.CannotFetch as error:
            raise StartRefused(error.message, where="input", hint=error.hint, retry=error.retry) from error
        finally:
            os.close(directory)

    def _marks(self, safe: SafeDirectory) -> dict[str, tuple[int, int]]:
        """The content of the scratch directory before the job begins."""
        found = staging.top_level(safe)
        for folder in self.activation.layout.folders.values() if self.activation.processes else ():
            if folder:
                found |= {f"{folder}/{name}": mark for name, mark in staging.top_level(safe, folder).items()}
        return found

    def _safe_scratch(self) -> SafeDirectory:
        return SafeDirectory(self.scratch, self.account.owner)

    async def _fetch_checkpoint(self) -> None:
        """Fetch the checkpoint that this start goes on from, and see that it can be restored here."""
        assert self.place.images is not None
        start = self.activation
        images = await asyncio.to_thread(self.place.images)
        try:
            before = (lambda: self._home.nearer(start)) if start.checkpoint_from is not None else None
            came = await self._home.prepared(start)
            self.resumed = await resuming.fetch(images, start.saved_as, await self._home.image(start), before, came)
            self.received += self.resumed.received
            if not self.resumed.own and self.resumed.mode is not start.mode:
                raise ImageError("it was made where the job's files are reached in another way")
            if self.resumed.has_files and not self._keepers.abilities.full:
                text = "this machine cannot show the job its files where they were"
                raise StartRefused(text, where="checkpoint", retry=True, unfit=True)
            if not self._keepers.abilities.checkpoint and not self.resumed.own:
                raise StartRefused("this machine cannot resume jobs", where="checkpoint", retry=True, unfit=True)
        except (ImageError, RemoteError) as error:
            raise StartRefused(error.message, where="checkpoint", hint=error.hint, retry=True) from error

    async def _place_files(self) -> None:
        """The job's files into its scratch directory: those of the checkpoint, or its inputs."""
        resumed, owner = self.resumed, self.account.owner
        try:
            if resumed is not None and resumed.has_files:
                put_back = freezing.put_back
                self._before = await asyncio.to_thread(put_back, resumed.directory, self.scratch, owner)
                return
            if self.activation.mode is FileMode.TRANSFER:
                await self._stage_in()
            if resumed is not None and resumed.own:
                put_back_own = saving.put_back
                await asyncio.to_thread(put_back_own, resumed.directory, resumed.manifest, self.scratch, owner)
        except ImageError as error:
            raise StartRefused(error.message, where="checkpoint", hint=error.hint, retry=True) from error

    def _spec(self, lease: Lease, claim: dict[str, Any]) -> KeeperSpec:
        left = lease()
        if left <= 0:
            raise StartRefused("the claim's lease ended before the job began", where="machine", retry=True)
        full, seen = self._keepers.abilities.full, self._seen
        start, account, place = self.activation, self.account, self.place
        append = self._goes_on or start.append_output or (self.resumed is not None and self.resumed.own)
        return order_of(
            *(self.id, start, account, place),
            full=full,
            seen=seen,
            lease=left,
            claim=claim,
            append=append,
            image=self._job_image,
            hosts=self.remote_pipes.hosts if self.remote_pipes is not None else (),
        )


def _way(keepers: Keepers) -> str:
    able = keepers.abilities
    return f"{able.remote}, as {able.remote_why}" if able.remote_why else able.remote

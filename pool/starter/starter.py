"""The starter: looks after one job on the execute side, from the empty scratch directory to the reported end.

    prepare -> stage in -> start (keeper) -> wait -> stage out -> done

One coroutine for each running job. The table of `pool.policy.starter` decides what follows from events of the job and
from the owner's wishes (suspend, continue, vacate, die). The keeper's part of that is done here, the rest by the holder
of the claim. `JobInputs` fills the scratch directory, `ProgramStart` starts the program, `StartCheckpoints` saves it;
all share one `JobStart`. The starter knows nothing of claims; it reaches the submit side through a `SubmitSide`. After
a restart of the node it is made again around a keeper that was found (`Starter.found`) and goes on waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from pool.images import ImageError
from pool.jobs.activation import STDERR, STDOUT, Activation, FileMode
from pool.jobs.mpi import PMIX
from pool.network.rooms import JobRoom
from pool.pipes.remote_pipes import Cards, RemotePipes
from pool.policy.starter import Event, Machine, StartAction, StartState
from pool.starter import ranks, resuming
from pool.starter.inputs import JobInputs
from pool.starter.job_image import JobImage
from pool.starter.job_start import JobStart, SubmitSide
from pool.starter.keeper import Keeper, Keepers
from pool.starter.order import one_output
from pool.starter.output_transfer import manifest_of, open_scratch, outputs_of, send_outputs
from pool.starter.place import ExecutionSite, StartRefused, UnixAccount
from pool.starter.program_start import Lease, ProgramStart
from pool.starter.progress import CountedStream
from pool.starter.spec import EndReport, StartFailed
from pool.starter.start_checkpoints import StartCheckpoints
from pool.wire import RemoteError

#: The keeper's words for a failed restore when not the image but the machine is at fault
#: (pool/checkpoint/restore/restore.c).
UNFIT = "machine"
#: The commands to the keeper.
ON_KEEPER = frozenset({StartAction.STOP, StartAction.RESUME, StartAction.ASK, StartAction.KILL})
#: The events that end a start whose program does not run yet: nothing is lost with it.
LEAVING = frozenset({Event.DIE, Event.VACATE, Event.CKPT_AND_VACATE})
#: The ends by the job itself, as against those that were forced on it.
BY_ITSELF = ("exit", "signal", "misuse")


class Starter:
    """One job on this machine.

    Attributes:
        machine: the state of this start.
        asked_by: the signal that asks the job to end where its owner removes or holds it; None: the ordinary one.
        checkpoints: those of this start.
    """

    def __init__(
        self,
        activation: Activation,
        account: UnixAccount,
        place: ExecutionSite,
        keepers: Keepers,
        submit_side: SubmitSide,
        remote_pipes: RemotePipes | None = None,
    ) -> None:
        image = JobImage(place)
        self._start = start = JobStart(activation, account, place, keepers, submit_side, remote_pipes, image)
        self.machine = Machine()
        self.asked_by: int | None = None
        self.checkpoints = StartCheckpoints(start)
        self._inputs = JobInputs(start)
        self._program = ProgramStart(start)
        self._left = False

    @classmethod
    def found(
        cls,
        keeper: Keeper,
        activation: Activation,
        account: UnixAccount,
        place: ExecutionSite,
        keepers: Keepers,
        submit_side: SubmitSide,
    ) -> Starter:
        """The starter of a job whose keeper outlived the node."""
        starter = cls(activation, account, place, keepers, submit_side)
        start, claim = starter._start, keeper.spec.claim
        start.keeper = keeper
        start.image = JobImage(place, keeper.spec.root)
        start.received = int(claim.get("received") or 0)
        starter._program.adopt(keeper)
        start.before = {
            str(name): (int(size), int(changed)) for name, (size, changed) in dict(claim.get("before") or {}).items()
        }
        return starter

    @property
    def id(self) -> str:
        """The name of the start on this machine, also of one part of several."""
        return self._start.id

    @property
    def activation(self) -> Activation:
        """The order that the submit side sent."""
        return self._start.activation

    @property
    def account(self) -> UnixAccount:
        """The user that the job runs as here."""
        return self._start.account

    @property
    def place(self) -> ExecutionSite:
        """The means that the slot gives the job."""
        return self._start.place

    @property
    def scratch(self) -> Path:
        """The scratch directory."""
        return self._start.place.scratch

    @property
    def keeper(self) -> Keeper | None:
        """The keeper whose program runs; None before that."""
        return self._start.keeper

    @property
    def resumed(self) -> resuming.Resumed | None:
        """The checkpoint that this start goes on from."""
        return self._start.resumed

    @property
    def room(self) -> JobRoom | None:
        """The job's own network on this machine, if this node carries its packets."""
        return self._start.room if self._start.remote_pipes is None else self._start.remote_pipes.room

    @property
    def is_direct(self) -> bool:
        """Whether files go directly to the job's schedd, which is in another pool."""
        return self._start.submit_side.is_direct

    @property
    def remote_pipes(self) -> RemotePipes | None:
        """The pipes to other machines, where the job runs on several."""
        return self._start.remote_pipes

    def rejoin(self, remote_pipes: RemotePipes) -> None:
        """A part that was found is again one of several: of pipes to the others it has none."""
        self._start.remote_pipes = remote_pipes
        remote_pipes.begin([])

    @property
    def received(self) -> int:
        """Bytes of files and checkpoints that were sent to the job before it began (B4)."""
        return self._start.received

    @property
    def sent(self) -> int:
        """Bytes of files and checkpoints that were sent to the submit side (B4)."""
        return self._start.sent

    @property
    def transfer(self) -> CountedStream | None:
        """The latest transfer of files, in either direction."""
        return self._start.transfer

    def set_activation(self, activation: Activation) -> None:
        """The submit side has said again what a job that was found had been started with."""
        self._start.activation = activation

    async def handle_event(self, event: Event) -> list[StartAction]:
        """Take in what has happened or is wished; answers what is to be done beside what the keeper does."""
        keeper = self._start.keeper
        left: list[StartAction] = []
        actions = self.machine.handle_event(event)
        if self.machine.state is StartState.LEAVE_EARLY:
            self._start.leaves.set()
        for action in actions:
            if action is StartAction.CLEAN:
                await self.discard()
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
        if event in LEAVING:
            self._program.cancel()
        return left

    async def start(self, lease: Lease, claim: dict[str, Any]) -> list[StartAction]:
        """Prepare and start the job; answers what is to be done now that it runs.

        Args:
            lease: seconds the keeper lets the job run without being renewed, as they are when it begins.
            claim: kept with the keeper, to find again after a restart of the node.

        Raises:
            StartRefused: with the part that failed; nothing is left behind.
        """
        start = self._start
        try:
            arrived = asyncio.get_running_loop().time()
            self._inputs.make_scratch()
            await self.handle_event(Event.DEFAULT)
            if start.activation.checkpoint is not None:
                await self._inputs.fetch_checkpoint()
            if start.own_files:
                await self._inputs.place()
            if start.activation.image:
                await start.image.prepare(start.activation, start.place.scratch, start.account, start.leaves)
            await self._wait_for_its_moment(arrived)
            cards: Cards = await self._wait_for_parts(start.remote_pipes) if start.remote_pipes is not None else []
            await self.handle_event(Event.SUCCESS)
            if self.machine.state is not StartState.SPAWN_ALL:
                raise StartRefused("the job was stopped before it started", where="start", retry=True)
            if start.before:
                claim = {**claim, "before": start.before}
            if start.received:
                claim = {**claim, "received": start.received}
            await self._program.begin(lease, claim)
            if start.remote_pipes is not None:
                start.remote_pipes.begin(cards)
        except StartFailed as error:
            self._not_started()
            where = "start" if start.dumped_image is None else "checkpoint"
            unfit = start.dumped_image is not None and error.path == UNFIT
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
            if start.resumed is not None:
                await asyncio.to_thread(start.resumed.drop)
        return await self.handle_event(Event.SUCCESS)

    async def _wait_for_its_moment(self, arrived: float) -> None:
        """All is ready; a deferred job begins when its moment has come, or leaves before that."""
        start = self._start
        left = arrived + start.activation.not_before - asyncio.get_running_loop().time()
        if start.activation.not_before and left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await start.leaves.wait()

    async def _wait_for_parts(self, remote_pipes: RemotePipes) -> Cards:
        """The other parts of the job are ready to begin, too; what each brought."""
        try:
            return await remote_pipes.exchange_cards(self._start.account.owner, self._start.dumped_image)
        except ImageError as error:
            raise StartRefused(error.message, where="checkpoint", hint=error.hint, retry=True) from error
        except RemoteError as error:
            raise StartRefused(error.message, where="gang", retry=True) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise StartRefused("the job was stopped before it started", where="start", retry=True) from None

    def renew(self, seconds: float) -> None:
        """The lease now ends so many seconds from now, also of a job that is just being started."""
        self._program.renew(seconds)

    def _not_started(self) -> None:
        if self.machine.state is not StartState.SEND_STATUS:
            self.machine.handle_event(Event.FAILURE)
        self.clean()

    async def wait(self) -> EndReport:
        """Until no process of the job is left."""
        assert self._start.keeper is not None
        return await asyncio.shield(self._start.keeper.ended)

    def has_outputs(self, report: EndReport, wanted: bool = False) -> bool:
        """Whether files have to go to the submit side after this end; `wanted`: its job has ended elsewhere."""
        brings = wanted or report.cause in BY_ITSELF or self._start.activation.on_failure_too
        return self._start.activation.mode is FileMode.TRANSFER and brings

    async def restart(self, lease: Lease, claim: dict[str, Any]) -> list[StartAction]:
        """Start the program once more in the same scratch directory, after it has written a checkpoint; as `start`.

        Raises:
            StartRefused: it cannot be started.
        """
        assert self._start.keeper is not None
        await self.checkpoints.forget_earlier()
        await self._start.keeper.forget()
        try:
            await self._program.begin_again(lease, {**claim, "before": self._start.before})
        except StartRefused:
            await self.handle_event(Event.FAILURE)
            raise
        except StartFailed as error:
            await self.handle_event(Event.FAILURE)
            raise StartRefused(
                error.message, where="start", hint=error.hint, retry=error.retry, step=error.call
            ) from error
        return await self.handle_event(Event.SUCCESS)

    async def send_outputs(self) -> None:
        """Send the outputs to the submit side; may be called again after a lost connection.

        Raises:
            StagingError: an output is missing or cannot be read.
            WireError: the submit side cannot be reached, or refused.
        """
        start = self._start
        with open_scratch(start.place.scratch, start.account.owner) as safe:
            found = await asyncio.to_thread(outputs_of, start.activation, safe, start.before)
            if name := start.activation.manifest:
                found += await asyncio.to_thread(manifest_of, safe, name)
            async with await start.submit_side.store(start.activation) as stream:
                start.transfer = CountedStream(stream)
                sent = await send_outputs(start.transfer, start.activation, safe, found)
        start.sent += sent

    async def discard(self) -> None:
        """The end has been reported: forget the keeper and leave nothing behind (A14).

        May be called again, also when the scratch directory's name is another job's.
        """
        await self._program.end_files()
        await self.checkpoints.forget_earlier()
        if self._start.keeper is not None:
            await self._start.keeper.forget()
        self.leave_scratch()

    def leave_scratch(self, *, clean: bool = True) -> None:
        """The job has ended, and the scratch directory is the next one's: `discard` leaves it alone from now on."""
        if not self._left:
            self._left = True
            if clean:
                self.clean()

    def clean(self) -> None:
        """Leave the scratch directory empty, or none."""
        start = self._start
        start.image.release()
        if start.activation.mpi == PMIX:
            loop = asyncio.get_running_loop()
            loop.run_in_executor(None, ranks.remove_shared, start.activation, start.account.owner)
        self._inputs.clear_scratch()

    def output(self, which: str) -> Path:
        """The file with the job's standard output or error on this machine while it runs."""
        activation = self._start.activation
        if activation.mode is FileMode.TRANSFER:
            return self.scratch / (STDOUT if which == "out" or one_output(activation) else STDERR)
        return Path(activation.iwd, activation.stdout if which == "out" else activation.stderr)

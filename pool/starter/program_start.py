"""Starts a job's program in a keeper, and waits until it runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from pool.jobs.activation import FileMode
from pool.jobs.network import has_way_out
from pool.starter import ranks
from pool.starter.files import StartFiles, VisibleFiles
from pool.starter.job_start import JobStart
from pool.starter.keeper import Keeper
from pool.starter.order import order_of
from pool.starter.place import StartRefused
from pool.starter.spec import NO_ENDS, KeeperSpec

#: Seconds in which a program has to run from when its keeper was asked for it, and bytes of a checkpoint for one more.
START_MOST = 300.0
RESTORED_A_SECOND = 2e6
#: Seconds that are left of a lease now: files may travel for long before a job begins.
Lease = Callable[[], float]


class ProgramStart:
    """The way from an order to a running program, also to its second run after a checkpoint of its own.

    Args:
        start: `keeper` is set in it once the program runs.
    """

    def __init__(self, start: JobStart) -> None:
        self._start = start
        #: The way to its owner's files, and what it sees of them, where it works on them from here.
        self._files: StartFiles | None = None
        self._seen: VisibleFiles | None = None
        #: Whether its program was started once more, after a checkpoint that it wrote itself.
        self._goes_on = False
        #: The bound on the time until the program runs, and whether the job is to leave instead.
        self._spawning: asyncio.Timeout | None = None
        self._leaves = False
        #: Its keeper while its program does not run yet.
        self._asked: Keeper | None = None

    def adopt(self, keeper: Keeper) -> None:
        """The program runs already, in a keeper that outlived the node."""
        if keeper.spec.remote or keeper.spec.binds:
            self._seen = VisibleFiles.of(keeper.spec)
            self._files = self._way_to_files()
            self._files.connect(keeper)
        self._join_outside(keeper)

    async def begin(self, lease: Lease, claim: dict[str, Any]) -> None:
        """Start the program and wait until it runs: see `Starter.start`.

        Raises:
            StartFailed, StartRefused
        """
        start = self._start
        keepers, image = start.keepers, start.dumped_image
        if start.activation.mpi:
            await asyncio.to_thread(ranks.place_ranker, start.place.scratch, start.account.owner, start.activation.mpi)
        if start.activation.mode is not FileMode.REMOTE:
            ends = start.remote_pipes.ends if start.remote_pipes is not None else NO_ENDS
            await self._spawn(keepers.start(self.spec(lease, claim), image=image, ends=ends, asked=self._set_target))
            return
        self._files = self._way_to_files()
        account = start.account
        try:
            self._seen, end = await self._files.begin(account.uid, account.gid, start.place.hidden)
            with end or contextlib.nullcontext():
                spec, remote = self.spec(lease, claim), end.fileno() if end is not None else None
                await self._spawn(keepers.start(spec, image=image, remote=remote, asked=self._set_target))
        except BaseException:
            await self._files.end()
            raise

    async def begin_again(self, lease: Lease, claim: dict[str, Any]) -> None:
        """Start the program once more, after it has written a checkpoint; as `begin`."""
        self._goes_on = True
        await self._spawn(self._start.keepers.start(self.spec(lease, claim), asked=self._set_target))

    def cancel(self) -> None:
        """The job leaves: a program that does not run yet is not waited for."""
        if self._spawning is not None and not self._spawning.expired():
            self._leaves = True
            self._spawning.reschedule(asyncio.get_running_loop().time())

    def renew(self, seconds: float) -> None:
        """The lease now ends so many seconds from now, also of a program that does not run yet."""
        keeper = self._asked if self._asked is not None else self._start.keeper
        if keeper is not None:
            keeper.renew(seconds)

    async def end_files(self) -> None:
        """End the way to the owner's files; may be called again."""
        if self._files is not None:
            await self._files.end()
            self._files = None

    def spec(self, lease: Lease, claim: dict[str, Any]) -> KeeperSpec:
        """The order to the keeper.

        Raises:
            StartRefused: the lease has ended, or this machine cannot give the job its network.
        """
        start, left = self._start, lease()
        if left <= 0:
            raise StartRefused("the claim's lease ended before the job began", where="machine", retry=True)
        resumes_own = start.resumed is not None and start.resumed.self_written
        order = order_of(
            *(start.id, start.activation, start.account, start.place),
            full=start.keepers.abilities.full,
            seen=self._seen,
            lease=left,
            claim=claim,
            append=self._goes_on or start.activation.append_output or resumes_own,
            image=start.image,
            hosts=start.remote_pipes.hosts if start.remote_pipes is not None else (),
        )
        if order.network_setup and (why := start.keepers.abilities.private_network_why):
            raise StartRefused(f"this machine gives jobs no network of their own: {why}", where="machine")
        return order

    def _way_to_files(self) -> StartFiles:
        start, able = self._start, self._start.keepers.abilities
        way = f"{able.remote}, as {able.remote_why}" if able.remote_why else able.remote
        return StartFiles(start.activation.name, start.activation.run, start.submit_side, way)

    def _set_target(self, keeper: Keeper) -> None:
        self._asked = keeper
        if self._files is not None:
            self._files.serve(keeper)
        if self._start.remote_pipes is not None:
            self._start.remote_pipes.before_start(keeper)
        else:
            self._join_outside(keeper)

    def _join_outside(self, keeper: Keeper) -> None:
        """A job of one part has a network to carry if it has a way out."""
        join = self._start.place.join_outside
        if join is not None and has_way_out(keeper.spec.network_setup):
            self._start.room = join(self._start.activation, keeper)

    async def _spawn(self, starting: Coroutine[Any, Any, Keeper]) -> None:
        """Wait until the program runs, however often the lease is renewed meanwhile, but not for ever. If the job is to
        leave, it is waited for no longer: a keeper that hangs in the start is ended then.

        Raises:
            StartRefused: it took too long, or was stopped.
        """
        start = self._start
        most = START_MOST + (start.resumed.manifest.size / RESTORED_A_SECOND if start.resumed is not None else 0.0)
        self._leaves = False
        try:
            async with asyncio.timeout(most) as self._spawning:
                start.keeper = await starting
        except TimeoutError:
            text = f"it could not be {'restored' if start.dumped_image else 'started'} within {most:.0f} s"
            if self._leaves:
                text = "the job was stopped before it started"
            raise StartRefused(text, where="start", retry=True) from None
        finally:
            self._asked = self._spawning = None

"""The checkpoints of one start of a job: made by its keeper or by the job itself, and sent to the submit side (C4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pool.errors import PoolError
from pool.images import Draft, ImageStore, Manifest
from pool.images.priority import run_low_priority
from pool.images.transfer import Pace
from pool.jobs.activation import FileMode
from pool.starter import freezing, increments, saving
from pool.starter.checkpointing import CheckpointReport
from pool.starter.job_start import JobStart

#: The submit side's number of a checkpoint: the number of the start, then so many bits of its time, so that they only
#: grow.
MARK_SECONDS = 32
#: Seconds in which the submit side is reached, or a checkpoint waits until it is whole.
MOMENT = 1.0


class StartCheckpoints:
    """The checkpoints of one start of a job, on this machine and on their way to the submit side.

    Args:
        start: `sent` grows with each checkpoint that arrives.
    """

    def __init__(self, start: JobStart) -> None:
        self._start = start
        self._frozen = freezing.ScratchSnapshot(start.place.scratch, start.account.owner)
        self._earlier = increments.PreviousImage()
        self._mark = 0
        self._on_its_way: saving.OnItsWay | None = None

    async def forget_earlier(self) -> None:
        """Drop the image that the next one would build on: the program is not the same any more."""
        await self._earlier.drop()

    @property
    def can_dump(self) -> bool:
        """Whether the running job can be saved from outside: the machine allows it, and its files have the same names
        on every machine, on the submit side or in a fixed directory."""
        start = self._start
        able = start.keepers.abilities.checkpoint and start.place.images is not None
        fixed = start.keeper is not None and start.keeper.spec.fixed
        return able and (start.activation.mode is FileMode.SHARED or fixed)

    async def send_own(self, created: float) -> int:
        """Send the checkpoint that the job has written itself; returns the bytes sent, once it is on disk there.

        Raises:
            StagingError: a file of it is missing or cannot be read.
            ImageError: it cannot be kept here.
            WireError: the submit side cannot be reached, or refused.
        """
        start = self._start
        assert start.place.images is not None
        images, name = start.place.images(), start.activation.name
        with start.safe_scratch() as safe:
            found = await asyncio.to_thread(saving.outputs_of, start.activation, safe, start.before)
            kept = await asyncio.to_thread(saving.store_files, images, name, created, safe, found)
        return await self.send(kept)

    async def dump(
        self,
        created: float,
        *,
        stop: bool,
        pace: Callable[[int], Pace] | None = None,
        stood: Callable[[], None] = lambda: None,
        number: str | None = None,
    ) -> tuple[CheckpointReport, Manifest | None]:
        """Save the running job; with `stop` the job ends with it, and sending the image begins at once.

        The manifest is None where the job cannot be saved.

        Args:
            pace: that of an image of so many bytes, for one that is on its way at once.
            stood: called when a part of a job has stood still for its image, which is still being written.
            number: of the set that the image of a part belongs to.

        Raises:
            CheckpointFailed, ImageError: there is no checkpoint this time.
        """
        start = self._start
        assert start.keeper is not None
        assert start.place.images is not None
        images = await asyncio.to_thread(start.place.images)
        directory, earlier = images.new_directory(), self._earlier
        frozen = self._frozen if start.own_files else None
        mark = 0
        if start.activation.mode is FileMode.REMOTE:
            mark = self._mark = max(self._mark + 1, (start.activation.run << MARK_SECONDS) + int(created))
        with images.begin(start.activation.saved_as) as draft:
            try:
                taken = None
                if frozen is not None:
                    taken = await run_low_priority(frozen.add_unchanged, draft, start.keeper.pid, created)
                parent = await asyncio.to_thread(earlier.parent, images)
                report = await self._keepers_image(
                    stood, directory, stop=stop, taken=taken, loose=True, parent=parent, carry=True, mark=mark
                )
                if report.refused:
                    return report, None
                if stop:
                    await self._begin_sending(images, draft, pace(report.bytes) if pace is not None else None, number)
                facts = created, frozen, start.before, start.activation.run, mark, earlier
                kept = await run_low_priority(saving.store_dump, draft, directory, *facts)
                if not stop:
                    await run_low_priority(earlier.set_image, images, directory, kept)
            except BaseException:
                self._stop_sending()
                raise
            finally:
                await asyncio.to_thread(earlier.finish, directory, start.keeper.ended.done())
        return report, kept

    async def _keepers_image(self, stood: Callable[[], None], directory: Path, **how: Any) -> CheckpointReport:
        """Have the keeper write its image; beside it goes the content of the pipes to other parts of the job."""
        start = self._start
        keeper, remote_pipes = start.keeper, start.remote_pipes
        assert keeper is not None
        if remote_pipes is None:
            return await keeper.checkpoint(directory, **how)
        noted = False

        def record_frozen(held: frozenset[int]) -> None:
            nonlocal noted
            if not noted:
                remote_pipes.frozen(held)
                noted = True
                stood()

        remote_pipes.freeze()
        try:
            report = await keeper.checkpoint(directory, **how, let_go=record_frozen)
            if not report.refused:
                record_frozen(report.held)
                await asyncio.to_thread(remote_pipes.save, directory)
            return report
        finally:
            if not how["stop"]:
                remote_pipes.thaw()

    async def _begin_sending(self, images: ImageStore, draft: Draft, pace: Pace | None, number: str | None) -> None:
        start = self._start
        draft.on_piece = onward = start.submit_side.announce_chunks(start.activation)
        if not start.submit_side.reachable:
            return
        try:
            async with asyncio.timeout(MOMENT):
                stream = await start.submit_side.store_image(start.activation, last=True, number=number)
        except (PoolError, OSError, TimeoutError):
            return  # it is sent when it is whole
        ahead = self._on_its_way = saving.OnItsWay(images, stream, pace)

        def both(name: str, index: int, digest: bytes) -> None:
            ahead.add_chunk(name, index, digest)
            if onward is not None:
                onward(name, index, digest)

        draft.on_piece = both

    def _stop_sending(self) -> None:
        if self._on_its_way is not None:
            self._on_its_way.cancel()
            self._on_its_way = None

    async def unsent(self) -> Manifest | None:
        """The checkpoint of this start that an earlier run of the node has taken in here and not sent."""
        start = self._start
        if start.place.images is None:
            return None
        images = await asyncio.to_thread(start.place.images)
        return saving.tentative(images, start.activation.saved_as, start.activation.run)

    async def send(self, manifest: Manifest, pace: Pace | None = None, number: str | None = None) -> int:
        """Send a checkpoint to the submit side and drop it here; may be called again where that could not be done.

        Args:
            pace: awaited with the bytes about to be sent.
            number: of the set that it belongs to, where it is of a part of a job.

        Raises:
            WireError: the submit side cannot be reached, or refused.
        """
        start = self._start
        assert start.place.images is not None
        images = start.place.images()
        ahead, self._on_its_way = self._on_its_way, None
        if ahead is not None:
            sent = await ahead.finish(manifest)
        else:
            stream = await start.submit_side.store_image(start.activation, number=number)
            sent = await saving.send_stored_image(images, manifest, stream, pace)
        start.submit_side.kept_image(start.activation, images, manifest)
        await asyncio.to_thread(images.drop, start.activation.saved_as)
        start.sent += sent
        return sent

    async def drop(self, manifest: Manifest) -> None:
        """Drop a checkpoint that was taken in here and is of no use any more."""
        start = self._start
        assert start.place.images is not None
        await asyncio.to_thread(start.place.images().drop, start.activation.name, manifest.generation)

"""Checkpoints of jobs on several machines: all parts at once, and all of them or none (VS 5.3).

    hold everywhere -> freeze everywhere -> go everywhere -> every part's image is here -> one durable commit
    leave everywhere -> freeze everywhere -> every part's image is here -> one durable commit -> all parts end

No part is frozen before all parts have stopped reading from their pipes to others. None reads again before all have
been frozen. So all bytes that one part has read, the other has sent, and the other has kept the rest
(`pool.pipes.positions`). Each part stands still for its own image only. Anything that fails on the way, and any part
that does not follow in time, drops this set; the one before stays.

The second line is the last set of a job of which a part has to leave its machine: each part ends with its image, so
that nothing of it happens after that. From `leave` on no part goes back to running: where it fails all are stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pool.errors import PoolError
from pool.policy.checkpoints import CheckpointWish, rhythm_of, wish_of
from pool.roles.schedd.checkpoints.images import StoredCheckpoints
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.gang import CheckpointSet, RunningGang
from pool.wire import RemoteError

#: Seconds for each step, and for all images to arrive.
STEP_SECONDS, TRANSFER_SECONDS = 50.0, 3600.0
#: The steps: each is sent to all parts before the next is sent to any, with the seconds in which they answer.
Steps = Sequence[tuple[Mapping[str, str], float]]
ON: Steps = [({"step": step}, STEP_SECONDS) for step in ("hold", "freeze", "go")]
#: A set that did not come about is tried again after so many seconds, where that is sooner than the next.
AGAIN = 60.0


class ParallelCheckpoints:
    """The checkpoints of one schedd's gangs.

    Args:
        settings: say when they are made.
        images: keep them.
    """

    def __init__(self, context: ScheddContext, settings: ClaimSettings, images: StoredCheckpoints) -> None:
        self._context = context
        self._settings = settings
        self._images = images

    # -- when ---------------------------------------------------------------------------------------------

    def schedule(self, gang: RunningGang) -> None:
        """All parts run."""
        if wish_of(gang.job.ad()) in (CheckpointWish.AUTO, CheckpointWish.REQUIRED):
            gang.clock = self._context.spawn(self._periodically(gang), "sets", alone=True)

    def ends(self, gang: RunningGang, why: str) -> None:
        """Fewer parts run than did."""
        if gang.set is not None and gang.set.whole.done():
            return  # it is being kept, and what happens now happens after it
        if gang.set is not None:
            gang.set.fail(why)
        if gang.clock is not None and (gang.root is not None or not gang.claims):
            gang.clock.cancel()

    async def wait_settled(self, gang: RunningGang) -> None:
        """A checkpoint that has come whole is kept when this returns, or never will be."""
        if gang.set is not None:
            await asyncio.wait([gang.set.kept])

    async def _periodically(self, gang: RunningGang) -> None:
        rhythm, saved = rhythm_of(gang.job.ad(), self._settings.rhythm), 0
        interval = rhythm.interval(saved)
        while interval is not None:
            await asyncio.sleep(interval)
            if gang.root is not None or not gang.claims:
                return
            interval = rhythm.interval(saved + 1)
            try:
                await self.save_parts(gang)
                saved += 1
            except PoolError as error:
                self._context.log.warning("no checkpoint", extra={"job": gang.job.id, "why": error.message})
                if error.retry and interval is not None:
                    interval = min(interval, AGAIN)

    def part_leaves(self, claim: HeldClaim, reason: Any) -> None:
        """A part has to leave its machine, and waits for the last set as long as it may; told again and again.

        Args:
            reason: {why, reason}: in words, and of which kind.
        """
        gang = claim.gang
        texts = isinstance(reason, dict) and all(isinstance(reason.get(key), str) for key in ("why", "reason"))
        if gang is None or not texts or (gang.last is not None and not gang.last.done()):
            return
        gang.last = self._context.spawn(self._last(gang, claim, reason), "last set", alone=True)

    async def _last(self, gang: RunningGang, leaver: HeldClaim, reason: dict[str, str]) -> None:
        async with gang.saving:
            if gang.saved or not self._runs(gang):
                return
            leave = {"step": "leave", "why": reason["why"], "reason": reason["reason"]}
            try:
                await self._save_parts(gang, [(leave, STEP_SECONDS), ({"step": "freeze"}, TRANSFER_SECONDS)])
            except PoolError as error:
                self._context.log.warning("no last checkpoint", extra={"job": gang.job.id, "why": error.message})
            else:
                gang.saved, gang.failed_on = True, leaver.slot

    # -- how ----------------------------------------------------------------------------------------------

    @staticmethod
    def _runs(gang: RunningGang) -> bool:
        """Whether all parts that have not ended run."""
        return gang.root is None and gang.met is not None and gang.met.done()

    async def save_parts(self, gang: RunningGang) -> None:
        """Save all parts, and have that kept.

        Raises:
            PoolError: there is no checkpoint this time, and the job is as it was.
        """
        if gang.saving.locked() or not self._runs(gang):
            name = f"{gang.job.id[0]}.{gang.job.id[1]}"
            raise PoolError(f"job {name} cannot be checkpointed: it starts, ends, or is being saved", retry=True)
        async with gang.saving:
            await self._save_parts(gang, ON)

    async def _save_parts(self, gang: RunningGang, steps: Steps) -> None:
        """Take all parts through the steps, and keep what comes of it.

        Raises:
            PoolError: there is no such checkpoint.
        """
        job, context, loop = gang.job, self._context, asyncio.get_running_loop()
        name = f"{job.id[0]}.{job.id[1]}"
        made = gang.set = CheckpointSet(
            context.outside.secret(8),
            frozenset(gang.claims),
            dict(gang.reports),
            loop.create_future(),
            loop.create_future(),
        )
        claims = list(gang.claims.values())
        try:
            for step, seconds in steps:
                await self._step_all(made, claims, step, seconds)
                if made.kept.done():  # it has failed meanwhile
                    made.kept.result()
            async with asyncio.timeout(TRANSFER_SECONDS):
                await made.whole
            manifest = await self._images.store_set(job, made.images, made.ends)
            context.log.info("all parts are saved", extra={"job": job.id, "checkpoint": manifest.generation})
            made.kept.set_result(manifest)
        except TimeoutError as error:
            raise PoolError(f"job {name} was not checkpointed: its parts did not follow in time", retry=True) from error
        finally:
            gang.set = None
            if not made.kept.done():
                made.fail("one of its parts could not be saved")
                await asyncio.gather(
                    *(self._step_part(made, claim, *ON[-1]) for claim in claims), return_exceptions=True
                )

    async def _step_all(
        self, made: CheckpointSet, claims: list[HeldClaim], step: Mapping[str, str], seconds: float
    ) -> None:
        """Take all parts through one step."""
        asked = (self._step_part(made, claim, step, seconds) for claim in claims)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _step_part(self, made: CheckpointSet, claim: HeldClaim, step: Mapping[str, str], seconds: float) -> None:
        params = {"claim": claim.id, "run": claim.run, "set": made.number, **step}
        try:
            await self._context.calls.call_startd(claim, "startd.checkpoint_part", params, seconds)
        except RemoteError as error:
            raise PoolError(error.message, retry=error.retry) from error
        except TROUBLE as error:
            raise PoolError(f"the machine of {claim.slot} did not answer: {error}", retry=True) from error

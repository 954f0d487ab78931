"""Claims a matched slot with its startd (RL 3.2.2): a match is a hint, and the startd may refuse.

A slot that another job has to leave (D5) is waited for, no longer than CLAIM_PATIENCE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pool.classad import ClassAd
from pool.jobs.privacy import public
from pool.policy.charges import charge
from pool.policy.queue import QueuedJob, Wire
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim, patience
from pool.roles.schedd.core.context import ScheddContext
from pool.wire import Connection, RemoteError

#: A startd answers within this many seconds whether a free slot is ours.
CLAIM_SECONDS = 30.0


class Claiming:
    """Makes the claims of one schedd.

    Args:
        watch: called with each new claim and the connection to its startd.
        changed: called when an owner's numbers changed; with True when there is new work that needs a slot.
    """

    def __init__(
        self,
        context: ScheddContext,
        settings: ClaimSettings,
        *,
        watch: Callable[[HeldClaim, Connection], None],
        changed: Callable[[str, bool], None],
    ) -> None:
        self._context = context
        self._settings = settings
        self._watch = watch
        self._changed = changed

    async def obtain(
        self, match: dict[str, Any], owner: str, job: QueuedJob, count: int, wanted: Wire | None = None
    ) -> list[HeldClaim]:
        """Claim a slot that was matched to a job; the claims that were made, none if the startd refused.

        Args:
            wanted: the ad that was asked for, where that is not the job's own.
        """
        return await self.obtain_for(match, owner, wanted if wanted is not None else job.wire(), count)

    async def obtain_for(self, match: dict[str, Any], owner: str, wanted: Wire, count: int = 1) -> list[HeldClaim]:
        """Claim a slot that was matched to a request; as `obtain`.

        Args:
            wanted: the ad that was asked for.
        """
        context, settings = self._context, self._settings
        address = str(match["startd"])
        preempts = bool(match.get("preempt"))
        lease = settings.lease_of(wanted.get("JobLeaseDuration"))
        granted = charge(ClassAd.from_wire(wanted))
        try:
            link = await context.links.connect(address)
            answer = await link.call(
                "startd.preempt" if preempts else "startd.claim",
                {
                    "slot": match["slot"],
                    "claim": match["claim"],
                    "schedd": context.name,
                    "submitter": match["submitter"],
                    "owner": owner,
                    "lease": lease,
                    "ad": public(wanted),
                    "count": count,
                },
                timeout=settings.patience if preempts else CLAIM_SECONDS,
            )
        except (*TROUBLE, RemoteError) as error:
            context.log.info("a slot was not to be claimed", extra={"slot": match["slot"], "why": str(error)})
            self._changed(owner, True)
            return []
        now = asyncio.get_running_loop().time()
        fresh = [
            HeldClaim(
                str(item["claim"]),
                str(item["slot"]),
                ClassAd.from_wire(item["ad"]),
                address,
                owner,
                granted,
                lease,
                now,
                now + patience(lease),
            )
            for item in answer["claims"]
            if str(item["claim"]) not in context.claims  # no slot is ours twice
        ]
        for claim in fresh:
            claim.learn_loan(context.outside.wall())
            context.claims.add(claim)
            self._watch(claim, link)
        if answer.get("refused"):
            context.log.info("a startd refused", extra={"slot": match["slot"], "why": answer["refused"]})
            self._changed(owner, True)
        return fresh

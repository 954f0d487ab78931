"""Claims without a job: kept for a moment for the owner's next job, then given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pool.policy.queue import IDLE
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext


class IdleClaims:
    """The idle claims of one schedd.

    Args:
        is_spent: whether no other job follows on a claim.
        use: starts the next job on a claim.
    """

    def __init__(
        self,
        context: ScheddContext,
        settings: ClaimSettings,
        *,
        is_spent: Callable[[HeldClaim], bool],
        use: Callable[[HeldClaim], Coroutine[Any, Any, None]],
    ) -> None:
        self._context = context
        self._settings = settings
        self._is_spent = is_spent
        self._use = use
        self._of_owner: dict[str, list[HeldClaim]] = {}
        context.claims.when_dropped(self._forget)

    def retain(self, claim: HeldClaim) -> None:
        """Keep a claim that has no job; give it back when nothing came for it."""
        if claim.id not in self._context.claims or claim.job is not None:
            return
        loop = asyncio.get_running_loop()
        spent = claim.lost or self._is_spent(claim)
        self._of_owner.setdefault(claim.owner, []).append(claim)
        if claim.idle_until is None:
            keep = claim.keep if claim.left_by is None else 0.0
            claim.idle_until = loop.time() + max(self._settings.linger, keep)
        claim.idle_timer = loop.call_at(0.0 if spent else claim.idle_until, self._return_claim, claim)

    def use_for(self, owner: str) -> None:
        """An owner has idle jobs: start them on the idle claims."""
        waiting = self._of_owner.get(owner)
        while waiting and self._context.queue.count(owner, IDLE):
            claim = waiting.pop()
            if claim.idle_timer is not None:
                claim.idle_timer.cancel()
                claim.idle_timer = None
            if claim.id in self._context.claims and claim.job is None:
                self._context.spawn(self._use(claim), "use")

    def _return_claim(self, claim: HeldClaim) -> None:
        if claim.job is not None or claim.id not in self._context.claims:
            return
        waiting = self._of_owner.get(claim.owner)
        if waiting and claim in waiting:
            waiting.remove(claim)
        left_by, claim.left_by = claim.left_by, None
        if left_by is not None and left_by.status == IDLE and not self._is_spent(claim):
            self._context.spawn(self._use(claim), "use")  # no other machine was free for it meanwhile
            return
        self._context.return_claim(claim)

    def _forget(self, claim: HeldClaim) -> None:
        waiting = self._of_owner.get(claim.owner)
        if waiting and claim in waiting:
            waiting.remove(claim)
        if claim.idle_timer is not None:
            claim.idle_timer.cancel()
            claim.idle_timer = None

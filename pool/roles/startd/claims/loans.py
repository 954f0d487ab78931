"""Loans of this machine between its dedicated schedulers (WR 6.4).

A scheduler that releases a claim may say for how long it will not need the slot. That is a promise to those below it in
`DEDICATED_SCHEDULER`, and the machine keeps it, so that no scheduler has to believe another:

    who lends       the scheduler that had the claim, by its node's certificate, and only to those below it
    the lender      does not take the slot back before the time from a job that cannot be saved
    the borrower    loses its claim when the time has come: its job is saved if that is possible, and leaves
    a restart       the loans are in the node's state, by wall time; while the node runs its own steady clock counts

A scheduler that claims the slot itself has ended its loan.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from pool.jobs.reasons import Evict, Reason
from pool.policy.managed import LENT_FOR, LONGEST_LOAN, is_dedicated, is_upper, managers_of
from pool.roles.base import Spawn
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.records import Slot, SlotClaim, SlotLoan, Wire
from pool.roles.startd.slots.table import SlotTable


class SlotLoans:
    """The loans of one machine.

    Args:
        directory: of the node's state; None keeps nothing through a restart.
        evict: ends the claim on a slot: (slot, softly, reason).
        wall: the wall clock.
    """

    def __init__(
        self,
        table: SlotTable,
        ads: SlotAds,
        evict: Callable[[Slot, bool, Reason], Coroutine[Any, Any, None]],
        directory: Path | None,
        wall: Callable[[], float],
        spawn: Spawn,
        log: logging.Logger,
    ) -> None:
        self._table = table
        self._ads = ads
        self._evict = evict
        self._kept = Path(directory) / "loans" if directory is not None else None
        self._wall = wall
        self._spawn = spawn
        self._log = log
        self._timer: asyncio.TimerHandle | None = None

    def load(self) -> None:
        """Take in the loans of an earlier run of this node."""
        if self._kept is None or not self._kept.exists():
            return
        try:
            kept = json.loads(self._kept.read_text(encoding="utf-8"))
            read = {str(slot): {str(name): float(at) for name, at in own.items()} for slot, own in kept.items()}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            self._log.error("the loans of this machine could not be read", extra={"error": str(error)})
            return
        for name, loans in read.items():
            slot = self._table.slot_of(name)
            for lender, until in loans.items() if slot is not None else ():
                seconds = until - self._wall()
                if slot is not None and 0 < seconds <= LONGEST_LOAN:
                    self._enter(slot, lender, seconds)

    def lend(self, slot: Slot, seconds: float | None) -> None:
        """The scheduler that has a slot claimed gives it back, and will not need it for so many seconds.

        Args:
            seconds: None for "until it calls the slot back".
        """
        claim, base = slot.claim, base_of(slot)
        if claim is None or not is_dedicated(claim.submitter):
            return
        base.loans.pop(claim.submitter, None)
        promises = seconds is not None and math.isfinite(seconds) and seconds > 0
        if seconds is not None and promises and is_upper(claim.submitter, managers_of(self._ads.wire_of(slot))):
            self._enter(base, claim.submitter, min(seconds, LONGEST_LOAN))
            self._log.info("lent", extra={"slot": base.name, "by": claim.submitter, "seconds": round(seconds)})
        self._write()

    def _enter(self, base: Slot, lender: str, seconds: float) -> None:
        base.loans[lender] = SlotLoan(asyncio.get_running_loop().time() + seconds, self._wall() + seconds)
        self._wait()

    def _wait(self) -> None:
        """Wait for the first loan that will be over: one timer, whatever schedulers claim and release."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ends = [loan.until for slot in self._table.slots.values() for loan in slot.loans.values()]
        ends += [loan.until for slot in self._lent() if slot.claim for loan in slot.claim.loans.values()]
        if ends:
            self._timer = asyncio.get_running_loop().call_at(min(ends), self._end_expired)

    def _lent(self) -> list[Slot]:
        """The slots whose borrower has not been asked to leave yet."""
        claims = self._table.claims.values()
        return [slot for slot in claims if slot.claim and slot.claim.loans and not slot.claim.over]

    def _end_expired(self) -> None:
        """End what is over."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for slot in list(self._table.slots.values()):
            over = [name for name, loan in slot.loans.items() if loan.until <= now]
            for name in over:
                del slot.loans[name]
            if over:
                self._ads.touch(slot, now=True)
                self._write()
        for slot in self._lent():
            claim = slot.claim
            first = next((name for name, loan in claim.loans.items() if loan.until <= now), "") if claim else ""
            if claim is not None and first:
                claim.loans = {}
                self._end(slot, claim, first)
        self._wait()

    def claimed(self, slot: Slot) -> None:
        """A slot was claimed: its claim has the loans of the schedulers above the claimant, and ends with the first."""
        claim, base = slot.claim, base_of(slot)
        if claim is None or not base.loans or not is_dedicated(claim.submitter):
            return
        if base.loans.pop(claim.submitter, None) is not None:
            self._write()
        managers = managers_of(self._ads.wire_of(slot))
        if claim.submitter in managers:
            upper = managers[: managers.index(claim.submitter)]
            claim.loans = {name: loan for name, loan in base.loans.items() if name in upper}
        self._wait()

    def _end(self, slot: Slot, claim: SlotClaim, lender: str) -> None:
        """A loan is over, and its borrower still has the slot."""
        self._log.info("a loan is over", extra={"slot": slot.name, "by": lender, "to": claim.submitter})
        reason = Reason(Evict.VACATED, f"the loan of the machine by {lender} is over")
        self._spawn(self._evict(slot, True, reason), "loan", alone=True)

    def refusal(self, slot: Slot, submitter: str) -> str | None:
        """Why a scheduler may not have a claimed slot yet: it has lent it. None where it may."""
        claim = slot.claim
        loan = claim.loans.get(submitter) if claim is not None else None
        left = loan.until - asyncio.get_running_loop().time() if loan is not None else 0.0
        if claim is None or left <= 0 or claim.running is None or claim.running.saving.resumable:
            return None
        return (
            f"slot {slot.name} is lent by {submitter} for {left:.0f} more seconds, and the job of {claim.submitter} "
            "there cannot be saved"
        )

    def claimed_ad(self, slot: Slot, ad: Wire) -> Wire:
        """The ad of a claimed slot as its schedd gets it: with for how long it is lent."""
        loans = slot.claim.loans if slot.claim is not None else {}
        if not loans:
            return ad
        left = min(loan.until for loan in loans.values()) - asyncio.get_running_loop().time()
        return {**ad, LENT_FOR: max(0.0, left)}

    def _write(self) -> None:
        if self._kept is None:
            return
        kept = {
            slot.name: {name: loan.wall for name, loan in slot.loans.items()}
            for slot in self._table.slots.values()
            if slot.loans
        }
        try:
            if kept:
                self._kept.parent.mkdir(parents=True, exist_ok=True)
                fresh = self._kept.with_suffix(".new")
                fresh.write_text(json.dumps(kept), encoding="utf-8")
                fresh.replace(self._kept)
            else:
                self._kept.unlink(missing_ok=True)
        except OSError as error:
            self._log.error("the loans of this machine are lost at a restart", extra={"error": str(error)})


def base_of(slot: Slot) -> Slot:
    """The slot that is lent: of a dynamic slot, which ends with its claim, the one that it was carved from."""
    return slot.parent if slot.kind == "dynamic" and slot.parent is not None else slot

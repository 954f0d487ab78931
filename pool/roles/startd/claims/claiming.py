"""From a match to a claim, on the machine's side: grants, their secret, and the check at claim time (RL 3.2.2).

A grant says who may claim a slot, how often, and until when. A schedd that comes with it and the slot's secret gets the
slot if machine and job accept each other now; a partitionable slot is carved. `preempting` handles taken slots.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from pool.classad import ClassAd, requirements_accept
from pool.config import Settings
from pool.outside import OutsideWorld
from pool.policy import carve
from pool.policy.slots import MATCHED, UNCLAIMED, SlotEvent
from pool.roles.startd.owner.facts import MachineFacts
from pool.roles.startd.owner.offers import SlotOffers
from pool.roles.startd.slots import dedicated
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.records import MatchGrant, Slot, SlotClaim, SlotRefused, Wire, secrets_equal
from pool.roles.startd.slots.table import SlotTable
from pool.wire import Call
from pool.wire.connection import Connection

#: Grounds on which a slot is taken from its job (`pool.policy.negotiation.plain.Preempts`).
GROUNDS = ("urgent", "rank", "guest", "priority")
#: A match that is not claimed within this many seconds lapses.
MATCH_LIFE = 30.0
#: Seconds that a reading of the machine's state may be old at a claim: one reading serves all claims of a moment.
AT_A_CLAIM = 0.1


class LeaseStarts(Protocol):
    """The leases of claims (`pool.roles.startd.claims.leases`)."""

    def watch(self, link: Connection) -> None: ...

    def claim_made(self, claim: SlotClaim) -> None: ...


class ClaimLoans(Protocol):
    """Loans between dedicated schedulers (`pool.roles.startd.claims.loans`)."""

    def claimed(self, slot: Slot) -> None: ...

    def claimed_ad(self, slot: Slot, ad: Wire) -> Wire: ...


class ClaimGrants:
    """The grants of one startd, and the claims that are made with them.

    Args:
        claimed_ad: the ad of a claimed slot as its schedd gets it, from the one that the collector has.
        settings: those in force.
        node: this node's name.
    """

    def __init__(
        self,
        table: SlotTable,
        ads: SlotAds,
        machine: MachineFacts,
        offers: SlotOffers,
        leases: LeaseStarts,
        loans: ClaimLoans,
        claimed_ad: Callable[[Slot, Wire], Wire],
        settings: Callable[[], Settings],
        outside: OutsideWorld,
        node: str,
        log: logging.Logger,
    ) -> None:
        self._table = table
        self._ads = ads
        self._machine = machine
        self._offers = offers
        self._leases = leases
        self._loans = loans
        self._claimed_ad = claimed_ad
        self._settings = settings
        self._outside = outside
        self._node = node
        self._log = log

    # -- grants ------------------------------------------------------------------------------------------

    def matched(self, grants: list[Wire]) -> list[int]:
        """Take in the negotiator's matches; returns the positions of those that are good."""
        loop = asyncio.get_running_loop()
        accepted: list[int] = []
        for place, given in enumerate(grants):
            slot = self._table.slot_of(str(given["slot"]))
            if slot is None or not secrets_equal(slot.key, given.get("claim")):
                continue
            preempts = _preempts(given)
            leaving = self._leaving(slot, given) if preempts == "guest" and "leaving" in given else ()
            if leaving is None:
                continue
            if slot.claim is None and not leaving:
                if slot.condition not in (UNCLAIMED, MATCHED):
                    continue
                preempts = ""
            elif slot.claim is not None and (not preempts or not slot.grantable):
                continue
            count = 1 if preempts else int(given["count"])
            expires = loop.time() + MATCH_LIFE
            grant = MatchGrant(str(given["submitter"]), str(given["node"]), count, expires, preempts, leaving)
            for one in (slot, *leaving):
                one.grants.append(grant)
                loop.call_later(MATCH_LIFE, self._lapse, one)
                self._ads.touch(one)
            if slot.kind != "partitionable" and slot.condition == UNCLAIMED:
                self._table.apply_event(slot, SlotEvent.MATCH)
            accepted.append(place)
        return accepted

    def _leaving(self, slot: Slot, given: Wire) -> tuple[Slot, ...] | None:
        """The parts of a partitionable slot that guests leave for a grant, without those that are free already; None if
        one of them was granted to somebody else, or none is left."""
        said, found = given["leaving"], list[Slot]()
        if not isinstance(said, list) or not slot.is_offered:
            return None
        for one in said:
            part = self._table.slot_of(str(one.get("slot"))) if isinstance(one, dict) else None
            if part is None:
                continue
            if part.parent is not slot or not secrets_equal(part.key, one.get("claim")) or not part.grantable:
                return None
            found.append(part)
        return tuple(found) or None

    def _lapse(self, slot: Slot) -> None:
        if not self._table.has(slot):
            return
        now = asyncio.get_running_loop().time()
        before = len(slot.grants)
        slot.grants = [grant for grant in slot.grants if grant.expires > now and grant.count > 0]
        if before and not slot.grants:
            self._offers.new_key(slot)

    def grant_of(self, call: Call, params: Wire) -> tuple[Slot, MatchGrant]:
        """The slot that a claim is made on and the grant that allows it.

        Raises:
            SlotRefused: there is none, or not with this secret, or not for this caller.
        """
        slot = self._table.slot_of(str(params["slot"]))
        if slot is None or not secrets_equal(slot.key, params.get("claim")):
            raise SlotRefused(f"slot {params['slot']}: this match is not valid any more", retry=True)
        node, submitter = call.identity.node, params.get("submitter")
        for grant in slot.grants:
            if grant.submitter == submitter and grant.node == node and grant.count > 0:
                dedicated.check_manages(self._ads.wire_of(slot), grant.submitter, node)
                return slot, grant
        self._log.warning("a claim without a grant", extra={"slot": slot.name, "from": node})
        raise SlotRefused(f"slot {slot.name} was not matched to {submitter} of {node}")

    # -- claims ------------------------------------------------------------------------------------------

    def claim(self, call: Call, params: Wire) -> Wire:
        """`startd.claim`."""
        slot, grant = self.grant_of(call, params)
        if slot.claim is not None:
            raise SlotRefused(f"slot {slot.name} is taken", retry=True)
        params = dedicated.request_of(params, grant.submitter)
        job = ClassAd.from_wire(params["ad"])
        self._machine.freshen(AT_A_CLAIM)  # as it is now, and not when it was looked at last
        made: list[Slot] = []
        refused: str | None = None
        for _ in range(min(int(params.get("count") or 1), grant.count)):
            taken = self._select_slot(slot, job)
            if isinstance(taken, str):
                refused = taken
                break
            made.append(taken)
            self.grant_slot(taken, call, grant.submitter, params)
        grant.count -= len(made)
        if refused or not grant.count:
            slot.grants.remove(grant)
        if slot.kind == "partitionable" and not slot.grants:
            self._offers.new_key(slot)
        elif not made:
            self._offers.back_to_owner(slot)
        for one in made:
            self._ads.touch(one)
        return self.answer(made, refused)

    def claim_now(self, slot: Slot, job: ClassAd, call: Call, submitter: str, params: Wire) -> Wire:
        """Claim a slot whose grant has been used, or a part of it, as it is now.

        Raises:
            SlotRefused: machine and job do not accept each other any more.
        """
        taken = self._select_slot(slot, job)
        if isinstance(taken, str):
            raise SlotRefused(taken, retry=True)
        self.grant_slot(taken, call, submitter, params)
        self._ads.touch(taken, now=True)
        return self.answer([taken])

    def claimed_ad(self, slot: Slot) -> Wire:
        """The ad of a claimed slot as its schedd gets it."""
        return self._loans.claimed_ad(slot, self._claimed_ad(slot, self._ads.wire_of(slot)))

    def answer(self, made: list[Slot], refused: str | None = None) -> Wire:
        """The answer to a claimant."""
        return {
            "claims": [
                {"claim": one.claim.id, "slot": f"{one.name}@{self._node}", "ad": self.claimed_ad(one)}
                for one in made
                if one.claim is not None
            ],
            "refused": refused,
        }

    def why_not(self, slot: Slot, job: ClassAd) -> str | None:
        """Why machine and job do not accept each other now, None if they do."""
        ad = ClassAd.from_wire(self._ads.wire_of(slot))
        now = self._outside.wall()
        if not requirements_accept(ad, job, now):
            return f"slot {slot.name} does not accept the job"
        if not requirements_accept(job, ad, now):
            return f"the job does not accept slot {slot.name}"
        if slot.kind == "static":
            return None
        carved = carve.carve(slot.resources, carve.demand(ad, job))
        return carved.text if isinstance(carved, carve.CarveRefusal) else None

    def _select_slot(self, slot: Slot, job: ClassAd) -> Slot | str:
        """The slot to claim for a job (a fresh dynamic one of a partitionable slot), or why not."""
        if slot.condition not in (UNCLAIMED, MATCHED):
            return f"slot {slot.name} is in state {slot.condition.state}"
        refused = self.why_not(slot, job)
        if refused is not None:
            return refused
        return self._carved(slot, job) if slot.kind == "partitionable" else slot

    def _carved(self, slot: Slot, job: ClassAd) -> Slot | str:
        carved = carve.carve(slot.resources, carve.demand(ClassAd.from_wire(self._ads.wire_of(slot)), job))
        if isinstance(carved, carve.CarveRefusal):
            return carved.text
        number = next(n for n in range(1, 10**6) if f"{slot.name}_{n}" not in self._table.slots)
        count, wall = int(carved[0].get("GPUs", 0)), self._outside.wall()
        gpus = carve.suitable(self._machine.wire, slot.gpus, count, job, wall)
        dynamic = slot.split(f"{slot.name}_{number}", *carved, wall, gpus)
        self._table.add(dynamic)
        return dynamic

    def grant_slot(self, slot: Slot, call: Call, submitter: str, params: Wire) -> None:
        """Put a slot into a schedd's hands."""
        outside, now = self._outside, asyncio.get_running_loop().time()
        slot.claim = SlotClaim(
            id=f"{slot.name}@{self._node}#{outside.secret(16)}",
            owner=dedicated.owner_of(submitter, params["ad"]),
            submitter=submitter,
            node=call.identity.node,
            lease=min(max(float(params["lease"]), 1.0), self._settings().number("CLAIM_LEASE_MAX")),
            asked=now,
            born=now,
            since=outside.wall(),
            link=call.connection,
            ad_wire=params["ad"],
        )
        self._table.claims[slot.claim.id] = slot
        self._leases.watch(call.connection)
        self._leases.claim_made(slot.claim)
        self._loans.claimed(slot)
        slot.key = outside.secret(16)
        self._table.apply_event(slot, SlotEvent.CLAIM)


def _preempts(grant: Wire) -> str:
    """On what ground a grant preempts: one of `GROUNDS`, or `unsaid`; empty where it does not.

    Told as `preempt`, which is true or the ground itself, and `why`.
    """
    said = grant.get("preempt")
    if not said:
        return ""
    return next((ground for ground in (grant.get("why"), said) if ground in GROUNDS), "unsaid")

"""The owner's policy applied to slots: what it asks of a slot now, and what it says of jobs and requests."""

from __future__ import annotations

from collections.abc import Callable

from pool.classad import ClassAd
from pool.policy.owner import OwnerVerdict, is_decided, judge, judge_replaced, wants_checkpoint, weight
from pool.policy.why.findings import Finding
from pool.policy.why.machine import owners_view
from pool.roles.startd.owner.facts import MachineFacts
from pool.roles.startd.owner.policy import PolicyInForce
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.records import Slot, SlotClaim, Wire


class OwnerJudge:
    """Applies one machine's policy to its slots."""

    def __init__(self, policy: PolicyInForce, machine: MachineFacts, ads: SlotAds, wall: Callable[[], float]) -> None:
        self._policy = policy
        self._machine = machine
        self._ads = ads
        self._wall = wall

    def verdict(self, slot: Slot) -> OwnerVerdict:
        """The verdict of the policy on a slot now."""
        policy, claim = self._policy, slot.claim
        if claim is not None and claim.running is not None and claim.running.ended:
            return OwnerVerdict(None)  # nothing of the job is left but its report
        if claim is None and slot.guest is not None:
            return OwnerVerdict(None)  # an urgent job has it
        if self.is_settled(slot):
            return OwnerVerdict(None)
        ad = self._ads.ad_of(slot)
        job = claim.ad if claim is not None else None
        verdict = judge(policy.policy, ad, job, slot.condition, self._wall())
        self._record_faults(slot, verdict)
        if not policy.weighs_cpus:
            self._record_faults(slot, weight(policy.policy, ad, self._wall())[1])
        return verdict

    def is_settled(self, slot: Slot) -> bool:
        """Whether no evaluation can ask anything of a slot in its present state."""
        return self._policy.weighs_cpus and is_decided(self._policy.policy, slot.condition)

    def verdict_if_replaced(self, slot: Slot, claim: SlotClaim) -> OwnerVerdict:
        """The verdict of the policy on a slot whose job has to make room for another."""
        ad = ClassAd.from_wire(self._ads.wire_of(slot))
        return judge_replaced(self._policy.policy, ad, claim.ad, self._wall())

    def preference(self, slot: Slot, ad: Wire, job: ClassAd) -> float:
        """How much the machine likes a job."""
        value, changed = self._policy.preference(slot, ad, job)
        if changed:
            self._ads.touch(slot)
        return value

    def wants_checkpoint(self, slot: Slot) -> bool:
        """Whether the job in a slot may have a last checkpoint made before it leaves."""
        policy = self._policy.policy
        if policy.expressions["WANT_CHECKPOINT"].value is True or slot.claim is None:
            return True
        found, verdict = wants_checkpoint(policy, self._ads.ad_of(slot), slot.claim.ad, self._wall())
        self._record_faults(slot, verdict)
        return found

    def says_urgent(self, ad: ClassAd, job: ClassAd) -> object:
        """The value of START_URGENT for a job on a slot with this ad."""
        return self._policy.policy.value("START_URGENT", ad, job, self._wall())

    def view(self, slot: Slot) -> list[Finding]:
        """The policy's clauses for a slot with this moment's facts, to explain why it takes no job (D8)."""
        ad = ClassAd.from_wire({**self._ads.wire_of(slot), **self._machine.now(), **slot.resources})
        job = slot.claim.ad if slot.claim is not None else None
        return owners_view(self._policy.policy, ad, job, slot.condition, self._wall())

    def _record_faults(self, slot: Slot, verdict: OwnerVerdict) -> None:
        if self._policy.note_faults(slot, verdict):
            self._ads.touch(slot)

"""Small pools to negotiate over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pool.classad import ClassAd
from pool.policy.matching import Pair, SlotIndex
from pool.policy.negotiation import EqualTurns, NegotiationTerms, Outcome, ResourceRequest, SubmitterTurns, cycle
from pool.policy.negotiation.capacity import Capacity
from pool.policy.negotiation.preemption import Preemption

NOW = 1_700_000_000.0
Slot = tuple[str, ClassAd]


def slot(name: str, *, cpus: int = 1, memory: int = 1000, partitionable: bool = False, **ad: object) -> Slot:
    """A slot that takes any job that fits; expressions are given as one-element lists."""
    wire = {
        "Requirements": ["TARGET.RequestCpus <= MY.Cpus"],
        "State": "Unclaimed",
        "Activity": "Idle",
        "Cpus": cpus,
        "Memory": memory,
        "Disk": 10**6,
        "Rank": 0.0,
        **ad,
    }
    if partitionable:
        wire["PartitionableSlot"] = True
    return name, ClassAd.from_wire(wire)


def claimed(name: str, user: str, *, since: float = NOW - 7200, rank: object = 0.0, **ad: object) -> Slot:
    """A slot in somebody's hands."""
    wire: dict[str, object] = {
        "State": "Claimed",
        "Activity": "Busy",
        "RemoteUser": user,
        "CurrentRank": rank,
        "JobStart": int(since),
        "EnteredCurrentActivity": int(since),
        "EnteredCurrentState": int(since),
    }
    return slot(name, **(wire | ad))  # type: ignore[arg-type]


def request(number: int, count: int = 1, oldest: float = 0.0, *, moving: bool = False, **ad: object) -> ResourceRequest:
    """A request that fits everywhere."""
    wire = {
        "Requirements": ["TARGET.Memory >= RequestMemory"],
        "RequestCpus": 1,
        "RequestMemory": 10,
        "RequestDisk": 1,
        "Rank": 0.0,
        **ad,
    }
    return ResourceRequest(number, ClassAd.from_wire(wire), count, oldest, moving)


def picture_of(slots: Sequence[Slot]) -> SlotIndex:
    picture = SlotIndex()
    for name, ad in slots:
        picture.set_ad(name, ad)
    return picture


def negotiate(
    requests: Mapping[str, Sequence[ResourceRequest]],
    slots: Sequence[Slot] | SlotIndex,
    held: Mapping[str, float] | None = None,
    terms: NegotiationTerms | None = None,
    turns: SubmitterTurns | None = None,
) -> Outcome:
    """One cycle, with equal turns unless others are given."""
    if turns is None:
        weights = {name: (held or {}).get(name, 0.0) for name in requests}
        turns = EqualTurns(weights, {name: min(one.oldest for one in own) for name, own in requests.items() if own})
    picture = slots if isinstance(slots, SlotIndex) else picture_of(slots)
    return cycle(picture, requests, turns, terms or NegotiationTerms(), NOW)


def kept_of(
    submitter: str, wanted: ResourceRequest, slots: Sequence[Slot], terms: NegotiationTerms | None = None
) -> dict[str, list[str]]:
    """Names of claimed slots by what keeps them from the request."""
    picture = picture_of(slots)
    preemption = Preemption(picture, Capacity(picture, NOW), terms or NegotiationTerms(), NOW)
    found = preemption.why_kept(submitter, Pair(wanted.ad, NOW), picture.alive)
    return {kept.name: picture.names(bits) for kept, bits in found.items()}

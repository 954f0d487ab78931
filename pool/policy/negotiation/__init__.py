"""The negotiation cycle (EV 3.5, RL 3.2.2 and 4.3): who gets which machine.

    cycle(picture, requests, turns, terms, now)   one cycle, a pure function; Outcome
    Request, Match, Rejection, Why                what goes in and comes out
    Turns, EqualTurns                             the order of submitters
    Terms                                         the administrator's expressions, limits, priorities

The machines are a `pool.policy.matching.SlotIndex`, kept from cycle to cycle.
"""

from __future__ import annotations

from pool.policy.negotiation.cycle import cycle
from pool.policy.negotiation.plain import Match, Outcome, Preempts, Rejection, ResourceRequest, UnmatchedReason
from pool.policy.negotiation.terms import NegotiationTerms
from pool.policy.negotiation.turns import EqualTurns, SubmitterTurns

__all__ = [
    "EqualTurns",
    "Match",
    "Outcome",
    "Preempts",
    "Rejection",
    "ResourceRequest",
    "NegotiationTerms",
    "SubmitterTurns",
    "UnmatchedReason",
    "cycle",
]

"""Matching by what can matter: requests and machines in groups, each question asked once for each group.

    SlotIndex                  all slots: put, drop; matches, holds, values, refusals
    split(requirements)      the clauses of an expression; Clause
    bits                     sets of slots as integers

The answers are those of `pool.classad.symmetric_match` for every pair; see `clauses` for the bounds.
"""

from __future__ import annotations

from pool.policy.matching.bits import Bits, bits_of, members
from pool.policy.matching.clauses import Clause, split
from pool.policy.matching.pairs import Pair
from pool.policy.matching.slot_index import SlotIndex

__all__ = ["Bits", "Clause", "Pair", "SlotIndex", "bits_of", "members", "split"]

"""The negotiator: matches submitters' requests with slots, in the order of users' priorities (A6, A7, D5).

    market.py      what the collector says: slots, their keys, submitters
    asking.py      what submitters want: asked of their schedds, once and again when it changed
    holdings.py    who holds what, from the slots' ads
    accounting.py  what that does to priorities; kept over a restart
    telling.py     matches on their way: to the startd whom to let in, then to the schedd
    role.py        when a cycle is due, and what is asked of the negotiator itself

What to match is decided in `pool.policy.negotiation`, whose turn it is in `pool.policy.priorities`.
"""

from __future__ import annotations

from pool.roles.negotiator.role import Negotiator

__all__ = ["Negotiator"]

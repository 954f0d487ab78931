"""The negotiator: matches submitters' requests with slots, in the order of users' priorities (A6, A7, D5).

    pool_view.py           slots with their keys, and submitters, as the collector reports them
    request_collection.py  the requests of submitters, asked from their schedds when they may have changed
    usage.py               which submitter holds which slots, from the slots' ads
    accounting.py          what usage does to priorities; kept over a restart
    match_delivery.py      matches on their way: the grant to the startd, then the match to the schedd
    role.py                when a cycle is due, and the methods of the negotiator

`pool.policy.negotiation` decides what to match, `pool.policy.priorities` whose turn it is.
"""

from __future__ import annotations

from pool.roles.negotiator.role import Negotiator

__all__ = ["Negotiator"]

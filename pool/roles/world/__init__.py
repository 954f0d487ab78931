"""The world role: the machines and the jobs of other pools, as this pool's own parts see them (EV 4.3, 5, 8).

    role.py        joins the parts; the methods for administrators
    lending.py     this pool's machines for other pools' jobs: a schedd to our negotiator and startds (EV: W-schedd)
    borrowing.py   other pools' machines for our jobs: a startd to our negotiator and schedds (EV: W-startd)
    offers.py      the machines that one other pool is shown: one by one, or summed up by kind
    credit.py      what pools have lent each other: measured, signed by both, kept
    own_jobs.py    our own jobs as they would run without a flock: they come before a creditor's
    peers.py       the connection to another pool's world, made again as long as there is an agreement
    guest_claims.py the claims of other pools on our machines
    rare_log.py    log lines about other pools, at most one a minute for each message
    relay.py       calls and streams that pass through, in both directions

A job that flocks is run by the schedd of its own pool and by a startd of the other, as if they were in one pool. Every
call between the two passes two world nodes: schedd - borrowing - lending - startd. Each pool's negotiator gives away
its own machines only, and neither pool believes more of the other than the agreement says.
"""

from pool.roles.world.role import World

__all__ = ["World"]

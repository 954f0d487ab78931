"""Flocking (EV 4.3, 8): which machines a pool shows to another, and what jobs and machines look like across the border.

agreements.py   what one pool lets another do; read from a file that an administrator may edit
ledger.py       agreements with credit: entries of use, their signatures, and how both sides come to the same
private.py      one user's jobs in several pools, without an agreement between them
explain.py      another pool with one job's eyes, and what its machines are worth
guests.py       which jobs of other pools leave our machines for our own jobs
gangs.py        which jobs on several machines may have machines of other pools
cards.py        what the parts of such a job hear of each other
idleness.py     for how long machines are likely to stay idle
kinds.py        many idle machines summed up by kind, for another pool
without_flock.py  which of our own jobs would run by now without a flock
payback.py      how many jobs of a creditor come ahead of our own, and until when
value.py        what a machine is worth
shown.py        a machine of another pool as this pool's negotiator sees it; a request of another pool likewise
"""

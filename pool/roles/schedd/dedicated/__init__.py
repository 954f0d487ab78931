"""The dedicated scheduler of one schedd (WR 3): the shell around `pool.policy.dedicated`.

machines.py      the machines that name this scheduler, as the collector tells of them, and the claims on them
gangs.py         the queue's dedicated jobs, and which machines fit them
requests.py      what is asked of the negotiator under the scheduler's own name, and the claims that come of it
lending.py       opportunistic jobs of this queue in holes, and what it takes to get the machines back
reservations.py  machines promised for a time
calls.py         what other parts of the schedd do for it
scheduler.py     when a cycle is due, and acting on what it decided
"""

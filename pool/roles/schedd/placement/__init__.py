"""From an idle job to a running one, and back. Depends on `core`, `checkpoints`, `files` and `parallel`.

    submitters.py   tells the pool how many jobs each user has
    matches.py      requests to the negotiator; a match becomes a claim
    placement.py    claims and the runs on them: start, stop, end
    reconnect.py    startds that cannot be reached; lease_watch.py: the clock over all leases
    rematch.py      moves running jobs to better machines
    successor.py    the next machine for a job that has to leave its own
    deferral.py     jobs that start at a time of their own
    start_pauses.py jobs whose last start failed
    pacing.py       the pause between two starts of a cluster; the allowed time of a run
"""

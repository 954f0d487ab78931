"""The record of the queue and of the claims, and the rules that follow from them. Depends on no other room.

    ledger.py             each change of a job: memory, store, events, in that order
    intake.py             takes in a submit in slices; validation.py: the attributes that a client may set
    claims.py             a claim, and the lease that a job asks for; gang.py: a job on several machines
    job_ends.py           the steps that follow from the end of a run
    submit_side_costs.py  processor time that jobs cost on the submit side
    notes.py              small notes in the store beside the jobs
    queue_walk.py         walks over many jobs in slices
    callers.py            the user that a call acts for
"""

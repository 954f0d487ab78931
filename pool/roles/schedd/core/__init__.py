"""The record of the queue and of the claims, and the rules that follow from them. Depends on no other room.

ledger.py             each change of a job: memory, store, events, in that order
intake.py             takes in a submit in slices; validation.py: the attributes that a client may set
context.py            the means that every room works with
claims.py             a claim, the table of claims, the lease of a job; gang.py: a job on several machines
claim_settings.py     the administrator's settings about claims
startd_calls.py       calls of the startd that a claim is with
job_ends.py           the steps that follow from the end of a run; ended_jobs.py: the work after an end is durable
submit_side_costs.py  processor time that jobs cost on the submit side
notes.py              small notes in the store beside the jobs
queue_walk.py         walks over many jobs in slices
store_upkeep.py       gives the space of removed jobs back to the file system
callers.py            the user that a call acts for
"""

"""Listings and explanations: methods that show jobs and change nothing. Depends on `core`, `checkpoints` and `files`.

job_views.py   the methods
listings.py    queue, history, accounts, events, output; alike.py: jobs that a listing shows alike
following.py   events for a program that follows many jobs
own_work.py    jobs that come and end, for the world
why.py         why a job does not run; inspecting.py: the present state of a running job
"""

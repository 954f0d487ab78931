"""From an idle job to a running one, and back. Depends on `core`, `checkpoints`, `files` and `parallel`.

methods.py       the methods that negotiators and startds call
submitters.py    tells the pool how many jobs each user has
matches.py       requests to the negotiator, and its matches; claiming.py: a match becomes a claim
placement.py     joins the parts: claims and the runs on them, from start to end
starts.py        the next job of a claim, and the start that is sent; idle_claims.py: claims without a job
run_reports.py   reports of startds about running jobs; claim_reports.py: about claims
running_jobs.py  jobs that are stopped or saved now
claim_watch.py   watches over connections and leases; lease_watch.py: the clock over all leases
reconnect.py     startds that cannot be reached
rematch.py       moves running jobs to better machines
successor.py     the next machine for a job that has to leave its own
deferral.py      jobs that start at a time of their own
start_pauses.py  jobs whose last start failed
pacing.py        the pause between two starts of a cluster; the allowed time of a run
"""

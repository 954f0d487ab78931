"""Why a job waits and why a machine rests, as typed findings from what the scheduler knows (D8).

findings   what can be said: `Queued`, `Unmet`, `RefusedFinding`, `Busy`, `TurnFinding`, ...; `to_wire`, `from_wire`
standing   how a job stands, in one word
job        the census of the machines for one job
machine    what a machine's owner wants of it, and the pool's idle jobs against it
words      findings as lines for people
"""

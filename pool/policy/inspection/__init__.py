"""The present activity of a running job as plain data: its processes, what each waits for, and words for people.

`model` is the data, as it crosses the wire; `system_calls` the calls that a process can wait in; `waits` works out for
whom and for what a thread waits; `words` lays it out. `pool.machine.job_processes` reads it from /proc.
"""

from pool.policy.inspection.model import InspectedPart, InspectedProcess, Inspection, OpenFile, Thread, WrongInspection
from pool.policy.inspection.waits import with_waits
from pool.policy.inspection.words import lines

__all__ = [
    "Inspection",
    "OpenFile",
    "InspectedPart",
    "InspectedProcess",
    "Thread",
    "WrongInspection",
    "lines",
    "with_waits",
]

"""Computing on demand (D7): urgent jobs, whose machines let them suspend the job that runs, and what that takes.

A job says `urgent = true`. A machine's owner says with START_URGENT (or by a list of users, VALID_COD_USERS) whose
urgent jobs may do so; by default nobody's. The job that runs is stopped where it is, and goes on there when the urgent
one has ended: nothing of its work is lost. It keeps its claim, and its lease is renewed as ever; time for which it
stands still counts neither as its running time nor in its user's usage.

A stopped job keeps its memory. Where that is too much beside the urgent job, it has to leave instead, with a last
checkpoint where it can have one. It has to leave, too, where both would need the same accelerator, whose memory no stop
frees.
"""

from __future__ import annotations

import math

from pool.classad import ClassAd

#: The job's attribute, and the machine's.
URGENT, START_URGENT = "Urgent", "StartUrgent"
#: The SlotType of a slot on top of another.
SLOT_TYPE = "Urgent"


def is_urgent(job: ClassAd) -> bool:
    """Whether a job asks to suspend others."""
    return job.value(URGENT, None) is True


def requirements(usual: str, start: str) -> str:
    """The demands of a slot on top of another on its jobs.

    Args:
        usual: the Requirements of the machine.
        start: its START_URGENT.
    """
    return f"({usual}) && (TARGET.{URGENT} =?= true) && ({start})"


def must_leave(slot: ClassAd, job: ClassAd, now: float) -> str:
    """Why it is not enough to stop the job in a slot for an urgent one; empty where it is.

    Args:
        slot: the ad of the slot; AvailableMemory (MB) is what the machine could give without taking it from anybody,
            VirtualMemory (KiB) the free swap, where a stopped job's memory may go.
        job: the urgent job's.
    """
    available = _number(slot.value("AvailableMemory", None), math.inf) + _number(slot.value("VirtualMemory", 0)) // 1024
    wanted = _number(job.value("RequestMemory", 0, target=slot, now=now))
    if wanted > available:
        return f"it and {wanted:.0f} MB more do not fit into memory and swap"
    if job.value("RequestGPUs", 0, target=slot, now=now) and slot.value("AssignedGPUs", None):
        return "both use the same GPU"
    return ""


def _number(value: object, otherwise: float = 0.0) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise

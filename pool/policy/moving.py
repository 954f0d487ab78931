"""Running jobs that look for a better machine (RL 4.1): which may, what they ask for, and whether it is worth a move.

A job asks as ever, with `Rank > CurrentRank` added to its Requirements. Four rules keep jobs from moving without end: a
move must bring a gain, there is a pause after each start, the moves of a job are bounded, and no job goes back to a
machine that it left. The job's Rank of its present machine is taken from the machine's ad as it was before the job
came, so that the load it makes itself does not drive it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Wire = dict[str, Any]
#: Machines that a job does not go back to are remembered up to this many.
MOST_LEFT = 32


@dataclass(frozen=True, slots=True)
class MovingTerms:
    """When a job may move.

    Attributes:
        gain: by how much more it must like the other machine.
        pause: seconds that it runs before it looks for another.
        most: moves in its life.
    """

    gain: float = 0.0
    pause: float = 3600.0
    most: int = 3


def prefers(job: Wire) -> bool:
    """Whether a job can like one machine better than another at all."""
    return isinstance(job.get("Rank"), list)


def may_move(terms: MovingTerms, job: Wire, now: float) -> bool:
    """Whether a running job may look for another machine now.

    Args:
        now: wall time, seconds.
    """
    began = job.get("JobCurrentStartDate")
    if not prefers(job) or not isinstance(began, (int, float)):
        return False
    return int(job.get("NumMoves") or 0) < terms.most and now - began >= terms.pause


def request(terms: MovingTerms, job: Wire, present: float) -> Wire:
    """The ad with which a running job looks for a better machine.

    Args:
        present: its Rank of the machine that it is on.
    """
    wanted = job.get("Requirements", True)
    text = wanted[0] if isinstance(wanted, list) else str(wanted).lower()
    clauses = [f"({text})", f"MY.Rank > MY.CurrentRank + {terms.gain!r}"]
    if job.get("MovedFrom"):
        clauses.append("!stringListIMember(TARGET.Machine, MY.MovedFrom)")
    return {**job, "CurrentRank": present, "Requirements": [" && ".join(clauses)]}


def after_move(job: Wire, machine: str, now: float) -> Wire:
    """The attributes of a job's ad after a move away from a machine."""
    left = [name for name in str(job.get("MovedFrom") or "").split(",") if name and name != machine]
    return {
        "NumMoves": int(job.get("NumMoves") or 0) + 1,
        "LastMoveTime": int(now),
        "MovedFrom": ",".join([*left, machine][-MOST_LEFT:]),
    }

"""Findings about another pool, for a job that waits (EV 8), and about a machine that it has left."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OtherPool:
    """Another pool that lends machines to this one, or in which the job's owner has an account.

    Attributes:
        idle, fit: machines that it offers, and those of them that would take the job now.
        unmet, refused: those that do not meet the job's conditions; those that meet them and do not take it.
        opens: the time of day by their own clocks, HH:MM, from which the first of these take it; empty if no time does.
        user: as whom the owner has asked there; empty where the pools have agreed.
        waiting: his jobs that stand in line there.
        why: the last refusal. trouble: why the pool cannot be reached.
    """

    pool: str
    idle: int = 0
    fit: int = 0
    unmet: int = 0
    refused: int = 0
    opens: str = ""
    user: str = ""
    waiting: int = 0
    why: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class LeftMachine:
    """The job ran, and has left its machine, of this pool or another.

    Attributes:
        why: the reason that it was given.
        when: wall seconds.
    """

    why: str
    when: float = 0.0

"""Nice jobs: those that come after everybody else's (`nice_user = true`). The negotiator decides the order."""

from __future__ import annotations

#: The group of those who come after everybody else, as HTCondor names it.
NICE = "nice-user"


def is_nice(group: object, said: object = False) -> bool:
    """Whether a job of a group (AcctGroup) is nice, or says so by itself (NiceUser)."""
    return said is True or (isinstance(group, str) and group.strip().lower().partition(".")[0] == NICE)

"""Names of submitters as cycles have them: `alice@node`, in a group with a quota `physics/alice@node`, and for jobs
that come after everybody else's `nice-user/alice@node`. Accounts are named alike, by user in place of submitter.
"""

from __future__ import annotations

from pool.jobs.nice import NICE


def grouped(plain: str, group: str, nice: bool = False) -> str:
    """The name of a submitter, or of an account, with what it is charged as."""
    return "/".join([*filter(None, (group if group != NICE or not nice else "", NICE if nice else "")), plain])


def parted(name: str) -> tuple[str, str]:
    """Group and plain name. Neither users nor machines have a slash in their names."""
    *before, plain = name.split("/")
    return (before[0] if before and before[0] != NICE else ""), plain


def nice(name: str) -> bool:
    """Whether it comes after everybody else."""
    return NICE in name.split("/")[:-1]

"""Memory of a job in huge pages: what the job wishes, and the variable that asks glibc's malloc for them.

A program in huge pages (2 MB instead of 4 KB) is frozen for a shorter time at a checkpoint, because the kernel has
fewer pages to mark for the frozen copy.
"""

from __future__ import annotations

import functools

#: The job's wishes; without one the machine decides.
ON, OFF = WISHES = ("on", "off")
#: The machine's offers. Never: its kernel gives none. Wasteful: programs that ask get them, and parts that are never
#: written are not taken back. Thrifty: such parts are taken back when memory is short or a job is at its limit, so that
#: asking costs a program nothing.
NEVER, WASTEFUL, THRIFTY = "never", "wasteful", "thrifty"
#: The attribute of the job and of the machine.
HUGE_PAGES = "HugePages"
#: The clause in the Requirements of a job that wants them.
CLAUSE = f'(TARGET.{HUGE_PAGES} != "{NEVER}")'
#: glibc's variable, and its setting that has malloc ask the kernel for huge pages (glibc 2.35 and later).
VARIABLE, SETTING = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"


def is_wanted(wish: str, offer: str, *, spare: bool = False) -> bool:
    """Whether a job is started with huge pages. Without a wish it is, unless they may bring it nearer to a limit.

    Args:
        wish: one of `WISHES`; empty for none.
        offer: the machine's.
        spare: see `has_spare_memory`.
    """
    if wish == ON:
        return offer in (WASTEFUL, THRIFTY)
    return wish != OFF and (offer == THRIFTY or (offer == WASTEFUL and spare))


def has_spare_memory(slot: int, available: int, *, enforced: bool) -> bool:
    """Whether there is memory for huge pages that the kernel does not take back.

    If the slot's memory is a limit (ENFORCE_MEMORY), a program that writes to few of its pages would reach the limit
    sooner, so there is none.

    Args:
        slot: its memory, MB.
        available: what the machine can give without taking it from anybody, MB.
    """
    return not enforced and 0 < slot <= available


@functools.lru_cache(maxsize=16)  # it is the same for nearly all jobs
def tunables(own: str) -> str:
    """The value of glibc's variable that asks for huge pages.

    Args:
        own: the value that the job gives it; if it sets huge pages, it stays as it is.
    """
    if any(part.partition("=")[0] == SETTING for part in own.split(":")):
        return own
    return ":".join(part for part in (own, f"{SETTING}=1") if part)

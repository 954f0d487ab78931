"""Memory of a job in huge pages: what the job wishes, and the variable that asks glibc's malloc for them.

A program in huge pages (2 MB instead of 4 KB) stands still for a shorter time at a checkpoint, because the kernel has
fewer pages to mark for the frozen copy.
"""

from __future__ import annotations

#: The job's wishes; without one the machine decides.
ON, OFF = WISHES = ("on", "off")
#: The machine's offers: its kernel gives none; programs that ask get them, and parts that are never written are not
#: taken back; such parts are taken back when memory is short, so that a program loses nothing by asking.
NEVER, WASTEFUL, THRIFTY = "never", "wasteful", "thrifty"
#: The attribute of the job and of the machine.
HUGE_PAGES = "HugePages"
#: The clause that the Requirements of a job get that wants them.
CLAUSE = f'(TARGET.{HUGE_PAGES} != "{NEVER}")'
#: glibc's variable, and in it the setting by which malloc asks the kernel for huge pages (glibc 2.35 and later).
VARIABLE, SETTING = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"


def is_wanted(wish: str, offer: str) -> bool:
    """Whether a job is started with huge pages; without a wish it is where they cannot cost it much memory.

    Args:
        wish: one of `WISHES`; empty for none.
        offer: the machine's.
    """
    return offer in (WASTEFUL, THRIFTY) if wish == ON else wish != OFF and offer == THRIFTY


def tunables(own: str) -> str:
    """The value of glibc's variable that asks for huge pages.

    Args:
        own: the value that the job gives it itself; where that speaks of huge pages it stays as it is.
    """
    if any(part.partition("=")[0] == SETTING for part in own.split(":")):
        return own
    return ":".join(part for part in (own, f"{SETTING}=1") if part)

"""Whether the machine's kernel gives programs huge pages when they ask for them."""

from __future__ import annotations

import resource
from pathlib import Path

from pool.decimals import whole_number
from pool.jobs.huge_pages import NEVER, THRIFTY, WASTEFUL

_KERNEL = Path("/sys/kernel/mm/transparent_hugepage")


def offered_huge_pages(kernel: Path = _KERNEL) -> str:
    """The kernel's offer, by its settings `enabled` and (Linux 6.12 and later) `shrink_underused`.

    A huge page is taken back if more of its pages than `max_ptes_none` were never written: with the kernel's own value,
    all pages but one, none ever is.
    """
    if not any(f"[{word}]" in _setting(kernel / "enabled") for word in ("madvise", "always")):
        return NEVER
    shrinks = _setting(kernel / "shrink_underused") == "1"
    unwritten = whole_number(_setting(kernel / "khugepaged" / "max_ptes_none"))
    size = whole_number(_setting(kernel / "hpage_pmd_size")) or 0
    takes_back = shrinks and unwritten is not None and unwritten < size // resource.getpagesize() - 1
    return THRIFTY if takes_back else WASTEFUL


def _setting(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""

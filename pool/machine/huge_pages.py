"""Whether the machine's kernel gives programs huge pages when they ask for them."""

from __future__ import annotations

from pathlib import Path

from pool.jobs.huge_pages import NEVER, THRIFTY, WASTEFUL

_KERNEL = Path("/sys/kernel/mm/transparent_hugepage")


def offered_huge_pages(kernel: Path = _KERNEL) -> str:
    """The kernel's offer, by its settings `enabled` and (Linux 6.12 and later) `shrink_underused`."""
    if not any(f"[{word}]" in _setting(kernel / "enabled") for word in ("madvise", "always")):
        return NEVER
    return THRIFTY if _setting(kernel / "shrink_underused") == "1" else WASTEFUL


def _setting(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""

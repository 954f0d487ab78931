"""Which paths lie on a file system that can hang.

A file system of this machine's own memory and disks answers or fails; a remote one, or one served by a
program, may do neither for minutes. Read from the kernel's table of mounts. A symbolic link from a local
directory onto a remote file system is not seen through.
"""

from __future__ import annotations

import os

_PROMPT = frozenset(
    (
        *(
            "bcachefs",
            "btrfs",
            "erofs",
            "ext2",
            "ext3",
            "ext4",
            "f2fs",
            "jfs",
            "overlay",
            "squashfs",
            "vfat",
            "xfs",
        ),
        *("devtmpfs", "proc", "ramfs", "rootfs", "sysfs", "tmpfs", "zfs"),
    )
)
_FRESH = 30.0  # seconds before the table is read again


class Mounts:
    """The table of mounts, read again when it is old."""

    def __init__(self, table: str = "/proc/self/mountinfo") -> None:
        self._table = table
        self._read_at: float | None = None
        self._known: dict[str, bool] = {}
        self._mounts: dict[str, bool] = {}

    def may_hang(self, path: str, now: float) -> bool:
        """Whether an operation on `path` may take long. `now` is monotonic, in seconds."""
        if self._read_at is None or not 0 <= now - self._read_at < _FRESH:
            self._read_at = now
            self._known.clear()
            self._mounts = self._read()
        directory = os.path.dirname(path)
        known = self._known.get(directory)
        if known is None:
            known = self._known[directory] = self._look_up(path)
        return known or self._mounts.get(path, False)

    def _look_up(self, path: str) -> bool:
        at = os.path.dirname(os.path.normpath(path))
        while True:
            if at in self._mounts:
                return self._mounts[at]
            if at in ("/", ""):
                return not self._mounts
            at = os.path.dirname(at)

    def _read(self) -> dict[str, bool]:
        mounts: dict[str, bool] = {}
        try:
            with open(self._table, encoding="utf-8", errors="surrogateescape") as table:
                for line in table:
                    words = line.split()
                    kind = words[words.index("-", 6) + 1]
                    # A later line covers an earlier one at the same place.
                    mounts[_plain(words[4])] = kind not in _PROMPT
        except (OSError, ValueError, IndexError):
            return {}
        return mounts


def _plain(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text

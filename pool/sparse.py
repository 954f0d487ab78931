"""Holes in files: where they are, so that they stay holes wherever a file is carried.

A file of gigabytes may have little in it. Its holes are neither read nor sent nor written.
"""

from __future__ import annotations

import errno
import os

#: A shorter hole is carried as the zeros it reads as.
WORTH = 64 * 1024


def next_piece(fd: int, at: int, end: int, most: int) -> tuple[bool, int]:
    """The next piece of a file from `at` on, before `end`: (whether it is a hole, how long); data at most `most` bytes.

    A file system that knows no holes has data only.
    """
    try:
        data = os.lseek(fd, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing more but a hole
            return True, end - at
        return False, min(most, end - at)
    if data - at >= WORTH or data >= end:
        return True, min(data, end) - at
    most = min(most, end - at)
    hole = data
    while (hole := os.lseek(fd, hole, os.SEEK_HOLE)) < at + most:
        try:
            data = os.lseek(fd, hole, os.SEEK_DATA)
        except OSError:
            data = end
        if data - hole >= WORTH or data >= end:
            return False, max(hole - at, 1)
        hole = data
    return False, most


def leave_hole(fd: int, length: int) -> None:
    """Go on writing a new file so many bytes further on; what is between is never written."""
    os.ftruncate(fd, os.lseek(fd, length, os.SEEK_CUR))

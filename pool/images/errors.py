"""The errors of stored images, split by what somebody can do about them."""

from __future__ import annotations

import errno
from pathlib import Path

from pool.errors import PoolError

#: The error numbers of a full disk.
FULL = (errno.ENOSPC, errno.EDQUOT)


class ImageError(PoolError):
    """An image could not be stored, read or carried."""


class ImageGone(ImageError):
    """There is no such image (any more)."""


class ImageDamaged(ImageError):
    """The bytes on disk are not those that were written. The job falls back to the previous image."""


class NoRoom(ImageError):
    """The quota or the disk is used up, and nothing may be dropped for it."""


def failed(operation: str, where: Path | str, error: OSError) -> ImageError:
    """A refusal of the operating system, as an error of an image."""
    text = f"cannot {operation} {where}: {(error.strerror or str(error)).lower()}"
    if error.errno in FULL:
        return NoRoom(text, hint="free some space", retry=True)
    return ImageError(text, retry=True)

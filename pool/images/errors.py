"""What can go wrong with stored images, split by what somebody can do about it."""

from __future__ import annotations

from pool.errors import PoolError


class ImageError(PoolError):
    """An image could not be stored, read or carried."""


class ImageGone(ImageError):
    """There is no such image (any more)."""


class ImageDamaged(ImageError):
    """What lies on disk is not what was written. The job falls back to the image before."""


class NoRoom(ImageError):
    """The quota or the disk is used up, and nothing may be dropped for it."""

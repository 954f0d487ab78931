"""Where checkpoint images lie: content-addressed, compressed, committed as a whole or not at all (C4, C5; VS 5.3).

    a directory the keeper wrote -> chunks (by content, each once) + one manifest -> a directory the keeper restores

Start reading at `store.py`. `manifest.py` describes a checkpoint, `chunks.py` how its bytes lie on disk, `transfer.py`
how an image goes from one store to another, and `assembling.py` how it is put together where it is restored. The keeper
decides what is in an image, and `pool.policy.checkpoints` when one is made.
"""

from pool.images.assembling import Assembly
from pool.images.drafts import Draft
from pool.images.errors import ImageDamaged, ImageError, ImageGone, NoRoom
from pool.images.manifest import ImageFile, Manifest
from pool.images.pacing import BandwidthShare
from pool.images.store import ImageStore
from pool.images.transfer import (
    EarlyTransfer,
    ask_chunks,
    fetch_image,
    lay_pieces,
    receive_image,
    send_chunks,
    send_image,
    send_pieces,
)

__all__ = [
    "EarlyTransfer",
    "Assembly",
    "Draft",
    "ImageDamaged",
    "ImageError",
    "ImageGone",
    "ImageStore",
    "Manifest",
    "NoRoom",
    "ImageFile",
    "BandwidthShare",
    "ask_chunks",
    "fetch_image",
    "lay_pieces",
    "receive_image",
    "send_chunks",
    "send_image",
    "send_pieces",
]

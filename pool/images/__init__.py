"""Where checkpoint images lie: content-addressed, compressed, committed as a whole or not at all (C4, C5; VS 5.3).

    a directory the keeper wrote -> chunks (by content, each once) + one manifest -> a directory the keeper restores

Start reading at `store.py`; `manifest.py` is what a checkpoint is made of, `chunks.py` how its bytes lie on disk, and
`transfer.py` how an image goes from one store to another,
`assembling.py` how it is put together where it is restored. What is in an image is the keeper's business, and when
one is made `pool.policy.checkpoints`'.
"""

from pool.images.assembling import Assembly
from pool.images.drafts import Draft
from pool.images.errors import ImageDamaged, ImageError, ImageGone, NoRoom
from pool.images.manifest import ImageFile, Manifest
from pool.images.pacing import SendingShare
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
    "SendingShare",
    "ask_chunks",
    "fetch_image",
    "lay_pieces",
    "receive_image",
    "send_chunks",
    "send_image",
    "send_pieces",
]

"""A job's own checkpoints on the execute side: files it wrote, from its scratch directory and back into it (C4).

A job that ends with its agreed code (`checkpoint_exit_code`) has written a checkpoint and wants to go on. What it
wrote becomes an image, goes home as a whole or not at all, and is put into the scratch directory of its next start.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

from pool.images import ImageError, ImageStore, Manifest, receive_image, send_image
from pool.jobs.activation import Activation
from pool.starter import staging

#: Where a checkpoint is unpacked before its files are moved to their places.
ASIDE = ".poolnode.checkpoint"


def outputs_of(activation: Activation, scratch: Path, before: dict[str, tuple[int, int]]) -> list[staging.Output]:
    """The files that are a job's checkpoint.

    Raises:
        StagingError: one that was named does not exist, or cannot be read.
    """
    asked = activation.checkpoint_files if activation.checkpoint_files is not None else activation.outputs
    found = staging.outputs(scratch, before, asked, asked or (), "checkpoint")
    return [output for output in found if not output.directory]


def keep(store: ImageStore, job: str, created: float, found: list[staging.Output]) -> Manifest:
    """Take files in as a checkpoint. Blocks on the disk.

    Raises:
        ImageError, StagingError
    """
    with store.begin(job) as draft:
        parts = []
        for output in found:
            with staging.open_regular(output.path) as handle:
                parts.append(draft.add(output.name, handle))
        return draft.commit(tuple(parts), created, facts=(("kind", "self"),))


def put_back(store: ImageStore, manifest: Manifest, scratch: Path, owner: tuple[int, int] | None) -> None:
    """Put a checkpoint's files into the scratch directory of a job that has not begun. Blocks on the disk.

    Raises:
        ImageError: it is damaged, or the disk fails.
    """
    aside = scratch / ASIDE
    try:
        store.restore(manifest, aside)
        for part in manifest.parts:
            source, target = aside / part.name, staging.inside(scratch, part.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if owner is not None:
                os.chown(source, *owner)
                for above in target.relative_to(scratch).parents:
                    os.chown(scratch / above, *owner)
            source.replace(target)
    except OSError as error:
        raise ImageError(f"cannot put a checkpoint in place: {error.strerror or error}", retry=True) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


async def send_home(store: ImageStore, manifest: Manifest, stream: Any) -> int:
    """Carry a checkpoint home; returns the bytes that travelled once it is on disk there."""
    async with stream:
        return await send_image(store, manifest, stream)


async def fetch(
    store: ImageStore, activation: Activation, stream: Any, scratch: Path, owner: tuple[int, int] | None
) -> int:
    """Bring the checkpoint that a start goes on from into its scratch directory; returns its size in bytes.

    Raises:
        ImageError: it cannot be had or is damaged.
    """
    async with stream:
        manifest = await receive_image(store, activation.name, stream)
    try:
        await asyncio.to_thread(put_back, store, manifest, scratch, owner)
    finally:
        await asyncio.to_thread(store.drop, activation.name)
    return manifest.size

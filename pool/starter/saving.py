"""A job's own checkpoints on the execute side: files it wrote, from its scratch directory and back into it (C4).

A job that ends with its agreed code (`checkpoint_exit_code`) has written a checkpoint and wants to go on. The files
that it wrote become an image. The image is sent to the submit side as a whole or not at all, and is put into the
scratch directory of the job's next start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pool.images import Draft, EarlyTransfer, ImageError, ImageStore, Manifest, send_image
from pool.images.transfer import Pace
from pool.jobs.activation import Activation
from pool.safe_directory import SafeDirectory
from pool.starter import freezing, output_transfer, staging
from pool.starter.increments import PreviousImage

#: Files that lie beside a keeper's image and are a part of it in another form.
NOT_OURS = ("taken", freezing.LISTED, freezing.KEPT, freezing.TREE)


def outputs_of(
    activation: Activation, scratch: SafeDirectory, before: dict[str, tuple[int, int]]
) -> list[staging.Output]:
    """The files that are a job's checkpoint: those that it names, and what it wrote to stdout and stderr so far.

    Raises:
        StagingError: one that was named does not exist, or cannot be read.
    """
    asked = activation.checkpoint_files if activation.checkpoint_files is not None else activation.outputs
    standard = output_transfer.standard_files(activation)
    if asked is not None:  # under the names that they get on the submit side they do not lie here
        asked = tuple(name for name in asked if name not in standard.values())
    found = staging.outputs(scratch, before, asked, asked or (), "checkpoint")
    written = [staging.Output(name, name) for name in standard if scratch.exists(name)]
    return [*(output for output in found if not output.directory and output.path not in standard), *written]


def store_files(
    store: ImageStore, job: str, created: float, scratch: SafeDirectory, found: list[staging.Output]
) -> Manifest:
    """Take files in as a checkpoint. Blocks on the disk.

    Raises:
        ImageError, StagingError
    """
    with store.begin(job) as draft:
        parts = []
        for output in found:
            with staging.open_output(scratch, output.path) as handle:
                parts.append(draft.add(output.name, handle))
        return draft.commit(tuple(parts), created, facts=(("kind", "self"),))


def restore_files(image: Path, manifest: Manifest, scratch: Path, owner: tuple[int, int] | None) -> None:
    """Put a checkpoint's files into the scratch directory of a job that has not begun. Blocks on the disk.

    Args:
        image: the directory with the image's parts; they are moved from there.

    Raises:
        ImageError: the disk fails.
    """
    try:
        with SafeDirectory(scratch, owner) as safe:
            for part in manifest.parts:
                safe.remove_file(staging.checked(part.name))
                safe.move_in(image / part.name, part.name, part.mode)
    except OSError as error:
        raise ImageError(f"cannot put a checkpoint in place: {error.strerror or error}", retry=True) from error


class OnItsWay:
    """A last checkpoint that goes to the submit side while it is still being put together: its machine is wanted.

    Args:
        stream: to the submit side; closed with it.
    """

    def __init__(self, store: ImageStore, stream: Any, pace: Pace | None) -> None:
        self._stream = stream
        self._ahead = EarlyTransfer(store, stream, pace)

    def add_chunk(self, name: str, index: int, digest: bytes) -> None:
        """There is one more chunk of a file; from any thread."""
        self._ahead.add_chunk(digest)

    async def finish(self, manifest: Manifest) -> int:
        """As `send_stored_image`; where that fails it can be sent again in the plain way."""
        try:
            async with self._stream:
                return await self._ahead.finish(manifest)
        finally:
            self._ahead.cancel()

    def cancel(self) -> None:
        """It is not sent so."""
        self._ahead.cancel()
        self._stream.abort()


async def send_stored_image(store: ImageStore, manifest: Manifest, stream: Any, pace: Pace | None = None) -> int:
    """Carry a checkpoint to the submit side; returns the bytes that travelled once it is on disk there."""
    async with stream:
        return await send_image(store, manifest, stream, pace)


def is_own(manifest: Manifest) -> bool:
    """Whether the job wrote it itself; otherwise the keeper did."""
    return dict(manifest.facts).get("kind") == "self"


def store_dump(
    draft: Draft,
    directory: Path,
    created: float,
    frozen: freezing.ScratchSnapshot | None,
    before: dict[str, tuple[int, int]],
    run: int,
    mark: int = 0,
    earlier: PreviousImage | None = None,
) -> Manifest:
    """Take in what the keeper has written, and the job's files where they belong to it. Blocks on the disk.

    Args:
        frozen: what is known of the scratch directory; None for a job whose files are on the submit side.
        before: what it held when the job first began.
        run: the number of the job's present start.
        mark: what its submit side calls this checkpoint; 0 where it has none.
        earlier: the image before, of which some files are this one's, too.

    Raises:
        ImageError
    """
    known = earlier.find_part if earlier is not None else lambda status: None
    parts = frozen.gather(draft, directory, before) if frozen is not None else ()
    parts += draft.add_file(directory, without=NOT_OURS, known=known)
    where = "shared" if frozen is None else "remote" if mark else "own"
    facts = (("files", where), ("kind", "keeper"), ("run", run), *([("mark", mark)] if mark else ()))
    return draft.commit(parts, created, facts=facts)


def tentative(store: ImageStore, job: str, run: int) -> Manifest | None:
    """The checkpoint of a start that an earlier run of this node has taken in, and not sent to the submit side."""
    found = [store.manifest(job, generation) for generation in store.generations(job)]
    mine = [manifest for manifest in found if dict(manifest.facts).get("run") == run]
    return mine[-1] if mine else None

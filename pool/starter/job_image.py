"""The image that is a job's root: brought here before the start, held while the job runs, and what it says."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pool.jobs.activation import Activation
from pool.starter.place import ExecutionSite, StartRefused, UnixAccount
from pool.starter.unpacking import CannotUnpack, ImageConfig, unpack


class JobImage:
    """One job's image; without one the job has the machine's own tree.

    Args:
        place: where the job runs; with a cache its image is one that the machine keeps.
        root: of a job that was found again.

    Attributes:
        config: what the image says of the program in it.
        kept: the directory of an image that the machine keeps; None where the job has its own, or none.
        login: what the registry is shown.
    """

    def __init__(self, place: ExecutionSite, root: str = "") -> None:
        self._cache = place.image_cache
        self.kept: Path | None = self._cache.holds(root) if self._cache is not None else None
        self.config = ImageConfig()
        self.login = ""

    async def prepare(self, start: Activation, scratch: Path, account: UnixAccount, leaves: asyncio.Event) -> None:
        """Fetch and unpack it, where that is needed.

        Raises:
            StartRefused: it cannot be had, or has no program where the job brings none.
        """
        try:
            if start.image_source and self._cache is not None:
                job = (start.image_source, scratch, account, start.owner, self.login, leaves)
                self.kept, self.config = await self._cache.acquire(*job)
            elif start.image_source:
                done = await unpack(start.image_source, scratch, account, leaves, login=self.login)
                self.config = done.config
        except CannotUnpack as error:
            raise StartRefused(error.message, where="start", hint=error.hint, retry=error.retry) from error
        if start.image_program == "alone" and not (self.config.entrypoint or self.config.command or start.argv[1:]):
            name = start.image_source or start.image
            text = f"the image {name} names no program, and the job has no executable"
            raise StartRefused(text, where="start", hint="write executable = PROGRAM")

    def release(self) -> None:
        """The job runs no more."""
        if self.kept is not None and self._cache is not None:
            self._cache.release(self.kept)
        self.kept = None

    def command_line(self, start: Activation, program: str) -> tuple[str, ...]:
        """The program and its arguments, where the image has something to say about them.

        As docker does: arguments take the place of the image's own, its entrypoint stands before both.
        """
        if start.image_program == "alone":
            return (*self.config.entrypoint, *(start.argv[1:] or self.config.command))
        if start.image_program == "behind":
            return (*self.config.entrypoint, program, *start.argv[1:])
        return (program, *start.argv[1:])

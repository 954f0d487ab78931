"""The scratch directory of a job before it begins: its input files, or the files of the checkpoint it goes on from."""

from __future__ import annotations

import asyncio
import contextlib
import os

from pool.images import ImageError
from pool.jobs.activation import FileMode
from pool.jobs.urls import is_fetched
from pool.safe_directory import SafeDirectory
from pool.starter import freezing, manifest, programs, resuming, saving, scratch, staging, urls
from pool.starter.job_start import JobStart
from pool.starter.place import StartRefused
from pool.starter.progress import CountedStream
from pool.wire import RemoteError


class JobInputs:
    """The files of one start of a job, until its program begins.

    Args:
        start: `before`, `received`, `transfer` and `resumed` are set in it.
    """

    def __init__(self, start: JobStart) -> None:
        self._start = start

    def make_scratch(self) -> None:
        """Make the scratch directory, empty."""
        place, account = self._start.place, self._start.account
        if place.empty is not None:
            return
        with contextlib.suppress(FileExistsError):  # left by the job before, and empty: `clear_scratch` saw to it
            os.mkdir(place.scratch, 0o700)
        if account.switch:
            os.chown(place.scratch, account.uid, account.gid)
        place.empty = os.stat(place.scratch).st_mtime_ns

    def clear_scratch(self) -> None:
        """Leave the scratch directory empty, or none."""
        place = self._start.place
        try:
            if place.empty is not None and os.stat(place.scratch).st_mtime_ns == place.empty:
                return
            left = os.listdir(place.scratch)
        except FileNotFoundError:
            left = []
        place.empty = None
        if left:
            scratch.empty(place.scratch)

    async def fetch_checkpoint(self) -> None:
        """Fetch the checkpoint that this start goes on from, and see that it can be restored here.

        Raises:
            StartRefused: it cannot.
        """
        start, activation, able = self._start, self._start.activation, self._start.keepers.abilities
        assert start.place.images is not None
        images = await asyncio.to_thread(start.place.images)
        try:
            find_peer = (
                (lambda: start.submit_side.find_peer(activation)) if activation.checkpoint_from is not None else None
            )
            came = await start.submit_side.prepared(activation)
            stream = await start.submit_side.image(activation)
            start.resumed = resumed = await resuming.fetch(images, activation.saved_as, stream, find_peer, came)
            start.received += resumed.received
            if not resumed.self_written and resumed.mode is not activation.mode:
                raise ImageError("it was made where the job's files are reached in another way")
            if resumed.has_files and not able.full:
                text = "this machine cannot show the job its files where they were"
                raise StartRefused(text, where="checkpoint", retry=True, unfit=True)
            if not able.checkpoint and not resumed.self_written:
                raise StartRefused("this machine cannot resume jobs", where="checkpoint", retry=True, unfit=True)
        except (ImageError, RemoteError) as error:
            raise StartRefused(error.message, where="checkpoint", hint=error.hint, retry=True) from error

    async def place(self) -> None:
        """Put the job's files into its scratch directory: those of the checkpoint, or its inputs.

        Raises:
            StartRefused: with the part that failed.
        """
        start = self._start
        resumed, directory, owner = start.resumed, start.place.scratch, start.account.owner
        try:
            if resumed is not None and resumed.has_files:
                restore_files = freezing.restore_files
                start.before = await asyncio.to_thread(restore_files, resumed.directory, directory, owner)
                return
            if start.activation.mode is FileMode.TRANSFER:
                await self._stage_in()
            if resumed is not None and resumed.self_written:
                put_back_own = saving.restore_files
                await asyncio.to_thread(put_back_own, resumed.directory, resumed.manifest, directory, owner)
        except ImageError as error:
            raise StartRefused(error.message, where="checkpoint", hint=error.hint, retry=True) from error

    async def _stage_in(self) -> None:
        start, activation, executables = self._start, self._start.activation, self._start.place.executables
        digest = activation.digest
        if digest and not programs.DIGEST.fullmatch(digest):
            raise StartRefused(f"{digest[:80]!r} is no digest of an executable", where="input")
        stored = executables / digest if digest else None
        wanted = activation.carries_executable and (stored is None or not stored.exists())
        try:
            offered: dict[str, str] = {}
            signed: dict[str, str] = {}
            async with await start.submit_side.fetch(activation, wanted) as stream:
                if activation.processes:
                    offered = await programs.request_executables(stream, executables)
                start.transfer = CountedStream(stream)
                owner = start.account.owner
                start.received += await staging.receive(start.transfer, start.place.scratch, owner, signed)
            start.image.login = signed.get(activation.image_source, "")
            await self._fetch_urls(signed)
            with start.safe_scratch() as safe:
                if offered:
                    await programs.store_received(offered, activation.layout, safe, executables)
                program = os.path.basename(activation.executable)
                if stored is not None and wanted and safe.exists(program):
                    await asyncio.to_thread(programs.store_executable, safe, program, stored)
                elif stored is not None and not wanted:
                    await asyncio.to_thread(programs.install, stored, safe, program)
                if activation.manifest:
                    await asyncio.to_thread(manifest.write_before, activation.manifest, safe, activation.env)
                start.before = await asyncio.to_thread(self._marks, safe)
        except staging.StagingError as error:
            where = "machine" if isinstance(error, staging.DiskRefused) else "input"
            raise StartRefused(error.message, where=where, hint=error.hint, retry=error.retry) from error

    async def _fetch_urls(self, signed: dict[str, str]) -> None:
        """Fetch the inputs that are URLs, by a process that becomes the job's user."""
        start = self._start
        wanted = {name: signed.get(name, name) for name in start.activation.inputs if is_fetched(name)}
        if not wanted:
            return
        most = start.activation.most_input
        directory = os.open(start.place.scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            left = None if most is None else max(0, most - start.received)
            start.received += await urls.fetch(
                wanted, directory, start.account, start.place.plugins, left, start.leaves
            )
        except urls.CannotFetch as error:
            raise StartRefused(error.message, where="input", hint=error.hint, retry=error.retry) from error
        finally:
            os.close(directory)

    def _marks(self, safe: SafeDirectory) -> dict[str, tuple[int, int]]:
        """The content of the scratch directory before the job begins."""
        activation = self._start.activation
        found = staging.top_level(safe)
        for folder in activation.layout.folders.values() if activation.processes else ():
            if folder:
                found |= {f"{folder}/{name}": mark for name, mark in staging.top_level(safe, folder).items()}
        return found

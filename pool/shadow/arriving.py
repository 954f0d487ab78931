"""A job's outputs as they come over a stream, and are put in their places as one.

They are written beside their places, and renamed, one right after the other, when all of them have come and are on
disk. Where there are several files, the renames are noted first, so that renaming which a crash has cut short is
finished at the next start. Of very many files only some are open at a time (`pool.shadow.placing`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable
from typing import Any

from pool.errors import PoolError
from pool.jobs.activation import Activation
from pool.jobs.output_places import OutputPlaces
from pool.policy.packed import pack
from pool.shadow.files import FileWriter, ManyOutputs, UserFiles
from pool.wire import Stream
from pool.wire.parameter_checks import MODE, PATH, SIZE, Forms, check_item

#: The names of notes on outputs that are being put in place; the job's follows.
PLACING = "placing "
#: The command that bounds what is carried to the submit side, as an error of it begins.
OUTPUT_LIMIT = "max_transfer_output_mb"
#: The messages of an execute machine while it sends outputs, beside their bytes; see `pool.starter.staging`.
BROUGHT: Forms = {
    **{"file": (PATH, MODE, SIZE), "dir": (PATH, MODE), "hole": (int,), "done": ()},
    **{"stdout": (SIZE,), "stderr": (SIZE,), "stream": (PATH, SIZE)},
}
#: Outputs of one end that are open at a time; of more, the earlier ones wait under names of their own.
OPEN_OUTPUTS = 128
#: Keeps a note durably, or with None removes it when there is time.
Note = Callable[[str, bytes | None], Awaitable[None]]


class OutputReceiver:
    """The outputs of one end as they come: a few are open, and what they are is noted before any is in its place."""

    def __init__(
        self, files: UserFiles, start: Activation, note: Note, number: int, brought: dict[str, int] | None = None
    ) -> None:
        self._files = files
        self._start = start
        self._note = note
        self._brought = {} if brought is None else brought
        self._name = f"{PLACING}{start.name}.{start.run} {number}"
        self._number = number
        self._writers: list[FileWriter] = []
        self._pairs: list[list[str]] = []
        self._many: ManyOutputs | None = None
        self._noted = False
        #: Outputs that were put beside what was there: its name, and theirs.
        self.beside: list[tuple[str, str]] = []
        #: Outputs of a node whose names another node's have: the name, and theirs.
        self.renumbered: list[tuple[str, str]] = []

    async def receive(self, stream: Stream, places: OutputPlaces) -> tuple[int, list[list[Any]]]:
        """Take what comes, up to "done": how many bytes, and what was announced, each with its place as the last.

        Raises:
            PoolError: there is more or less than was announced, something that the job has no place for, or too much.
        """
        total, left, most = 0, 0, self._start.most_output
        announced: list[list[Any]] = []
        async for item in stream:
            if isinstance(item, bytes):
                if self._latest is None or len(item) > left:
                    raise PoolError("more of an output came than was announced")
                await self._latest.write(item)
                left -= len(item)
                total += len(item)
                if most is not None and total > most:
                    raise PoolError(f"{OUTPUT_LIMIT} = {most >> 20} is less than its outputs")
                continue
            item = check_item(item, BROUGHT)
            if item[0] == "hole":
                if self._latest is None or not 0 < item[1] <= left:
                    raise PoolError("a hole of an output came where there can be none")
                await self._latest.skip(item[1])
                left -= item[1]
            elif left:
                raise PoolError("less of an output came than was announced")
            elif item[0] == "done":
                break
            elif item[0] == "dir":
                place = places.place_of(item[1])
                await self._files.makedirs(place, mode=item[2] | 0o700)
                announced.append([*item, place])
            else:
                path, mode, left = places.target(item)
                if self._start.keeps_paths and item[0] == "file" and "/" in item[1]:
                    await self._files.makedirs(posixpath.dirname(path))
                await self._begin(path, mode, named=item[0] != "file" or places.is_named(item[1], path))
                announced.append([*item, path])
        else:
            raise PoolError("the transfer of the outputs ended in the middle", retry=True)
        return total, announced

    async def see_on_disk(self) -> None:
        """All have come."""
        if self._many is not None:
            await self._set_aside()
        else:
            self._pairs = [pair for writer in self._writers if (pair := await writer.sync())]

    async def rename_into_place(self) -> None:
        """Put all in their places as one."""
        if self._many is not None:
            await self._many.rename_into_place()
        elif len(self._pairs) < 2:
            await self._files.rename_into_place(self._writers)
        else:
            self._noted = True
            await self._note(self._name, pack([self._start.owner, self._pairs]))
            await self._files.rename_into_place(self._writers)
        if self._noted:
            await self._note(self._name, None)

    async def abandon(self) -> None:
        """None of them is wanted."""
        for writer in self._writers:
            await writer.abandon()
        if self._many is not None:
            await self._many.abandon()
            await self._note(self._name, None)

    @property
    def _latest(self) -> FileWriter | None:
        return self._writers[-1] if self._writers else None

    async def _begin(self, path: str, mode: int, *, named: bool) -> None:
        """One more file; where the job does not name it, it replaces nothing of its owner's."""
        if not named:
            asked = path
            if self._start.is_node and self._brought.setdefault(path, self._start.part) != self._start.part:
                path = f"{path}.{self._start.part}"
                self.renumbered.append((posixpath.basename(asked), posixpath.basename(path)))
            before, path = path, await self._files.place_unnamed(path, self._start.name)
            if path != before:
                self.beside.append((posixpath.basename(asked), posixpath.basename(path)))
        if len(self._writers) >= OPEN_OUTPUTS:
            await self._set_aside()
        self._writers.append(await self._files.create(path, mode=mode))

    async def _set_aside(self) -> None:
        if self._many is None:
            directory = posixpath.dirname(self._writers[0].path)
            path = posixpath.join(directory, f".poolnode.{self._start.name}.{self._start.run}.{self._number}.outputs")
            self._noted = True
            await self._note(self._name, pack([self._start.owner, self._files.real(path)]))
            self._many = await self._files.begin_journal(path)
        await self._many.set_aside(self._writers)
        self._writers = []

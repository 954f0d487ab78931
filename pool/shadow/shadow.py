"""The shadow: a running job's agent at home (EV 2.4, 3.6). It hands out the job's inputs and puts its outputs in place.

Everything it touches it touches with the rights of the job's owner (B5). It answers only for the start (claim and
run) that the job is in: a starter that was given up, or somebody else, gets nothing. Outputs are written beside
their place, and renamed, one right after the other, when all of them have come and are on disk: a job is never
reported with half an output. What several files get is noted first, so that renaming which a crash has cut short is
finished at the next start. Of very many files only some are open at a time (`pool.shadow.placing`).
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import posixpath
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

from pool.errors import PoolError
from pool.jobs.activation import NOTHING, Activation, Mode
from pool.jobs.urls import is_fetched, scheme_of
from pool.outside import Outside
from pool.policy.packed import pack, unpack
from pool.policy.queue import Job
from pool.shadow.executables import Executables
from pool.shadow.files import FileProblem, FilesOf, FileWriter, ManyOutputs, UserFiles
from pool.shadow.object_urls import SCHEMES, Keys, signed
from pool.wire import Stream
from pool.wire.errors import NotPermitted
from pool.wire.shapes import MODE, PATH, SIZE, TEXTS, Forms, check_item

CHUNK = 256 * 1024
#: The names of notes on outputs that are being put in place; the job's follows.
PLACING = "placing "
#: The commands that bound what is carried, as an error of theirs begins.
INPUT_LIMIT, OUTPUT_LIMIT = "max_transfer_input_mb", "max_transfer_output_mb"
#: What the programs of a job of several processes are offered under; see `pool.starter.programs`.
OFFER, WANT = "programs", "want"
#: What an execute machine says while it brings outputs, beside their bytes; see `pool.starter.staging`.
BROUGHT: Forms = {
    **{"file": (PATH, MODE, SIZE), "dir": (PATH, MODE), "hole": (int,), "done": ()},
    **{"stdout": (SIZE,), "stderr": (SIZE,), "stream": (PATH, SIZE)},
}
#: Outputs of one end that are open at a time; of more, the earlier ones wait under names of their own.
OPEN_OUTPUTS = 128
#: Keeps a note durably, or with None removes it when there is time.
Note = Callable[[str, bytes | None], Awaitable[None]]
#: Writes something into a job's log.
Tell = Callable[[Job, str], Awaitable[None]]
#: Outputs beside others that a job's log names.
SHOWN = 5
log = logging.getLogger("pool.shadow")


#: The files that hold the keys of an object store, and bytes that one has at most.
_KEYS = ("EC2AccessKeyId", "EC2SecretAccessKey", "EC2SessionToken")
MOST_KEY = 16384


class ClaimedJob(Protocol):
    """What the shadow needs to know of a claim."""

    job: Job | None
    run: int
    start: Activation | None
    owner: str


class Claims(Protocol):
    """Where claims are found by their id."""

    @property
    def claims(self) -> dict[str, Any]: ...

    @property
    def outside(self) -> Outside: ...


class NotThisRun(PoolError):
    """The caller's start of the job is not the present one."""


class _Arriving:
    """The outputs of one end as they come: a few are open, and what they are is noted before any is in its place."""

    def __init__(self, files: UserFiles, start: Activation, note: Note, number: int) -> None:
        self._files = files
        self._start = start
        self._note = note
        self._name = f"{PLACING}{start.name}.{start.run} {number}"
        self._number = number
        self._writers: list[FileWriter] = []
        self._pairs: list[list[str]] = []
        self._many: ManyOutputs | None = None
        self._noted = False
        #: Outputs that were put beside what was there: its name, and theirs.
        self.beside: list[tuple[str, str]] = []

    @property
    def latest(self) -> FileWriter | None:
        return self._writers[-1] if self._writers else None

    async def begin(self, path: str, mode: int, *, named: bool) -> None:
        """One more file; where the job does not name it, it replaces nothing of its owner's."""
        if not named:
            asked, path = path, await self._files.place_unnamed(path, self._start.name)
            if path != asked:
                self.beside.append((posixpath.basename(asked), posixpath.basename(path)))
        if len(self._writers) >= OPEN_OUTPUTS:
            await self._set_aside()
        self._writers.append(await self._files.create(path, mode=mode))

    async def see_on_disk(self) -> None:
        """All have come."""
        if self._many is not None:
            await self._set_aside()
        else:
            self._pairs = [pair for writer in self._writers if (pair := await writer.sync())]

    async def place(self) -> None:
        """Put all in their places as one."""
        if self._many is not None:
            await self._many.place()
        elif len(self._pairs) < 2:
            await self._files.place(self._writers)
        else:
            self._noted = True
            await self._note(self._name, pack([self._start.owner, self._pairs]))
            await self._files.place(self._writers)
        if self._noted:
            await self._note(self._name, None)

    async def abandon(self) -> None:
        """None of them is wanted."""
        for writer in self._writers:
            await writer.abandon()
        if self._many is not None:
            await self._many.abandon()
            await self._note(self._name, None)

    async def _set_aside(self) -> None:
        if self._many is None:
            directory = posixpath.dirname(self._writers[0].path)
            path = posixpath.join(directory, f".poolnode.{self._start.name}.{self._start.run}.{self._number}.outputs")
            self._noted = True
            await self._note(self._name, pack([self._start.owner, path]))
            self._many = await self._files.begin_journal(path)
        await self._many.set_aside(self._writers)
        self._writers = []


class _Bounded:
    """A stream of inputs that carries no more than its job allows."""

    def __init__(self, stream: Stream, most: int) -> None:
        self._stream = stream
        self._most = most
        self._sent = 0

    async def send(self, item: Any) -> None:
        if isinstance(item, bytes):
            self._sent += len(item)
            if self._sent > self._most:
                raise PoolError(f"{INPUT_LIMIT} = {self._most >> 20} is less than its inputs")
        await self._stream.send(item)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


async def _nothing(start: Activation) -> None:
    """Nobody else writes the outputs of a job."""


def keeps_its_place(directory: str) -> bool:
    """Whether a directory of home, as a description names it, can have the same name in the job's directory."""
    parts = directory.split("/")
    return directory != "" and not directory.startswith("/") and ".." not in parts and parts != ["."]


def _said_of(beside: list[tuple[str, str]]) -> str:
    """What a job's log says of outputs that have another name than they were given."""
    shown = "; ".join(f"{name} came home as {got}" for name, got in beside[:SHOWN])
    more = f" (and {len(beside) - SHOWN} more)" if len(beside) > SHOWN else ""
    return (
        f"{shown}{more}: what has the name is no job's output, and the description does not name it."
        " List it in transfer_output_files to have it replaced."
    )


class Shadow:
    """Serves the starters of all running jobs of one schedd."""

    def __init__(self, claims: Claims, executables: Executables, files: FilesOf, note: Note, tell: Tell) -> None:
        self._claims = claims
        self._note = note
        self._tell = tell
        self._numbers = itertools.count(1)
        self._finished = asyncio.Event()
        self._finished.set()
        self._executables = executables
        self._files = files
        #: Awaited before the outputs of a start take their places.
        self.before_placing: Callable[[Activation], Awaitable[None]] = _nothing

    async def fetch(self, params: dict[str, Any], stream: Stream) -> None:
        """Send a job's inputs: {claim, run, executable: whether it is wanted}; see `pool.starter.staging`."""
        start, files = self._running(params)
        if start.most_input is not None:
            stream = cast(Stream, _Bounded(stream, start.most_input))
        wanted = await self._programs_wanted(start, stream) if start.processes else {}
        if params.get("executable"):
            await self._send_executable(start, files, stream)
        for path in self._inputs(start):
            under = posixpath.dirname(path) if start.keeps_paths and path in start.inputs else ""
            under = under if keeps_its_place(under) else ""
            await self._send(self._full(start, path), files, stream, under=under)
        if start.processes:
            await self._send_processes(start, files, stream, wanted)
        if any(scheme_of(name) in SCHEMES for name in start.inputs):
            job = self._claims.claims[str(params["claim"])].job
            await stream.send(["signed", await self._signed(start, files, job)])
        await stream.send(["done"])
        await stream.finish()

    async def _signed(self, start: Activation, files: UserFiles, job: Job | None) -> dict[str, str]:
        """For each input in an object store the URL that reads it; none where the job names no keys."""
        found = {}
        for attribute in _KEYS:
            if job is not None and isinstance(path := job.get(attribute), str) and path:
                text = await files.read_all(self._full(start, path), most=MOST_KEY)
                found[attribute] = text.decode("utf-8", "replace").strip()
        if "EC2AccessKeyId" not in found or "EC2SecretAccessKey" not in found:
            return {}
        region = job.get("AWSRegion") if job is not None else None
        key, secret, token = (found.get(name, "") for name in _KEYS)
        keys = Keys(key, secret, token, region if isinstance(region, str) else "")
        wall = self._claims.outside.wall()
        return {url: signed(url, keys, wall) for url in start.inputs if scheme_of(url) in SCHEMES}

    async def bring(self, params: dict[str, Any], stream: Stream) -> None:
        """Take a job's outputs: {claim, run}; answers ["ok", bytes] once everything is in place."""
        await self._finished.wait()
        start, files = self._running(params)
        claim = self._claims.claims[str(params.get("claim"))]
        arriving = _Arriving(files, start, self._note, next(self._numbers))
        total = 0
        left = 0
        try:
            async for item in stream:
                if isinstance(item, bytes):
                    if arriving.latest is None or len(item) > left:
                        raise PoolError("more of an output came than was announced")
                    await arriving.latest.write(item)
                    left -= len(item)
                    total += len(item)
                    if start.most_output is not None and total > start.most_output:
                        raise PoolError(f"{OUTPUT_LIMIT} = {start.most_output >> 20} is less than its outputs")
                    continue
                item = check_item(item, BROUGHT)
                if item[0] == "hole":
                    if arriving.latest is None or not 0 < item[1] <= left:
                        raise PoolError("a hole of an output came where there can be none")
                    await arriving.latest.skip(item[1])
                    left -= item[1]
                elif left:
                    raise PoolError("less of an output came than was announced")
                elif item[0] == "done":
                    break
                elif item[0] == "dir":
                    await files.makedirs(self._at_home(start, item[1]), mode=item[2] | 0o700)
                else:
                    path, mode, left = self._target(start, item)
                    if start.keeps_paths and item[0] == "file" and "/" in str(item[1]):
                        await files.makedirs(posixpath.dirname(path))
                    named = item[0] != "file" or self._is_named(start, item[1], path, claim)
                    await arriving.begin(path, mode, named=named)
            else:
                raise PoolError("the transfer of the outputs ended in the middle", retry=True)
            await arriving.see_on_disk()
            await self.before_placing(start)
            self._running(params)
            await arriving.place()
        except BaseException:
            await arriving.abandon()
            raise
        if arriving.beside and claim.job is not None:
            await self._tell(claim.job, _said_of(arriving.beside))
        await stream.send(["ok", total])
        await stream.finish()

    async def finish(self, notes: Mapping[str, bytes]) -> None:
        """After a restart: finish what was being put in place, before anything else is.

        Args:
            notes: what was noted, by the names that begin with PLACING.
        """
        self._finished.clear()
        try:
            for name, packed in notes.items():
                owner, noted = unpack(packed)
                files = self._files(str(owner))
                try:
                    await (files.finish_journal(noted) if isinstance(noted, str) else files.finish(noted))
                except PoolError as error:
                    log.warning("outputs were left half in place", extra={"job": name, "error": str(error)})
                await self._note(name, None)
        finally:
            self._finished.set()

    def _running(self, params: dict[str, Any]) -> tuple[Activation, UserFiles]:
        claim: ClaimedJob | None = self._claims.claims.get(str(params.get("claim")))
        if claim is None or claim.job is None or claim.start is None or claim.run != int(params.get("run", -1)):
            raise NotThisRun("this start of the job is not the present one any more")
        if claim.start.mode is not Mode.TRANSFER:
            raise NotPermitted(f"the files of job {claim.start.name} are not carried in this start")
        return claim.start, self._files(claim.owner)

    async def _send_executable(self, start: Activation, files: UserFiles, stream: Stream) -> None:
        await self._send_program(os.path.basename(start.executable), start.digest, start.executable, files, stream)

    async def _send_program(self, name: str, digest: str | None, path: str, files: UserFiles, stream: Stream) -> None:
        stored = self._executables.path(digest) if digest else None
        if stored is None:
            under, called = posixpath.split(name)
            await self._send(path, files, stream, mode=0o755, under=under, called=called)
            return
        size = stored.stat().st_size
        await stream.send(["file", name, 0o755, size])
        with stored.open("rb") as handle:
            while chunk := handle.read(CHUNK):
                await stream.send(chunk)

    async def _programs_wanted(self, start: Activation, stream: Stream) -> dict[str, str | None]:
        """Offer the programs of a job of several processes by what they are; the processes whose are to be sent.

        The digest of each is said; None for one that is not kept here, and is sent at each start from where it is.
        """
        layout, kept = start.layout, self._executables.kept
        carried = [process for process in start.processes if layout.program(process) is not None]
        digests = {process.name: await kept(start.owner, process.cmd) for process in carried}
        await stream.send([OFFER, {name: digest for name, digest in digests.items() if digest is not None}])
        _, names = check_item(await stream.receive(), {WANT: (TEXTS,)})
        return {name: digest for name, digest in digests.items() if digest is None or name in names}

    async def _send_processes(
        self, start: Activation, files: UserFiles, stream: Stream, wanted: Mapping[str, str | None]
    ) -> None:
        """What the processes of a job of several have of their own; see `pool.jobs.layout`."""
        layout = start.layout
        for name in layout.directories():
            await stream.send(["dir", name, 0o755])
        for process in start.processes:
            program = layout.program(process)
            if program is not None and process.name in wanted:
                await self._send_program(program, wanted[process.name], process.cmd, files, stream)
        for carried in layout.inputs():
            await self._send(carried.home, files, stream, under=carried.under, called=carried.name)
        for one in layout.streams.values():
            if not one.append:
                continue
            try:
                await files.stat(one.home)
            except FileProblem as problem:
                if problem.errno == errno.ENOENT:
                    continue
                raise
            under, called = posixpath.split(one.name)
            await self._send(one.home, files, stream, under=under, called=called)

    def _inputs(self, start: Activation) -> list[str]:
        paths = [path for path in start.inputs if not is_fetched(path)]
        if start.stdin != NOTHING:
            paths.append(start.stdin)
        return list({self._full(start, path): path for path in paths}.values())

    @staticmethod
    def _full(start: Activation, path: str) -> str:
        return path if path.startswith("/") else posixpath.join(start.iwd, path)

    async def _send(
        self,
        path: str,
        files: UserFiles,
        stream: Stream,
        *,
        mode: int | None = None,
        under: str = "",
        called: str = "",
    ) -> None:
        contents_only = path.endswith("/")
        path = path.rstrip("/") or "/"
        status = await files.stat(path)
        name = posixpath.join(under, called or posixpath.basename(path))
        if status.is_dir:
            inner = under if contents_only else name
            if not contents_only:
                await stream.send(["dir", name, status.mode])
            for entry in await files.listdir(path):
                await self._send(posixpath.join(path, entry), files, stream, under=inner)
            return
        await stream.send(["file", name, mode if mode is not None else status.mode, status.size])
        left = status.size
        async for piece in files.pieces(path, status.size):
            if isinstance(piece, int):
                await stream.send(["hole", min(piece, left)])
                left -= min(piece, left)
            elif left:
                await stream.send(piece[:left])
                left -= len(piece[:left])
            if not left:
                break
        if left:
            raise PoolError(f"{path} became shorter while it was sent", retry=True)

    def _target(self, start: Activation, item: list[Any]) -> tuple[str, int, int]:
        if item[0] == "stream":
            return self._stream_home(start, item[1]), 0o644, item[2]
        if item[0] == "stdout":
            return self._full(start, start.stdout), 0o644, item[1]
        if item[0] == "stderr":
            return self._full(start, start.stderr), 0o644, item[1]
        return self._at_home(start, item[1]), item[2], item[3]

    def _is_named(self, start: Activation, name: str, path: str, claim: ClaimedJob) -> bool:
        """Whether the job's description names what comes home to a path: as an output, or as an input it may change.

        What it does not name replaces nothing of its owner's, whoever runs the execute machine, and is not put in the
        place of what the job itself needs.

        Raises:
            PoolError: the path is the job's program, standard input or log.
        """
        listing = start.manifest != "" and name.partition("/")[0] == start.manifest
        if start.outputs is not None or name in start.remaps or listing:
            return True
        log = claim.job.get("UserLog") if claim.job is not None else None
        own = [start.executable, *([start.stdin] if start.stdin != NOTHING else []), *([log] if log else [])]
        own += [process.cmd for process in start.processes]
        if posixpath.normpath(path) in {posixpath.normpath(self._full(start, str(one))) for one in own}:
            raise PoolError(
                f"refused an output in the place of the job's own {posixpath.basename(path)}",
                hint="name it in transfer_output_files if it is an output",
            )
        return any(posixpath.normpath(self._full(start, one)) == posixpath.normpath(path) for one in start.inputs)

    @staticmethod
    def _stream_home(start: Activation, name: str) -> str:
        for one in start.layout.streams.values():
            if one.name == name:
                return one.home
        raise PoolError(f"refused an output that no process of the job has: {name!r}")

    def _at_home(self, start: Activation, name: str) -> str:
        """Where an output belongs: its own new place, or in that of the nearest directory that has one."""
        if posixpath.isabs(name) or ".." in name.split("/"):
            raise PoolError(f"refused to write outside the job's directory: {name!r}")
        if not start.may_bring(name):
            raise PoolError(f"refused an output that the job was not asked for: {name!r}")
        if start.processes and (place := start.layout.home_of(name)) is not None:
            return place
        rest = ""
        above = name
        while above:
            if above in start.remaps:
                return self._full(start, posixpath.join(start.remaps[above], rest).rstrip("/"))
            above, _, last = above.rpartition("/")
            rest = posixpath.join(last, rest)
        return self._full(start, name)

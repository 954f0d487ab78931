"""The shadow: a running job's agent on the submit side (EV 2.4, 3.6). It hands out the job's inputs and puts its
outputs in place.

Everything it touches it touches with the rights of the job's owner (B5). It answers only for the start (claim and
run) that the job is in; a starter that was given up, or somebody else, gets nothing. Outputs are put in their places
as one when all of them have come and are on disk (`pool.shadow.arriving`): a job is never reported with half an output.
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
from pool.jobs.activation import NOTHING, Activation, FileMode
from pool.jobs.output_places import OutputPlaces, full_path
from pool.jobs.registries import NoLogin, login_for
from pool.jobs.urls import is_fetched, scheme_of
from pool.outside import OutsideWorld
from pool.policy.packed import unpack
from pool.policy.queue import QueuedJob
from pool.shadow.arriving import OUTPUT_LIMIT, PLACING, Note, OutputReceiver
from pool.shadow.executables import ExecutableStore
from pool.shadow.files import FileProblem, FilesOf, UserFiles
from pool.shadow.object_urls import SCHEMES, SigningKeys, signed
from pool.shadow.sending import send_tree
from pool.wire import Stream
from pool.wire.errors import NotPermitted
from pool.wire.parameter_checks import TEXTS, check_item

__all__ = ["INPUT_LIMIT", "OUTPUT_LIMIT", "PLACING", "NotThisRun", "Shadow", "Spooled"]

CHUNK = 256 * 1024
#: The command that bounds what is sent to a job, as an error of it begins.
INPUT_LIMIT = "max_transfer_input_mb"
#: The offer of the programs of a job of several processes; see `pool.starter.programs`.
OFFER, WANT = "programs", "want"
#: Writes something into a job's log.
Tell = Callable[[QueuedJob, str], Awaitable[None]]
#: Outputs beside others that a job's log names.
SHOWN = 5
log = logging.getLogger("pool.shadow")


#: The files that hold the keys of an object store, and bytes that one has at most.
_KEYS = ("EC2AccessKeyId", "EC2SecretAccessKey", "EC2SessionToken")
MOST_KEY = 16384
#: Bytes of a file of logins.
MOST_LOGINS = 1 << 20


class ClaimedJob(Protocol):
    """The part of a claim that the shadow needs to know."""

    job: QueuedJob | None
    run: int
    start: Activation | None
    owner: str

    @property
    def node_outputs(self) -> dict[str, int] | None:
        """Of a parallel job: the places of its nodes' outputs that it does not name, and the node of each."""


class ClaimLookup(Protocol):
    """Where claims are found by their id."""

    @property
    def claims(self) -> dict[str, Any]: ...

    @property
    def outside(self) -> OutsideWorld: ...


class Spooled(Protocol):
    """Where the files of jobs lie that were submitted from another machine."""

    def locate(self, cluster: int, path: str) -> str:
        """Where on this machine a file of a cluster's lies."""

    def files(self, owner: str, cluster: int) -> UserFiles:
        """A user's files as the jobs of a cluster name them."""

    async def announce(self, start: Activation, announced: list[list[Any]]) -> None:
        """A job's outputs are about to be put in place."""


class _NothingSpooled:
    """All jobs were submitted here."""

    def __init__(self, files: FilesOf) -> None:
        self._files = files

    def locate(self, cluster: int, path: str) -> str:
        return path

    def files(self, owner: str, cluster: int) -> UserFiles:
        return self._files(owner)

    async def announce(self, start: Activation, announced: list[list[Any]]) -> None:
        """Nobody will ask for them."""


class NotThisRun(PoolError):
    """The caller's start of the job is not the present one; or it is, and a restarted schedd does not know it yet."""

    @classmethod
    def for_claim(cls, claim: ClaimedJob | None, run: int) -> NotThisRun:
        """For a claim that has not the job and the start that were asked for."""
        if claim is not None and claim.job is not None and claim.start is None and claim.run == run:
            return cls("the schedd was started again and has not reached this job's machine yet", retry=True)
        return cls("this start of the job is not the present one any more")


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
    """Whether a directory of the submit side, as a description names it, can have the same name in the job's
    directory.
    """
    parts = directory.split("/")
    return directory != "" and not directory.startswith("/") and ".." not in parts and parts != ["."]


def _shown(renamed: list[tuple[str, str]]) -> str:
    """Outputs that have another name than they were given."""
    shown = "; ".join(f"{name} was written as {got}" for name, got in renamed[:SHOWN])
    return shown + (f" (and {len(renamed) - SHOWN} more)" if len(renamed) > SHOWN else "")


def _name_beside(beside: list[tuple[str, str]]) -> str:
    """The job log's line about outputs that have another name than they were given."""
    return (
        f"{_shown(beside)}: what has the name is no job's output, and the description does not name it."
        " List it in transfer_output_files to have it replaced."
    )


class Shadow:
    """Serves the starters of all running jobs of one schedd.

    Args:
        before_placing: awaited before the outputs of a start take their places.
    """

    def __init__(
        self,
        claims: ClaimLookup,
        executables: ExecutableStore,
        files: FilesOf,
        note: Note,
        tell: Tell,
        spooled: Spooled | None = None,
        before_placing: Callable[[Activation], Awaitable[None]] | None = None,
    ) -> None:
        self._spooled = spooled or _NothingSpooled(files)
        self._claims = claims
        self._note = note
        self._tell = tell
        self._numbers = itertools.count(1)
        self._finished = asyncio.Event()
        self._finished.set()
        self._executables = executables
        self._files = files
        self._before_placing = before_placing or _nothing

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
            await send_tree(full_path(start, path), files, stream, under=under)
        if start.processes:
            await self._send_processes(start, files, stream, wanted)
        if any(scheme_of(name) in SCHEMES for name in start.inputs):
            job = self._claims.claims[str(params["claim"])].job
            await stream.send(["signed", await self._signed(start, files, job)])
        job = self._claims.claims[str(params["claim"])].job if start.image_source.startswith("docker://") else None
        if job is not None and isinstance(logins := job.get("RegistryLogins"), str) and logins:
            await stream.send(["signed", {start.image_source: await self._login(start, files, logins)}])
        await stream.send(["done"])
        await stream.finish()

    async def _login(self, start: Activation, files: UserFiles, logins: str) -> str:
        """The login for the registry of a job's image: that one from its owner's file, for this start only."""
        text = await files.read_all(full_path(start, logins), most=MOST_LOGINS)
        try:
            return login_for(start.image_source, text.decode("utf-8", "replace"))
        except NoLogin as error:
            hint = "run podman login, or leave docker_send_credentials out"
            raise PoolError(f"cannot log in for {start.image_source} with {logins}: {error}", hint=hint) from error

    async def _signed(self, start: Activation, files: UserFiles, job: QueuedJob | None) -> dict[str, str]:
        """For each input in an object store the URL that reads it; none where the job names no keys."""
        found = {}
        for attribute in _KEYS:
            if job is not None and isinstance(path := job.get(attribute), str) and path:
                text = await files.read_all(full_path(start, path), most=MOST_KEY)
                found[attribute] = text.decode("utf-8", "replace").strip()
        if "EC2AccessKeyId" not in found or "EC2SecretAccessKey" not in found:
            return {}
        region = job.get("AWSRegion") if job is not None else None
        key, secret, token = (found.get(name, "") for name in _KEYS)
        keys = SigningKeys(key, secret, token, region if isinstance(region, str) else "")
        wall = self._claims.outside.wall()
        return {url: signed(url, keys, wall) for url in start.inputs if scheme_of(url) in SCHEMES}

    async def store_outputs(self, params: dict[str, Any], stream: Stream) -> None:
        """Take a job's outputs: {claim, run}; answers ["ok", bytes] once everything is in place."""
        await self._finished.wait()
        start, files = self._running(params)
        claim: ClaimedJob = self._claims.claims[str(params.get("claim"))]
        log = claim.job.get("UserLog") if claim.job is not None else None
        arriving = OutputReceiver(files, start, self._note, next(self._numbers), claim.node_outputs)
        try:
            total, announced = await arriving.receive(stream, OutputPlaces(start, str(log) if log else None))
            await arriving.see_on_disk()
            await self._before_placing(start)
            await self._spooled.announce(start, announced)
            self._running(params)
            await arriving.rename_into_place()
        except BaseException:
            await arriving.abandon()
            raise
        if arriving.beside and claim.job is not None:
            await self._tell(claim.job, _name_beside(arriving.beside))
        if arriving.renumbered and claim.job is not None:
            said = f"node {start.part}: {_shown(arriving.renumbered)}: another node's has the name"
            await self._tell(claim.job, said)
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
            raise NotThisRun.for_claim(claim, int(params.get("run", -1)))
        if claim.start.mode is not FileMode.TRANSFER:
            raise NotPermitted(f"the files of job {claim.start.name} are not carried in this start")
        return claim.start, self._spooled.files(claim.owner, claim.start.job[0])

    async def _send_executable(self, start: Activation, files: UserFiles, stream: Stream) -> None:
        await self._send_program(os.path.basename(start.executable), start.digest, start.executable, files, stream)

    async def _send_program(self, name: str, digest: str | None, path: str, files: UserFiles, stream: Stream) -> None:
        stored = self._executables.path(digest) if digest else None
        if stored is None:
            under, called = posixpath.split(name)
            await send_tree(path, files, stream, mode=0o755, under=under, called=called)
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
        layout = start.layout
        carried = [process for process in start.processes if layout.program(process) is not None]
        digests: dict[str, str | None] = {}
        for process in carried:
            path = self._spooled.locate(start.job[0], process.cmd)
            digests[process.name] = await self._executables.stored_digest(start.owner, path)
        await stream.send([OFFER, {name: digest for name, digest in digests.items() if digest is not None}])
        _, names = check_item(await stream.receive(), {WANT: (TEXTS,)})
        return {name: digest for name, digest in digests.items() if digest is None or name in names}

    async def _send_processes(
        self, start: Activation, files: UserFiles, stream: Stream, wanted: Mapping[str, str | None]
    ) -> None:
        """The files of the processes of a job of several; see `pool.jobs.pipes.directories`."""
        layout = start.layout
        for name in layout.directories():
            await stream.send(["dir", name, 0o755])
        for process in start.processes:
            program = layout.program(process)
            if program is not None and process.name in wanted:
                await self._send_program(program, wanted[process.name], process.cmd, files, stream)
        for carried in layout.inputs():
            await send_tree(carried.submit_path, files, stream, under=carried.under, called=carried.name)
        for one in layout.streams.values():
            if not one.append:
                continue
            try:
                await files.stat(one.submit_path)
            except FileProblem as problem:
                if problem.errno == errno.ENOENT:
                    continue
                raise
            under, called = posixpath.split(one.name)
            await send_tree(one.submit_path, files, stream, under=under, called=called)

    def _inputs(self, start: Activation) -> list[str]:
        paths = [path for path in start.inputs if not is_fetched(path)]
        if start.stdin != NOTHING:
            paths.append(start.stdin)
        return list({full_path(start, path): path for path in paths}.values())

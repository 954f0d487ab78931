"""Submitting to a schedd on another machine: the jobs' files go along, and their outputs are fetched.

The description decides which files are sent, each under its own name. Returned files are written where the description
says, and nowhere else, whatever the schedd says (`pool.client.receipts`).
"""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.client.patience import Patience
from pool.client.receipts import Receipt, appended_by, directories_of, inputs_of
from pool.errors import PoolError
from pool.identity import file_tree_seen
from pool.jobs.output_places import OutputPlaces, full_path
from pool.jobs.userlog import END
from pool.shadow.arriving import OutputReceiver
from pool.shadow.files import FileProblem, FileStatus, LocalFiles, UserFiles
from pool.shadow.sending import send_tree
from pool.shadow.spooled import SpooledFiles

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.wire import Stream

WireAd = dict[str, Any]
Progress = Callable[[str], None]
#: Bytes of a log that are taken apart into its events; a larger one is written as it came.
LARGEST_LOG = 64 << 20
#: Jobs looked at before others on this loop have their turn.
TURN = 200


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The outcome of a fetch: jobs, files and bytes, and the jobs that failed, with the reason. An output is written
    under another name if the user has a file there that the description does not name; the new names are listed.
    """

    jobs: tuple[tuple[int, int], ...] = ()
    files: int = 0
    size: int = 0
    refused: tuple[tuple[str, str], ...] = ()
    beside: tuple[tuple[str, str], ...] = ()


async def is_elsewhere(pool: Pool) -> bool:
    """Whether the schedd does not see this user's files: it is on another machine, or another user there."""
    if not pool.address.startswith("tcp:"):
        return False
    from pool.client.descriptions import user_name
    from pool.config import Settings

    info = await pool.info()
    if info.get("identity") != user_name():
        return True
    seen = file_tree_seen()
    if seen and seen == info.get("file_tree"):
        return False
    try:
        settings = Settings.load(None, sets={}, environ=os.environ)
    except PoolError:
        return True
    shared = settings.is_set("FILESYSTEM_DOMAIN") and settings.text("FILESYSTEM_DOMAIN")
    return not shared or shared != info.get("filesystem_domain")


def spooled_ad(ad: WireAd, deltas: Sequence[WireAd | None] | None) -> WireAd:
    """The ad that jobs share, for a schedd that gets their files.

    Raises:
        PoolError: they work on files where they are, or are named by what only their machine knows.
    """
    for one in (ad, *(delta for delta in deltas or () if delta)):
        for name in ("Cmd", "In", "TransferInput", "Iwd"):
            if "$$(" in str(one.get(name, "")):
                raise PoolError(
                    f"cannot send the files of {one[name]!r}: $$() is known only where the job runs",
                    hint="name all the files in transfer_input_files, and choose in the program",
                )
    if ad.get("RemoteIO") is True:
        raise PoolError(
            "remote_io = on works on the files of the schedd's machine, and these are on another",
            hint="leave it out: the job's files are sent along",
        )
    if ad.get("ShouldTransferFiles") == "NO":
        raise PoolError(
            "should_transfer_files = NO, but the schedd is on another machine than the job's files",
            hint="leave it out, or `--no-spool` where the schedd sees the same files",
        )
    return {name: value for name, value in ad.items() if name != "RemoteIO"} | {"ShouldTransferFiles": "YES"}


async def send_inputs(pool: Pool, receipt: Receipt, progress: Progress | None = None) -> None:
    """Send the inputs of a cluster that was queued; its jobs may run when this returns.

    A lost connection is made again for as long as the pool's patience lasts, and the files go on from where they were.
    If a file cannot be sent, the cluster leaves the queue again.

    Raises:
        PoolError: a file cannot be read, or the schedd takes it no more.
    """
    sending = InputsOnTheWay(pool, receipt, progress)
    patience = Patience(pool.patience)
    try:
        while True:
            try:
                await sending.run()
                break
            except FileProblem:
                raise
            except PoolError as error:
                await patience.wait(error)
    except PoolError as error:
        from pool.client.addresses import NoPool

        if isinstance(error, NoPool):
            message = f"{error.message}; the jobs of cluster {receipt.cluster} are held without their files"
            raise NoPool(message, hint=f"poolnode rm {receipt.cluster}, and submit again", retry=True) from error
        await pool.act("remove", ids=[(receipt.cluster,)], reason="its files could not be sent")
        raise PoolError(f"nothing was queued: {error.message}", hint=error.hint) from error


@dataclass(slots=True)
class InputsOnTheWay:
    """The inputs of one cluster on their way.

    Attributes:
        sent: size and time of each file as it was sent.
    """

    pool: Pool
    receipt: Receipt
    progress: Progress | None
    files: LocalFiles = field(default_factory=LocalFiles)
    sent: dict[str, tuple[int, int]] = field(default_factory=dict)
    size: int = 0

    async def run(self) -> None:
        """Send what the schedd does not have."""
        there: set[str] = set()
        async with self.pool.streaming("schedd.spool_inputs", {"cluster": self.receipt.cluster}) as stream:
            async for item in stream:
                if item[0] in ("complete", "ok"):
                    return
                if item[0] == "there":
                    there.update(item[1])
                else:
                    await self._send(_Counting(stream, self), there)
                    await stream.send(["done"])
        raise PoolError("the schedd broke off before it had the files", retry=True)

    async def _send(self, stream: Any, there: set[str]) -> None:
        receipt, done, seen = self.receipt, set[str](), set[str]()

        def is_there(name: str, status: FileStatus) -> bool:
            mark = (status.size, status.mtime_ns)
            had, self.sent[name] = self.sent.get(name), mark
            return name in there and had == mark

        for number, proc in enumerate(receipt.unlike()):
            if number % TURN == TURN - 1:
                await asyncio.sleep(0)
            start, log = receipt.start(proc)
            for directory in directories_of(start, log):
                if directory not in seen:
                    seen.add(directory)
                    await self._send_directory(posixpath.normpath(directory), stream)
            wanted = inputs_of(start) + [full_path(start, path) for path in receipt.key_files(proc)]
            wanted += [path for path in appended_by(start) if await self._exists(path)]
            for path in map(posixpath.normpath, wanted):
                if path not in done:
                    done.add(path)
                    await send_tree(path, self.files, stream, under=posixpath.dirname(path), there=is_there)

    async def _exists(self, path: str) -> bool:
        try:
            await self.files.stat(path)
        except FileProblem:
            return False
        return True

    async def _send_directory(self, path: str, stream: Any) -> None:
        try:
            status = await self.files.stat(path)
        except FileProblem:
            return  # said when an output is written there
        if status.is_dir:
            await stream.send(["dir", path, status.mode & 0o777])

    def count_sent(self, size: int) -> None:
        """So many bytes more have gone."""
        before, self.size = self.size, self.size + size
        if self.progress is not None and before >> 20 != self.size >> 20:
            self.progress(f"sending files: {self.size >> 20:,} MB")


class _Counting:
    """A stream that tells of the bytes that go through it."""

    def __init__(self, stream: Stream, sending: InputsOnTheWay) -> None:
        self._stream = stream
        self._sending = sending

    async def send(self, item: Any) -> None:
        await self._stream.send(item)
        if isinstance(item, bytes):
            self._sending.count_sent(len(item))


class _AroundDirectory(OutputPlaces):
    """Places for who has no receipt: as outputs lie around the job's initial directory, which is the root here."""

    __slots__ = ()

    def target(self, item: Sequence[Any]) -> tuple[str, int, int]:
        path, mode, size = super().target(item)
        return path if item[0] == "file" else self.inside(path), mode, size  # a file's is this class's own place_of

    def place_of(self, name: str) -> str:
        return self.inside(super().place_of(name))

    def is_named(self, name: str, path: str) -> bool:
        return True  # nothing was in the directory before

    def inside(self, path: str) -> str:
        """A path below the root."""
        iwd, path = posixpath.normpath(self.start.iwd), posixpath.normpath(path)
        return path.removeprefix(iwd) if path.startswith(f"{iwd}/") else f"/{posixpath.basename(path)}"


async def fetch(
    pool: Pool,
    ids: Sequence[tuple[int, ...]],
    into: str | os.PathLike[str] | None = None,
    *,
    keep: bool = False,
    progress: Progress | None = None,
) -> FetchResult:
    """Fetch the outputs of jobs that were sent to a schedd; see `Pool.fetch`."""
    fetching = _Fetching(pool, progress)
    if into is not None:
        fetching.redirect_to(_empty_directory(Path(into)))
    await fetching.prepare(ids)
    params = {"ids": [list(one) for one in ids], "keep": keep}
    try:
        async with pool.streaming("schedd.fetch_outputs", params) as stream:
            await fetching.run(stream)
    except (ValueError, TypeError, IndexError, EOFError) as error:
        raise PoolError("the schedd sent what makes no sense, or broke off", hint="fetch again", retry=True) from error
    return fetching.result()


class _Fetching:
    """Outputs on their way here."""

    def __init__(self, pool: Pool, progress: Progress | None) -> None:
        self._pool = pool
        self._progress = progress
        self._files: UserFiles = LocalFiles()
        self._around = False
        self._receipts: dict[int, Receipt] = {}
        self._asked: set[tuple[int, ...]] = set()
        self._jobs: list[tuple[int, int]] = []
        self._refused: list[tuple[str, str]] = []
        self._beside: list[tuple[str, str]] = []
        self._count = self._size = 0

    def redirect_to(self, directory: str) -> None:
        """Write nothing but below a directory."""
        self._around, self._files = True, SpooledFiles(self._files, directory)

    async def prepare(self, ids: Iterable[tuple[int, ...]]) -> None:
        """Find out where what is asked for may be written.

        Raises:
            PoolError: nothing here knows that, and no directory was named.
        """
        self._asked = {tuple(one) for one in ids}
        for cluster in sorted({one[0] for one in self._asked}):
            receipt = Receipt.find(self._pool.address, cluster, os.environ)
            if receipt is None and not self._around:
                raise PoolError(
                    f"cluster {cluster} was submitted from another account, machine or address, or was not spooled: "
                    "where its outputs belong is not known here",
                    hint=f"poolnode fetch {cluster} --to DIR writes spooled outputs into a new directory; "
                    "jobs that were not spooled write their outputs where they were submitted",
                )
            self._receipts[cluster] = receipt or await self._receipt_of(cluster)

    async def _receipt_of(self, cluster: int) -> Receipt:
        """The schedd's name for a cluster's files, made fit for a directory of their own."""
        from pool.client.receipts import FILE_ATTRIBUTES

        ads = await self._pool.find([(cluster,)], (*FILE_ATTRIBUTES, "ProcId"))
        own = {int(ad["ProcId"]): ad for ad in ads}
        return Receipt(cluster, max(own, default=0) + 1, {}, own)

    async def run(self, stream: Stream) -> None:
        """Take all that comes."""
        job: tuple[int, int] | None = None
        async for item in stream:
            if not isinstance(item, list) or not item:
                raise PoolError("the schedd sent what makes no sense")
            if item[0] == "log" and job is not None:
                await self._receive_log(self._places_of(job), int(item[1]), stream)
                continue
            if job is not None:
                await stream.send(["kept", *job])
                self._jobs.append(job)
                job = None
            if item[0] == "job":
                job = (int(item[1]), int(item[2]))
                await self._receive_job(job, stream)
            elif item[0] == "over":
                self._refused = [(f"{one[0]}.{one[1]}", str(one[2])) for one in item[1]]
                await stream.finish()
            elif item[0] == "left":
                return
            else:
                raise PoolError("the schedd sent what makes no sense")
        raise PoolError("the schedd broke off", hint="fetch again: what has not come is still there", retry=True)

    def result(self) -> FetchResult:
        """The outcome."""
        return FetchResult(tuple(self._jobs), self._count, self._size, tuple(self._refused), tuple(self._beside))

    def _places_of(self, job: tuple[int, int]) -> OutputPlaces:
        if job not in self._asked and job[:1] not in self._asked:
            raise PoolError(f"refused outputs of job {job[0]}.{job[1]}, which were not asked for")
        places = self._receipts[job[0]].output_places(job[1])
        return _AroundDirectory(places.start, places.log) if self._around else places

    async def _receive_job(self, job: tuple[int, int], stream: Stream) -> None:
        places = self._places_of(job)
        arriving = OutputReceiver(self._files, places.start, _no_note, os.getpid())
        try:
            size, announced = await arriving.receive(stream, places)
            await arriving.see_on_disk()
            await arriving.rename_into_place()
        except BaseException:
            await arriving.abandon()
            raise
        self._beside += arriving.beside
        self._count += sum(item[0] != "dir" for item in announced)
        self._size += size
        if self._progress is not None:
            self._progress(f"fetching outputs: {self._size >> 20:,} MB")

    async def _receive_log(self, places: OutputPlaces, size: int, stream: Stream) -> None:
        if places.log is None:
            raise PoolError("refused a log that the job does not have")
        where = places.inside(places.log) if isinstance(places, _AroundDirectory) else places.log
        writer = await self._files.create(where)
        came, left = bytearray(), size
        try:
            while left > 0:
                item = await stream.receive()
                if isinstance(item, list) and item[:1] == ["hole"]:
                    item = bytes(min(int(item[1]), left, LARGEST_LOG))
                if not isinstance(item, bytes) or not 0 < len(item) <= left:
                    raise PoolError("the log of a job is not what was announced")
                left -= len(item)
                came += item
                if size > LARGEST_LOG:
                    await writer.write(bytes(came))
                    came.clear()
            if size <= LARGEST_LOG:
                await writer.write(await self._merged(where, bytes(came)))
            await writer.commit(sync=True)
        finally:
            await writer.abandon()

    async def _merged(self, path: str, came: bytes) -> bytes:
        """The log that is here, with the events that it lacks: other jobs may write into it, too."""
        try:
            here = await self._files.read_all(path, most=LARGEST_LOG)
        except FileProblem:
            return came
        end = END.encode()
        known = set(here.split(end))
        return here + b"".join(one + end for one in came.split(end) if one and one not in known)


async def _no_note(name: str, value: bytes | None) -> None:
    """A file that a crash cuts short here is fetched again."""


def _empty_directory(path: Path) -> str:
    """A directory with nothing in it, made where it is missing.

    Raises:
        PoolError: there is something in it, or it cannot be made.
    """
    path = Path(os.path.abspath(path))
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise PoolError(f"cannot fetch into {path}: it is not empty", hint="name a new directory")
    except OSError as error:
        raise PoolError(f"cannot fetch into {path}: {(error.strerror or str(error)).lower()}") from error
    return str(path)

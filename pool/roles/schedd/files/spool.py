"""The files of jobs that were submitted from another machine: kept beside the queue until their user has the outputs.

    spooled/CLUSTER                  in the state directory; its owner's, closed to others
        files/home/ann/in.dat        /home/ann/in.dat of the machine that it was submitted from
        outputs/PROC.PART            a job's outputs: a JSON list a line, as on the wire, then its place

The jobs are held until all inputs have come. From then on they run like others: `pool.shadow.spooled` finds their files
below that directory, under the names that their description has for them. A completed job stays in the queue until its
outputs were fetched, or its time is over; the directory goes with the last job of its cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pool.decimals import whole_number
from pool.errors import PoolError
from pool.identity import identity_of
from pool.jobs.activation import Activation
from pool.jobs.reasons import Hold
from pool.policy.packed import pack, unpack
from pool.policy.queue import HELD, LOCAL_UNIVERSES, QueuedJob, Wire
from pool.roles.base import RoleContext
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.intake import TURN
from pool.roles.schedd.core.job_ends import release_step
from pool.roles.schedd.core.ledger import JobChange
from pool.shadow.files import FileProblem, FileWriter, UserFiles
from pool.shadow.spooled import SpooledFiles, located
from pool.store import SetMeta
from pool.wire import Stream

#: The name under which the store keeps what is known of a cluster's files; its number follows.
SPOOLED = "spooled "
DIRECTORY, FILES, OUTPUTS = "spooled", "files", "outputs"
#: The reason for the hold in a job's ad meanwhile, by HTCondor's words and number.
SPOOLING: Wire = {"HoldReason": "Spooling input data files", "HoldReasonCode": int(Hold.SPOOLING_INPUT)}
#: In the ad of each job whose files were sent along: when its submit began.
SENT_ALONG = "StageInStart"
#: Files and directories of one submit; names told to a client that sends the rest, at a time.
MOST_FILES, NAMES = 1_000_000, 1000
#: Jobs released in one durable step.
BATCH = 300
#: Seconds that how much a cluster's files take waits for another write to go along with.
SOON = 0.1
#: Seconds between two looks at what is left of clusters that have gone.
TIDY_EVERY = 60.0
#: Bytes of the list of one job's outputs.
LONGEST_LIST = 64 << 20


@dataclass(slots=True)
class Record:
    """The files of one cluster.

    Attributes:
        complete: all inputs have come.
        size: bytes that they take.
        began: wall time of the submit.
        coming: the cluster is not in the queue yet.
        turn: counts the streams with inputs; the latest is listened to.
        there: inputs that have come.
    """

    owner: str
    complete: bool
    size: int
    began: float
    coming: bool = False
    turn: int = 0
    there: set[str] = field(default_factory=set)

    def packed(self) -> bytes:
        return pack([self.owner, self.complete, self.size, self.began])


class Spool:
    """The files of all clusters that were submitted from elsewhere, of one schedd.

    Args:
        sent: called with a cluster whose inputs have all arrived.
    """

    def __init__(
        self,
        context: ScheddContext,
        given: RoleContext,
        sent: Callable[[int], None],
    ) -> None:
        self._ledger = context.ledger
        self._given = given
        self._log = context.log
        self._sent = sent
        self._spawn = context.spawn
        self._records: dict[int, Record] = {}
        self._used: Counter[str] = Counter()
        self._wake = asyncio.Event()
        self._reported: set[int] = set()
        self._directory = given.state / DIRECTORY if given.state is not None else None
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._directory.chmod(0o711 if os.geteuid() == 0 else 0o700)

    def restore(self, meta: Mapping[str, bytes]) -> None:
        """The queue has been loaded: take up the notes about its jobs' files."""
        for name, packed in meta.items():
            if name.startswith(SPOOLED):
                record = self._records[int(name.removeprefix(SPOOLED))] = Record(*unpack(packed))
                self._used[record.owner] += record.size

    # -- where files are ---------------------------------------------------------------------------------

    def locate(self, cluster: int, path: str) -> str:
        """Where on this machine a file of a cluster's lies."""
        return located(str(self._root(cluster) / FILES), path) if cluster in self._records else path

    def has_cluster_of(self, path: str) -> bool | None:
        """Whether a path in the spool belongs to a cluster that is still there; None for other paths."""
        if self._directory is None or not path.startswith(f"{self._directory}/"):
            return None
        number = path.removeprefix(f"{self._directory}/").partition("/")[0]
        return whole_number(number) in self._ledger.queue.clusters

    def files(self, owner: str, cluster: int) -> UserFiles:
        """A user's files as the jobs of a cluster name them."""
        files, record = self._given.files(owner), self._records.get(cluster)
        if record is None:
            return files
        return SpooledFiles(files, str(self._root(cluster) / FILES), lambda size: self._charge(record, size))

    async def announce(self, start: Activation, announced: list[list[Any]]) -> None:
        """Keep the list of a job's outputs until they are fetched."""
        number, proc = start.job
        if (record := self._records.get(number)) is None:
            return
        files = self._given.files(start.owner)
        writer = await files.create(str(self._root(number) / OUTPUTS / f"{proc}.{start.part}"), mode=0o600)
        try:
            for first in range(0, len(announced), NAMES):
                lines = (json.dumps(item) + "\n" for item in announced[first : first + NAMES])
                await writer.write("".join(lines).encode())
            await writer.commit(sync=True)
        except BaseException:
            await writer.abandon()
            raise
        await self._ledger.store.write(SetMeta(f"{SPOOLED}{number}", record.packed()), within=SOON)

    def waits(self, job: QueuedJob) -> bool:
        """Whether inputs of a job have still to come."""
        record = self._records.get(job.cluster.id)
        return record is not None and not record.complete

    # -- coming in ---------------------------------------------------------------------------------------

    def accept(self, ad: Wire) -> None:
        """Check the ad that jobs from elsewhere share, and say in it what is so for all of them.

        Raises:
            PoolError: they need their files where the schedd is, or this schedd keeps none.
        """
        if self._directory is None:
            raise PoolError("cannot queue: this schedd keeps no files of jobs from other machines")
        if ad.get("JobUniverse") in LOCAL_UNIVERSES:
            raise PoolError(
                "cannot queue: jobs of the universes local and scheduler open their files on the schedd's machine",
                hint="submit them there, or leave the universe out",
            )
        if ad.get("RemoteIO") is True:
            raise PoolError(
                "cannot queue: remote_io = on works on the files of the schedd's machine, and the job's are elsewhere",
                hint="leave it out: the job's files are sent along",
            )
        if str(ad.get("ShouldTransferFiles", "")).upper() == "NO":
            raise PoolError(
                "cannot queue: should_transfer_files = NO, but the job's files are on another machine",
                hint="leave it out, or submit on a machine that shares its files with the schedd's",
            )
        ad.pop("RemoteIO", None)
        ad["ShouldTransferFiles"] = "YES"
        if str(ad.get("WhenToTransferOutput", "NEVER")).upper() == "NEVER":
            ad["WhenToTransferOutput"] = "ON_EXIT"
        kept = int(self._kept_for())
        stays = f"JobStatus == 4 && (CompletionDate =?= undefined || time() - CompletionDate < {kept})"
        own = ad.get("LeaveJobInQueue", False)
        ad["LeaveJobInQueue"] = [f"({own[0]}) || ({stays})" if isinstance(own, list) else stays]
        ad[SENT_ALONG] = ad["QDate"]

    @staticmethod
    def check_difference(delta: Wire) -> None:
        """Refuse what may not differ from job to job. Raises PoolError."""
        for name in ("RemoteIO", "ShouldTransferFiles", "JobUniverse"):
            if name in delta:
                raise PoolError(f"cannot queue: {name} differs from job to job", hint="submit them as several clusters")

    async def begin(self, number: int, owner: str) -> None:
        """Make a place for a cluster that is about to be queued; `queued` has to follow."""
        record = Record(owner, False, 0, self._given.outside.wall(), coming=True)
        await self._ledger.store.write(SetMeta(f"{SPOOLED}{number}", record.packed()))
        self._records[number] = record
        root = self._root(number)
        try:
            root.mkdir(mode=0o700)
            if os.geteuid() == 0:
                uid, gid, _ = identity_of(owner, self._given.user)
                os.chown(root, uid, gid)
            files = self._given.files(owner)
            for name in (FILES, OUTPUTS):
                await files.makedirs(str(root / name), mode=0o700)
        except BaseException as error:
            self.queued(number)
            if isinstance(error, OSError):
                raise PoolError(f"cannot keep the job's files: {error.strerror}", retry=True) from error
            raise

    def queued(self, number: int) -> None:
        """A cluster has come into the queue, or it never will."""
        self._records[number].coming = False
        if number not in self._ledger.queue.clusters:
            self.wake()

    async def receive_inputs(self, number: int, owner: str | None, stream: Stream) -> None:
        """Take a cluster's inputs: ["dir", path, mode], ["file", path, mode, size] and its bytes and holes, "done".

        First it is said what has come already: ["there", paths], as often as needed, then ["go"], or ["complete"].
        Answers ["ok", bytes], durably, once the jobs may run.
        """
        record = self._record(number, owner)
        record.turn += 1
        if record.complete:
            await stream.send(["complete"])
            await stream.finish()
            return
        there = sorted(record.there)
        for first in range(0, len(there), NAMES):
            await stream.send(["there", there[first : first + NAMES]])
        await stream.send(["go"])
        turn = record.turn
        await self._write(number, record, turn, stream)
        files, root = self._given.files(record.owner), str(self._root(number))
        await files.sync_volume(root)
        self._charge(record, await files.tree_size(root) - record.size)
        self._check_there(number, record, turn)
        # The sender may be gone; work that has begun is done to its end.
        await asyncio.shield(self._spawn(self._complete(number, record), "inputs"))
        await stream.send(["ok", record.size])
        await stream.finish()

    async def _complete(self, number: int, record: Record) -> None:
        record.complete = True
        await self._ledger.store.write(SetMeta(f"{SPOOLED}{number}", record.packed()))
        await self._release(number)

    async def _write(self, number: int, record: Record, turn: int, stream: Stream) -> None:
        files = self.files(record.owner, number)
        writer: FileWriter | None = None
        left = 0
        try:
            async for item in stream:
                self._check_there(number, record, turn)
                if writer is not None and isinstance(item, bytes) and len(item) <= left:
                    await writer.write(item)
                    left -= len(item)
                elif writer is not None and (hole := _hole(item)) and hole <= left:
                    await writer.skip(hole)
                    left -= hole
                elif left or isinstance(item, bytes):
                    raise PoolError("an input is longer or shorter than was announced")
                elif item == ["done"]:
                    return
                else:
                    kind, path, mode, left = _announced(item)
                    if len(record.there) >= MOST_FILES:
                        raise PoolError(f"more than {MOST_FILES} files", hint="send them as an archive")
                    record.there.add(path)
                    if kind == "dir":
                        await files.makedirs(path, mode=mode | 0o700)
                        continue
                    record.there.discard(path)
                    writer = await files.create(path, mode=mode | 0o600)
                if writer is not None and not left:
                    done, writer = writer, None
                    await done.commit()
                    record.there.add(done.path)
            raise PoolError("the inputs broke off in the middle; the jobs wait for the rest", retry=True)
        finally:
            if writer is not None:
                await writer.abandon()

    def _check_there(self, number: int, record: Record, turn: int) -> None:
        if number not in self._ledger.queue.clusters:
            raise PoolError(f"cluster {number} was removed while its files were sent")
        if record.turn != turn or record.complete:
            raise PoolError(f"the files of cluster {number} are sent over another connection", retry=True)

    async def _release(self, number: int) -> None:
        cluster = self._ledger.queue.clusters.get(number)
        if cluster is None:
            return
        steps: list[JobChange] = []
        for count, job in enumerate(cluster.jobs.values(), 1):
            if len(steps) >= BATCH or not count % TURN:
                await self._ledger.commit(*steps)
                steps = []
                await asyncio.sleep(0)
            queued = cluster.jobs.get(job.proc) is job
            if queued and job.status == HELD and job.get("HoldReasonCode") == Hold.SPOOLING_INPUT:
                steps.append(release_step(job, "its input files have come"))
                steps[-1].changes["StageInFinish"] = int(self._given.outside.wall())
        await self._ledger.commit(*steps)
        self._sent(number)

    # -- afterwards --------------------------------------------------------------------------------------

    def wake(self) -> None:
        """A cluster may have left the queue."""
        self._wake.set()

    async def run(self) -> None:
        """Release what a crash has kept from it, then remove what no job needs any more, until cancelled."""
        for number, record in list(self._records.items()):
            if record.complete:
                await self._release(number)
        while True:
            await self._tidy()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TIDY_EVERY):
                    await self._wake.wait()
            self._wake.clear()

    def abandoned(self) -> list[int]:
        """Clusters whose inputs have not all come within the time that files are kept."""
        before = self._given.outside.wall() - self._kept_for()
        return [number for number, record in self._records.items() if not record.complete and record.began < before]

    async def _tidy(self) -> None:
        for number, record in list(self._records.items()):
            if record.coming or number in self._ledger.queue.clusters:
                continue
            root = self._root(number)
            try:
                if root.exists():
                    await self._given.files(record.owner).remove_tree(str(root))
                    root.rmdir()
            except (PoolError, OSError) as error:
                if number not in self._reported:
                    self._reported.add(number)
                    self._log.warning("spooled files stay", extra={"directory": str(root), "error": str(error)})
                continue
            if self._records.pop(number, None) is record:
                self._used[record.owner] -= record.size
            await self._ledger.store.write(SetMeta(f"{SPOOLED}{number}", None))

    # -- outputs -----------------------------------------------------------------------------------------

    def record_of(self, number: int) -> Record | None:
        """The record of a cluster's files; None where it has none here."""
        return self._records.get(number)

    async def outputs_of(self, job: QueuedJob) -> list[list[Any]]:
        """The outputs that a job sent back; none where it has not ended."""
        files, found = self._given.files(job.cluster.owner), []
        for part in range(MOST_FILES):
            path = str(self._root(job.cluster.id) / OUTPUTS / f"{job.proc}.{part}")
            try:
                text = await files.read_all(path, most=LONGEST_LIST)
            except FileProblem as problem:
                if problem.errno == errno.ENOENT:
                    break
                raise
            found += [_listed(line) for line in text.splitlines()]
        return found

    # -- small things ------------------------------------------------------------------------------------

    def _root(self, number: int) -> Path:
        assert self._directory is not None
        return self._directory / str(number)

    def _kept_for(self) -> float:
        return self._given.settings.number("SPOOL_KEPT")

    def _record(self, number: int, owner: str | None) -> Record:
        """A cluster's record, for its owner; None is an administrator."""
        record = self._records.get(number)
        if record is None or number not in self._ledger.queue.clusters:
            raise PoolError(f"cluster {number} waits for no files", hint="`poolnode q` lists what is in the queue")
        if owner is not None and record.owner != owner:
            raise PoolError(f"cluster {number} belongs to {record.owner}")
        return record

    def _charge(self, record: Record, size: int) -> None:
        most = int(self._given.settings.number("MAX_SPOOL_BYTES_PER_OWNER"))
        used = self._used[record.owner]
        if size > 0 and most and used + size > most:
            raise PoolError(
                f"no room for more files of {record.owner} at the schedd: MAX_SPOOL_BYTES_PER_OWNER = {most}",
                hint="fetch or remove jobs that have ended, then try again",
            )
        record.size += size
        self._used[record.owner] += size


def _listed(line: bytes) -> list[Any]:
    """An output as it was noted. Its owner may have changed the list: raises PoolError where it makes no sense."""
    try:
        item = json.loads(line)
    except ValueError:
        item = None
    if not isinstance(item, list) or len(item) < 3 or not isinstance(item[0], str) or not isinstance(item[-1], str):
        raise PoolError("the list of the job's outputs makes no sense", hint="release or submit the job again")
    return item


def _hole(item: Any) -> int:
    """How long a hole is; 0 for what is none."""
    if isinstance(item, list) and len(item) == 2 and item[0] == "hole" and type(item[1]) is int:
        return max(0, item[1])
    return 0


def _announced(item: Any) -> tuple[str, str, int, int]:
    """Kind, path, mode and size of what comes next. Raises PoolError."""
    if isinstance(item, list) and item[:1] in (["dir"], ["file"]) and len(item) == (3 if item[0] == "dir" else 4):
        kind, path, mode, size = [*item, 0][:4]
        if isinstance(path, str) and type(mode) is int and type(size) is int and 0 <= size < 2**60:
            return kind, path, mode & 0o777, size
    raise PoolError("an input was announced in a way that makes no sense")

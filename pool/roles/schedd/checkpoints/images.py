"""The checkpoints of a schedd's jobs: taken in from execute machines, and given to the next one (C4, VS 5.3).

A checkpoint that arrived whole is committed in the store first, and then noted with the job; one that is in the store
and not noted is as good. `pool.policy.checkpoints` decides from which one a start continues.

The last checkpoint of a job that is removed with `rm --checkpoint` is kept under a name of its own for a while,
for jobs to begin with that say `start_from_checkpoint`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from pool.errors import PoolError
from pool.images import ImageError, ImageStore, Manifest, NoRoom, parallel, receive_image, send_image
from pool.images.priority import run_low_priority, run_normal
from pool.jobs.activation import FileMode
from pool.jobs.events import EventKind
from pool.jobs.states import Happening
from pool.policy.checkpoints import Attempt, go_on_from
from pool.policy.queue import QueuedJob, Wire
from pool.policy.slot_names import machine_of_slot
from pool.roles.schedd.checkpoints.place import CheckpointPlace, name_of
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.job_ends import TRIES
from pool.roles.schedd.core.ledger import JobChange
from pool.shadow.shadow import NotThisRun
from pool.wire import Stream

#: The names of kept checkpoints begin with this.
KEPT = "kept-"
#: The facts kept with them about the machine that made them, and their names in its ad.
MADE_ON = {"kernel": "KernelVersion", "arch": "Arch", "processor": "Microarch"}
#: The job's own note of the last checkpoint of its last complete run.
COMPLETE = "_complete"
#: The id of a job.
ID = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}")


class StoredCheckpoints:
    """Stored checkpoints.

    Args:
        place: where they are stored.
        announced: called with a job and a checkpoint of it that is coming; done before that counts.
        kept: called with a job when another checkpoint of it is safe.
        lost: called with the reason when the place, which could be reached, cannot be reached any more.
        late: called when a checkpoint waits though the place is not away.
    """

    def __init__(
        self,
        context: ScheddContext,
        place: CheckpointPlace,
        *,
        announced: Callable[[QueuedJob, Manifest], Awaitable[None]],
        kept: Callable[[QueuedJob], Awaitable[None]],
        lost: Callable[[str], None],
        late: Callable[[], None],
    ) -> None:
        self._place = place
        self._announced = announced
        self._kept = kept
        self._lost = lost
        self._late = late
        self._ledger = context.ledger
        self._claims = context.claims
        self._outside = context.outside
        self._log = context.log
        self._own_machine = context.name
        self._links = context.links
        self._spawn = context.spawn
        #: Jobs that have a checkpoint before they are in the queue.
        self._coming: set[str] = set()
        self._nearer: dict[str, tuple[int, str, str]] = {}

    @property
    def store(self) -> ImageStore | None:
        """Where checkpoints are now; None where none can be reached."""
        return self._place.store

    def newest(
        self, job: QueuedJob, mode: Callable[[], FileMode] | None = None, tries: list[Attempt] | None = None
    ) -> int | None:
        """The checkpoint that a job's next start goes on from; None for its beginning.

        Args:
            mode: how that start gets at the job's files; one that was made where it was otherwise is passed over.
            tries: that failed so far; by default those noted with the job.
        """
        store, name = self.store, name_of(job)
        if store is None or not job.get("NumCkpts", 0):
            return None
        if tries is None:
            tries = [Attempt(str(machine), int(number)) for machine, number in job.stored_note(TRIES, ()) or ()]
        generations = _of_this_run(job, store.generations(name))
        if mode is not None and generations:
            wanted = mode()
            generations = [number for number in generations if _fits(store.manifest(name, number), wanted)]
        return go_on_from(generations, tries, self._own_machine)

    def made_in(self, job: QueuedJob) -> FileMode | None:
        """How the job's files were reached when its newest checkpoint was made; None where it has none."""
        if self.store is None or not job.get("NumCkpts", 0):
            return None
        number = max(_of_this_run(job, self.store.generations(name_of(job))), default=None)
        if number is None:
            return None
        manifest = self.store.manifest(name_of(job), number)
        return next((mode for mode in FileMode if _fits(manifest, mode)), None)

    def latest(self, job: QueuedJob) -> int | None:
        """The number of a job's last checkpoint."""
        return max(self.store.generations(name_of(job)), default=None) if self.store is not None else None

    async def receive(self, params: dict[str, Any], stream: Stream) -> None:
        """A running job's checkpoint: {claim, run, last}; see `pool.images.transfer`. The last one is waited for."""
        job = self._job_of(params)
        store = self._place.for_new(job)
        if params.get("set") is not None:
            await self._receive_part(store, job, params, stream)
            return
        if self._claims[str(params["claim"])].gang is not None:
            raise ImageError("the image of a part of a job is no checkpoint of the job")

        async def announced(manifest: Manifest) -> None:
            await self._announced(job, manifest)

        async def stored(manifest: Manifest) -> None:
            if store is self.store:
                self._remember(job, manifest.generation, params.get("nearer"))
            elif self._place.away is None:
                self._late()
            if self._present(params) is job:
                await self.record_checkpoint(job, {"size": manifest.size, "sent": manifest.size})
                await self._kept(job)

        with run_normal(when=bool(params.get("last"))):
            try:
                await receive_image(store, name_of(job), stream, renumber=True, announced=announced, kept=stored)
            except ImageError as error:
                self._has_failed(store, error)
                raise
        if job.status.final:  # it has ended meanwhile, and what it had was forgotten then
            await self.forget(job)

    async def _receive_part(self, store: ImageStore, job: QueuedJob, params: dict[str, Any], stream: Stream) -> None:
        """The image of one part of a job on several machines: {claim, run, set}; kept when those of all parts are."""
        claim = self._claims[str(params["claim"])]
        made = claim.gang.set if claim.gang is not None else None
        if made is None or made.number != params["set"]:
            raise ImageError("there is no such checkpoint of the job any more")

        async def tentative(manifest: Manifest) -> Manifest:
            return await made.add_image(claim.part, manifest)

        with run_normal(when=bool(params.get("last"))):
            try:
                await receive_image(store, f"{name_of(job)}.{claim.part}", stream, tentative=tentative)
            except ImageError as error:
                self._has_failed(store, error)
                raise

    async def store_set(self, job: QueuedJob, images: Mapping[int, Manifest], over: Mapping[int, Wire]) -> Manifest:
        """Make one checkpoint of the images of all parts of a job, whose chunks are here: by one rename.

        Args:
            images: of the parts that ran, by their numbers.
            over: the ends of the others, as they were reported.

        Raises:
            ImageError: it cannot be kept.
        """
        wall = self._outside.wall()
        parts, facts = parallel.merge_images(images, over)
        store = self._place.for_new(job)
        with store.begin(name_of(job)) as draft:
            manifest = await run_low_priority(draft.commit, parts, wall, facts=facts)
        await self.record_checkpoint(job, {"size": manifest.size, "sent": manifest.size})
        return manifest

    def ends_in(self, job: QueuedJob, generation: int | None) -> dict[int, Wire]:
        """The parts of a job that had ended before a checkpoint, and how."""
        if self.store is None or generation is None:
            return {}
        return parallel.ends_in(self.store.manifest(name_of(job), generation))

    def fits(self, job: QueuedJob, generation: int, modes: Mapping[int, FileMode]) -> bool:
        """Whether parts reach their files as they did at a checkpoint."""
        assert self.store is not None
        whole = self.store.manifest(name_of(job), generation)
        return all(_fits(parallel.part_in(whole, part), mode) for part, mode in modes.items())

    def _remember(self, job: QueuedJob, generation: int, offer: Any) -> None:
        """Where else the checkpoint is to be had for a while: {address, ticket}"""
        self._nearer.pop(name_of(job), None)
        if isinstance(offer, dict) and all(isinstance(offer.get(key), str) for key in ("address", "ticket")):
            self._nearer[name_of(job)] = (generation, offer["address"], offer["ticket"])

    def peer_of(self, job: QueuedJob, generation: int | None) -> tuple[str, str] | None:
        """Address and ticket of the machine that made a checkpoint, as far as is known."""
        known = self._nearer.get(name_of(job))
        return (known[1], known[2]) if known is not None and known[0] == generation else None

    async def record_checkpoint(self, job: QueuedJob, data: dict[str, Any]) -> None:
        """Write down that a job has a checkpoint more."""
        changes: dict[str, Any] = {
            "NumCkpts": int(job.get("NumCkpts", 0) or 0) + 1,
            "LastCkptTime": int(self._outside.wall()),
        }
        await self._ledger.commit(JobChange(job, None, changes, EventKind.CHECKPOINTED, data))

    async def send_image(self, params: dict[str, Any], stream: Stream) -> None:
        """The checkpoint that a start goes on from: {claim, run, generation}."""
        job = self._job_of(params)
        if self._place.away is not None or self.store is None:
            raise ImageError(f"checkpoints cannot be had now: {self._place.why_waiting()[1]}", retry=True)
        store = self.store
        claim, manifest = self._claims[str(params["claim"])], store.manifest(name_of(job), int(params["generation"]))
        if claim.gang is not None:
            manifest = parallel.part_in(manifest, claim.part)
        with run_normal():
            try:
                await send_image(store, manifest, stream)
            except ImageError as error:
                self._has_failed(store, error)
                raise
        await stream.finish()

    def begin_anew(self, job: QueuedJob, steps: Sequence[JobChange]) -> None:
        """A run has come to its end by itself. If the job is to run again, that run begins anew: a checkpoint of a
        complete run is of no use to the next one. So does a held job with remote files when it is released: what the
        complete run did to them is not undone any more.

        Args:
            steps: that follow from the end; the note is written with them.
        """
        for step in steps:
            held = step.happening is Happening.HOLD and job.get("RemoteIO")
            if (step.happening is Happening.REQUEUE or held) and (number := self.latest(job)) is not None:
                step.changes[COMPLETE] = number
                job.update({COMPLETE: number})

    async def forget(self, job: QueuedJob) -> None:
        """The job has ended for good."""
        if (offered := self._nearer.pop(name_of(job), None)) is not None:
            _, address, ticket = offered
            self._spawn(self._withdraw(name_of(job), address, ticket), "withdraw a checkpoint", alone=True)
        if self._place.waiting is not None:
            await asyncio.to_thread(self._place.waiting.drop, name_of(job))
        if self.store is not None:
            await asyncio.to_thread(self.store.drop, name_of(job))

    async def _withdraw(self, job: str, address: str, ticket: str) -> None:
        """Tell the machine that made a checkpoint that no other machine will ask for it: it is dropped there now, and
        not when its time is over."""
        with contextlib.suppress(PoolError, OSError, TimeoutError):
            await self._links.call(address, "startd.withdraw_image", {"job": job, "ticket": ticket})

    async def retain_last(self, job: QueuedJob, claim: HeldClaim | None = None) -> str:
        """Keep the last good checkpoint of a job that is to be removed; its name, empty where there is none.

        Args:
            claim: that its last run was on, where that ends with it.
        """
        generation = self.newest(job)
        if self.store is None or generation is None:
            return ""
        name = name_of(job)
        made = dict(self.store.manifest(name, generation).facts)
        facts: dict[str, Any] = {"owner": job.cluster.owner, "command": str(job.get("Cmd") or "")}
        if claim is not None and made.get("run", claim.run) == claim.run:
            facts["machine"] = machine_of_slot(claim.slot)
            facts |= {key: str(claim.ad.value(name, "") or "") for key, name in MADE_ON.items()}
        try:
            await run_low_priority(self.store.copy, name, generation, KEPT + name, self._outside.wall(), **facts)
        except ImageError as error:
            self._log.error("a checkpoint could not be kept", extra={"job": name, "why": str(error)})
            return ""
        return name

    def kept_ones(self, owner: str | None) -> list[dict[str, Any]]:
        """The kept checkpoints of a user, or of all: {job, owner, command, size, created, own, machine, kernel, ...}

        Raises:
            PoolError: they cannot be reached now.
        """
        if self._place.away is not None:
            raise PoolError(self._place.away[1], retry=True)
        found: list[dict[str, Any]] = []
        for name in self.store.jobs() if self.store is not None else ():
            assert self.store is not None
            if not name.startswith(KEPT):
                continue
            manifest = self.store.manifest(name)
            facts = dict(manifest.facts)
            if owner is None or facts.get("owner") == owner:
                said = {key: str(facts.get(key) or "") for key in ("owner", "command", "machine", *MADE_ON)}
                own = facts.get("kind") == "self"
                one = {"job": name.removeprefix(KEPT), "size": manifest.size, "created": manifest.created, "own": own}
                found.append(one | said)
        return sorted(found, key=lambda one: tuple(map(int, one["job"].split("."))))

    async def drop_kept(self, jobs: Iterable[str], owner: str | None) -> dict[str, list[Any]]:
        """Delete kept checkpoints: {done: jobs, refused: [[job, why], ...]}

        Args:
            owner: whose may be deleted; None for everybody's.

        Raises:
            PoolError: they cannot be reached now.
        """
        known = {one["job"]: one for one in self.kept_ones(None)}
        done: list[str] = []
        refused: list[list[str]] = []
        for job in dict.fromkeys(jobs):
            if job not in known:
                refused.append([job, "no checkpoint of it is kept here"])
            elif owner is not None and known[job]["owner"] != owner:
                refused.append([job, f"it belongs to {known[job]['owner']}"])
            else:
                assert self.store is not None
                await asyncio.to_thread(self.store.drop, KEPT + job)
                done.append(job)
        return {"done": done, "refused": refused}

    async def begin_with(self, origin: Any, owner: str, cluster: int, count: int) -> None:
        """Give the kept checkpoint of a removed job to the jobs of a cluster that is about to be queued.

        Args:
            origin: the id of the removed job.

        Raises:
            PoolError: there is none, or it is another user's.
        """
        name = str(origin)
        if self._place.away is not None:
            text = f"start_from_checkpoint = {name[:80]}: {self._place.away[1]}"
            raise PoolError(text, hint="submit again later", retry=True)
        kept = self.store.generations(KEPT + name) if self.store is not None and ID.fullmatch(name) else ()
        if self.store is None or not kept:
            raise PoolError(
                f"start_from_checkpoint = {name[:80]}: no checkpoint of such a job is kept here",
                hint="`poolnode rm --checkpoint JOB` keeps the last one of a job",
            )
        facts = dict(self.store.manifest(KEPT + name, kept[-1]).facts)
        if facts.get("owner") != owner:
            raise PoolError(f"start_from_checkpoint = {name}: job {name} was not one of {owner}'s")
        for proc in range(count):
            self._coming.add(f"{cluster}.{proc}")
            to = f"{cluster}.{proc}"
            await run_low_priority(self.store.copy, KEPT + name, kept[-1], to, self._outside.wall())

    def queued(self, cluster: int, count: int) -> None:
        """Jobs that were about to be queued are, or never will be."""
        self._coming.difference_update(f"{cluster}.{proc}" for proc in range(count))

    async def tidy(self, queued: Container[str], kept_for: float) -> None:
        """Drop what belongs to no job of the queue, and kept checkpoints that are older than so many seconds."""
        store, waiting = self.store, self._place.waiting
        for name in waiting.jobs() if waiting is not None else ():
            assert waiting is not None
            if name not in queued:
                await asyncio.to_thread(waiting.drop, name)
        for name in store.jobs() if store is not None else ():
            assert store is not None
            if name.startswith(KEPT):
                old = self._outside.wall() - store.manifest(name).created > kept_for
            else:
                old = name not in queued and name not in self._coming
            if old:
                await asyncio.to_thread(store.drop, name)

    def _job_of(self, params: dict[str, Any]) -> QueuedJob:
        job = self._present(params)
        if job is None:
            raise NotThisRun("this start of the job is not the present one any more")
        return job

    def _has_failed(self, store: ImageStore, error: ImageError) -> None:
        """An operation failed: perhaps the place cannot be reached any more."""
        failed = isinstance(error.__cause__, OSError) and not isinstance(error, NoRoom)
        if failed and store is self.store and self._place.away is None:
            self._lost(error.message)

    def _present(self, params: dict[str, Any]) -> QueuedJob | None:
        claim = self._claims.get(str(params.get("claim")))
        if claim is None or claim.run != int(params.get("run", -1)):
            return None
        return claim.job


def _of_this_run(job: QueuedJob, generations: Iterable[int]) -> list[int]:
    """The checkpoints that were made since the job's last complete run."""
    complete = int(job.stored_note(COMPLETE, 0) or 0)
    return [number for number in generations if number > complete]


def _fits(manifest: Manifest, mode: FileMode) -> bool:
    facts = dict(manifest.facts)
    where = "own" if facts.get("kind") == "self" else facts.get("files", "shared")
    return {"own": FileMode.TRANSFER, "remote": FileMode.REMOTE}.get(str(where), FileMode.SHARED) is mode

"""A job on several machines as the schedd keeps it, and its checkpoint in the making: records.

The room `pool.roles.schedd.parallel` acts on them.
"""

from __future__ import annotations

import asyncio
import builtins
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pool.images import ImageError, Manifest
from pool.jobs.activation import Activation
from pool.jobs.gangs import NODE0, GangParts, is_parallel, parts_of, policy_of
from pool.jobs.network_use import PartsUse
from pool.policy import nodes
from pool.policy.flock.cards import PartCard
from pool.policy.gang_networks import GangNetwork
from pool.policy.gangs import BY_ITSELF, ends_gang, explains
from pool.policy.queue import QueuedJob, Wire

if TYPE_CHECKING:
    from pool.roles.schedd.core.claims import HeldClaim


@dataclass(slots=True, eq=False)
class CheckpointSet:
    """A checkpoint of all parts of a job in the making.

    Attributes:
        number: known to this start's parts alone; used once.
        parts: those whose images it needs. ends: the reports of those that have ended.
        images: those that have come, whose chunks stay while `add_image` waits.
        whole: done when all have come. kept: the checkpoint, when it is on disk.
    """

    number: str
    parts: frozenset[int]
    ends: dict[int, dict[str, Any]]
    whole: asyncio.Future[None]
    kept: asyncio.Future[Manifest]
    images: dict[int, Manifest] = field(default_factory=dict)

    async def add_image(self, part: int, manifest: Manifest) -> Manifest:
        """The image of a part is here; answers when the checkpoint is kept.

        Raises:
            ImageError: it is not.
        """
        if part not in self.parts or self.kept.done():
            raise ImageError("there is no such checkpoint of the job any more")
        self.images[part] = manifest
        if self.images.keys() == self.parts and not self.whole.done():
            self.whole.set_result(None)
        return await asyncio.shield(self.kept)

    def fail(self, why: str) -> None:
        """It does not come about."""
        for one in (self.whole, self.kept):
            if not one.done():
                one.set_exception(ImageError(f"there is no checkpoint of the job: {why}", retry=True))
                one.exception()  # heard of, whether anybody waits or not


@dataclass(slots=True, eq=False)
class RunningGang:
    """A job whose parts have been started.

    Attributes:
        secret: what the parts know each other by.
        parts: as the job describes them. parallel: they are numbered nodes, and hosts is the addresses of all.
        claims: of the parts that have not ended.
        reports: of those that have, in the order in which they came; root: the one that ended the gang.
        cards: what each part brought to the meeting; met: done when all have come.
        checkpoint: that it goes on from; the ends of parts that had ended before are among the reports.
        set: the checkpoint that is being made. clock: makes them from time to time.
        costs, trouble: what each part's checkpoints came to, and what of it cannot be saved.
        saving: held while one is. last: makes that of a job of which a part has to leave its machine. saved: it is
            kept, and with it all that was done.
        failed_on: the slot of the part that ended the gang.
        policy, on_failure: what ends it (`pool.policy.nodes`, `pool.policy.gangs`).
        begun: the slots of the nodes whose programs have begun; told_begun, told_ended: how many of `begun` and of the
            reports the events have.
        suspended: the parts that are. sizes: KiB of each part; sized_at: when their sum was written.
        network: what the job's own network has carried. chosen: the network that it has without asking for one.
        templates: the starts of alike nodes, by kind and by what of the slot they go by, without the nodes' numbers;
            none where a node takes something from its own slot (`fills`).
        brought: the places of outputs that the job does not name, and the node of each.
        pending, costing, writing: what has happened to its parts, and what their checkpoints cost, is written together;
            finished: its run is over, durably.
    """

    job: QueuedJob
    run: int
    secret: str
    parts: GangParts
    parallel: bool = False
    hosts: str = ""
    claims: dict[int, HeldClaim] = field(default_factory=dict)
    reports: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    root: int | None = None
    cards: dict[int, PartCard] = field(default_factory=dict)
    met: asyncio.Future[None] | None = None
    checkpoint: int | None = None
    set: CheckpointSet | None = None
    clock: asyncio.Task[None] | None = None
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: asyncio.Task[None] | None = None
    saved: bool = False
    costs: dict[int, Wire] = field(default_factory=dict)
    trouble: dict[int, list[str]] = field(default_factory=dict)
    failed_on: str = ""
    policy: str = NODE0
    on_failure: str = "end"
    begun: dict[int, str] = field(default_factory=dict)
    recorded_begun: int = 0
    recorded_ended: int = 0
    suspended: builtins.set[int] = field(default_factory=builtins.set)
    sizes: dict[int, int] = field(default_factory=dict)
    sized_at: float = float("-inf")
    network: PartsUse = field(default_factory=PartsUse)
    chosen: GangNetwork = field(default_factory=GangNetwork)
    templates: dict[tuple[Any, ...], Activation] = field(default_factory=dict)
    fills: bool = False
    brought: dict[str, int] = field(default_factory=dict)
    pending: asyncio.Task[None] | None = None
    costing: asyncio.Task[None] | None = None
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    finished: bool = False

    @classmethod
    def for_job(cls, job: QueuedJob, run: int, secret: str) -> RunningGang:
        """The gang of a job that is being started, or was when the schedd stopped."""
        ad = job.ad()
        failing = str(job.get("OnProcessFailure") or "end")
        return cls(job, run, secret, parts_of(ad), is_parallel(ad), policy=policy_of(ad), on_failure=failing)

    def ends_job(self, part: int, report: Wire) -> bool:
        """Whether the end of a part ends the job's run."""
        if self.parallel:
            return nodes.ends_job(part, report, self.policy, self.on_failure)
        return ends_gang(report, self.on_failure)

    @property
    def is_over(self) -> bool:
        """Whether a node's end was the end of the job, so that the others are not needed any more."""
        return self.parallel and self.root is not None and self.reports[self.root][1].get("cause") in BY_ITSELF

    @property
    def late_claims(self) -> list[HeldClaim]:
        """The claims of parts that are not ready while others wait for them; none when all have met."""
        if not self.cards or self.met is None or self.met.done() or self.root is not None:
            return []
        return [claim for part, claim in sorted(self.claims.items()) if part not in self.cards]

    def count_end(self, index: int) -> bool:
        """Take note of what a report means for the gang; True if it is the one that counts for the gang's end now."""
        part, report = self.reports[index]
        if self.root is None:
            counts = self.ends_job(part, report)
        else:
            counts = explains(report, self.reports[self.root][1], bool(self.job.stored_note("_wish")))
        if counts:
            self.root = index
        return counts

    def find_root(self) -> None:
        """Find the report that ended the gang among those that are there."""
        for index in range(len(self.reports)):
            self.count_end(index)

    @property
    def ended_parts(self) -> frozenset[int]:
        """The parts that have ended."""
        return frozenset(part for part, _ in self.reports)

    def part_attributes(self, part: int) -> Wire:
        """The attributes in a part's order beside those that its cluster shares."""
        return {**self.job.own_wire(), **self.parts[part].own}

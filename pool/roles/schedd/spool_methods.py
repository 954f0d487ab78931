"""The schedd's methods for jobs that are submitted from another machine: their inputs come in, their outputs go out."""

from __future__ import annotations

from typing import Any

from pool.policy.queue import JobQueue
from pool.roles.base import Role
from pool.roles.schedd.core.callers import owner_of
from pool.roles.schedd.core.ledger import Ledger
from pool.roles.schedd.files.spool import Spool
from pool.roles.schedd.files.spool_outputs import SpooledOutputs
from pool.roles.schedd.placement.placement import Placement
from pool.roles.schedd.placement.submitters import Submitters
from pool.roles.schedd.submit.job_actions import JobActions
from pool.roles.schedd.views.listings import Listings
from pool.shadow.executables import ExecutableStore
from pool.wire import Call, Right, Stream, streaming
from pool.wire.parameter_checks import JOB_IDS


class SpoolMethods(Role):
    """A part of the schedd."""

    spool: Spool
    spooled_outputs: SpooledOutputs
    queue: JobQueue
    executables: ExecutableStore
    placement: Placement
    submitters: Submitters
    ledger: Ledger
    listings: Listings
    acts: JobActions

    def make_spool(self) -> None:
        """The queue has been loaded: take up what is kept of its jobs' files."""
        self.spool = Spool(self.ledger, self.given, self.log, self._spooled, self.spawn)
        self.spooled_outputs = SpooledOutputs(self.ledger, self.spool)
        self.executables.locate = self.listings.locate = self.spool.locate
        self.acts.waits_for_inputs = self.spool.waits

    async def remove_abandoned(self) -> None:
        """Remove the jobs whose inputs never came."""
        if abandoned := [[number] for number in self.spool.abandoned()]:
            why = "its input files did not come within SPOOL_KEPT"
            await self.acts.act({"action": "remove", "ids": abandoned, "reason": why}, None, "")

    @streaming(Right.SUBMIT, takes={"cluster": int})
    async def spool_inputs(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The input files of a cluster that was queued with `spool`: see `Spool.take`."""
        everybody = Right.ADMINISTER in call.identity.rights
        await self.spool.take(params["cluster"], None if everybody else owner_of(call, {}), stream)

    @streaming(Right.SUBMIT, takes={"ids": JOB_IDS, "keep": bool | None})
    async def fetch_outputs(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The outputs of jobs that were queued with `spool`: see `SpooledOutputs.give`."""
        owner = None if Right.ADMINISTER in call.identity.rights else owner_of(call, {})
        await self.spooled_outputs.give(params["ids"], owner, params.get("keep") is True, stream)

    def _spooled(self, number: int) -> None:
        """All files of a cluster have come from its submitter's machine."""
        cluster = self.queue.clusters.get(number)
        if cluster is not None:
            self.executables.keep_soon(cluster)
            self.placement.offer(cluster.owner)
            self.submitters.changed(cluster.owner, True)

"""The reports of a job while its program runs: that it started, then what it has in memory and its network has carried.

These are measured every minute, and reported where they have changed (`JobReports.report_measurement`).

A keeper that does not answer when it is asked for the usage is killed with its job after a minute.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from pool.jobs.activation import Activation
from pool.jobs.reasons import Evict, Reason
from pool.roles.base import Spawn
from pool.roles.startd.running.reports import JobReports
from pool.roles.startd.slots.records import SlotClaim
from pool.starter.keeper import Keeper
from pool.starter.network_meter import NetworkMeter
from pool.starter.spec import JobUsage, KeeperError
from pool.starter.starter import Starter

#: A start is told this long after it; a job that ends sooner has its start told with its end, in one message.
TELL_AFTER = 0.05
#: Seconds between two measurements of what a running job uses.
USAGE_EVERY = 60.0
#: A keeper that has not answered for so many seconds is killed.
KEEPER_PATIENCE = 60.0


class MeasuredJob(Protocol):
    """The running job, as far as its usage needs it.

    Attributes:
        why: the reason for which it has to leave, if it has to.
    """

    why: Reason | None

    @property
    def name(self) -> str: ...
    @property
    def start(self) -> Activation: ...
    @property
    def claim(self) -> SlotClaim: ...
    @property
    def starter(self) -> Starter | None: ...
    @property
    def ended(self) -> bool: ...
    @property
    def started_at(self) -> float: ...


class UsageReports:
    """The reports of one running job.

    Attributes:
        has_begun: it has run for long enough that its beginning is worth a report of its own.
        used_cpu_at: when it was last seen to have used processor time, by the loop's time.
    """

    def __init__(self, job: MeasuredJob, reports: JobReports, spawn: Spawn, log: logging.Logger) -> None:
        self._job = job
        self._reports = reports
        self._spawn = spawn
        self._log = log
        self._timer: asyncio.TimerHandle | None = None
        self._meter = NetworkMeter(job.start.part)
        self.used_cpu_at: float | None = None
        self.has_begun = False
        #: Processor seconds that it had used then.
        self._used_cpu = 0.0

    def begin(self) -> None:
        """The program runs."""
        self._timer = asyncio.get_running_loop().call_later(TELL_AFTER, self._report_start)

    def end(self) -> None:
        """No process of the job is left."""
        if self._timer is not None:
            self._timer.cancel()

    async def network(self) -> dict[str, Any]:
        """For a report: how much the part's own network has carried; nothing where the node carries none for it."""
        room = self._job.starter.room if self._job.starter is not None else None
        return {"network": (await self._meter.measure(room)).to_wire()} if room is not None else {}

    def _report_start(self) -> None:
        self.has_begun = True
        self._timer = asyncio.get_running_loop().call_later(USAGE_EVERY, self._due)
        if not self._reports.start_is_reported:
            self._reports.report("started", {"started": self._job.started_at})

    def _due(self) -> None:
        self._spawn(self._report(), "usage", alone=True)

    async def _report(self) -> None:
        job = self._job
        if job.ended or job.starter is None or job.starter.keeper is None:
            return
        usage = await self._usage_of(job.starter.keeper)
        if usage is None:
            return
        self._measured(usage.max_rss)
        if self.used_cpu_at is None or usage.user_cpu + usage.system_cpu > self._used_cpu:
            self.used_cpu_at, self._used_cpu = asyncio.get_running_loop().time(), usage.user_cpu + usage.system_cpu
        used = {"max_rss": usage.max_rss, "user_cpu": usage.user_cpu, "system_cpu": usage.system_cpu}
        network = await self.network()
        if job.start.gang:  # the schedd puts the parts' reports of a minute together
            self._reports.report("usage", used | network)
        else:
            self._reports.report_measurement("usage", used | network, (usage.max_rss, network))
        if not job.ended:
            self._timer = asyncio.get_running_loop().call_later(USAGE_EVERY, self._due)

    async def _usage_of(self, keeper: Keeper) -> JobUsage | None:
        """The job's usage; None if its keeper did not answer and was killed, and its job with it.

        A keeper that stands still does not end its job when the lease does, so that it cannot be left alone for long.
        """
        loop = asyncio.get_running_loop()
        asked, said = loop.time(), {"job": self._job.name, "keeper": keeper.pid}
        while True:
            try:
                return await keeper.usage()
            except KeeperError:
                silent = round(loop.time() - asked, 1)
            if silent < KEEPER_PATIENCE:
                self._log.warning("a keeper does not answer", extra={**said, "seconds": silent})
                continue
            self._log.error("a keeper that does not answer is killed with its job", extra=said)
            self._job.why = self._job.why or Reason(Evict.MACHINE_LOST, f"its keeper had not answered for {silent:g} s")
            keeper.end_by_force()
            return None

    def _measured(self, size: int) -> None:
        """The owner's policy goes by what the job really has in memory, KiB (RL 4.2)."""
        claim = self._job.claim
        if size and claim.ad_wire.get("ImageSize") != size:
            claim.ad_wire = {**claim.ad_wire, "ImageSize": size, "ResidentSetSize": size}

"""This pool's own jobs and machines, and how many machines they leave for paying back debts (EV 4.2).

If there is an agreement with credit, the pool's schedds are asked for their jobs. Each job that comes or ends goes into
`pool.policy.flock.without_flock`. Jobs that fit none of our machines would not run here without a flock either, and do
not count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any

from pool.classad import ClassAd, requirements_accept
from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy.flock.payback import machines_to_spare
from pool.policy.flock.shown import is_own_machine, is_with_guest, processors
from pool.policy.flock.without_flock import JobRange, PoolWithoutFlock
from pool.roles.base import Spawn
from pool.roles.cooperative import WorkTurns, run_in_slices
from pool.roles.links import Links
from pool.wire.parameter_checks import check_item

Wire = dict[str, Any]
FIRST_RETRY, LONGEST_RETRY = 0.05, 10.0
#: Seconds of the loop for finding a machine that fits one job, in all.
LONGEST = 60.0
#: The items of `schedd.own_work`.
ITEMS = {
    "jobs": (int, int, int, int, int | float, dict | None),
    "ended": (int, int, int | float),
}


class OwnJobs:
    """The own jobs and machines of one pool, and a simulation of the pool without a flock.

    Args:
        wanted: whether there is an agreement with credit.
        changed: called when the number of machines to spare may have changed.

    Attributes:
        guest_units: processors of own machines that jobs of other pools have, by their ads.
    """

    def __init__(
        self,
        links: Links,
        outside: OutsideWorld,
        *,
        turns: WorkTurns,
        spawn: Spawn,
        log: logging.Logger,
        wanted: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._links = links
        self._outside = outside
        self._turns = turns
        self._spawn = spawn
        self._log = log
        self._wanted = wanted
        self._changed = changed
        self._without_flock = PoolWithoutFlock()
        self._units = 0
        self.guest_units = 0
        self._machines: dict[str, tuple[Wire, int, int]] = {}
        self._schedds: dict[str, str] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._told: set[str] = set()  # schedds that have told all their jobs
        self._ads: dict[tuple[str, int], ClassAd] = {}  # of clusters with jobs that no machine fits
        self._unfit: dict[tuple[str, int], dict[tuple[int, int], JobRange]] = {}

    # -- our collector -----------------------------------------------------------------------------------

    def machine(self, name: str, ad: Wire | None) -> None:
        """A machine's ad at our collector has changed, or is gone (None)."""
        known = self._machines.pop(name, None)
        _, units, lent = known or (None, 0, 0)
        if ad is not None and is_own_machine(ad):
            self._machines[name] = (ad, processors(ad), processors(ad) if is_with_guest(ad) else 0)
        _, units_now, lent_now = self._machines.get(name, (None, 0, 0))
        self.guest_units += lent_now - lent
        if units_now != units:
            self._units += units_now - units
            self._without_flock.set_units(self._units, self._now())
        if ad is not None and known is None and name in self._machines and self._unfit:
            self._spawn(self._fit_again(ad), "own jobs", alone=True)

    def units_of(self, name: str) -> int:
        """The processors of one machine."""
        return self._machines[name][1] if name in self._machines else 1

    def schedd(self, name: str, ad: Wire | None) -> None:
        """A schedd's ad has changed, or is gone (None)."""
        address = ad.get("ScheddAddress") if ad is not None else None
        if isinstance(address, str):
            self._schedds[name] = address
        else:
            self._schedds.pop(name, None)
        self.watch_schedds()

    def forget_all(self) -> None:
        """Drop all machines: the collector will send all of them again."""
        for name in list(self._machines):
            self.machine(name, None)

    def watch_schedds(self) -> None:
        """Watch the jobs of all schedds if there is an agreement with credit; else of none."""
        wanted = self._schedds if self._wanted() else {}
        for name in [name for name in self._watches if name not in wanted]:
            self._watches.pop(name).cancel()
        for name in wanted:
            if name not in self._watches:
                self._watches[name] = self._spawn(self._watch(name), "own jobs")

    # -- answers -----------------------------------------------------------------------------------------

    def spare(self, lent: int) -> int:
        """The processors that can still be given ahead of own jobs; if negative, those to take back.

        Args:
            lent: processors that other pools have, as far as the caller knows.
        """
        if not self._told.issuperset(self._schedds):
            return 0  # not all jobs are known yet
        alone = self._without_flock.would_run(self._now())
        return machines_to_spare(self._units, alone, max(lent, self.guest_units))

    def next_change(self) -> float:
        """Seconds until own jobs may have a right to more machines, if nothing else happens."""
        return max(0.0, self._without_flock.next_change() - self._now())

    # -- our schedds -------------------------------------------------------------------------------------

    async def _watch(self, name: str) -> None:
        retry = FIRST_RETRY
        try:
            while True:
                try:
                    link = await self._links.connect(self._schedds[name])
                    async with await link.stream("schedd.own_work", {}) as stream:
                        async for items in stream:
                            await self._take_in(name, items)
                            retry = FIRST_RETRY
                    raise PoolError("it has ended the stream")
                except (PoolError, OSError, TimeoutError) as error:
                    self._log.info("a schedd does not list its jobs", extra={"schedd": name, "error": str(error)})
                self._forget(name)
                await asyncio.sleep(retry * (0.5 + self._outside.chance.random()))
                retry = min(retry * 2, LONGEST_RETRY)
        finally:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._told.discard(name)
        self._without_flock.forget(name, self._now())
        for key in [key for key in self._ads if key[0] == name]:
            del self._ads[key]
            self._unfit.pop(key, None)
        self._changed()

    async def _take_in(self, name: str, items: list[Any]) -> None:
        """
        Raises:
            PoolError: an item has another form.
        """
        if not items:
            self._told.add(name)
        fits: dict[int, bool] = {}
        for item in items:
            word, *rest = check_item(item, ITEMS)
            if word == "ended":
                cluster, proc, ran = rest
                self._end(name, cluster, proc, ran)
                continue
            cluster, first, count, units, done, ad = rest
            if ad is not None:
                self._ads[name, cluster] = ClassAd.from_wire(ad)
            jobs = JobRange(name, cluster, first, count, max(1, units), done)
            if cluster not in fits:
                fits[cluster] = (name, cluster) not in self._ads or await self._fits_any(self._ads[name, cluster])
            self._add(jobs, fits[cluster])
        self._changed()

    def _add(self, jobs: JobRange, fits: bool) -> None:
        key = (jobs.schedd, jobs.cluster)
        if fits:
            self._ads.pop(key, None)
            self._without_flock.submitted(jobs, self._now())
        else:
            self._unfit.setdefault(key, {})[jobs.first, jobs.count] = jobs

    def _end(self, name: str, cluster: int, proc: int, ran: float) -> None:
        for (first, count), jobs in self._unfit.get((name, cluster), {}).items():
            if first <= proc < first + count:
                parts = self._unfit[name, cluster]
                del parts[first, count]
                for begin, end in ((first, proc), (proc + 1, first + count)):
                    if end > begin:
                        parts[begin, end - begin] = JobRange(name, cluster, begin, end - begin, jobs.units, jobs.done)
                if not parts:
                    del self._unfit[name, cluster]
                return
        self._without_flock.ended((name, cluster, proc), ran, self._now())

    async def _fits_any(self, job: ClassAd) -> bool:
        """Whether the job's Requirements accept one of our machines."""

        def work() -> Generator[None, None, bool]:
            for ad, _, _ in list(self._machines.values()):
                if requirements_accept(job, ClassAd.from_wire(dict(ad)), self._outside.wall()):
                    return True
                yield
            return False

        try:
            return await run_in_slices(work(), "look for own machines", self._turns, "", LONGEST)
        except PoolError:
            return True  # if in doubt, own jobs come first

    async def _fit_again(self, machine: Mapping[str, Any]) -> None:
        """A machine is new: jobs that fitted no machine may fit this one."""
        ad = ClassAd.from_wire(dict(machine))
        for key in list(self._unfit):
            await asyncio.sleep(0)
            if key in self._unfit and requirements_accept(self._ads[key], ad, self._outside.wall()):
                for jobs in self._unfit.pop(key).values():
                    self._add(jobs, True)
        self._changed()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

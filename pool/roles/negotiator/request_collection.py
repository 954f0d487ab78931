"""The requests of submitters: asked of their schedds, and asked again only when they may have changed.

A schedd that does not answer at once holds nobody up: a cycle waits a moment for it and goes on without it; its answer,
when it comes, starts another cycle. One that does not answer at all is left out for a while. All are asked again after
a while, which tells them that there is a negotiator.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pool.classad import ClassAd
from pool.policy.charges import Charge, charge
from pool.policy.flock.shown import AS_PRIVATE, GUEST_OF
from pool.policy.job_groups import MOST_RUNS
from pool.policy.managed import marked
from pool.policy.negotiation import ResourceRequest
from pool.policy.priorities import GroupQuota
from pool.roles.base import Spawn
from pool.roles.links import Links
from pool.roles.negotiator.pool_view import idle
from pool.roles.negotiator.usage import named
from pool.wire import ConnectionLost, DeadlineExceeded, RemoteError

#: Trouble that a peer can cause and that must not end a cycle.
TROUBLE = (ConnectionLost, DeadlineExceeded, RemoteError, OSError, TimeoutError)
#: A schedd or startd that does not answer within this many seconds is not there.
PATIENCE = 10.0
#: Seconds for which a cycle waits for schedds that are slow to answer.
MOMENT = 1.0
#: The same for a world, which speaks for users of other pools: one that hangs costs this pool no more (F-4).
WORLD_MOMENT = 0.05
#: Seconds for which a schedd that did not answer is not asked again.
LEFT_OUT = 30.0
#: Jobs asked for in one cycle from one submitter.
MOST_REQUESTS = 1_000_000


@dataclass(slots=True)
class _Asked:
    """The known requests of one submitter."""

    ad: ClassAd
    references: frozenset[str]
    answer: list[tuple[Charge, ResourceRequest]] | None = None
    task: asyncio.Task[None] | None = None
    failed: float = field(default=-LEFT_OUT)
    stale: bool = False
    since: float = 0.0


class RequestCollection:
    """The wishes of all submitters.

    Args:
        late: called when an answer comes that a cycle did not wait for.

    Attributes:
        refresh: seconds after which an answer is asked for again, though nothing may have changed.
    """

    def __init__(
        self, links: Links, log: logging.Logger, spawn: Spawn, late: Callable[[], None], refresh: float
    ) -> None:
        self._links = links
        self._log = log
        self._spawn = spawn
        self._late = late
        self._asked: dict[str, _Asked] = {}
        self._plain: dict[str, str] = {}
        self.refresh = refresh

    async def collect(
        self, submitters: Mapping[str, ClassAd], references: frozenset[str], quotas: tuple[GroupQuota, ...]
    ) -> dict[str, list[ResourceRequest]]:
        """The requests of each submitter with idle jobs, under the names that cycles have for them."""
        now = asyncio.get_running_loop().time()
        for name in [name for name in self._asked if name not in submitters]:
            self._forget(name)
        waiting: list[asyncio.Task[None]] = []
        worlds: list[asyncio.Task[None]] = []
        for name, ad in submitters.items():
            if not idle(ad):
                self._forget(name)
                continue
            known = self._asked.get(name)
            fresh = known is not None and known.ad is ad and not known.stale and references <= known.references
            fresh = fresh and known is not None and now - known.since < self.refresh
            if known is None or (not fresh and known.task is None):
                failed = known.failed if known else -LEFT_OUT
                known = self._asked[name] = _Asked(ad, references, failed=failed, since=now)
                if now - known.failed >= LEFT_OUT:
                    known.task = self._spawn(self._request(name, known), "ask")
            if known.task is not None:
                (worlds if is_guest(ad) else waiting).append(known.task)
        if waiting:
            await asyncio.wait(waiting, timeout=MOMENT)
        if worlds:
            await asyncio.wait(worlds, timeout=WORLD_MOMENT)
        found: dict[str, list[ResourceRequest]] = {}
        self._plain.clear()
        for name, known in self._asked.items():
            for charged, request in known.answer or ():
                as_named = named(name, charged, quotas)
                self._plain[as_named] = name
                found.setdefault(as_named, []).append(request)
        return found

    def named(self) -> dict[str, set[str]]:
        """The names that cycles have for each submitter that asks for something."""
        found: dict[str, set[str]] = {}
        for as_named, name in self._plain.items():
            found.setdefault(name, set()).add(as_named)
        return found

    def plain(self, submitter: str) -> str:
        """The name under which a submitter advertises, for one that cycles have."""
        return self._plain.get(submitter, submitter)

    def invalidate(self, submitter: str) -> None:
        """The submitter was given something: what it wants is less now."""
        known = self._asked.get(self.plain(submitter))
        if known is not None:
            known.stale = True

    def forget_all(self) -> None:
        """Ask everybody again."""
        for name in list(self._asked):
            self._forget(name)

    def _forget(self, name: str) -> None:
        known = self._asked.pop(name, None)
        if known is not None and known.task is not None:
            known.task.cancel()

    async def _request(self, submitter: str, asked: _Asked) -> None:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(PATIENCE):
                link = await self._links.connect(str(asked.ad.value("ScheddAddress", "")))
            params = {"submitter": submitter, "limit": MOST_REQUESTS, "references": sorted(asked.references)}
            answer = await link.call("schedd.requests", params, timeout=PATIENCE)
            asked.answer = [_request(item, submitter) for item in answer["requests"]]
        except (*TROUBLE, KeyError, ValueError, TypeError) as error:
            asked.failed = asyncio.get_running_loop().time()
            self._log.warning("a schedd does not answer", extra={"submitter": submitter, "error": str(error)})
        finally:
            asked.task = None
        if asyncio.get_running_loop().time() - began >= (WORLD_MOMENT if is_guest(asked.ad) else MOMENT):
            self._late()


def is_guest(ad: ClassAd) -> bool:
    """Whether a submitter's ad is of jobs in another pool."""
    address = ad.value("ScheddAddress", "")
    return isinstance(ad.value(GUEST_OF, None), str) or str(address).endswith(f"#{AS_PRIVATE}")


def _request(item: Mapping[str, Any], submitter: str) -> tuple[Charge, ResourceRequest]:
    ad = ClassAd.from_wire(marked(item["ad"], submitter))
    return (
        charge(ad),
        ResourceRequest(
            int(item["number"]),
            ad,
            int(item["count"]),
            float(item["oldest"]),
            bool(item.get("moving", False)),
            _runs(item.get("runs", ())),
        ),
    )


def _runs(said: Any) -> tuple[tuple[float, int], ...]:
    """Runs as a schedd says them.

    Raises:
        ValueError, TypeError: they are none.
    """
    runs = tuple((float(priority), int(count)) for priority, count in said)
    if len(runs) > MOST_RUNS or not all(math.isfinite(priority) and count > 0 for priority, count in runs):
        raise ValueError("the priorities of a request's jobs cannot be read")
    return runs

"""Telling the collector about this node's ads: at once on a change, as differences, and again before they expire.

The collector keeps soft state only. When the connection to it breaks, or it asks for it because it has restarted,
everything is sent whole again; nobody else needs to do anything (A2).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pool.outside import OutsideWorld
from pool.policy.registry import difference
from pool.roles.links import Links
from pool.wire import ConnectionLost, DeadlineExceeded, RemoteError

Wire = dict[str, Any]
Key = tuple[str, str]

FIRST_RETRY = 0.05
LONGEST_RETRY = 10.0
#: A timer may ring this much early, seconds.
TICK = 0.001
#: Ads sent in one call at the most: some milliseconds of work on either side.
BATCH = 100


class DemandCount:
    """How often each submitter came to want more: `Demand` in its ad, by which a negotiator sees that there is news.

    It counts from a random number on: one that was killed and is back must not repeat the number that was seen last.

    Args:
        chance: a source of random choices.
    """

    def __init__(self, chance: random.Random) -> None:
        self._first = chance.getrandbits(31)
        self._grown: dict[str, int] = {}

    def grows(self, name: str) -> None:
        """A submitter wants more than before."""
        self._grown[name] = self._grown.get(name, 0) + 1

    def of(self, name: str) -> int:
        """The number for a submitter's ad."""
        return self._first + self._grown.get(name, 0)

    def forget(self, name: str) -> None:
        """A submitter wants nothing, and its ad is withdrawn."""
        self._grown.pop(name, None)


@dataclass(slots=True)
class _AdvertisedAd:
    now: Wire
    private: Wire | None
    sent: Wire | None = None
    sent_private: Wire | None = None
    sequence: int = 0


@dataclass(slots=True)
class Advertiser:
    """The ads of one role and their way to the collector.

    Args:
        interval: seconds between two updates of an ad that does not change.
        lifetime: seconds after which the collector drops an ad that was not renewed.
        instance: what tells this node from another of the same name, the same after a restart.
        refresh: called before each regular update, to publish what changes all the time.
    """

    links: Links
    collector: str
    outside: OutsideWorld
    interval: float
    lifetime: float
    log: logging.Logger
    instance: str = ""
    refresh: Callable[[], None] = lambda: None
    _ads: dict[Key, _AdvertisedAd] = field(default_factory=dict)
    _dirty: dict[Key, None] = field(default_factory=dict)
    _gone: dict[Key, None] = field(default_factory=dict)
    _news: bool = False
    _waiting: asyncio.Future[None] | None = None
    _incarnation: str = ""
    _refused: dict[Key, str] = field(default_factory=dict)
    _attending: asyncio.Task[None] | None = None

    def publish(self, kind: str, name: str, ad: Wire, private: Wire | None = None) -> None:
        """Say what an ad is now; it is sent at once if anything in it changed."""
        key = (kind, name)
        known = self._ads.get(key)
        if known is None:
            self._ads[key] = _AdvertisedAd(ad, private)
            self._gone.pop(key, None)
        else:
            if known.now == ad and known.private == private:
                return
            known.now, known.private = ad, private
        self._dirty[key] = None
        self._wake()

    def withdraw(self, kind: str, name: str) -> None:
        """Take an ad back."""
        key = (kind, name)
        if self._ads.pop(key, None) is not None:
            self._dirty.pop(key, None)
            self._gone[key] = None
            self._wake()

    async def run(self) -> None:
        """Send until cancelled."""
        try:
            await self._run()
        finally:
            if self._attending is not None:
                self._attending.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        retry = FIRST_RETRY
        renew = loop.time() + self.interval
        self._start_over()
        link = None
        while True:
            try:
                if link is None or self._attending is None or self._attending.done():
                    link = await self.links.connect(self.collector)
                    self._start_over()
                    self._attending = asyncio.create_task(self._hold_session(link))
                await self._send(link)
                retry = FIRST_RETRY
            except (ConnectionLost, DeadlineExceeded, RemoteError, OSError, TimeoutError) as error:
                if retry >= LONGEST_RETRY / 8:
                    self.log.warning(
                        "cannot reach the collector", extra={"address": self.collector, "error": str(error)}
                    )
                link = None
                await asyncio.sleep(retry * (0.5 + self.outside.chance.random()))
                retry = min(retry * 2, LONGEST_RETRY)
                continue
            await self._pause(self._attending, max(0.0, renew - loop.time()))
            if loop.time() >= renew - TICK:
                renew = loop.time() + self.interval
                self.refresh()
                self._dirty.update(dict.fromkeys(self._ads))

    async def withdraw_all(self) -> None:
        """Withdraw everything, as far as the collector can be reached now."""
        self._gone.update(dict.fromkeys(self._ads))
        self._ads.clear()
        self._dirty.clear()
        try:
            link = await self.links.connect(self.collector)
            await self._send(link, timeout=1.0)
        except (ConnectionLost, DeadlineExceeded, RemoteError, OSError, TimeoutError):
            return

    def _start_over(self) -> None:
        self._incarnation = self.outside.secret(8)
        for ad in self._ads.values():
            ad.sent = None
        self._dirty = dict.fromkeys(self._ads)

    async def _hold_session(self, link: Any) -> None:
        """Lasts as long as this collector does: a restarted one must get everything again."""
        try:
            async with await link.stream("collector.session", {"instance": self.instance}) as stream:
                async for _ in stream:
                    pass
        except (ConnectionLost, DeadlineExceeded, RemoteError, OSError):
            return

    async def _pause(self, attending: asyncio.Task[None], longest: float) -> None:
        """Until there is news, or the session is over, or so many seconds have passed."""
        if self._news or attending.done():
            return
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        timer = loop.call_later(longest, self._go_on)
        attending.add_done_callback(self._go_on)
        try:
            await self._waiting
        finally:
            self._waiting = None
            timer.cancel()
            attending.remove_done_callback(self._go_on)

    def _wake(self) -> None:
        self._news = True
        self._go_on()

    def _go_on(self, *_: object) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _send(self, link: Any, timeout: float = 30.0) -> None:
        while self._dirty or self._gone:
            self._news = False
            keys = list(self._dirty)[:BATCH]
            gone = list(self._gone)
            updates = []
            for key in keys:
                del self._dirty[key]
                updates.append(self._update(key, self._ads[key]))
            self._gone.clear()
            try:
                answer = await link.call(
                    "collector.update",
                    {
                        "instance": self.instance,
                        "incarnation": self._incarnation,
                        "updates": updates,
                        "gone": [list(key) for key in gone],
                    },
                    timeout=timeout,
                )
            except BaseException:
                self._gone.update(dict.fromkeys(gone))
                raise
            for kind, name in answer.get("resend", ()):
                ad = self._ads.get((kind, name))
                if ad is not None:
                    ad.sent = None
                    self._dirty[(kind, name)] = None
            self._report_refusals(answer.get("refused", ()))
        self._news = False

    def _update(self, key: Key, ad: _AdvertisedAd) -> Wire:
        ad.sequence += 1
        update: Wire = {"kind": key[0], "name": key[1], "sequence": ad.sequence, "lifetime": self.lifetime}
        if ad.sent is None:
            update |= {"whole": True, "ad": ad.now, "private": ad.private}
        else:
            changed, gone = difference(ad.sent, ad.now)
            update |= {"whole": False, "ad": changed, "gone": list(gone)}
            if ad.private != ad.sent_private:
                update["private"] = ad.private or {}
        ad.sent, ad.sent_private = ad.now, ad.private
        return update

    def _report_refusals(self, refused: list[list[str]]) -> None:
        for kind, name, why in refused:
            if self._refused.get((kind, name)) != why:
                self._refused[(kind, name)] = why
                self.log.error("the collector refuses an ad", extra={"ad": f"{kind} {name}", "why": why})

"""The collector's ads, held by watching it: slots with the keys that open them, and submitters.

While a cycle looks at the picture, what changes is kept back until it is done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pool.classad import UNDEFINED, ClassAd, Expr
from pool.classad.names import fold
from pool.policy.carve import STANDARD, CarveRefusal, demand
from pool.policy.flock.kinds import COUNT
from pool.policy.flock.shown import GUEST_LEAVES, LENDER
from pool.policy.managed import is_dedicated
from pool.policy.matching import SlotIndex
from pool.policy.negotiation import Match, ResourceRequest
from pool.policy.urgent import SLOT_TYPE, START_URGENT
from pool.roles.negotiator.accounting import Accounting
from pool.roles.negotiator.usage import PLAIN, SlotUsage, held_by, limits_of, number, weight_of

#: A slot that was given away is not given again before its ad has changed, or so many seconds have passed.
GIVEN = 30.0
#: A timer may ring this much early, seconds.
TICK = 0.001
#: Seconds after which it is looked for somebody who would rather have the slots that were just taken.
SOON = 1.0

REMOTE_USER = fold("RemoteUser")
#: The activities of a slot whose job makes room for another.
LEAVING = frozenset({"Retiring", "Vacating", "Killing"})

#: Type and name of an ad; the ad, or how it differs from the one before; the private part; the names that it has lost,
#: None where the ad is whole.
Change = tuple[str, str, dict[str, Any] | None, dict[str, Any] | None, Sequence[str] | None]
ANEW: Change = ("", "", None, None, None)

#: The attributes by which a slot is held by somebody, weighs something, and may wake the negotiator.
OF_HOLDERS = frozenset(
    fold(name)
    for name in (
        *("RemoteUser", "RemoteGroup", "RemoteNiceUser", "State", "Activity", "ConcurrencyLimits"),
        *("SlotWeight", "PartitionableSlot", "SlotType", "JobCanCheckpoint"),
        *(*STANDARD, COUNT, GUEST_LEAVES, LENDER),
    )
)


class PoolView:
    """Slots and submitters of the pool.

    Args:
        accounting: notified of everything that is held.
        wake: called with seconds when there will be something new to negotiate about.
        seen: called with each slot's ad before and after a change; None where there is none.
        more_wanted: called when a submitter wants more than before; by default as `wake` without a delay.

    Attributes:
        picture: the slots, as the matchmaker sees them.
        submitters: their ads by name.
        by_priority: whether users of better priority may preempt at all.
    """

    def __init__(
        self,
        accounting: Accounting,
        wake: Callable[[float], None],
        seen: Callable[[ClassAd | None, ClassAd | None], None] = lambda before, after: None,
        *,
        more_wanted: Callable[[], None] | None = None,
        by_priority: bool = False,
    ) -> None:
        self._accounting = accounting
        self._wake = wake
        self._more_wanted = more_wanted or partial(wake, 0.0)
        self._seen = seen
        self.picture = SlotIndex()
        self.submitters: dict[str, ClassAd] = {}
        self._keys: dict[str, str] = {}
        self._shut: set[str] = set()
        self._given: dict[str, float] = {}
        self._lapse: asyncio.TimerHandle | None = None
        self._kept_back: deque[Change] | None = None
        self._weights: dict[str, float] = {}
        #: By slot, the group quotas by which its holder was named, and its user as the ad has it; UNDEFINED for none.
        self._holders: dict[str, tuple[Any, Any]] = {}
        self.by_priority = by_priority

    # -- learning ----------------------------------------------------------------------------------------

    def update_ad(
        self,
        kind: str,
        name: str,
        ad: dict[str, Any] | None,
        private: dict[str, Any] | None,
        gone: Sequence[str] | None = None,
    ) -> None:
        """An ad of the collector's has changed, or is gone.

        Args:
            gone: the names that the ad has lost, where `ad` is what is other or new in it, and `private` is None where
                that is as before.
        """
        if self._kept_back is not None:
            self._kept_back.append((kind, name, ad, private, gone))
        else:
            self._apply_ad(kind, name, ad, private, gone)

    def learn_all(self, changes: Iterable[Sequence[Any]]) -> Iterator[None]:
        """As `update_ad`, of many ads; one in each step."""
        for change in changes:
            self.update_ad(*change)
            yield

    def begin_anew(self) -> None:
        """The collector tells everything again."""
        if self._kept_back is not None:
            self._kept_back.clear()
        self.update_ad(*ANEW)

    def hold_still(self) -> None:
        """Nothing changes from here on until `go_on`."""
        self._kept_back = deque()

    def go_on(self) -> Iterator[None]:
        """Take in what changed meanwhile, one in each step; what changes until that is done comes after it."""
        while self._kept_back:
            self._apply_ad(*self._kept_back.popleft())
            yield
        self._kept_back = None

    def _apply_ad(
        self,
        kind: str,
        name: str,
        ad: dict[str, Any] | None,
        private: dict[str, Any] | None,
        gone: Sequence[str] | None,
    ) -> None:
        if (kind, name) == ANEW[:2]:
            for slot in list(self.picture.ads):
                self._slot(slot, None, {})
            for submitter in list(self.submitters):
                self._submitter(submitter, None)
            self._accounting.forget_all()
        elif kind == "Submitter":
            self._submitter(name, _changed(self.submitters.get(name), ad, gone))
        elif ad is not None and gone is not None:
            self._slot_differs(name, ad, private, gone)
        else:
            self._slot(name, _changed(None, ad, None), private or {})

    def _submitter(self, name: str, ad: ClassAd | None) -> None:
        self._accounting.submitter(name, ad)
        if ad is None:
            self.submitters.pop(name, None)
            return
        before = self.submitters.get(name)
        self.submitters[name] = ad
        # That a submitter wants less is no news; `Demand` counts how often it came to want more.
        if idle(ad) and (before is None or before.value("Demand", None) != ad.value("Demand", 0)):
            self._more_wanted()

    def _slot_differs(
        self, name: str, changed: dict[str, Any], private: dict[str, Any] | None, gone: Sequence[str]
    ) -> None:
        """A slot's ad has changed in some attributes."""
        before = self.picture.ad(name)
        ad = _changed(before, changed, gone)
        assert ad is not None
        names = {fold(attribute) for attribute in (*changed, *gone)}
        quotas, read = self._holders.get(name, (None, UNDEFINED))
        if quotas is self._accounting.quotas and private is None and names.isdisjoint(OF_HOLDERS) and _is_plain(ad):
            # It is held by the same as before, or by nobody as before.
            self._given.pop(name, None)
            self._seen(before, ad)
            self._accounting.usage.slot_stays(name, leaving=ad.value("Activity", None) in LEAVING)
            self.picture.set_ad(name, ad, names)
            return
        if read is not UNDEFINED and REMOTE_USER not in names:
            ad["RemoteUser"] = read
        if private is None:
            private = {"ClaimId": self._keys[name]} if name in self._keys else {}
        self._slot(name, ad, private, names | {REMOTE_USER})

    def _slot(
        self, name: str, ad: ClassAd | None, private: Mapping[str, Any], names: Iterable[str] | None = None
    ) -> None:
        """A slot's ad is another, or the slot is gone.

        Args:
            names: folded names of all attributes that may have changed; None for any.
        """
        self._given.pop(name, None)
        self._weights.pop(name, None)
        before = self.picture.ad(name)
        if ad is not None and _leaves_saved(ad) and not _leaves_saved(before):
            self._wake(0.0)  # a job may wait for that
        self._seen(before, ad)
        if ad is None:
            self._accounting.usage.slot(name, None)
            self.picture.drop(name)
            self._shut.discard(name)
            self._keys.pop(name, None)
            self._holders.pop(name, None)
            return
        held = held_by(ad, self._accounting.quotas)
        self._holders[name] = self._accounting.quotas, ad.held("RemoteUser") if held is not None else UNDEFINED
        if held is not None:
            # As cycles name whoever holds it.
            ad["RemoteUser"] = held.submitter
        leaving = ad.value("Activity", None) in LEAVING
        self._accounting.usage.slot(name, held, leaving=leaving)
        self._weights[name] = 0.0 if ad.value("SlotType", None) == SLOT_TYPE else weight_of(ad) * ad.value(COUNT, 1)
        self.picture.set_ad(name, ad, names)
        key = private.get("ClaimId")
        if isinstance(key, str) and key:
            if self._keys.get(name) != key:
                if held is None:
                    self._wake(0.0)
                elif self._may_be_preferred(ad):
                    # A better job may have come while the slot was on its way to its present one.
                    self._wake(SOON)
            elif held is None and _has_more(before, ad):
                self._wake(0.0)
            self._keys[name] = key
            self._shut.discard(name)
        else:
            self._keys.pop(name, None)
            self._shut.add(name)

    def _may_be_preferred(self, ad: ClassAd) -> bool:
        """Whether a taken slot could be given to somebody else at all."""
        rank = ad.get("Rank")
        if ad.get(START_URGENT) is not None or ad.value(GUEST_LEAVES, False) is True:
            return True
        liked = rank is not None and not isinstance(ad.value("Rank", None), (int, float))
        return self.by_priority or liked

    @property
    def weight(self) -> float:
        """Slot weight of the whole pool."""
        return sum(self._weights.values())

    # -- asking ------------------------------------------------------------------------------------------

    def key(self, slot: str) -> str:
        """The key that opens a slot, empty when there is none."""
        return self._keys.get(slot, "")

    @property
    def any_open(self) -> bool:
        """Whether there is a slot that may be given away."""
        return len(self._keys) > len(self._given)

    def record_match(self, match: Match, request: ResourceRequest | None) -> None:
        """A slot was given away: it counts as held by whoever it was given to."""
        for name in (match.slot, *match.leaving):
            self._given[name] = asyncio.get_running_loop().time()
        self._watch_given()
        ad = self.picture.ad(match.slot)
        if ad is None:
            return
        weight = weight_of(ad)
        limits = limits_of(request.ad) if request is not None else {}
        if request is not None and ad.value("PartitionableSlot", False) is True:
            wanted = demand(ad, request.ad)
            weight = float(wanted.get("Cpus", PLAIN)) if not isinstance(wanted, CarveRefusal) else PLAIN
        if is_dedicated(match.submitter):
            weight = 0.0
        for _ in range(match.count):
            self._accounting.usage.given(match.slot, SlotUsage(match.submitter, weight, limits))

    def withheld(self, now: float) -> set[str]:
        """The slots that may not be given away: shut ones, and those that were given a moment ago."""
        self._let_lapse(now)
        return self._shut | self._given.keys()

    def _let_lapse(self, now: float) -> bool:
        """Forget what was given and never taken; whether there was any."""
        lapsed = [name for name, since in self._given.items() if since + GIVEN <= now + TICK]
        for name in lapsed:
            del self._given[name]
            self._accounting.usage.lapsed(name)
        return bool(lapsed)

    def _watch_given(self) -> None:
        """Wake the negotiator when a slot that nobody took may be given again: its ad need not change for that."""
        if self._lapse is None and self._given:
            self._lapse = asyncio.get_running_loop().call_at(min(self._given.values()) + GIVEN, self._lapse_now)

    def _lapse_now(self) -> None:
        self._lapse = None
        if self._kept_back is not None:
            self._lapse = asyncio.get_running_loop().call_later(SOON, self._lapse_now)
        elif self._let_lapse(asyncio.get_running_loop().time()):
            self._wake(0.0)
        self._watch_given()


def _has_more(before: ClassAd | None, ad: ClassAd) -> bool:
    """Whether a machine of another pool may give more than before, or to others; it keeps its key, unlike machines of
    this one."""
    if before is None or ad.value(LENDER, None) is None:
        return False
    if ad.held("Requirements") != before.held("Requirements"):
        return True
    return any(number(ad.value(name, 0)) > number(before.value(name, 0)) for name in (*STANDARD, COUNT))


def _leaves_saved(ad: ClassAd | None) -> bool:
    """Whether a slot has a job of another pool that leaves for jobs of this one, and can be saved."""
    return ad is not None and ad.value(GUEST_LEAVES, False) is True and ad.value("JobCanCheckpoint", False) is True


def _changed(before: ClassAd | None, ad: dict[str, Any] | None, gone: Sequence[str] | None) -> ClassAd | None:
    """The ad that was sent, whole or as what is other in the one before."""
    if ad is None:
        return None
    if gone is None or before is None:
        return ClassAd.from_wire(ad)
    after = before.copy()
    for name in gone:
        after.discard(name)
    after.update_from_wire(ad)
    return after


def _is_plain(ad: ClassAd) -> bool:
    """Whether nothing by which a slot is held and weighs something is an expression, which may read anything."""
    held = ad.holdings.get
    return not any(type(held(name)) is Expr for name in OF_HOLDERS)


def idle(ad: ClassAd) -> int:
    """How many jobs a submitter's ad speaks of that look for a machine: idle ones, and running ones for a better."""
    counts = (ad.value(name, 0) for name in ("IdleJobs", "MovingJobs"))
    return sum(count for count in counts if isinstance(count, int) and not isinstance(count, bool))

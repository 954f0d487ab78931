"""The collector's memory: ads that expire unless they are renewed (EV 3.4, RL 3.2.2).

Plain state without I/O. Ads come whole or as differences, and each advertiser numbers its updates. A difference whose
number does not follow on (the collector has restarted, an update was lost) is answered with "resend", and the whole ad
comes again. So the collector learns the pool again without help.

A name belongs to its holder: another node cannot take it over while the ad is alive. That keeps two schedds of one name
apart, and a stranger from advertising another user's machine (EV 2.9.1, first hazard).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pool.errors import PoolError

Wire = dict[str, Any]
Key = tuple[str, str]

#: Longest and shortest time an advertiser may ask its ad to live, seconds.
LONGEST_LIFE = 24 * 3600.0
SHORTEST_LIFE = 1.0
_NOTHING = object()


class AdNameTaken(PoolError):
    """Another node advertises under this name."""


@dataclass(slots=True)
class RegisteredAd:
    """One ad as last received.

    Attributes:
        key: type ("Machine", "Submitter", "Scheduler", ...) and name.
        holder: the node that advertises it.
        incarnation: drawn anew by each start of the advertiser, so that its restart is no gap in numbers.
        private: what only negotiators are shown (claim ids).
        expires: monotonic time.
        changed: the names of attributes that the last update changed or took away; None if it brought a whole ad.
        private_changed: whether it changed the private part.
    """

    key: Key
    holder: str
    incarnation: str
    sequence: int
    ad: Wire
    private: Wire
    expires: float
    changed: tuple[str, ...] | None = None
    private_changed: bool = True


@dataclass(frozen=True, slots=True)
class Update:
    """One advertisement as it comes in.

    Attributes:
        whole: `ad` is everything; else `ad` holds what changed and `gone` the names that went.
        lifetime: seconds for which the ad counts without another update.
    """

    kind: str
    name: str
    incarnation: str
    sequence: int
    whole: bool
    ad: Wire
    gone: tuple[str, ...] = ()
    private: Wire | None = None
    lifetime: float = 900.0


@dataclass(slots=True)
class Registry:
    """All ads of the pool, by type and name."""

    entries: dict[Key, RegisteredAd] = field(default_factory=dict)
    _due: list[tuple[float, Key]] = field(default_factory=list)

    def update(self, update: Update, holder: str, now: float) -> RegisteredAd | None:
        """Take in an advertisement; None asks the advertiser to send the whole ad again.

        Raises:
            AdNameTaken: another node holds the name.
        """
        key = (update.kind, update.name)
        entry = self.entries.get(key)
        if entry is not None and entry.holder != holder:
            raise AdNameTaken(
                f"cannot advertise {update.kind} {update.name}: node {entry.holder} advertises under this name",
                hint="give one of the two another NODE_NAME; a name is free again when its ad has expired",
            )
        life = min(max(update.lifetime, SHORTEST_LIFE), LONGEST_LIFE)
        if update.whole:
            entry = RegisteredAd(
                key,
                holder,
                update.incarnation,
                update.sequence,
                dict(update.ad),
                dict(update.private or {}),
                now + life,
            )
            self.entries[key] = entry
        elif entry is None or entry.incarnation != update.incarnation or update.sequence != entry.sequence + 1:
            return None
        else:
            ad = entry.ad
            gone = [name for name in update.gone if name in ad]
            for name in gone:
                del ad[name]
            changed = {name: value for name, value in update.ad.items() if not _holds(ad, name, value)}
            ad.update(changed)
            entry.changed = (*gone, *changed)
            entry.private_changed = update.private is not None and update.private != entry.private
            if update.private is not None:
                entry.private = dict(update.private)
            entry.sequence = update.sequence
            entry.expires = now + life
        heapq.heappush(self._due, (entry.expires, key))
        return entry

    def invalidate(self, kind: str, name: str, holder: str) -> bool:
        """Take an ad out at its holder's word; False when it is not there or not the holder's."""
        entry = self.entries.get((kind, name))
        if entry is None or entry.holder != holder:
            return False
        del self.entries[(kind, name)]
        return True

    def forget(self, holder: str) -> list[Key]:
        """Drop all ads of a node that is gone, and say what."""
        gone = [key for key, entry in self.entries.items() if entry.holder == holder]
        for key in gone:
            del self.entries[key]
        return gone

    def drop_of(self, nodes: Collection[str]) -> list[Key]:
        """Drop what these nodes advertise, and say what."""
        gone = [key for key, entry in self.entries.items() if entry.holder.partition("#")[0] in nodes]
        for key in gone:
            del self.entries[key]
        return gone

    def expire(self, now: float) -> list[Key]:
        """Drop what has not been renewed in time, and say what."""
        gone: list[Key] = []
        while self._due and self._due[0][0] <= now:
            _, key = heapq.heappop(self._due)
            entry = self.entries.get(key)
            if entry is not None and entry.expires <= now:
                del self.entries[key]
                gone.append(key)
        return gone

    def next_expiry(self) -> float | None:
        """Monotonic time at which `expire` should be called next."""
        return self._due[0][0] if self._due else None

    def of_kind(self, kind: str) -> Iterator[RegisteredAd]:
        for entry in self.entries.values():
            if kind in (entry.key[0], "Any"):
                yield entry


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Wire, tuple[str, ...]]:
    """The difference to send so that `old` becomes `new`: changed or new attributes, and the names that went."""
    changed = {name: value for name, value in new.items() if not _holds(old, name, value)}
    return changed, tuple(name for name in old if name not in new)


def _holds(ad: Mapping[str, Any], name: str, value: Any) -> bool:
    held = ad.get(name, _NOTHING)
    return type(held) is type(value) and held == value

"""The collector: what the pool knows about itself, in soft state only (A2, EV 3.4, RL 3.2.2).

Takes advertisements in, answers queries, and pushes every change to whoever watches (the negotiator does). It never
decides anything. Claim ids are kept apart from the ads and are shown to watchers with the right to negotiate only.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from pool.classad import ClassAd, evaluate, parse_expr
from pool.errors import PoolError
from pool.policy.managed import managers_of
from pool.policy.registry import AdNameTaken, RegisteredAd, Registry, Update
from pool.policy.slot_names import machine_of_slot
from pool.roles.base import Role
from pool.wire import Call, Identity, Right, Stream, method, streaming
from pool.wire.parameter_checks import TEXTS, Check, optional

BATCH = 500
#: Changes that a watcher gets at a time: some milliseconds of work.
CHANGES = 100
#: A watcher that has this many changes waiting is too slow; it is cut off and starts over from a fresh picture.
MOST_WAITING = 200_000


@dataclass(slots=True)
class _Difference:
    """How an ad differs from the same as a watcher has it: the names to tell, and whether the private part is one."""

    entry: RegisteredAd
    names: dict[str, None]
    private: bool


class _Watcher:
    """One subscriber: the changes it has not been sent yet, the last word on each ad only.

    Args:
        wanted: which ads it wants to know of; None for all. One that is not wanted any more is gone for it.
        differences: it keeps the ads, and is told how they differ from what it was told last.
    """

    def __init__(
        self,
        kinds: frozenset[str],
        private: bool,
        wanted: Callable[[RegisteredAd], bool] | None = None,
        *,
        differences: bool = False,
    ) -> None:
        self.kinds = kinds
        self.private = private
        self._wanted = wanted
        self._differences = differences
        self._known: set[tuple[str, str]] = set()
        self._changes: dict[tuple[str, str], RegisteredAd | _Difference | None] = {}
        self.wake = asyncio.Event()

    def notify(self, key: tuple[str, str], entry: RegisteredAd | None) -> None:
        if key[0] not in self.kinds and "Any" not in self.kinds:
            return
        known = key in self._known
        if entry is not None and (self._wanted is None or self._wanted(entry)):
            self._known.add(key)
        elif self._wanted is None or known:
            self._known.discard(key)
            entry = None
        else:
            return
        if self._differences and known and entry is not None and entry.changed is not None:
            self._add_difference(key, entry, entry.changed)
        else:
            self._changes[key] = entry
        self.wake.set()

    def _add_difference(self, key: tuple[str, str], entry: RegisteredAd, names: tuple[str, ...]) -> None:
        waiting = self._changes.get(key)
        if waiting is None:
            self._changes[key] = _Difference(entry, dict.fromkeys(names), entry.private_changed)
        elif isinstance(waiting, _Difference):
            waiting.names |= dict.fromkeys(names)
            waiting.private = waiting.private or entry.private_changed

    def take_changes(self) -> list[list[Any]]:
        """The items that tell what has changed since the last call."""
        changes, self._changes = self._changes, {}
        return [self._item(*key, entry) for key, entry in changes.items()]

    def _item(self, kind: str, name: str, entry: RegisteredAd | _Difference | None) -> list[Any]:
        if entry is None:
            return [kind, name, None, None]
        if isinstance(entry, RegisteredAd):
            return [kind, name, entry.ad, entry.private if self.private else None]
        ad = entry.entry.ad
        changed = {attribute: ad[attribute] for attribute in entry.names if attribute in ad}
        gone = [attribute for attribute in entry.names if attribute not in ad]
        return [kind, name, changed, entry.entry.private if entry.private and self.private else None, gone]


#: A node whose connection has ended counts as gone after so many seconds; the kernel ends that of a dead one in 60.
GONE_AFTER = 15.0
#: Which role a node must have to advertise ads of a type, and whether their names are THING@NODE, or NODE alone.
ADVERTISERS = {
    "Machine": ("startd", True),
    "Submitter": ("schedd", True),
    "Scheduler": ("schedd", False),
    "Negotiator": ("negotiator", False),
}
#: A lent machine is SLOT@MACHINE@POOL@NODE, another pool's user is USER@POOL@NODE, of a node that has the world role:
#: never a name of this pool's own. By type, how many @ such a name has.
LENT = {"Machine": 3, "Submitter": 2}


#: The fields of an update, with the types that each may have.
OF_UPDATES: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("kind", str),
    ("name", str),
    ("sequence", int),
    ("whole", bool),
    ("ad", dict),
    ("lifetime", (int, float)),
    ("gone", (list, tuple, type(None))),
    ("private", (dict, type(None))),
)
ONLY_TEXT = {str}


def _is_update(item: Any) -> bool:
    """Whether an update has all that `Update` is made of."""
    if not isinstance(item, dict):
        return False
    for name, kinds in OF_UPDATES:
        if not isinstance(item.get(name), kinds):
            return False
    names = (*item["ad"], *(item.get("gone") or ()))
    return set(map(type, names)) <= ONLY_TEXT and abs(item["lifetime"]) < 1e12


def _is_pair(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and all(isinstance(part, str) for part in item)


UPDATES = Check("a list of updates", lambda value: isinstance(value, list) and all(map(_is_update, value)))
PAIRS = Check("a list of [type, name]", lambda value: isinstance(value, list) and all(map(_is_pair, value)))


def not_its_to_tell(kind: str, name: str, identity: Identity) -> str | None:
    """Why this node may not advertise such an ad; None when it may (EV 2.9.1, first hazard)."""
    if kind not in ADVERTISERS:
        return f"there are no ads of type {kind}; there are {', '.join(ADVERTISERS)}"
    role, parts = ADVERTISERS[kind]
    if "world" in identity.roles and name.count("@") == LENT.get(kind) and name.endswith(f"@{identity.name}"):
        return None
    if "@" in identity.name:  # one that joined before such names were refused
        return f"the name of a node holds no @, and {identity.name} does"
    if role not in identity.roles:
        return f"node {identity.name} has not joined as {role}"
    if name != identity.name and not (parts and name.endswith(f"@{identity.name}")):
        return f"a {kind} ad of node {identity.name} must be named {'NAME@' if parts else ''}{identity.name}"
    return None


def identifying(kind: str, name: str, node: str) -> dict[str, Any]:
    """The attributes of an ad that say whose it is: taken from the certificate, whatever the node says."""
    own: dict[str, Any] = {"MyType": kind, "Name": name}
    if kind == "Machine":
        lent = name.count("@") == LENT[kind]
        own["Machine"] = machine_of_slot(name) if lent else node
    elif kind == "Submitter":
        own |= {"Node": node, "ScheddName": node}
    return own


def identified(item: dict[str, Any], node: str, incarnation: str) -> Update:
    """An update with what identifies its ad set right; names of attributes differ in no case of letters."""
    kind, name = item["kind"], item["name"]
    own = identifying(kind, name, node)
    taken = {attribute.lower() for attribute in own}
    ad = {attribute: value for attribute, value in item["ad"].items() if attribute.lower() not in taken}
    gone = tuple(attribute for attribute in item.get("gone") or () if attribute.lower() not in taken)
    return Update(
        kind,
        name,
        incarnation,
        item["sequence"],
        item["whole"],
        ad | own,
        gone,
        item.get("private"),
        float(item["lifetime"]),
    )


def _is_managed(scheduler: str, entry: RegisteredAd) -> bool:
    """Whether an ad is of a machine that names this dedicated scheduler."""
    return scheduler in managers_of(entry.ad)


class Collector(Role):
    """The collector role."""

    name: ClassVar[str] = "collector"
    questions: ClassVar[frozenset[str]] = frozenset({"query"})

    async def start(self) -> None:
        self._registry = Registry()
        #: The streams of each advertiser that says it is there.
        self._attending: Counter[str] = Counter()
        self._watchers: set[_Watcher] = set()
        self.spawn(self._expire(), "expire")

    @method(Right.ADVERTISE, takes={"incarnation": str, "updates": UPDATES, "gone": optional(PAIRS)})
    async def update(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Take in ads. {incarnation, updates: [...], gone: [[kind, name]]} -> {resend: [...], refused: [...]}"""
        now = asyncio.get_running_loop().time()
        resend: list[list[str]] = []
        refused: list[list[str]] = []
        node = call.identity.name
        holder = f"{node}#{params.get('instance', '')}"
        incarnation = str(params["incarnation"])
        for item in params["updates"]:
            kind, name = item["kind"], item["name"]
            why_not = not_its_to_tell(kind, name, call.identity)
            if why_not:
                refused.append([kind, name, why_not])
                continue
            try:
                entry = self._registry.update(identified(item, node, incarnation), holder, now)
            except AdNameTaken as error:
                refused.append([kind, name, str(error)])
                continue
            if entry is None:
                resend.append([kind, name])
                continue
            self._notify_watchers((kind, name), entry)
        for kind, name in params.get("gone") or ():
            if self._registry.invalidate(kind, name, holder):
                self._notify_watchers((kind, name), None)
        return {"resend": resend, "refused": refused}

    @streaming(
        Right.READ,
        takes={"type": str | None, "constraint": str | None, "attributes": optional(TEXTS), "limit": int | None},
    )
    async def query(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Ads of one type, in batches: {type, constraint, attributes, limit}."""
        kind = str(params.get("type") or "Any")
        constraint = parse_expr(params["constraint"]) if params.get("constraint") else None
        wanted = params.get("attributes")
        left = int(params.get("limit") or 0) or None
        now = self.outside.wall()
        batch: list[dict[str, Any]] = []
        async with self.given.turns.work(call.identity.name, "list ads") as turn:
            for entry in list(self._registry.of_kind(kind)):
                if turn.is_over:
                    await turn.pause()
                if constraint is not None:
                    value = evaluate(constraint, ClassAd.from_wire(entry.ad), None, now)
                    if value is not True and not (isinstance(value, (int, float)) and value):
                        continue
                batch.append({name: entry.ad[name] for name in wanted if name in entry.ad} if wanted else entry.ad)
                if left is not None:
                    left -= 1
                    if not left:
                        break
                if len(batch) >= BATCH:
                    await turn.send(stream, batch)
                    batch = []
        if batch:
            await stream.send(batch)
        await stream.finish()

    @streaming(Right.READ, takes={"types": optional(TEXTS), "managed_by": str | None, "differences": bool | None})
    async def watch(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Every ad now, then each change: items are lists of [kind, name, ad or None, private or None].

        With `managed_by` only the machines that name this dedicated scheduler (WR 3.2: it asks for those alone). With
        `differences` a change of an ad that was told before is [kind, name, attributes that are other or new, private
        or None where that is as before, names of attributes that are gone].
        """
        private = bool(params.get("private"))
        if private and Right.NEGOTIATE not in call.identity.rights:
            raise PoolError(f"{call.identity.name} may not see claim ids", hint="only a negotiator's node may")
        scheduler, wanted = params.get("managed_by"), None
        if scheduler:
            wanted = functools.partial(_is_managed, scheduler)
        types, differences = frozenset(params.get("types") or ["Any"]), bool(params.get("differences"))
        watcher = _Watcher(types, private, wanted, differences=differences)
        for entry in self._registry.entries.values():
            watcher.notify(entry.key, entry)
        self._watchers.add(watcher)
        watcher.wake.set()
        try:
            while True:
                await watcher.wake.wait()
                watcher.wake.clear()
                items = watcher.take_changes()
                for start in range(0, max(len(items), 1), CHANGES):
                    if start:
                        await asyncio.sleep(0)
                    await stream.send(items[start : start + CHANGES])
        finally:
            self._watchers.discard(watcher)

    @streaming(Right.ADVERTISE, takes={"instance": str | None})
    async def session(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A stream without items that lasts as long as this collector knows the ads of its caller: {instance?}

        Where it ends and does not come back soon its node is gone, and its ads with it.
        """
        loop, holder = asyncio.get_running_loop(), f"{call.identity.name}#{params.get('instance') or ''}"
        self._attending[holder] += 1
        try:
            await loop.create_future()
        finally:
            self._attending[holder] -= 1
            if not self._attending[holder]:
                del self._attending[holder]
                loop.call_later(GONE_AFTER, self._is_gone, holder)

    def _is_gone(self, holder: str) -> None:
        if holder in self._attending:
            return
        for key in self._registry.forget(holder):
            self.log.info("an ad went with its node", extra={"ad": f"{key[0]} {key[1]}"})
            self._notify_watchers(key, None)

    def exclude(self, nodes: set[str]) -> None:
        for key in self._registry.drop_of(nodes):
            self._notify_watchers(key, None)

    def _notify_watchers(self, key: tuple[str, str], entry: RegisteredAd | None) -> None:
        for watcher in list(self._watchers):
            watcher.notify(key, entry)

    async def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = self._registry.next_expiry()
            pause = 30.0 if due is None else min(max(due - loop.time(), 0.05), 30.0)
            await asyncio.sleep(pause)
            for key in self._registry.expire(loop.time()):
                self.log.info("an ad expired", extra={"ad": f"{key[0]} {key[1]}"})
                self._notify_watchers(key, None)

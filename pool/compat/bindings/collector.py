"""The look-alike `Collector`, `Negotiator` and `Startd`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pool.compat.bindings.ads import LookAd, LookExpr, names_of
from pool.compat.bindings.connections import LookProblem, call_pool, connected, unable
from pool.compat.bindings.enums import LookAdType, LookDaemonType, LookDrainType
from pool.compat.bindings.schedd import address_of

_KINDS = {
    LookAdType.Startd: "Machine",
    LookAdType.Slot: "Machine",
    LookAdType.Schedd: "Scheduler",
    LookAdType.Submitter: "Submitter",
    LookAdType.Negotiator: "Negotiator",
    LookAdType.Any: "Any",
}
_DAEMONS = {
    LookDaemonType.Schedd: ("Scheduler", "ScheddAddress"),
    LookDaemonType.Startd: ("Machine", "StartdAddress"),
    LookDaemonType.Negotiator: ("Negotiator", "NegotiatorAddress"),
}


class LookLocateProblem(LookProblem, ValueError):
    """There is no daemon of that name; `HTCondorLocateError` of the older module."""


class LookCollector:
    """The pool's collector; `Collector`.

    Args:
        pool: `host:port` of a node of the pool, several of them, or a location; the user's own node by default.
    """

    def __init__(self, pool: Any = None, security: Any = None) -> None:
        if isinstance(pool, list | tuple):
            pool = pool[0] if pool else None
        self._at = pool if pool is None or isinstance(pool, str) else address_of(pool)

    def query(
        self,
        ad_type: Any = LookAdType.Any,
        constraint: Any = True,
        projection: Iterable[str] = (),
        statistics: str = "",
    ) -> list[LookAd]:
        """The ads of a kind."""
        kind = _KINDS.get(LookAdType(int(ad_type)))
        if kind is None:
            return []  # this pool has none of that kind
        text = (repr(constraint) if isinstance(constraint, LookExpr) else str(constraint)).strip()
        chosen = None if not text or text.lower() == "true" else text
        ads = call_pool(self._at, "advertised", kind, constraint=chosen)
        names = {name.lower() for name in names_of(projection)} | {"mytype", "targettype", "name"}
        if len(names) > 3:
            ads = [{name: value for name, value in ad.items() if name.lower() in names} for ad in ads]
        return [LookAd.of_wire(ad) for ad in ads]

    def locate(self, daemon_type: Any, name: str | None = None) -> LookAd:
        """Where a daemon is: of the name given, or the node's own.

        Raises:
            LookLocateProblem: there is none.
        """
        found = self._locations(LookDaemonType(int(daemon_type)))
        if name is None:
            own = call_pool(self._at, "info").get("address")
            found = [ad for ad in found if ad.get("MyAddress") == own] or found
        else:
            found = [ad for ad in found if name in (ad.get("Name"), ad.get("Machine"))]
        if not found:
            raise LookLocateProblem(f"Unable to find daemon {name or LookDaemonType(int(daemon_type)).name}")
        return found[0]

    def locateAll(self, daemon_type: Any) -> list[LookAd]:
        """Where all daemons of a kind are."""
        return self._locations(LookDaemonType(int(daemon_type)))

    def directQuery(
        self, daemon_type: Any, name: str | None = None, projection: Iterable[str] = (), statistics: str = ""
    ) -> LookAd:
        """The ad of one daemon."""
        return self.locate(daemon_type, name)

    def _locations(self, kind: LookDaemonType) -> list[LookAd]:
        if kind is LookDaemonType.Collector:
            info = call_pool(self._at, "info")
            address = str(info.get("collector") or info.get("address") or connected(self._at).address)
            return [LookAd({"MyType": "Collector", "Name": str(info.get("node") or ""), "MyAddress": address})]
        if kind not in _DAEMONS:
            raise LookLocateProblem(f"this pool has no daemons of the kind {kind.name}")
        advertised, attribute = _DAEMONS[kind]
        found = []
        for ad in call_pool(self._at, "advertised", advertised):
            location = LookAd.of_wire(ad)
            location.setdefault("MyAddress", str(ad.get(attribute) or ""))
            found.append(location)
        return found

    def advertise(self, *arguments: Any, **named: Any) -> None:
        raise unable("advertise()", "a node advertises itself")


class LookNegotiator:
    """The pool's negotiator; `Negotiator`."""

    def __init__(self, location: Any = None) -> None:
        self._at = address_of(location)

    def getPriorities(self, rollup: bool = False) -> list[LookAd]:
        """An ad for each user."""
        from pool.compat.asking import ask_pool
        from pool.compat.userprio import account_ad

        async def question(pool: Any) -> Any:
            from pool.client.priorities import priorities

            return await priorities(pool)

        return [LookAd(account_ad(account)) for account in ask_pool(self._at, question).accounts]

    def _set(self, user: str, **how: Any) -> None:
        from pool.compat.asking import ask_pool

        async def question(pool: Any) -> Any:
            from pool.client.priorities import set_priority

            return await set_priority(pool, user, **how)

        ask_pool(self._at, question)

    def setFactor(self, user: str, factor: float) -> None:
        self._set(user, factor=float(factor))

    def setPriority(self, user: str, prio: float) -> None:
        self._set(user, priority=float(prio))

    def resetUsage(self, user: str) -> None:
        self._set(user, reset=True)

    def deleteUser(self, user: str) -> None:
        self._set(user, forget=True)


class LookStartd:
    """A machine; `Startd`. Draining it needs an administrator's rights."""

    def __init__(self, location: Any = None) -> None:
        self._name = str(location["Machine"] if location is not None and "Machine" in location else "")

    def drainJobs(self, drain_type: Any = LookDrainType.Graceful, *arguments: Any, **named: Any) -> str:
        """Take the machine out of use."""
        how = {LookDrainType.Graceful: "finish", LookDrainType.Quick: "vacate", LookDrainType.Fast: "fast"}
        if arguments or set(named) - {"reason"}:
            raise unable("an option of drainJobs()", "a drained machine waits for cancelDrainJobs()")
        self._order("drain", {"how": how[LookDrainType(int(drain_type))], "reason": named.get("reason") or ""})
        return self._name

    def cancelDrainJobs(self, request_id: str | None = None) -> None:
        """Take the machine into use again."""
        self._order("undrain", {})

    def _order(self, verb: str, params: dict[str, Any]) -> None:
        import os

        from pool.compat.asking import ask_pool
        from pool.compat.machines import order_startd

        name = self._name or os.uname().nodename

        async def question(pool: Any) -> None:
            await order_startd(pool, name, verb, params)

        ask_pool(None, question)

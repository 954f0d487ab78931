"""Reservations as the schedd keeps them: asked for, written down, listed, cancelled, over (WR 6.9).

They lie among the queue's own notes, so that a restart forgets none. `pool.policy.dedicated.reservations`
decides which are accepted, and which machines they get.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pool.classad import ParseError, parse_expr
from pool.errors import PoolError
from pool.policy.dedicated import DedicatedRun, PartClass, Reservation, ReservationQuota, refusal
from pool.policy.dedicated.model import Kind
from pool.policy.queue import Wire

#: The queue's note of all reservations.
NOTE = "dedicated-reservations"
#: Reservations of one schedd at most.
MOST_RESERVATIONS = 1000
#: The longest one, and the latest to begin, seconds from now.
LONGEST, LATEST = 366 * 86400.0, 366 * 86400.0
#: Machines of one at most, and characters of what they must be.
MOST_MACHINES, LONGEST_TEXT = 100_000, 10_000


#: The id of a reservation that has none yet: several may be asked for at the same time.
NEW = "new"


@dataclass(frozen=True, slots=True)
class KeptReservation:
    """A reservation as it is written down.

    Attributes:
        id: "r7"; NEW of one that is asked for.
        user, group: for whom; one of them is "".
        asked_by: whose quota it uses; "" where an administrator asked.
        count: of machines; requirements: an expression that they fulfil.
        start, duration: wall time and seconds.
        machines: by name, since it began.
        made_by: who may cancel it.
    """

    id: str
    user: str
    group: str
    asked_by: str
    count: int
    requirements: str
    start: float
    duration: float
    made_by: str
    machines: tuple[str, ...] = ()

    @property
    def request(self) -> str:
        """The name of what it asks for among the requests of a cycle."""
        return f"reservation {self.id}"

    def ad(self) -> Wire:
        """Its demands on each machine, in wire form."""
        wire: Wire = {"MyType": "Job", "Owner": self.user or self.group, "QDate": int(self.start)}
        wire |= {"RequestCpus": 1, "RequestMemory": 1, "RequestDisk": 1}
        return {**wire, "Requirements": [self.requirements or "true"]}


class Reservations:
    """The reservations of one schedd.

    Args:
        keep: writes a note of the queue's, durably.
    """

    def __init__(
        self,
        keep: Callable[[str, bytes], Awaitable[Any]],
        spawn: Callable[..., Any],
        log: logging.Logger,
    ) -> None:
        self._keep = keep
        self._spawn = spawn
        self._log = log
        self._listeners: list[Callable[[], None]] = []
        self._known: dict[str, KeptReservation] = {}
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._known)

    def listen(self, changed: Callable[[], None]) -> None:
        """Call this when there are other reservations than before."""
        self._listeners.append(changed)

    def _changed(self) -> None:
        for changed in self._listeners:
            changed()

    def restore(self, meta: Mapping[str, bytes]) -> None:
        """Take in what an earlier run has written."""
        kept = meta.get(NOTE)
        if not kept:
            return
        try:
            read = json.loads(kept)
            self._last = int(read["last"])
            for one in read["reservations"]:
                made = KeptReservation(**{**one, "machines": tuple(one["machines"])})
                self._known[made.id] = made
        except (ValueError, TypeError, KeyError) as error:
            self._log.error("the reservations could not be read", extra={"error": str(error)})

    # -- the cycle ---------------------------------------------------------------------------------------

    def requests(self, more: Iterable[KeptReservation] = ()) -> Iterator[tuple[str, Wire, int]]:
        """The demands of all reservations, these included: a name, an ad, the number of machines."""
        for one in (*self._known.values(), *more):
            yield one.request, one.ad(), one.count

    def ad_of(self, reservation: str) -> Wire | None:
        """The demands of a reservation on a machine; None where there is none of that id."""
        one = self._known.get(reservation)
        return one.ad() if one is not None else None

    def current(self, now: float, fits: Mapping[str, tuple[Kind, ...]]) -> list[Reservation]:
        """Those that are not over, as decisions see them; the others are forgotten."""
        over = [one.id for one in self._known.values() if one.start + one.duration <= now]
        for name in over:
            del self._known[name]
        if over:
            self._spawn(self._write(), "reservations", alone=True)
        return [_view(one, fits.get(one.request, ())) for one in self._known.values()]

    def begin(self, chosen: Mapping[str, Iterable[str]]) -> None:
        """Reservations begin: these are their machines from now on."""
        for name, machines in chosen.items():
            one = self._known.get(name)
            if one is not None and one.machines != (names := tuple(machines)):
                self._known[name] = replace(one, machines=names)
                self._spawn(self._write(), "reservations", alone=True)

    # -- people ------------------------------------------------------------------------------------------

    def check(
        self,
        asked: KeptReservation,
        fits: Mapping[str, tuple[Kind, ...]],
        running: Iterable[DedicatedRun],
        configured: Mapping[Kind, int],
        quota: ReservationQuota | None,
        now: float,
    ) -> None:
        """Refuse what cannot be promised.

        Raises:
            PoolError: why not, and the way out.
        """
        if len(self._known) >= MOST_RESERVATIONS:
            raise PoolError("there are too many reservations", hint="cancel some: `poolnode reserve --cancel ID`")
        others = [_view(one, fits.get(one.request, ())) for one in self._known.values()]
        why = refusal(_view(asked, fits.get(asked.request, ())), others, running, configured, quota, now)
        if why is not None:
            raise PoolError(f"cannot reserve {asked.count} machines: {why}", hint="`poolnode plan` shows what is free")

    async def add(self, asked: KeptReservation) -> KeptReservation:
        """Write a reservation down. On disk when it returns."""
        self._last += 1
        made = replace(asked, id=f"r{self._last}")
        self._known[made.id] = made
        try:
            await self._write()
        except PoolError:
            self._known.pop(made.id, None)
            raise
        self._changed()
        return made

    async def cancel(self, name: str, user: str, *, everybodys: bool) -> None:
        """Take a reservation back.

        Raises:
            PoolError: there is none of that id, or it is another's.
        """
        one = self._known.get(name)
        if one is None:
            raise PoolError(f"there is no reservation {name}", hint="`poolnode reserve --list` lists them")
        if one.made_by != user and not everybodys:
            raise PoolError(f"reservation {name} is {one.made_by}'s", hint="that user or an administrator cancels it")
        del self._known[name]
        try:
            await self._write()
        except PoolError:
            self._known[name] = one
            raise
        self._changed()

    def listed(self) -> list[dict[str, Any]]:
        """All of them, the first to begin in front."""
        return [asdict(one) for one in sorted(self._known.values(), key=lambda one: (one.start, one.id))]

    def are_in(self, requests: Mapping[str, Any]) -> bool:
        """Whether a look at the machines had all of them among its requests."""
        return all(one.request in requests for one in self._known.values())

    async def _write(self) -> None:
        kept = {"last": self._last, "reservations": self.listed()}
        await self._keep(NOTE, json.dumps(kept).encode())


def read_request(params: Mapping[str, Any], user: str, *, administer: bool, now: float) -> KeptReservation:
    """A reservation out of what somebody asks for.

    Raises:
        PoolError: which part makes no sense, and what to write instead.
    """
    count, start, duration = params["machines"], float(params["start"]), float(params["duration"])
    group, whom = str(params.get("group") or "").lower(), str(params.get("user") or "")
    requirements = str(params.get("requirements") or "")
    if not 1 <= count <= MOST_MACHINES:
        raise PoolError(f"cannot reserve {count} machines", hint=f"a number from 1 to {MOST_MACHINES}")
    if not (math.isfinite(start) and math.isfinite(duration) and 0 < duration <= LONGEST):
        raise PoolError("cannot reserve machines for that time", hint="as in `--from 14:00 --for 2h`")
    if start > now + LATEST:
        raise PoolError("cannot reserve machines so far ahead", hint="a year at most")
    if len(requirements) > LONGEST_TEXT:
        raise PoolError("the requirements of the machines are too long", hint=f"{LONGEST_TEXT} characters at most")
    if (group or (whom and whom != user)) and not administer:
        raise PoolError("only an administrator reserves for others", hint="leave --user and --group out")
    try:
        parse_expr(requirements or "true", syntax="old")
    except ParseError as error:
        raise PoolError(f"the requirements of the machines are no expression: {error}") from error
    return KeptReservation(
        id=NEW,
        user="" if group else (whom or user),
        group=group,
        asked_by="" if administer else user,
        count=count,
        requirements=requirements,
        start=start,
        duration=duration,
        made_by=user,
    )


def _view(kept: KeptReservation, fits: tuple[Kind, ...]) -> Reservation:
    return Reservation(
        id=kept.id,
        user=kept.user,
        parts=(PartClass(kept.count, fits),),
        start=kept.start,
        duration=kept.duration,
        machines=kept.machines,
        group=kept.group,
        asked_by=kept.asked_by,
    )

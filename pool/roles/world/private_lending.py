"""The wishes of this pool's users whose jobs are in the queue of another pool (EV 4.1): the lending side.

A user's own home pool connects with that user's token and says what his jobs there want. Towards our negotiator this is
a submitter of that user, beside the one of a schedd here: the same account, the same priority. A slot that it matches
is claimed as a schedd claims it, and the claim is sent home. Everything that is known here ends with the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pool.policy.flock.private import BadWish, Delivery, FlockWish, party, read_wishes, still_wanted, users_request
from pool.policy.flock.shown import AS_PRIVATE
from pool.roles.advertise import Advertiser, DemandCount
from pool.roles.base import Spawn
from pool.roles.world.guest_claims import GuestClaims
from pool.roles.world.relay import STARTD_CALLS, STARTD_STREAMS, NoWay, join_streams, seconds_left
from pool.wire import (
    Call,
    Connection,
    ConnectionLost,
    DeadlineExceeded,
    RemoteError,
    Right,
    Service,
    Stream,
    method,
    streaming,
)
from pool.wire.certificates import check_name
from pool.wire.parameter_checks import MAPPINGS, TEXTS, optional

Wire = dict[str, Any]
TROUBLE = (ConnectionLost, DeadlineExceeded, RemoteError, OSError, TimeoutError)
#: Seconds for a startd's answer to a claim.
PATIENCE = 15.0
#: Seconds within which the job of another user has to leave a slot.
LEAVING = 3600.0
#: Homes of one user at a time.
MOST_HOMES = 20
#: Deliveries that home has not confirmed; more are not made.
MOST_COMING = 10_000


@dataclass(slots=True, eq=False)
class OpenWish:
    """A wish that waits for our negotiator: its number here, and how many slots it wants, those included that are being
    claimed."""

    guest: PrivateGuest
    number: int
    wish: FlockWish
    wanted: int

    @property
    def left(self) -> int:
        """How many slots our negotiator is asked for."""
        return max(0, self.wanted - self.guest.claiming.get(self.wish.key, 0))


@dataclass(slots=True, eq=False)
class PrivateGuest:
    """A user of ours with jobs in another pool, for as long as that pool is connected.

    Attributes:
        name: of the connection, for tunnels and claims. home: the other pool, as it calls itself.
        submitter: the name under which our negotiator knows the wishes.
    """

    name: str
    user: str
    home: str
    submitter: str
    link: Connection
    stream: Stream
    wishes: dict[tuple[str, int], OpenWish] = field(default_factory=dict)
    claiming: dict[tuple[str, int], int] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    sequence: int = 0

    @property
    def waiting(self) -> int:
        """Slots that it still wants."""
        return sum(one.left for one in self.wishes.values())


class PrivateLender(Service):
    """Serves our negotiator as `world_private`.

    Args:
        tunnel: the connection for one of home's schedds and one of our startds. Raises NoWay.
        close: ends the tunnels of a guest.
        claims: of all other pools.
        take_back: has all jobs of a guest leave, where so many slots are left to it, as a function says.
        domain, own_name: UID_DOMAIN, and the name of this pool.
    """

    def __init__(
        self,
        advertiser: Advertiser,
        *,
        node: str,
        address: Callable[[], str],
        spawn: Spawn,
        log: logging.Logger,
        tunnel: Callable[[str, str, str], Awaitable[Connection]],
        close: Callable[[str], Awaitable[None]],
        claims: GuestClaims,
        take_back: Callable[[str, Callable[[], int]], Awaitable[None]],
        domain: Callable[[], str],
        own_name: Callable[[], str],
    ) -> None:
        self._advertiser = advertiser
        self._node = node
        self._address = address
        self._spawn = spawn
        self._log = log
        self.tunnel = tunnel
        self._close = close
        self.claims = claims
        self._take_back = take_back
        self._domain = domain
        self.own_name = own_name
        self.guests: dict[str, PrivateGuest] = {}
        self._held: dict[str, str] = {}
        self._numbers: dict[int, OpenWish] = {}
        self._next = 0
        self._demand = DemandCount(advertiser.outside.chance)

    def begin(self, user: str, home: str, link: Connection, stream: Stream) -> PrivateGuest:
        """A user's home has connected; an earlier connection of it is over.

        Raises:
            BadWish: the user has too many.
        """
        name = party(home, user)
        if name not in self.guests and sum(one.user == user for one in self.guests.values()) >= MOST_HOMES:
            raise BadWish(f"{user} has {MOST_HOMES} private flocks here already")
        if (before := self.guests.get(name)) is not None:
            self.end(before)
            why = f"{user} has connected anew from a pool that is called {home}"
            before.stream.abort(BadWish(why, hint="two pools of one name need another POOL_NAME in one of them"))
        guest = PrivateGuest(name, user, home, f"{user}@~{home}@{self._node}", link, stream)
        self.guests[name] = guest
        return guest

    def end(self, guest: PrivateGuest) -> None:
        """The connection is over: nothing is asked for any more. Claims live on for their leases."""
        for wish in guest.wishes.values():
            del self._numbers[wish.number]
        guest.wishes.clear()
        if self.guests.get(guest.name) is guest:
            del self.guests[guest.name]
            self._advertise(guest)

    async def part(self, guest: PrivateGuest) -> None:
        """Ask for nothing more, and have the guest's jobs leave, saved."""
        for wish in guest.wishes.values():
            del self._numbers[wish.number]
        guest.wishes.clear()
        self._advertise(guest)
        await self._take_back(guest.name, lambda: self.held_by(guest))

    async def expel(self, guest: PrivateGuest) -> None:
        """Have nothing more to do with a guest."""
        await self.part(guest)
        self.end(guest)
        guest.stream.abort(None)
        await self._close(guest.name)

    def connection(self, name: str) -> Connection:
        """The connection to a guest's home. Raises NoWay."""
        guest = self.guests.get(name)
        if guest is None or guest.link.closed.done():
            raise NoWay("the user's own pool cannot be reached just now", retry=True)
        return guest.link

    def take_in(self, guest: PrivateGuest, said: Any) -> None:
        """Home's wishes, all of them.

        Raises:
            BadWish: they are none.
        """
        seen, wishes = read_wishes(said)
        guest.deliveries = [one for one in guest.deliveries if one.sequence > seen]
        before, guest.wishes, grows = guest.wishes, {}, False
        for wish in wishes:
            known = before.pop(wish.key, None)
            wanted = still_wanted(wish, seen, guest.deliveries)
            grows = grows or known is None or wanted > known.wanted or wish.ad != known.wish.ad
            if known is not None and wish.ad == known.wish.ad:
                number = known.number
            else:
                before |= {wish.key: known} if known is not None else {}
                self._next += 1
                number = self._next
            guest.wishes[wish.key] = self._numbers[number] = OpenWish(guest, number, wish, wanted)
        for gone in before.values():
            del self._numbers[gone.number]
        self._advertise(guest, grows=grows)

    def machine(self, name: str, ad: Wire | None) -> None:
        """A machine of ours has changed: whose jobs it runs keeps their submitter known."""
        user = ad.get("RemoteUser") if ad is not None else None
        holder = user if isinstance(user, str) and "@~" in user else None
        before = self._held.get(name)
        if holder == before:
            return
        if holder is None:
            del self._held[name]
        else:
            self._held[name] = holder
        for guest in list(self.guests.values()):
            if guest.submitter in (holder, before):
                self._advertise(guest)

    def held_by(self, guest: PrivateGuest) -> int:
        """Slots that run jobs of a guest."""
        return sum(holder == guest.submitter for holder in self._held.values())

    def _advertise(self, guest: PrivateGuest, *, grows: bool = False) -> None:
        waiting, running = guest.waiting, self.held_by(guest)
        if self.guests.get(guest.name) is not guest or not (waiting or running):
            self._advertiser.withdraw("Submitter", guest.submitter)
            self._demand.forget(guest.submitter)
            return
        if grows:
            self._demand.grows(guest.submitter)
        self._advertiser.publish(
            "Submitter",
            guest.submitter,
            {
                "MyType": "Submitter",
                "Name": guest.submitter,
                "Owner": guest.user,
                "User": f"{guest.user}@{self._domain()}",
                "Node": self._node,
                "ScheddName": self._node,
                "ScheddAddress": f"{self._address()}#{AS_PRIVATE}",
                "IdleJobs": waiting,
                "RunningJobs": running,
                "HeldJobs": 0,
                "MovingJobs": 0,
                "Demand": self._demand.of(guest.submitter),
            },
        )

    # -- our negotiator ----------------------------------------------------------------------------------

    @method(Right.NEGOTIATE, takes={"submitter": str, "limit": int, "references": optional(TEXTS)})
    async def requests(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The wishes of a user: as a schedd answers."""
        found = [
            {"number": one.number, "ad": self._ad(one), "count": one.left, "oldest": one.wish.oldest, "runs": []}
            for guest in self.guests.values()
            if guest.submitter == params["submitter"] and len(guest.deliveries) < MOST_COMING
            for one in guest.wishes.values()
            if one.left
        ]
        return {"requests": found[: int(params["limit"])], "running": 0}

    @method(Right.NEGOTIATE, takes={"matches": MAPPINGS})
    async def matched(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Matches that our negotiator has made for wishes."""
        for match in params["matches"]:
            wish = self._numbers.get(int(match["request"]))
            count = min(wish.left, int(match.get("count") or 1)) if wish is not None else 0
            if wish is not None and count:
                claiming = wish.guest.claiming
                claiming[wish.wish.key] = claiming.get(wish.wish.key, 0) + count
                self._spawn(self._claim(wish, match, count), "claim", alone=True)
        return {}

    @method(Right.NEGOTIATE, takes={"submitter": str, "time": float | int, "rejections": list})
    async def rejected(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Wishes for which a cycle found nothing, with the reasons: home shows them to the user."""
        told: dict[PrivateGuest, list[list[Any]]] = {}
        for number, why in params["rejections"]:
            wish = self._numbers.get(int(number))
            if wish is not None:
                told.setdefault(wish.guest, []).append([*wish.wish.key, str(why)[:500]])
        for guest, reasons in told.items():
            self._spawn(self._send(guest, {"rejected": reasons}), "tell", alone=True)
        return {}

    def _ad(self, one: OpenWish) -> Wire:
        guest = one.guest
        return users_request(one.wish.ad, guest.user, guest.home, self.own_name(), self._domain())

    async def _claim(self, wish: OpenWish, match: Wire, count: int) -> None:
        guest, key, startd = wish.guest, wish.wish.key, str(match["startd"])
        made, link = list[Wire](), None
        try:
            link = await self.tunnel(guest.name, wish.wish.schedd, startd)
            made = await self._made(link, wish, match, count)
        except (*TROUBLE, NoWay) as error:
            self._log.info("a slot was not to be claimed", extra={"slot": match["slot"], "why": str(error)})
        finally:
            guest.claiming[key] -= count
            if not guest.claiming[key]:
                del guest.claiming[key]
        if made and link is not None:
            guest.sequence += 1
            guest.deliveries.append(Delivery(guest.sequence, key, len(made)))
            if (now := guest.wishes.get(key)) is not None:
                now.wanted = max(0, now.wanted - len(made))
            self.claims.add(guest.name, wish.wish.schedd, startd, [one["claim"] for one in made])
            told = {"sequence": guest.sequence, "wish": list(key), "lease": wish.wish.lease, "claims": made}
            if self.guests.get(guest.name) is not guest or not await self._send(guest, {"delivery": told}):
                await self._release_made(link, made)  # home is gone: nobody would use them
        self._advertise(guest, grows=len(made) < count)

    async def _made(self, link: Connection, wish: OpenWish, match: Wire, count: int) -> list[Wire]:
        """The claims that a startd gives for a match."""
        guest, preempts = wish.guest, bool(match.get("preempt"))
        asked = {
            "slot": match["slot"],
            "claim": match["claim"],
            "schedd": self._node,
            "submitter": match["submitter"],
            "owner": guest.user,
            "lease": wish.wish.lease,
            "ad": self._ad(wish),
            "count": count,
        }
        answer = await link.call(
            "startd.preempt" if preempts else "startd.claim", asked, timeout=LEAVING if preempts else PATIENCE
        )
        return [{**claim, "startd": str(match["startd"])} for claim in answer["claims"]]

    async def _release_made(self, link: Connection, made: list[Wire]) -> None:
        try:
            await link.call("startd.release", {"claims": [one["claim"] for one in made]}, timeout=PATIENCE)
        except TROUBLE as error:  # they end with their leases
            self._log.info("claims were not given back", extra={"why": str(error)})

    async def _send(self, guest: PrivateGuest, item: Wire) -> bool:
        try:
            await guest.stream.send(item)
        except TROUBLE:
            return False
        return True


class PrivateDoor(Service):
    """The methods of this pool's world for its own users' home pools, served under the world's name.

    Args:
        is_open: whether this pool's owner lets its users have private flocks.
        startd: the connection for one of home's schedds and one of our startds. Raises NoWay.
        order: what becomes of an order to start a job, for a guest.
    """

    def __init__(
        self,
        lender: PrivateLender,
        *,
        is_open: Callable[[], bool],
        order: Callable[[str, str, Wire], Wire],
    ) -> None:
        self._lender = lender
        self._is_open = is_open
        self._order = order

    @streaming(Right.SUBMIT, takes={"home": str})
    async def private(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A user's private flock: {home}, then his wishes there, all at each change; back come claims and reasons."""
        user = self._user(call)
        check_name(params["home"], ())
        guest = self._lender.begin(user, params["home"], call.connection, stream)
        try:
            await stream.send({"pool": self._lender.own_name(), "user": user})
            async for item in stream:
                self._lender.take_in(guest, item)
        finally:
            self._lender.end(guest)

    @method(Right.SUBMIT, takes={"home": str, "schedd": str, "startd": str, "verb": str, "params": dict})
    async def private_call(self, call: Call, params: dict[str, Any]) -> Any:
        """A call of a schedd at home to a startd of ours: {home, schedd, startd, verb, params}"""
        verb = params["verb"]
        if verb not in STARTD_CALLS:
            raise NoWay(f"{verb[:100]} does not pass between pools")
        name, link = await self._way(call, params)
        inner = self._order(name, verb, params["params"])
        answer = await link.call(f"startd.{verb}", inner, timeout=seconds_left(call))
        if verb == "release" and isinstance(inner.get("claims"), list):
            self._lender.claims.forget(name, params["startd"], inner["claims"])
        return answer

    @method(Right.SUBMIT, takes={"home": str})
    async def private_part(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The user ends his private flock: his jobs leave our machines: {home} -> {}"""
        guest = self._lender.guests.get(party(params["home"], self._user(call)))
        if guest is None or guest.link is not call.connection:
            raise NoWay("this is not the connection of that private flock")
        await self._lender.part(guest)
        return {}

    @streaming(Right.SUBMIT, takes={"home": str, "schedd": str, "startd": str, "verb": str, "params": dict})
    async def private_stream(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A stream of a schedd at home to a startd of ours: {home, schedd, startd, verb, params}"""
        verb = params["verb"]
        if verb not in STARTD_STREAMS:
            raise NoWay(f"{verb[:100]} does not pass between pools")
        _, link = await self._way(call, params)
        await join_streams(stream, await link.stream(f"startd.{verb}", params["params"]))

    async def _way(self, call: Call, params: dict[str, Any]) -> tuple[str, Connection]:
        name = party(params["home"], self._user(call))
        if self._lender.connection(name) is not call.connection:
            raise NoWay("this is not the connection of that private flock")
        return name, await self._lender.tunnel(name, params["schedd"], params["startd"])

    def _user(self, call: Call) -> str:
        if call.identity.kind != "user":
            raise NoWay(f"{call.identity} is no user and has no private flock", hint="come with a user's token")
        if Right.ADMINISTER in call.identity.rights:
            raise NoWay("this is an administrator's token", hint="another pool gets a plain one: token --user NAME")
        if not self._is_open():
            raise NoWay("this pool lets its users have no private flock", hint="PRIVATE_FLOCK = true at its world")
        return call.identity.name


def guests_of(lender: PrivateLender) -> Iterator[Wire]:
    """The private flocks of this pool's users, for people."""
    for guest in lender.guests.values():
        yield {
            "user": guest.user,
            "pool": guest.home,
            "side": "here",
            "waiting": guest.waiting,
            "running": lender.held_by(guest),
            "trouble": "",
        }

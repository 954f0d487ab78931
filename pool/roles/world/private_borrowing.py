"""Our users' private flocks: other pools in which a user has an account, and their machines for his jobs here (EV 4.1).

For each (user, pool) there is one connection, made with the token that the user has from that pool. On it go the wishes
of his idle jobs that name the pool, and back come claims. Our schedd is told of them as of a negotiator's matches, and
takes each as it takes a lent machine: the jobs stay in its queue, and it alone decides which starts where.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy.flock.private import MOST_POOLS, FlockWish, party, pause_after, wishes_of, within_bounds
from pool.policy.flock.reports import plain_line
from pool.policy.flock.shown import GUEST_OF
from pool.policy.why.findings import Finding
from pool.policy.why.other_pools import OtherPool
from pool.roles.base import Spawn
from pool.roles.links import SERVICE, Links
from pool.roles.world.borrowing import Arrival, ComingBack, MachineBorrower
from pool.roles.world.credit import CreditBook
from pool.roles.world.relay import NoWay, is_claim
from pool.wire import (
    Call,
    Connection,
    ConnectionLost,
    DeadlineExceeded,
    Dispatcher,
    Network,
    RemoteError,
    Right,
    Service,
    Stream,
    method,
)
from pool.wire.certificates import check_name
from pool.wire.trust_files import kept_map, write_map

Wire = dict[str, Any]
TROUBLE = (ConnectionLost, DeadlineExceeded, RemoteError, OSError, TimeoutError)
#: The file of all users' tokens for other pools; nobody but the node's user reads it.
TOKENS = "private-flock.json"
FIRST_RETRY, LONGEST_RETRY = 0.2, 30.0
#: Seconds for which changes gather; after which wishes are worked out again though nothing is known to have changed.
GATHER, AGAIN = 0.005, 60.0
#: Seconds for a schedd's answer, and for the other pool's first word.
PATIENCE = 10.0
#: Requests that a schedd is asked for.
MOST_REQUESTS = 1_000_000


@dataclass(slots=True, eq=False)
class PrivateMember:
    """One user's account in one other pool.

    Attributes:
        name: of the connection, in claims and slots.
        seen: the last delivery that came.
        wishes: as they were said last, by schedd and number. why: the other pool's reasons.
        address: of the other pool's world; empty before it is reached.
        leaving: the user has ended it.
        useless: claims in turn that no job used, and the time of the loop until when the wish rests.
    """

    user: str
    pool: str
    token: str
    task: asyncio.Task[Any] | None = None
    link: Connection | None = None
    trouble: str = "not reached yet"
    address: str = ""
    leaving: bool = False
    seen: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    wishes: dict[tuple[str, int], FlockWish] = field(default_factory=dict)
    why: dict[tuple[str, int], str] = field(default_factory=dict)
    useless: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return party(self.pool, self.user)


class PrivateCalls:
    """Calls to another pool's world in the name of a user: as the connection of an agreement has them."""

    def __init__(self, member: PrivateMember, home: str) -> None:
        self._member = member
        self._home = home

    async def call(self, method: str, params: Mapping[str, Any], timeout: float) -> Any:
        """`world.pass_call` only."""
        return await self._link().call("world.private_call", {**params, "home": self._home}, timeout=timeout)

    async def stream(self, method: str, params: Mapping[str, Any]) -> Stream:
        """`world.pass_stream` only."""
        return await self._link().stream("world.private_stream", {**params, "home": self._home})

    def _link(self) -> Connection:
        link = self._member.link
        if link is None or link.closed.done():
            raise NoWay(f"the pool {self._member.pool} cannot be reached just now: {self._member.trouble}", retry=True)
        return link


class PrivateBorrower(Service):
    """All private flocks of this pool's users, and the methods by which they say so, served under the world's name.

    Args:
        network: the address and the network that a user's token gives. Raises PoolError.
        lease: seconds that a claim lives without being renewed.
    """

    def __init__(
        self,
        borrowing: MachineBorrower,
        credit: CreditBook,
        links: Links,
        outside: OutsideWorld,
        *,
        state: Path | None,
        own_name: Callable[[], str],
        lease: Callable[[], float],
        network: Callable[[str], Awaitable[tuple[str, Network]]],
        spawn: Spawn,
        log: logging.Logger,
    ) -> None:
        self._borrowing = borrowing
        self._credit = credit
        self._links = links
        self._outside = outside
        self._file = state / TOKENS if state is not None else None
        self._own_name = own_name
        self._lease = lease
        self._network = network
        self._spawn = spawn
        self._log = log
        self._submitters: dict[str, Wire] = {}
        self.members: dict[str, PrivateMember] = {}

    def begin(self) -> None:
        """Connect for all users whose tokens are kept."""
        for user, pools in (kept_map(self._file) if self._file is not None else {}).items():
            for pool, token in pools.items():
                self._add(PrivateMember(user, pool, str(token)))

    def _add(self, member: PrivateMember) -> None:
        self.members[member.name] = member
        member.task = self._spawn(self._run(member), f"private flock {member.name}", alone=True)

    def calls(self, name: str) -> PrivateCalls:
        """The calls to the pool of a private flock. Raises NoWay."""
        if (member := self.members.get(name)) is None:
            raise NoWay(f"there is no private flock {name[:100]}")
        return PrivateCalls(member, self._own_name())

    def submitter(self, name: str, ad: Wire | None) -> None:
        """A submitter of our pool has changed."""
        before = self._submitters.pop(name, None)
        if ad is not None and GUEST_OF not in ad and SERVICE not in str(ad.get("ScheddAddress", "")):
            self._submitters[name] = ad
        owners = {found.get("Owner") for found in (before, ad) if found is not None}
        for member in self.members.values():
            if member.user in owners:
                member.wake.set()

    def forget_submitters(self) -> None:
        """The collector tells everything anew."""
        self._submitters.clear()

    # -- users -------------------------------------------------------------------------------------------

    @method(Right.SUBMIT, takes={"pool": str, "token": str, "owner": str | None})
    async def join(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The caller's account in another pool, by a token from there: {pool, token, owner?} -> {pool, user, as}

        Raises:
            PoolError: the token is not good there now.
        """
        user, pool = _user(call, params), params["pool"]
        check_name(pool, ())
        if pool == self._own_name():
            raise PoolError(f"{pool} is this pool itself", hint="name the other pool as you like, but not so")
        if party(pool, user) not in self.members and len(self._of(user)) >= MOST_POOLS:
            raise PoolError(
                f"{user} is in {MOST_POOLS} other pools already", hint="`poolnode flock quit POOL` ends one"
            )
        token = params["token"].strip()
        address, network = await self._network(token)
        for member in self._of(user):
            if member.address == address and member.pool != pool:
                hint = f"--also {member.pool}, or first `poolnode flock quit {member.pool}`"
                raise PoolError(f"{user} has joined this pool already, under the name {member.pool}", hint=hint)
        async with asyncio.timeout(2 * PATIENCE), self._opened(address, network) as (_, stream):
            greeting = await anext(aiter(stream))
        self._end(party(pool, user))
        self._add(PrivateMember(user, pool, token, address=address))
        await self._save()
        return {"pool": pool, "user": user, "as": plain_line(str(greeting["user"]))}

    @method(Right.SUBMIT, takes={"pool": str, "owner": str | None})
    async def quit(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """End the caller's private flock with a pool: {pool, owner?} -> {left}. Jobs that run there leave with their
        checkpoints, if that pool answers; else they end with their leases. It is done to the end, also where nobody
        waits for the answer."""
        name = party(params["pool"], _user(call, params))
        return await asyncio.shield(self._spawn(self._quit(name), f"quit {name}", alone=True))

    async def _quit(self, name: str) -> dict[str, Any]:
        if (member := self.members.get(name)) is not None:
            await self._part(member)
        left = self._end(name)
        await self._save()
        return {"left": left}

    @method(Right.SUBMIT, takes={"pools": list, "owner": str | None})
    async def check_pools(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Which of these pools the caller has joined: {pools, owner?} -> {unknown, trouble: {pool: why}}"""
        known = {member.pool: member for member in self._of(_user(call, params))}
        named = [str(pool) for pool in params["pools"]]
        return {
            "unknown": [pool for pool in named if pool not in known],
            "known": sorted(known),
            "trouble": {pool: known[pool].trouble for pool in named if pool in known and known[pool].trouble},
        }

    async def _part(self, member: PrivateMember) -> None:
        member.leaving = True
        if member.link is None or member.link.closed.done():
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await member.link.call("world.private_part", {"home": self._own_name()}, timeout=PATIENCE)
                while self._borrowing.lent().get(member.name):
                    self._borrowing.ended.clear()
                    await self._borrowing.ended.wait()
        except TROUBLE as error:
            self._log.info("jobs in another pool end with their leases", extra={"pool": member.pool, "why": str(error)})

    def _of(self, user: str) -> list[PrivateMember]:
        return [member for member in self.members.values() if member.user == user]

    def _end(self, name: str) -> bool:
        member = self.members.pop(name, None)
        if member is not None and member.task is not None:
            member.task.cancel()
        return member is not None

    async def _save(self) -> None:
        if self._file is None:
            return
        kept: dict[str, dict[str, str]] = {}
        for member in self.members.values():
            kept.setdefault(member.user, {})[member.pool] = member.token
        await asyncio.to_thread(write_map, self._file, kept)

    # -- the connection ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _opened(
        self, address: str, network: Network, dispatcher: Dispatcher | None = None
    ) -> AsyncIterator[tuple[Connection, Stream]]:
        async with contextlib.AsyncExitStack() as stack:
            link = await network.connect(address, dispatcher or Dispatcher())
            stack.push_async_callback(link.close)
            stream = await link.stream("world.private", {"home": self._own_name()})
            yield link, await stack.enter_async_context(stream)

    async def _run(self, member: PrivateMember) -> None:
        """Stay connected until cancelled."""
        retry, loop = FIRST_RETRY, asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                dispatcher = Dispatcher()
                dispatcher.add("world_back", ComingBack(member.name, self._borrowing, self._credit, self._log))
                address, network = await self._network(member.token)
                async with self._opened(address, network, dispatcher) as (link, stream):
                    member.address = address
                    await anext(aiter(stream))
                    member.link, member.trouble = link, ""
                    self._log.info("a user's other pool is reached", extra={"user": member.user, "pool": member.pool})
                    await self._talk(member, stream)
                raise NoWay("it has ended the connection")
            except (PoolError, OSError, TimeoutError, StopAsyncIteration) as error:
                if member.link is not None or member.trouble != plain_line(str(error)):
                    self._log.info(
                        "a user's other pool is out of reach",
                        extra={"user": member.user, "pool": member.pool, "error": str(error)},
                    )
                member.trouble = plain_line(str(error))
            finally:
                member.link, member.seen = None, 0
                member.wishes.clear()
                member.why.clear()
                self._borrowing.unreachable(member.name)
            if loop.time() - began > LONGEST_RETRY:
                retry = FIRST_RETRY
            await asyncio.sleep(retry * (0.5 + self._outside.chance.random()))
            retry = min(retry * 2, LONGEST_RETRY)

    async def _talk(self, member: PrivateMember, stream: Stream) -> None:
        speaking = asyncio.get_running_loop().create_task(self._speak(member, stream))
        speaking.add_done_callback(lambda _: stream.abort(None))  # what cannot be said any more is nothing to wait for
        try:
            async for item in stream:
                self._hear(member, item)
        finally:
            if not speaking.cancel():
                speaking.result()  # raises why nothing more could be said
            else:
                with contextlib.suppress(asyncio.CancelledError, PoolError, OSError):
                    await speaking

    async def _speak(self, member: PrivateMember, stream: Stream) -> None:
        said: tuple[int, dict[tuple[str, int], FlockWish]] = (0, {})
        member.wake.set()
        while True:
            now = asyncio.get_running_loop().time()
            due = [until for _, until in member.useless.values() if until > now]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min([AGAIN, *(until - now for until in due)])):
                    await member.wake.wait()
            await asyncio.sleep(GATHER)
            member.wake.clear()
            seen = member.seen  # before the schedd is asked: what comes meanwhile is not in its answer for certain
            member.wishes = await self._wishes(member)
            if (seen, member.wishes) != said:
                said = (seen, dict(member.wishes))
                await stream.send({"seen": seen, "wishes": [wish.to_wire() for wish in member.wishes.values()]})

    async def _wishes(self, member: PrivateMember) -> dict[tuple[str, int], FlockWish]:
        found, now = dict[tuple[str, int], FlockWish](), asyncio.get_running_loop().time()
        for name, ad in list(self._submitters.items()):
            if member.leaving or ad.get("Owner") != member.user or not ad.get("IdleJobs"):
                continue
            try:
                link = await self._links.connect(str(ad["ScheddAddress"]))
                asked = {"submitter": name, "limit": MOST_REQUESTS, "references": []}
                answer = await link.call("schedd.requests", asked, timeout=PATIENCE)
                for wish in wishes_of(answer["requests"], member.pool, str(ad.get("Node")), self._lease()):
                    if member.useless.get(wish.key, (0, now))[1] <= now:
                        found[wish.key] = wish
            except (*TROUBLE, KeyError, TypeError, ValueError) as error:
                self._log.info("a schedd does not say its requests", extra={"schedd": name, "error": str(error)})
        found = {wish.key: wish for wish in within_bounds(found.values())}
        member.why = {key: why for key, why in member.why.items() if key in found}
        return found

    # -- what comes --------------------------------------------------------------------------------------

    def _hear(self, member: PrivateMember, item: Any) -> None:
        """One message of the other pool; not trusted.

        Raises:
            NoWay: it cannot be read.
        """
        match item:
            case {"rejected": list(reasons)}:
                for reason in reasons:
                    match reason:
                        case [str(schedd), int(number), str(why)] if (schedd, number) in member.wishes:
                            member.why[schedd, number] = plain_line(why)
            case {
                "delivery": {
                    "sequence": int(sequence),
                    "wish": [str(schedd), int(number)],
                    "lease": int() | float() as lease,
                    "claims": [*claims],
                }
            } if sequence == member.seen + 1 and all(is_claim(claim) for claim in claims):
                member.seen = sequence
                self._spawn(self._arrive(member, (schedd, number), float(lease), claims), "arrive", alone=True)
                member.wake.set()
            case _:
                raise NoWay("its message cannot be read")

    async def _arrive(self, member: PrivateMember, key: tuple[str, int], lease: float, claims: list[Wire]) -> None:
        """Tell our schedd of claims; those that it does not take are given back."""
        wish, submitter = member.wishes.get(key), self._submitter(member.user, key[0])
        some = claims[: wish.count] if wish is not None and submitter is not None else []
        arrival = Arrival(member.name, member.user, key[0], lease, some, lambda used: self._used(member, key, used))
        match = self._borrowing.arrive(arrival) if some else None
        if match is not None and submitter is not None:
            name, ad = submitter
            match |= {"request": key[1], "submitter": name, "node": key[0], "schedd": key[0]}
            try:
                link = await self._links.connect(str(ad["ScheddAddress"]))
                await link.call("schedd.matched", {"matches": [match]}, timeout=PATIENCE)
            except TROUBLE as error:
                self._log.info("a schedd does not take its claims", extra={"schedd": key[0], "error": str(error)})
        await self._borrowing.release_unused(member.name, key[0], claims[len(some) :])

    def _submitter(self, user: str, schedd: str) -> tuple[str, Wire] | None:
        return next(
            (
                (name, ad)
                for name, ad in self._submitters.items()
                if (ad.get("Owner"), ad.get("Node")) == (user, schedd)
            ),
            None,
        )

    def _used(self, member: PrivateMember, key: tuple[str, int], used: bool) -> None:
        """Whether a job has begun on a claim: a wish whose claims are of no use rests for a while."""
        if used:
            member.useless.pop(key, None)
            return
        times = member.useless.get(key, (0, 0.0))[0] + 1
        member.useless[key] = (times, asyncio.get_running_loop().time() + pause_after(times))
        member.wake.set()

    def why(self, owner: str, schedd: str, number: Any) -> list[Finding]:
        """The pools in which a user's jobs stand in line, too, for one of his idle jobs."""
        return [
            OtherPool(
                member.pool,
                user=member.user,
                waiting=wish.count if (wish := member.wishes.get((schedd, number))) is not None else 0,
                why=member.why.get((schedd, number), ""),
                trouble=member.trouble,
            )
            for member in self._of(owner)
        ]

    def shown(self) -> Iterator[Wire]:
        """The private flocks, for people."""
        borrowed = self._borrowing.lent()
        for member in self.members.values():
            yield {
                "user": member.user,
                "pool": member.pool,
                "side": "there",
                "waiting": sum(wish.count for wish in member.wishes.values()),
                "running": borrowed.get(member.name, 0),
                "trouble": member.trouble,
                "why": next(iter(member.why.values()), ""),
            }


def _user(call: Call, params: Wire) -> str:
    """The user whom a call is for: the caller; an administrator may name another.

    Raises:
        PoolError: the caller may not.
    """
    wish, administers = params.get("owner"), Right.ADMINISTER in call.identity.rights
    if wish and administers:
        return str(wish)
    if call.identity.kind != "user" or (wish and wish != call.identity.name):
        raise PoolError(f"{call.identity} may not act for {wish or 'a user'}", hint="call as that user")
    return call.identity.name

"""This pool's machines for the jobs of other pools: towards our negotiator and startds the world is a schedd (EV 5.5).

A request of another pool becomes a request of a submitter USER@POOL here, which our own negotiator answers after those
of all our users (EV 8). The slot is claimed with its startd as any schedd does it, on a connection of its own for each
(pool, schedd, startd): so what a startd says on it can reach that one schedd and no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar

from pool.policy.flock.agreements import ANY_NUMBER, FlockAgreement
from pool.policy.flock.cards import checked_cards
from pool.policy.flock.direct import TermsWith
from pool.policy.flock.idleness import IdleTimes
from pool.policy.flock.ledger import ClaimUse
from pool.policy.flock.shown import (
    AS_SCHEDD,
    GUEST_OF,
    GUEST_POOL,
    LENDER,
    gives_way,
    guest_request,
    is_lendable,
)
from pool.policy.flock.value import IDLE_TIME
from pool.roles.advertise import Advertiser, DemandCount
from pool.roles.base import Spawn
from pool.roles.links import Links
from pool.roles.world.credit import CreditBook
from pool.roles.world.guest_claims import GuestClaims
from pool.roles.world.guest_requests import GuestRequest, NoMachine, check_request
from pool.roles.world.own_jobs import OwnJobs
from pool.roles.world.relay import (
    ASKS_DIRECT,
    END_DIRECT,
    MEETING,
    SCHEDD_CALLS,
    SCHEDD_STREAMS,
    NoWay,
    ReadAhead,
    join_streams,
    passes,
    seconds_left,
)
from pool.wire import (
    Call,
    Connection,
    ConnectionLost,
    DeadlineExceeded,
    Dispatcher,
    RemoteError,
    Right,
    Service,
    Stream,
    method,
)
from pool.wire.certificates import check_user
from pool.wire.parameter_checks import MAPPINGS, TEXTS, optional

Wire = dict[str, Any]
TROUBLE = (ConnectionLost, DeadlineExceeded, OSError, TimeoutError)
#: Seconds for which a request waits for our negotiator; then the other pool is told that there is no machine.
PATIENCE = 15.0
#: Seconds of a lease that any pool could ask for.
LARGEST_LEASE = 1e9
#: Seconds after the first claim of a request for which its others gather.
GATHER = 0.5
#: Bytes of requests that our negotiator is told of in one answer.
MOST_TOLD = 8 * 1024 * 1024
#: Connections for one pool's schedds that have no claim; the one that was used least lately is closed for another.
MOST_UNUSED = 256
#: Characters of a schedd's name.
LONGEST_NAME = 200
#: Seconds after which it is looked again whether a debt is paid back.
LONGEST_PAYBACK = 60.0
#: Seconds after which a machine is taken back again whose startd did not answer.
AGAIN = 5.0
#: Seconds for which a claim that was asked to end with its job counts as one that will.
ENDING = 3600.0
PAID_BACK = "its pool has got back all the machine time that it was owed"
OWN_FIRST = "without a flock, jobs of the machine's own pool would run by now"


@passes(Right.EXECUTE, SCHEDD_CALLS, SCHEDD_STREAMS)
class GuestSchedd(Service):
    """A schedd of another pool, as one startd of ours calls it.

    Args:
        pool: that pool.
        peer: the present connection to the other pool's world. Raises NoWay.
        order: what becomes of an order to start a job, of that pool, with whether its claim was given ahead.
        claims: of all other pools.
        ahead: for the streams of all other pools.
        addresses: of this pool's startds.
        direct: whether machines of both pools connect directly.
    """

    def __init__(
        self,
        pool: str,
        schedd: str,
        startd: str,
        peer: Callable[[], Connection],
        credit: CreditBook,
        order: Callable[[str, Wire, bool], Wire],
        claims: GuestClaims,
        ahead: ReadAhead,
        addresses: Callable[[], Collection[str]],
        direct: TermsWith,
    ) -> None:
        self._addresses = addresses
        self._direct = direct
        self._order = order
        self._claims = claims
        self._ahead = ahead
        self._pool = pool
        self._startd = startd
        self._credit = credit
        self._way = {"schedd": schedd, "startd": startd}
        self._peer = peer

    async def pass_call(self, verb: str, call: Call, params: dict[str, Any]) -> Any:
        asked = {**self._way, "verb": verb, "params": params}
        schedd = str(self._way["schedd"])
        if verb == "renew":  # also of claims that an earlier run of this world has made
            self._claims.add(self._pool, schedd, self._startd, params["claims"])
        if verb in ASKS_DIRECT:
            self._direct(self._pool).check_agreed()
        if verb == "revoked":  # whatever the other pool says to that
            self._claims.forget(self._pool, self._startd, [params.get("claim")])
            self._credit.measures.over(self._pool, self._startd, [params.get("claim")], lends=True)
        answer = await self._peer().call("world_back.pass_back", asked, timeout=seconds_left(call))
        if verb == "renew" and not (isinstance(answer, dict) and TEXTS.fits(answer.get("gone"))):
            raise NoWay(f"the pool {self._pool} does not say which claims it still has")
        if verb == "renew":
            self._claims.forget(self._pool, self._startd, answer["gone"])
        self._credit.measures.called(self._pool, self._startd, verb, params, answer, lends=True)
        if verb in ASKS_DIRECT:
            answer = self._direct(self._pool).checked_offer(answer)
        if verb == MEETING:
            answer = {"cards": checked_cards(answer, self._pool, self._addresses())}
        if verb == "ended" and isinstance(answer, dict) and answer.get("keep") is False:
            self._claims.forget(self._pool, self._startd, [params.get("claim")])
        if verb == "ended" and isinstance(answer, dict):  # no job is handed on from another pool
            answer = {name: answer[name] for name in ("next", "keep") if name in answer}
        if verb == "ended" and isinstance(answer, dict) and isinstance(answer.get("next"), dict):
            ahead = self._credit.is_ahead(self._pool, self._startd, params.get("claim"))
            answer["next"] = self._order(self._pool, answer["next"], ahead)
        return answer

    async def pass_stream(self, verb: str, call: Call, params: dict[str, Any], stream: Stream) -> None:
        asked = {**self._way, "verb": verb, "params": params}
        await join_streams(stream, await self._peer().stream("world_back.stream_back", asked), self._ahead)


class MachineLender(Service):
    """Serves our negotiator as `world_jobs`, and keeps the connections to the startds.

    Args:
        peer: the connection to another pool's world. Raises NoWay.
        agreement: what a pool may do.
        stays: whether its jobs keep our machines while our own jobs wait.
        order: what becomes of an order to start a job, of a pool, with whether its claim was given ahead.
        direct: whether machines of this pool and another connect directly.
        changed: called with (slot, ad or None) when a machine that can be lent has changed, or cannot be any more.

    Attributes:
        patience: seconds for which a request waits for our negotiator.
    """

    patience: ClassVar[float] = PATIENCE

    def __init__(
        self,
        credit: CreditBook,
        own_jobs: OwnJobs,
        links: Links,
        advertiser: Advertiser,
        *,
        node: str,
        address: Callable[[], str],
        wall: Callable[[], float],
        longest_lease: Callable[[], float],
        spawn: Spawn,
        log: logging.Logger,
        peer: Callable[[str], Connection],
        agreement: Callable[[str], FlockAgreement],
        stays: Callable[[str], bool],
        order: Callable[[str, Wire, bool], Wire],
        direct: TermsWith,
        changed: Callable[[str, Wire | None], None],
    ) -> None:
        self._credit = credit
        self._own_jobs = own_jobs
        self._links = links
        self._advertiser = advertiser
        self._node = node
        self._address = address
        self._wall = wall
        self._longest_lease = longest_lease
        self._spawn = spawn
        self._log = log
        self._peer = peer
        self._agreement = agreement
        self._stays = stays
        self._order = order
        self._direct = direct
        self._changed = changed
        self.machines: dict[str, Wire] = {}
        self.own_idle: dict[str, int] = {}
        self.claims = GuestClaims(lambda: 2 * longest_lease())
        self.read_ahead = ReadAhead()
        self._left = asyncio.Event()
        self._ending: dict[str, float] = {}
        self._idle_times = IdleTimes()
        self._just_claimed: dict[str, str] = {}
        self._taking_back: set[str] = set()
        self._requests: dict[int, GuestRequest] = {}
        self._waiting_of: dict[str, tuple[int, int]] = {}
        self._number = 0
        self._demand = DemandCount(advertiser.outside.chance)
        self._tunnels: dict[tuple[str, str, str], asyncio.Task[Connection]] = {}

    # -- machines ----------------------------------------------------------------------------------------

    def take_in(self, name: str, ad: Wire | None) -> None:
        """A machine's ad at our collector has changed, or is gone."""
        before = self.machines.get(name)
        self._own_jobs.machine(name, ad)
        if ad is None:
            self.machines.pop(name, None)
            self._idle_times.forget(name)
        else:
            self.machines[name] = ad
            self._idle_times.see(name, idle=is_lendable(ad), now=asyncio.get_running_loop().time())
        if ad is None or not gives_way(ad):
            self._ending.pop(name, None)
        self._left.set()
        if ad is not None and (before is None or before.get("RemoteOwner") != ad.get("RemoteOwner")):
            self._check_guest(name, ad)
        can_be_had = ad is not None and (is_lendable(ad) or gives_way(ad))
        if can_be_had and name in self._just_claimed:
            return  # the ad is of before that
        self._just_claimed.pop(name, None)
        was = before is not None and (is_lendable(before) or gives_way(before))
        if ad is not None and can_be_had:
            self._changed(name, self._offer_of(name, ad))
        elif was:
            self._changed(name, None)

    def _offer_of(self, name: str, ad: Wire) -> Wire:
        """A machine's ad as other pools are shown it: with the time for which it is likely to stay idle."""
        return {**ad, IDLE_TIME: self._idle_times.expected(name, asyncio.get_running_loop().time())}

    def offer_idle_times(self) -> None:
        """Tell other pools of machines that have been idle for so long by now that they are worth more."""
        for name in self._idle_times.rising(asyncio.get_running_loop().time()):
            if (ad := self.machines.get(name)) is not None and is_lendable(ad) and name not in self._just_claimed:
                self._changed(name, self._offer_of(name, ad))

    def _is_claimed_now(self, name: str, claim: str) -> None:
        """A slot was claimed for another pool, of which our collector does not know yet: offer it to nobody."""
        self._just_claimed[name] = claim
        self._changed(name, None)
        asyncio.get_running_loop().call_later(PATIENCE, self.given_back, [claim])

    def given_back(self, claims: Iterable[object]) -> None:
        """Claims have ended that our collector may never have shown, or it does not show them after a while: what it
        says of their slots holds."""
        for name in [name for name, claim in self._just_claimed.items() if claim in claims]:
            del self._just_claimed[name]
            if (ad := self.machines.get(name)) is not None:
                self.take_in(name, ad)

    def submitter(self, name: str, ad: Wire | None) -> None:
        """A submitter of our pool, or of another."""
        idle = ad.get("IdleJobs") if ad is not None and GUEST_OF not in ad else 0
        if isinstance(idle, int) and idle > 0:
            self.own_idle[name] = idle
        else:
            self.own_idle.pop(name, None)

    @property
    def own_wait(self) -> bool:
        """Whether jobs of our own pool wait for a machine."""
        return bool(self.own_idle)

    def lendable(self) -> dict[str, Wire]:
        """The machines that can be lent now, or after their present job."""
        return {
            name: self._offer_of(name, ad) for name, ad in self.machines.items() if is_lendable(ad) or gives_way(ad)
        }

    def lent_to(self, pool: str) -> int:
        """How many of our slots a pool has."""
        return sum(str(ad.get("RemoteOwner", "")).endswith(f"@{pool}") for ad in self.machines.values())

    def _taken(self, pool: str) -> int:
        """Slots that a pool has, also those that our collector does not show yet, and those that it waits for."""
        asked = sum(request.left + request.asking for request in self._requests.values() if request.pool == pool)
        return max(self.lent_to(pool), len(self.claims.of_pool(pool))) + asked

    def slots_ahead(self, pool: str) -> int:
        """How many more of our slots a pool may have ahead of our own jobs: up to what we owe it, and as far as the
        own jobs have theirs that would run now without a flock."""
        owed = self._credit.slots_ahead(pool)
        return min(owed, max(0, self._spare())) if owed else 0

    def _spare(self) -> int:
        ahead = sum(request.ahead for request in self._requests.values())
        return self._own_jobs.spare(self.claims.count()) - ahead

    # -- requests ----------------------------------------------------------------------------------------

    async def claim(self, pool: str, params: Wire) -> Wire:
        """A request of another pool: {schedd, owner, lease, ad, count} -> {claims: [{startd, claim, slot, ad}]}

        Raises:
            NoMachine: the agreement has no room for it, or no machine was found in time.
        """
        agreement, owner, lease = self._agreement(pool), str(params["owner"]), float(params["lease"])
        check_user(owner)
        if not 0 < lease < LARGEST_LEASE:
            raise NoMachine(f"a lease of {lease:g} seconds makes no sense")
        if not agreement.admits(owner):
            raise NoMachine(f"jobs of {owner} of {pool} may not run here", hint="ask this pool's administrator")
        if why := self._credit.why_not_lend(pool):
            raise NoMachine(why, hint="both administrators look at `poolnode flock`")
        waiting = (request for request in self._requests.values() if request.pool == pool)
        size = check_request(params["ad"], owner, pool, self._waiting_of.get(pool, (0, 0)), waiting)
        room = agreement.machines - self._taken(pool)
        if room <= 0:
            raise NoMachine(f"the pool {pool} has its {agreement.machines} slots here already", retry=True)
        count = max(1, min(int(params.get("count") or 1), room))
        condition = agreement.limits.of_request
        ad = guest_request(params["ad"], owner, pool, stays=self._stays(pool), condition=condition)
        lease = min(max(lease, 1.0), self._longest_lease())
        taken = sum(other.ahead for other in self._requests.values() if other.pool == pool)
        ahead = min(count, max(0, self._credit.slots_ahead(pool) - taken), max(0, self._spare()))
        self._number += 1
        number = self._number
        request = GuestRequest(pool, owner, str(params["schedd"]), ad, lease, count, self._wall(), ahead, size=size)
        self._requests[number] = request
        self._count_waiting(request, 1)
        self._advertise(request, more=True)
        try:
            async with asyncio.timeout(self.patience):
                await request.answered.wait()
            async with asyncio.timeout(GATHER):
                await request.settled.wait()
        except TimeoutError:
            pass
        finally:
            withdrawn, request.closed = request.closed, True
            del self._requests[number]
            self._count_waiting(request, -1)
            self._advertise(request)
        if withdrawn:
            raise NoMachine(f"{pool} may not use this pool's machines any more")
        if not request.claims:
            raise NoMachine("no machine was found in time", retry=True)
        return {"claims": request.claims}

    def _count_waiting(self, request: GuestRequest, more: int) -> None:
        count, used = self._waiting_of.pop(request.pool, (0, 0))
        if count + more:
            self._waiting_of[request.pool] = count + more, used + more * request.size

    def _advertise(self, request: GuestRequest, *, more: bool = False) -> None:
        user = f"{request.owner}@{request.pool}"
        name = f"{user}@{self._node}"
        waiting = sum(
            one.left for one in self._requests.values() if (one.owner, one.pool) == (request.owner, request.pool)
        )
        if not waiting:
            self._advertiser.withdraw("Submitter", name)
            self._demand.forget(name)
            return
        if more:
            self._demand.grows(name)
        ad = {
            "MyType": "Submitter",
            "Name": name,
            "Owner": user,
            "User": user,
            GUEST_OF: request.pool,
            "Node": self._node,
            "ScheddName": self._node,
            "ScheddAddress": f"{self._address()}#{AS_SCHEDD}",
            "IdleJobs": waiting,
            "RunningJobs": 0,
            "HeldJobs": 0,
            "MovingJobs": 0,
            "Demand": self._demand.of(name),
        }
        self._advertiser.publish("Submitter", name, ad)

    # -- our negotiator ----------------------------------------------------------------------------------

    @method(Right.NEGOTIATE, takes={"submitter": str, "limit": int, "references": optional(TEXTS)})
    async def requests(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The requests of a pool's user: as a schedd answers."""
        user = str(params["submitter"]).rpartition("@")[0]
        found, size = [], 0
        for number, one in self._requests.items():
            if f"{one.owner}@{one.pool}" == user and size <= MOST_TOLD:
                size += one.size
                for ahead, count in ((True, one.ahead), (False, one.left - one.ahead)):
                    ad = one.ad_for(ahead)
                    if count:  # a request has two numbers here
                        place = 2 * number + ahead
                        found.append({"number": place, "ad": ad, "count": count, "oldest": one.oldest, "runs": []})
        return {"requests": found[: int(params["limit"])], "running": 0}

    @method(Right.NEGOTIATE, takes={"matches": MAPPINGS})
    async def matched(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Matches that our negotiator has made for other pools' requests."""
        for match in params["matches"]:
            request = self._requests.get(int(match["request"]) // 2)
            if request is not None and request.left:
                self._spawn(self._claim(request, match), "claim", alone=True)
        return {}

    @method(Right.NEGOTIATE, takes={"submitter": str, "time": float | int, "rejections": list})
    async def rejected(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Requests for which a cycle found no machine: the other pool need not wait."""
        for number, _ in params["rejections"]:
            request = self._requests.get(int(number) // 2)
            if request is not None and request.ahead:
                self._make_room(request.pool)  # it waits for a machine whose job ends
            elif request is not None:
                request.refused = True
                request.settle()
        return {}

    async def _claim(self, request: GuestRequest, match: Wire) -> None:
        ahead = bool(int(match["request"]) % 2)
        count = min(request.ahead if ahead else request.left - request.ahead, int(match.get("count") or 1))
        if count <= 0:
            return
        request.left -= count
        request.ahead -= count if ahead else 0
        request.pending += count
        request.asking += count
        made = 0
        try:
            made = await self._claim_slot(request, match, count, ahead)
        finally:
            request.pending -= count
            request.left += count - made
            request.ahead += count - made if ahead else 0
            if made:
                request.answered.set()
            request.settle()

    async def _claim_slot(self, request: GuestRequest, match: Wire, count: int, ahead: bool) -> int:
        """Claim a slot for a request; how many claims the other pool is told of."""
        startd = str(match["startd"])
        try:
            link = await self.tunnel(request.pool, request.schedd, startd)
            asked = {
                "slot": match["slot"],
                "claim": match["claim"],
                "schedd": self._node,
                "submitter": match["submitter"],
                "owner": f"{request.owner}@{request.pool}",
                "lease": request.lease,
                "ad": request.ad_for(ahead),
                "count": count,
            }
            answer = await link.call("startd.claim", asked, timeout=PATIENCE)
        except (*TROUBLE, RemoteError, NoWay) as error:
            self._log.info("a slot was not to be claimed", extra={"slot": match["slot"], "why": str(error)})
            return 0
        finally:
            request.asking -= count
        made = [{**claim, "startd": startd} for claim in answer["claims"]]
        self.claims.add(request.pool, request.schedd, startd, [claim["claim"] for claim in made])
        for claim in made:
            self._is_claimed_now(str(claim["slot"]), str(claim["claim"]))
            self._credit.measures.begin(
                request.pool,
                startd,
                claim,
                lends=True,
                user=request.owner,
                lease=request.lease,
                way=(request.schedd, startd, str(claim["claim"])) if ahead else None,
            )
        await self._credit.measures.write()  # before the other pool knows of them
        if request.closed:  # the other pool has its answer, and would never use them
            unused = [str(claim["claim"]) for claim in made]
            self._credit.measures.over(request.pool, startd, unused, lends=True)
            with contextlib.suppress(*TROUBLE, RemoteError):
                await link.call("startd.release", {"claims": unused}, timeout=PATIENCE)
            self.given_back(unused)
            return 0
        request.claims += made
        return len(made)

    def _make_room(self, pool: str) -> None:
        """Have as many claims of own jobs end with their present job as a pool may have machines ahead of them."""
        wanted = sum(request.ahead for request in self._requests.values() if request.pool == pool)
        wanted = min(wanted, max(0, self._own_jobs.spare(self.claims.count())))
        now = asyncio.get_running_loop().time()
        ending = {name for name, since in self._ending.items() if since + ENDING > now and name in self.machines}
        ready = [name for name, ad in self.machines.items() if gives_way(ad)]
        for name in [name for name in ready if name not in ending][: max(0, wanted - len(ending))]:
            self._ending[name] = now
            self._spawn(self._end_after_job(name), "make room", alone=True)

    def withdraw(self, pool: str) -> None:
        """The agreement with a pool gives less than before: no other job follows on slots that it may have no more, and
        requests that wait get no more than it has now."""
        agreement, kept = self._agreement(pool), 0
        for name, ad in list(self.machines.items()):
            if ad.get(GUEST_POOL) != pool or LENDER in ad:
                continue
            may_stay = _admits(agreement, ad)
            kept += may_stay
            if not may_stay or kept > agreement.machines:
                self._spawn(self._end_after_job(name), "withdraw", alone=True)
        waiting = [request for request in self._requests.values() if request.pool == pool]
        over = self._taken(pool) - agreement.machines
        for request in reversed(waiting):  # those that came last
            if not agreement.admits(request.owner):
                request.withdraw()
            elif over > 0 and request.left:
                over -= request.give_up(over)
            self._advertise(request)

    def _check_guest(self, name: str, ad: Wire) -> None:
        """A slot is shown with another user: if the agreement has changed since it was given, or while this world was
        not up, no other job of that pool follows."""
        pool = ad.get(GUEST_POOL)
        if not isinstance(pool, str) or LENDER in ad:
            return
        agreement = self._agreement(pool)
        full = agreement.machines < ANY_NUMBER and self.lent_to(pool) > agreement.machines
        if full or not _admits(agreement, ad):
            self._spawn(self._end_after_job(name), "withdraw", alone=True)

    async def _end_after_job(self, name: str) -> None:
        try:
            link = await self._links.connect(str(self.machines[name]["StartdAddress"]))
            await link.call("startd.end_after_job", {"slot": name}, timeout=PATIENCE)
        except (*TROUBLE, RemoteError, KeyError) as error:
            self._log.info("a machine does not give way", extra={"slot": name, "why": str(error)})

    async def end_payback(self) -> float:
        """Take back machines that were given ahead of our own jobs where own jobs wait: if nothing is owed any more, or
        they would run now without a flock; seconds until the next of them may be due."""
        due, ahead = LONGEST_PAYBACK, list(self._credit.paid_back())
        wanted = max(0, -self._own_jobs.spare(self.claims.count())) if ahead and self.own_wait else 0
        wanted -= sum(self._own_jobs.units_of(use.slot) for use, _ in ahead if use.claim in self._taking_back)
        for use, left in reversed(ahead):
            if left > 0 and wanted <= 0:
                due = min(due, left, max(self._own_jobs.next_change(), GATHER))
            elif self.own_wait:
                due = min(due, AGAIN)
                if use.claim not in self._taking_back:
                    wanted -= self._own_jobs.units_of(use.slot)
                    self._taking_back.add(use.claim)
                    why = PAID_BACK if left <= 0 else OWN_FIRST
                    self._spawn(self._take_back(use, why), "take back", alone=True)
        return due

    async def _take_back(self, use: ClaimUse, why: str) -> None:
        schedd, startd, claim = use.way or ("", "", "")
        try:
            link = await self.tunnel(use.pool, schedd, startd)
            await link.call("startd.take_back", {"claim": claim, "why": why}, timeout=PATIENCE)
            self._credit.taken_back(use)
        except (*TROUBLE, RemoteError, NoWay) as error:
            self._log.info("a machine was not taken back", extra={"slot": use.slot, "why": str(error)})
        finally:
            self._taking_back.discard(use.claim)

    async def take_all_back(self, pool: str, why: str, within: float, left: Callable[[], int] | None = None) -> None:
        """Have all jobs of a pool leave our machines, saved; return when they have, or after so many seconds.

        Args:
            left: how many slots it still has; by default as our machines' ads say.
        """
        for request in self._requests.values():
            if request.pool == pool:
                request.withdraw()
        for schedd, startd, claim in self.claims.of_pool(pool):
            try:
                link = await self.tunnel(pool, schedd, startd)
                await link.call("startd.take_back", {"claim": claim, "why": why}, timeout=PATIENCE)
            except (*TROUBLE, RemoteError, NoWay) as error:
                self.claims.forget(pool, startd, [claim])
                self._log.info("a machine was not taken back", extra={"startd": startd, "why": str(error)})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while left() if left is not None else self.lent_to(pool):
                    self._left.clear()
                    await self._left.wait()

    async def withdraw_direct(self, pool: str) -> None:
        """End the direct connections of a pool's jobs on our machines, at once."""
        for schedd, startd, claim in self.claims.of_pool(pool):
            try:
                link = await self.tunnel(pool, schedd, startd)
                await link.call(f"startd.{END_DIRECT}", {"claim": claim}, timeout=PATIENCE)
            except (*TROUBLE, RemoteError, NoWay) as error:
                self._log.info("a direct connection was not ended", extra={"startd": startd, "why": str(error)})

    # -- the way to a startd -----------------------------------------------------------------------------

    async def tunnel(self, pool: str, schedd: str, startd: str) -> Connection:
        """The connection for what a schedd of another pool and a startd of ours say to each other.

        Raises:
            NoWay: this pool has no such startd.
            ConnectionLost: it does not answer.
        """
        if all(ad.get("StartdAddress") != startd for ad in self.machines.values()):
            raise NoWay(f"this pool has no machine at {startd}", retry=True)
        if len(schedd) > LONGEST_NAME:
            raise NoWay(f"'{schedd[:100]}' is no name of a schedd")
        key = (pool, schedd, startd)
        known = self._tunnels.pop(key, None)
        if known is None or (known.done() and (known.exception() or known.result().closed.done())):
            self._close_unused(pool)
            known = asyncio.get_running_loop().create_task(self._dig(key))
        self._tunnels[key] = known  # the one that was used last stands last
        return await asyncio.shield(known)

    def _close_unused(self, pool: str) -> None:
        """Close connections that were used least lately: a pool may name any number of schedds."""
        of_pool = [key for key in self._tunnels if key[0] == pool]
        if len(of_pool) < MOST_UNUSED:
            return
        used = {(schedd, startd) for schedd, startd, _ in self.claims.of_pool(pool)}
        unused = [key for key in of_pool if key[1:] not in used and self._tunnels[key].done()]
        for key in unused[: max(0, len(unused) + 1 - MOST_UNUSED)]:
            task = self._tunnels.pop(key)
            if not task.cancelled() and task.exception() is None:
                self._spawn(task.result().close(), "close", alone=True)

    async def _dig(self, key: tuple[str, str, str]) -> Connection:
        pool, schedd, startd = key
        dispatcher = Dispatcher()
        peer = functools.partial(self._peer, pool)
        guest = GuestSchedd(
            *(pool, schedd, startd, peer, self._credit, self._order, self.claims, self.read_ahead),
            *(self.startds, self._direct),
        )
        dispatcher.add("schedd", guest)
        link = await self._links.connect_apart(startd, dispatcher)
        link.closed.add_done_callback(lambda _: self._cut(key))
        return link

    def startds(self) -> frozenset[str]:
        """The addresses of this pool's startds."""
        return frozenset(str(ad.get("StartdAddress")) for ad in self.machines.values())

    def _cut(self, key: tuple[str, str, str]) -> None:
        """A startd cannot be reached any more: the schedd asks for its claims again."""
        if self._tunnels.pop(key, None) is None:
            return  # we have ended it
        with contextlib.suppress(NoWay):
            self._peer(key[0]).notify("world_back.cut", {"schedd": key[1], "startd": key[2]})

    async def close(self, pool: str | None = None) -> None:
        """End the connections for a pool's schedds, or all: their startds hear that they are gone."""
        for key in [key for key in self._tunnels if pool is None or key[0] == pool]:
            task = self._tunnels.pop(key)
            if task.done() and not task.cancelled() and task.exception() is None:
                await task.result().close()
            else:
                task.cancel()

    def waiting(self) -> Mapping[str, int]:
        """How many slots the requests of each pool wait for."""
        found: dict[str, int] = {}
        for request in self._requests.values():
            found[request.pool] = found.get(request.pool, 0) + request.left
        return found


def _admits(agreement: FlockAgreement, machine: Wire) -> bool:
    """Whether a pool's job may go on after another on a machine that it has."""
    owner = str(machine.get("RemoteOwner", "")).rpartition("@")[0]
    limits = agreement.limits
    return agreement.admits(owner) and limits.lends(machine) and limits.is_open(machine)

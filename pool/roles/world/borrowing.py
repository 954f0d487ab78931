"""Other pools' machines for our jobs: towards our negotiator and schedds the world is a startd (EV 5.5, 6.4).

The idle machines of other pools stand in our collector beside our own, so that one cycle of our negotiator sees the
whole flock (EV 4.3.2); it takes our own first. A claim on one of them is asked of the other pool, whose negotiator
decides, and may give another machine of the same kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy.flock.direct import TermsWith
from pool.policy.flock.kinds import COUNT, count_of
from pool.policy.flock.offer_bounds import is_plain_name, is_small
from pool.policy.flock.private import pause_after, pool_of
from pool.policy.flock.reports import BadReport, ReportPace, checked_words, plain_line
from pool.policy.flock.shown import AS_STARTD, LENDER, SERVER_VALUE, lent_machine
from pool.policy.flock.value import server_value
from pool.policy.slot_names import machine_of_slot
from pool.roles.advertise import Advertiser
from pool.roles.base import Spawn
from pool.roles.world.credit import CreditBook
from pool.roles.world.rare_log import RareLog
from pool.roles.world.relay import (
    ASKS_DIRECT,
    BETWEEN_PARTS,
    OFFER,
    SCHEDD_CALLS,
    SCHEDD_STREAMS,
    STARTD_CALLS,
    STARTD_STREAMS,
    ClaimRoute,
    NoWay,
    ReadAhead,
    claims_of,
    join_streams,
    passes,
    seconds_left,
    with_claim,
)
from pool.wire import Call, Connection, DeadlineExceeded, Right, Service, Stream, method, streaming
from pool.wire.parameter_checks import MAPPINGS, TEXTS

Wire = dict[str, Any]
#: A match that is not claimed within this many seconds lapses.
MATCH_LIFE = 30.0
#: A claim that has not been renewed for this many leases is over for our status.
LEASES = 2.0
#: A refusal within so many seconds is one that would come again at once.
AT_ONCE = 1.0
#: Seconds after a pause until which it is over for certain.
MOMENT = 0.01
#: Refusals that are remembered, the last of each pool and user.
MOST_REFUSALS = 1000
#: The lease of a claim that was made before this world was started, if its schedd does not say, seconds.
LEASE = 600.0
#: No lease is longer, seconds.
LONGEST_LEASE = 1e9
#: Claims that one startd has renewed in one call.
MOST_RENEWED = 10_000
#: Seconds within which another pool answers a request for a machine: its negotiator looks for one a little less long.
#: A pool that does not is asked again after a pause, as if it had refused so often at once.
ANSWERED, SILENCES = 25.0, 6


class LenderCalls(Protocol):
    """The connection to the world of a pool that lends (`pool.roles.world.peers`)."""

    async def call(self, method: str, params: Mapping[str, Any], timeout: float) -> Any: ...

    async def stream(self, method: str, params: Mapping[str, Any]) -> Stream: ...


@dataclass(slots=True, eq=False)
class LentGrant:
    """A match of our negotiator's: who may claim how many with which secret."""

    submitter: str
    node: str
    count: int
    key: str


@dataclass(slots=True)
class LentSlot:
    """An idle slot of another pool.

    Attributes:
        name: in our collector.
        slot: in its own pool.
        key: the secret that the next match must have.
        count: how many alike machines it stands for.
        grants: of our negotiator's matches, those that nobody has claimed with yet.
        asked: how many are asked of the other pool just now.
    """

    name: str
    slot: str
    pool: str
    ad: Wire
    key: str
    count: int = 1
    grants: list[LentGrant] = field(default_factory=list)
    asked: int = 0

    @property
    def free(self) -> int:
        """How many of its machines are not on their way to somebody."""
        return self.count - self.asked - sum(grant.count for grant in self.grants)


@dataclass(slots=True)
class BorrowedClaim:
    """A claim of one of our schedds on a machine of another pool, for our status. One that was made before this world
    was started has no known owner."""

    name: str
    schedd: str
    lease: float
    until: float
    owner: str = "?"


@dataclass(slots=True, eq=False)
class Arrival:
    """Claims that another pool has sent for a user's jobs here (EV 4.1), and that our schedd is to take.

    Attributes:
        name: of the private flock. schedd: the node of the schedd that they are for.
        lease: seconds, as they were claimed.
        claims: as the other pool's startds gave them; not trusted.
        used: called for each with whether a job has begun on it.
    """

    name: str
    user: str
    schedd: str
    lease: float
    claims: list[Wire]
    used: Callable[[bool], None]


@passes(Right.SUBMIT, STARTD_CALLS, STARTD_STREAMS)
class MachineBorrower(Service):
    """Serves our negotiator and schedds as `world_machines`.

    Args:
        lender: the connection to a pool that lends. Raises NoWay.
        direct: whether machines of this pool and another connect directly.

    Attributes:
        ended: set when a claim has ended.
        refusals: the last refusal of each pool for each of our users.
        read_ahead: for the streams of jobs in all other pools.
    """

    def __init__(
        self,
        credit: CreditBook,
        advertiser: Advertiser,
        outside: OutsideWorld,
        *,
        node: str,
        address: Callable[[], str],
        spawn: Spawn,
        log: logging.Logger,
        lender: Callable[[str], LenderCalls],
        direct: TermsWith,
    ) -> None:
        self.direct = direct
        self._credit = credit
        self._advertiser = advertiser
        self._outside = outside
        self._node = node
        self._address = address
        self._spawn = spawn
        self._log = log
        self._lender = lender
        self._slots: dict[str, LentSlot] = {}
        self._claims: dict[str, BorrowedClaim] = {}
        self._schedds: dict[str, Connection] = {}
        self.ended = asyncio.Event()
        self.refusals: dict[tuple[str, str], str] = {}
        self.read_ahead = ReadAhead()
        self._pauses: dict[tuple[str, str], tuple[int, float]] = {}
        self._arrived: dict[str, Arrival] = {}
        self._unused: dict[str, Callable[[bool], None]] = {}
        self._round_trips: dict[str, float] = {}

    # -- offers ------------------------------------------------------------------------------------------

    def offered(self, pool: str, slot: str, ad: Wire | None) -> None:
        """A machine of another pool can be had now, with this ad; or cannot any more."""
        name = f"{slot}@{pool}@{self._node}"
        if ad is None:
            if self._slots.pop(name, None) is not None and not self._is_claimed(name):
                self._advertiser.withdraw("Machine", name)
            return
        for claim in [number for number, claim in self._claims.items() if claim.name == name]:
            del self._claims[claim]  # it is idle again
        known = self._slots.get(name)
        shown = self._lent(ad, slot, pool)
        found = LentSlot(name, slot, pool, shown, self._outside.secret(16), count_of(shown))
        if known is not None:
            found.grants, found.asked = known.grants, known.asked
            if found.count <= known.count:
                found.key = known.key  # a new secret would wake the negotiator for nothing
        self._slots[name] = found
        self._show(found)

    def _lent(self, ad: Wire, slot: str, pool: str) -> Wire:
        return lent_machine(ad, slot, pool_of(pool), self._address(), self._round_trips.get(pool, 0.0))

    def measured(self, pool: str, round_trip: float) -> None:
        """How far away a pool is, seconds: its machines are worth less by that."""
        self._round_trips[pool] = round_trip
        claimed = {claim.name for claim in self._claims.values()}
        for slot in self._slots.values():
            if slot.pool == pool:
                value = server_value(slot.ad, round_trip).for_order
                if slot.ad[SERVER_VALUE] != value:
                    slot.ad = {**slot.ad, SERVER_VALUE: value}
                    if slot.name not in claimed:
                        self._show(slot)

    def _show(self, slot: LentSlot) -> None:
        """Tell our collector what can be had of a lent slot; of one machine that is on its way, what it was."""
        many = {COUNT: max(1, slot.free)} if slot.count > 1 else {}
        self._advertiser.publish("Machine", slot.name, slot.ad | many, {"ClaimId": slot.key})

    def withdraw(self, pool: str) -> None:
        """None of a pool's machines can be had any more."""
        for slot in [slot for slot in self._slots.values() if slot.pool == pool]:
            self.offered(pool, slot.slot, None)

    def lost(self, pool: str) -> None:
        """A pool cannot be reached any more: none of its machines can be had, and our jobs there are asked for."""
        self.withdraw(pool)
        self.unreachable(pool)

    def unreachable(self, pool: str, schedd: str | None = None, startd: str | None = None) -> None:
        """The startds of a pool, or one of them, cannot be reached just now: tell the schedds with claims there."""
        found: dict[str, list[str]] = {}
        for number, claim in self._claims.items():
            route = ClaimRoute.read(number)
            if route.pool == pool and startd in (None, route.startd) and schedd in (None, claim.schedd):
                found.setdefault(claim.schedd, []).append(number)
        for name, claims in found.items():
            with contextlib.suppress(NoWay):
                self.schedd(name).notify("schedd.unreachable", {"claims": claims})

    def lent(self) -> Mapping[str, int]:
        """How many machines of each pool our jobs have."""
        found: dict[str, int] = {}
        for number in self._claims:
            pool = ClaimRoute.read(number).pool
            found[pool] = found.get(pool, 0) + 1
        return found

    def ads_of(self, pool: str) -> Iterator[Wire]:
        """The idle machines that a pool shows us, as our collector has them."""
        for slot in self._slots.values():
            if slot.pool == pool and not self._is_claimed(slot.name):
                yield {**slot.ad, **_names(slot.name)}

    def users_of(self, pool: str) -> dict[str, int]:
        """How many machines of a pool the jobs of each of our users have."""
        found: dict[str, int] = {}
        for number, claim in self._claims.items():
            if ClaimRoute.read(number).pool == pool:
                found[claim.owner] = found.get(claim.owner, 0) + 1
        return found

    def on_offer(self) -> Mapping[str, int]:
        """How many idle machines each pool shows us."""
        found: dict[str, int] = {}
        for slot in self._slots.values():
            found[slot.pool] = found.get(slot.pool, 0) + slot.count
        return found

    # -- our negotiator ----------------------------------------------------------------------------------

    @method(Right.NEGOTIATE, takes={"grants": MAPPINGS})
    async def matched(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Matches made for lent machines: {grants} -> {accepted: positions in grants}"""
        accepted = []
        for place, given in enumerate(params["grants"]):
            slot = self._slots.get(str(given["slot"]))
            if slot is None or not _same(slot.key, given.get("claim")) or given.get("preempt"):
                continue
            owner = str(given["submitter"]).rpartition("@")[0]
            if self._pauses.get((slot.pool, owner), (0, 0.0))[1] > asyncio.get_running_loop().time():
                continue  # that pool has just refused this user
            count = int(given["count"])
            grant = LentGrant(str(given["submitter"]), str(given["node"]), count, slot.key)
            slot.grants.append(grant)
            asyncio.get_running_loop().call_later(MATCH_LIFE, self._drop, slot.name, grant)
            accepted.append(place)
        for name in {str(params["grants"][place]["slot"]) for place in accepted}:
            if self._slots[name].count > 1 and self._slots[name].free > 0:
                self._renew_key(name)  # the rest of its machines can be given to others at once
        return {"accepted": accepted}

    def _drop(self, name: str, grant: LentGrant) -> None:
        """A match lapses with which nobody has claimed."""
        slot = self._slots.get(name)
        if slot is not None and grant in slot.grants:
            slot.grants.remove(grant)
            self._renew_key(name)

    def _renew_key(self, name: str) -> None:
        """Let a slot be matched again, if it is still there."""
        if (slot := self._slots.get(name)) is not None:
            slot.key = self._outside.secret(16)
            self._show(slot)

    # -- our schedds -------------------------------------------------------------------------------------

    @method(
        Right.SUBMIT,
        takes={
            "slot": str,
            "claim": str,
            "submitter": str,
            "owner": str,
            "lease": int | float,
            "ad": dict,
            "count": int | None,
        },
    )
    async def claim(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Claim a lent machine: as a startd answers."""
        if (arrival := self._arrived.pop(params["claim"], None)) is not None:
            return await self._claim_arrived(arrival, call, params)
        slot, schedd = self._slots.get(params["slot"]), call.identity.node
        known = [grant for grant in slot.grants if _same(grant.key, params["claim"])] if slot is not None else []
        if slot is None or not (known or _same(slot.key, params["claim"])):
            raise NoWay(f"slot {params['slot']}: this match is not valid any more", retry=True)
        claimant = (params["submitter"], schedd)
        granted = next((grant for grant in known if (grant.submitter, grant.node) == claimant), None)
        if granted is None:
            self._log.warning("a claim without a grant", extra={"slot": slot.name, "from": schedd})
            raise NoWay(f"slot {slot.name} was not matched to {params['submitter']} of {schedd}")
        slot.grants.remove(granted)
        slot.asked += granted.count
        self._schedds[schedd] = call.connection
        asked = {
            "schedd": schedd,
            "owner": params["owner"],
            "lease": params["lease"],
            "ad": {**params["ad"], LENDER: slot.pool},  # the job's Requirements may name the pool
            "count": min(int(params.get("count") or 1), granted.count),
        }
        party, began = (slot.pool, str(params["owner"])), asyncio.get_running_loop().time()
        try:
            left = min(seconds_left(call), ANSWERED)
            answer = await self._lender(slot.pool).call("world.claim", asked, timeout=left)
            given = claims_of(answer, asked["count"])
            if any(ClaimRoute(slot.pool, one["startd"], one["claim"]).id in self._claims for one in given):
                raise NoWay("the other pool has given a claim that one of our jobs has already")
            self.refusals.pop(party, None)
            self._pauses.pop(party, None)
        except (PoolError, OSError) as error:
            at_once = asyncio.get_running_loop().time() - began < AT_ONCE
            times = SILENCES if isinstance(error, DeadlineExceeded) else int(at_once)
            self._refused(party, slot, str(error), times)
            raise
        finally:
            if (now := self._slots.get(slot.name)) is not None:
                now.asked = max(0, now.asked - granted.count)
            self._renew_key(slot.name)
        claims = [self._borrowed_claim(slot.pool, schedd, params, item) for item in given]
        await self._credit.measures.write()
        return {"claims": claims, "refused": None}

    def _refused(self, party: tuple[str, str], slot: LentSlot, why: str, more: int) -> None:
        """A pool has refused a user of ours.

        Args:
            more: how many refusals it counts for by which the pause grows until it is asked again; 0 for none, where it
                has looked for a machine in vain.
        """
        self.refusals[party] = plain_line(why)
        if len(self.refusals) > MOST_REFUSALS:
            gone = next(iter(self.refusals))
            del self.refusals[gone]
            self._pauses.pop(gone, None)
        if not more:
            self._pauses.pop(party, None)
            return
        loop, times = asyncio.get_running_loop(), self._pauses.get(party, (0, 0.0))[0] + more
        pause = pause_after(times)
        self._pauses[party] = (times, loop.time() + pause)
        loop.call_later(pause + MOMENT, self._show_again, slot.pool)

    def _show_again(self, pool: str) -> None:
        """Have our negotiator look at a pool's machines again: one of them changes."""
        slot = next((slot for slot in self._slots.values() if slot.pool == pool and not slot.grants), None)
        if slot is not None:
            self._renew_key(slot.name)

    # -- claims that have come for one user's jobs -------------------------------------------------------

    def arrive(self, arrival: Arrival) -> Wire:
        """Keep claims for a schedd of ours; a match as that schedd is told of it: {slot, claim, startd, count, ad}"""
        key = self._outside.secret(16)
        self._arrived[key] = arrival
        asyncio.get_running_loop().call_later(MATCH_LIFE, self._lapse, key)
        first = arrival.claims[0]
        ad = self._lent(first["ad"], first["slot"], arrival.name)
        name = f"{first['slot']}@{arrival.name}@{self._node}"
        return {
            "slot": name,
            "claim": key,
            "startd": f"{self._address()}#{AS_STARTD}",
            "count": len(arrival.claims),
            "ad": ad | _names(name),
        }

    def _lapse(self, key: str) -> None:
        arrival = self._arrived.pop(key, None)
        if arrival is not None:
            arrival.used(False)
            self._spawn(self.release_unused(arrival.name, arrival.schedd, arrival.claims), "give back", alone=True)

    async def release_unused(self, pool: str, schedd: str, claims: list[Wire]) -> None:
        """Give claims back that nobody here took; those of a pool that cannot be reached end with their leases."""
        for claim in claims:
            inner = {"claims": [claim["claim"]]}
            asked = {"schedd": schedd, "startd": claim["startd"], "verb": "release", "params": inner}
            try:
                await self._lender(pool).call("world.pass_call", asked, timeout=MATCH_LIFE)
            except (PoolError, OSError, TimeoutError) as error:
                self._log.info("a claim was not given back", extra={"slot": claim["slot"], "why": str(error)})

    async def _claim_arrived(self, arrival: Arrival, call: Call, params: Wire) -> Wire:
        schedd, lease = call.identity.node, float(params["lease"])
        self._schedds[schedd] = call.connection
        if (schedd, params["owner"]) != (arrival.schedd, arrival.user) or lease < arrival.lease:
            # A schedd whose lease ended before its startd's would have a job run twice.
            self._spawn(self.release_unused(arrival.name, arrival.schedd, arrival.claims), "give back", alone=True)
            arrival.used(False)
            raise NoWay(f"the claim on {params['slot']} is not for {params['owner']} of {schedd} with this lease")
        claims = [self._borrowed_claim(arrival.name, schedd, params, item) for item in arrival.claims]
        for claim in claims:
            self._unused[claim["claim"]] = arrival.used
        return {"claims": claims, "refused": None}

    def _note_use(self, claim: str, *, used: bool) -> None:
        if (tell := self._unused.pop(claim, None)) is not None:
            tell(used)

    def _borrowed_claim(self, pool: str, schedd: str, params: Wire, item: Wire) -> Wire:
        """A claim that the other pool has made, as our schedd gets it."""
        route = ClaimRoute(pool, str(item["startd"]), str(item["claim"]))
        name = f"{item['slot']}@{pool}@{self._node}"
        ad = self._lent(item["ad"], str(item["slot"]), pool)
        now = asyncio.get_running_loop().time()
        owner, lease = str(params["owner"]), float(params["lease"])
        self._claims[route.id] = BorrowedClaim(name, schedd, lease, now + LEASES * lease, owner)
        self._credit.measures.begin(pool, route.startd, item, lends=False, user=owner, lease=lease)
        user = params["submitter"]
        held = {
            "State": "Claimed",
            "Activity": "Busy",
            "RemoteUser": user,
            "RemoteOwner": user.rpartition("@")[0],
            "ClientMachine": schedd,
            "ScheddName": schedd,
        }
        self._advertiser.publish("Machine", name, ad | held)
        return {"claim": route.id, "slot": name, "ad": ad | _names(name)}

    async def pass_call(self, verb: str, call: Call, params: dict[str, Any]) -> Any:
        self._schedds[call.identity.node] = call.connection
        if verb == "release":
            for number in params["claims"]:
                route = ClaimRoute.read(str(number))
                self._forget(route.id)
                self._note_use(route.id, used=False)
                self._credit.measures.over(route.pool, route.startd, [route.claim], lends=False)
                await self._pass(route, verb, call, {"claims": [route.claim]})
            return {}
        route = ClaimRoute.read(str(params.get("claim")))
        inner = with_claim(params, route.claim)
        if verb == OFFER:
            self.direct(route.pool).check_agreed()
        answer = await self._pass(route, verb, call, inner)
        if verb == OFFER:
            return self.direct(route.pool).checked_offer(answer)
        self._credit.measures.called(route.pool, route.startd, verb, inner, answer, lends=False)
        if verb == "activate":
            self._note_use(route.id, used=True)
        if verb == "resume" and isinstance(answer, dict) and isinstance(answer.get("ad"), dict):
            if not is_small(answer["ad"]) or not is_plain_name(str(answer["ad"].get("Name"))):
                raise NoWay(f"the pool {route.pool} tells of a machine what is too much")
            answer["ad"] = self._known_again(route, call.identity.node, answer["ad"], params.get("lease"))
        return answer

    def _known_again(self, route: ClaimRoute, schedd: str, ad: Wire, lease: Any) -> Wire:
        """A claim that one of our schedds has, as it gets the machine's ad; this world may have been restarted."""
        slot = str(ad.get("Name"))
        now = asyncio.get_running_loop().time()
        name = f"{slot}@{route.pool}@{self._node}"
        if route.id not in self._claims:
            seconds = float(lease) if isinstance(lease, int | float) and 0 < lease < LONGEST_LEASE else LEASE
            self._claims[route.id] = BorrowedClaim(name, schedd, seconds, now + LEASES * seconds)
        return self._lent(ad, slot, route.pool) | _names(name)

    async def _pass(self, route: ClaimRoute, verb: str, call: Call, params: Wire) -> Any:
        asked = {"schedd": call.identity.node, "startd": route.startd, "verb": verb, "params": params}
        return await self._lender(route.pool).call("world.pass_call", asked, timeout=seconds_left(call))

    async def pass_stream(self, verb: str, call: Call, params: dict[str, Any], stream: Stream) -> None:
        route = ClaimRoute.read(str(params.get("claim")))
        asked = {
            "schedd": call.identity.node,
            "startd": route.startd,
            "verb": verb,
            "params": with_claim(params, route.claim),
        }
        ahead = self.read_ahead if verb in BETWEEN_PARTS else None
        await join_streams(stream, await self._lender(route.pool).stream("world.pass_stream", asked), ahead)

    def withdraw_direct(self, pool: str) -> None:
        """Have our schedds end the direct connections of their jobs with machines of a pool, at once."""
        for link in self._schedds.values():
            link.notify("schedd.end_direct", {"pool": pool})

    # -- what comes back ---------------------------------------------------------------------------------

    def schedd(self, name: str) -> Connection:
        """The connection on which a schedd of ours is reached. Raises NoWay."""
        link = self._schedds.get(name)
        if link is None or link.closed.done():
            raise NoWay(f"the schedd {name[:100]} cannot be reached just now", retry=True)
        return link

    def renewed(self, claims: list[str], gone: list[str]) -> None:
        """Leases were renewed, and these claims are over."""
        now = asyncio.get_running_loop().time()
        for number in claims:
            claim = self._claims.get(number)
            if claim is not None:
                claim.until = now + LEASES * claim.lease
        for number in gone:
            self._forget(number)

    def over(self, number: str) -> None:
        """A startd says that this claim has ended, or our schedd that it needs it no more."""
        self._forget(number)

    def forget_old(self) -> None:
        """Drop claims from our status that nobody renews any more."""
        now = asyncio.get_running_loop().time()
        for number in [number for number, claim in self._claims.items() if claim.until < now]:
            self._forget(number)

    def _forget(self, number: str) -> None:
        claim = self._claims.pop(number, None)
        self.ended.set()
        if claim is None or self._is_claimed(claim.name):
            return
        slot = self._slots.get(claim.name)
        if slot is None:
            self._advertiser.withdraw("Machine", claim.name)
        else:
            self._advertiser.publish("Machine", slot.name, slot.ad, {"ClaimId": slot.key})

    def _is_claimed(self, name: str) -> bool:
        return any(claim.name == name for claim in self._claims.values())


class ComingBack(Service):
    """The calls of a startd of another pool to schedds of ours: served as `world_back` on the connection to that pool.

    Whatever it says, it can name claims on machines of its own pool only: the pool's name is put before each.
    """

    def __init__(self, pool: str, borrowing: MachineBorrower, credit: CreditBook, log: logging.Logger) -> None:
        self._pool = pool
        self._credit = credit
        self._borrowing = borrowing
        self._pace = ReportPace()
        self._log = RareLog(log)

    @method(None, takes={"schedd": str, "startd": str, "verb": str, "params": dict})
    async def pass_back(self, call: Call, params: dict[str, Any]) -> Any:
        """A call of a startd: {schedd, startd, verb, params}"""
        verb, startd, inner = params["verb"], params["startd"], dict(params["params"])
        if verb not in SCHEDD_CALLS:
            raise NoWay(f"{verb[:100]} does not pass between pools")
        link = self._borrowing.schedd(params["schedd"])
        if verb in ASKS_DIRECT:
            self._borrowing.direct(self._pool).check_agreed()
        try:
            inner = checked_words(verb, inner)
        except BadReport as error:
            said = {"pool": self._pool, "verb": verb, "why": str(error)}
            self._log.warning("another pool says of a job what makes no sense", said)
            raise
        if verb == "report" and not self._pace.admits(str(inner.get("claim")), asyncio.get_running_loop().time()):
            self._log.warning("another pool reports of a job too often", {"pool": self._pool})
            raise NoWay("a job is reported of too often", retry=True)
        if verb != "renew":
            route = ClaimRoute(self._pool, startd, str(inner.get("claim")))
            passed = await link.call(f"schedd.{verb}", with_claim(inner, route.id), timeout=seconds_left(call))
            if verb == "revoked" or (verb == "ended" and isinstance(passed, dict) and passed.get("keep") is False):
                self._borrowing.over(route.id)
            self._credit.measures.called(self._pool, startd, verb, inner, passed, lends=False)
            return passed
        if not TEXTS.fits(inner.get("claims")) or len(inner["claims"]) > MOST_RENEWED:
            raise NoWay("the claims to renew are no list of names, or too many")
        own = {ClaimRoute(self._pool, startd, claim).id: claim for claim in inner["claims"]}
        answer = await link.call("schedd.renew", {"claims": list(own)}, timeout=seconds_left(call))
        gone = [number for number in answer["gone"] if number in own]
        self._borrowing.renewed(list(own), gone)
        told = {"gone": [own[number] for number in gone]}
        self._credit.measures.called(self._pool, startd, verb, inner, told, lends=False)
        return told

    @method(None, takes={"key": str, "terms": dict, "entries": MAPPINGS})
    async def credit(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The other pool's entries of what it has lent us: {key, terms, entries} -> {key, terms, answers}"""
        return await self._credit.answer(self._pool, params)

    @method(None, takes={"schedd": str, "startd": str})
    async def cut(self, call: Call, params: dict[str, Any]) -> None:
        """A startd cannot be reached just now: {schedd, startd}"""
        self._borrowing.unreachable(self._pool, params["schedd"], params["startd"])

    @streaming(None, takes={"schedd": str, "startd": str, "verb": str, "params": dict})
    async def stream_back(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A stream of a startd: {schedd, startd, verb, params}"""
        verb = params["verb"]
        if verb not in SCHEDD_STREAMS:
            raise NoWay(f"{verb[:100]} does not pass between pools")
        route = ClaimRoute(self._pool, params["startd"], str(params["params"].get("claim")))
        link = self._borrowing.schedd(params["schedd"])
        far = await link.stream(f"schedd.{verb}", with_claim(params["params"], route.id))
        await join_streams(stream, far, self._borrowing.read_ahead)


def _names(slot: str) -> Wire:
    """The attributes of a lent machine that our collector sets itself: a job's expressions may ask for them."""
    return {"Name": slot, "Machine": machine_of_slot(slot)}


def _same(key: str, given: object) -> bool:
    return isinstance(given, str) and hmac.compare_digest(key.encode(), given.encode(errors="replace"))

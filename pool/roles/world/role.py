"""The role: joins the parts, talks to administrators, and serves the worlds of other pools."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pool.config import Change
from pool.errors import PoolError
from pool.policy.flock.agreements import (
    CREDIT,
    IDLE_ONLY,
    MOST,
    USUAL_BOUND,
    FlockAgreement,
    credit_terms,
    limits_shown,
    read_agreements,
    rule_changes,
)
from pool.policy.flock.direct import DirectTerms, hosts_of
from pool.policy.flock.kinds import READ_IN_MACHINES, names_read
from pool.policy.flock.ledger import CreditTerms
from pool.policy.flock.private import OF, users_order
from pool.policy.flock.shown import AS_PRIVATE, AS_SCHEDD, AS_STARTD, guest_order
from pool.roles.advertise import Advertiser
from pool.roles.base import Role
from pool.roles.world.borrowing import ComingBack, MachineBorrower
from pool.roles.world.credit import CreditBook
from pool.roles.world.explaining import FlockExplaining
from pool.roles.world.invitations import admitting_pools, check_invitation, known_authorities
from pool.roles.world.lending import TROUBLE, MachineLender
from pool.roles.world.offers import Borrower
from pool.roles.world.own_jobs import OwnJobs
from pool.roles.world.peers import LenderLink
from pool.roles.world.private_borrowing import PrivateBorrower, PrivateCalls
from pool.roles.world.private_lending import PrivateDoor, PrivateLender, guests_of
from pool.roles.world.relay import BETWEEN_PARTS, OFFER, STARTD_CALLS, STARTD_STREAMS, NoWay, join_streams, seconds_left
from pool.roles.world.renewal import AgreementRenewal
from pool.store.flock_ledger import FlockLedgerStore
from pool.wire import Call, Connection, RemoteError, Right, Service, Stream, method, streaming
from pool.wire.parameter_checks import TEXTS
from pool.wire.signing import SigningKey

#: Machines that are offered in one message; some milliseconds of work.
BATCH = 100
#: Seconds between two looks for claims that nobody renews.
SWEEP = 30.0
#: Seconds for which jobs may save themselves when an agreement ends, and the reason that they are given.
PARTING, LEFT = 10.0, "the pools have parted"
FIRST_RETRY, LONGEST_RETRY = 0.05, 10.0
#: Seconds for which an invitation is good where nothing is said.
USUAL_INVITATION = 86400.0
#: The ads that our collector tells.
WATCHED = ["Machine", "Submitter", "Negotiator", "Scheduler"]
#: Seconds for which changes gather before it is looked at what can be paid back.
GATHER = 0.05
#: Methods of a startd that take the order to start a job.
ORDERS = ("activate", "restore_order")
TERMS = {"pool": str, "agreement": str, "bound": int | float | None, "half_life": int | float | None}
PASSED = {"schedd": str, "startd": str, "verb": str, "params": dict}


class World(Role):
    """The world of one pool."""

    name: ClassVar[str] = "world"
    is_aside: ClassVar[bool] = True
    #: Others in tests (`pool.testing.classic_world`).
    lender_class: ClassVar[type[MachineLender]] = MachineLender
    borrower_class: ClassVar[type[MachineBorrower]] = MachineBorrower

    async def start(self) -> None:
        given = self.given
        self._rules: str | None = None
        self._agreements = self._read()
        self._advertiser = Advertiser(
            given.links,
            given.collector,
            self.outside,
            self.settings.number("UPDATE_INTERVAL"),
            self.settings.number("AD_LIFETIME"),
            self.log,
            f"{given.instance}#world",
        )
        self._borrowers: dict[str, Borrower] = {}
        self._offering: dict[str, asyncio.Task[Any] | None] = {}
        self._leaving: set[str] = set()
        self._accepting: set[str] = set()
        self._unusable: dict[str, str] = {}
        self._referred: dict[str, frozenset[str]] = {}
        self._names_read: tuple[str, ...] = ()
        self._lenders: dict[str, tuple[LenderLink, tuple[asyncio.Task[Any], ...]]] = {}
        self._renewal = AgreementRenewal(self.outside.wall, lambda: self.own_name, self.log)
        self.credit = CreditBook(
            FlockLedgerStore.open(str(given.state / "flock-ledger.db") if given.state is not None else ":memory:"),
            SigningKey.open(given.state / "flock-ledger.key")
            if given.state is not None
            else SigningKey(SigningKey.new_secret()),
            self.outside,
            turns=given.turns,
            spawn=self.spawn,
            log=self.log,
            terms=lambda pool: self._agreement(pool).terms or self.credit.agreed(pool),
            borrower=self._borrower,
            every=self.settings.number("CLAIM_LEASE"),
        )
        self.own_jobs = OwnJobs(
            given.links,
            self.outside,
            turns=given.turns,
            spawn=self.spawn,
            log=self.log,
            wanted=lambda: any(self.credit.terms(pool).credit for pool in self.credit.pools),
            changed=self.credit.measures.ahead.set,
        )
        self.lending = self.lender_class(
            self.credit,
            self.own_jobs,
            given.links,
            self._advertiser,
            node=given.node,
            address=lambda: given.address,
            wall=self.outside.wall,
            longest_lease=lambda: self.settings.number("CLAIM_LEASE_MAX"),
            spawn=self.spawn,
            log=self.log,
            peer=self._borrower,
            agreement=self._agreement,
            stays=self._guests_stay,
            order=self._guest_order,
            direct=self._direct_terms,
            changed=self._machine_changed,
        )
        self.borrowing = self.borrower_class(
            self.credit,
            self._advertiser,
            self.outside,
            node=given.node,
            address=lambda: given.address,
            spawn=self.spawn,
            log=self.log,
            lender=self._lender,
            direct=self._direct_terms,
        )
        self._make_private()
        self.spawn(self._advertiser.run(), "advertise")
        self.spawn(self._watch(), "watch")
        self.spawn(self._sweep(), "sweep")
        self.spawn(self.credit.run(), "credit")
        self.spawn(self._end_payback(), "payback")
        for pool in self._admitting_pools():
            self._begin(pool)
        self.private_borrowing.begin()

    def _make_private(self) -> None:
        """Jobs of users who have accounts in several pools."""
        given = self.given
        self.private_lending = PrivateLender(
            self._advertiser,
            node=given.node,
            address=lambda: given.address,
            spawn=self.spawn,
            log=self.log,
            tunnel=self.lending.tunnel,
            close=self.lending.close,
            claims=self.lending.claims,
            take_back=lambda name, left: self.lending.take_all_back(name, LEFT, PARTING, left),
            domain=lambda: self.settings.text("UID_DOMAIN"),
            own_name=lambda: self.own_name,
        )
        self.private_borrowing = PrivateBorrower(
            self.borrowing,
            self.credit,
            given.links,
            self.outside,
            state=given.state,
            own_name=lambda: self.own_name,
            lease=lambda: self.settings.number("CLAIM_LEASE"),
            network=given.user_network,
            spawn=self.spawn,
            log=self.log,
        )
        self._door = PrivateDoor(
            self.private_lending,
            is_open=lambda: self.settings.flag("PRIVATE_FLOCK"),
            order=lambda name, verb, params: self._guest_order(name, params, False) if verb in ORDERS else params,
        )

        self._explaining = FlockExplaining(
            self.borrowing,
            self.lending,
            self.private_borrowing,
            given.links,
            self.outside,
            lenders=lambda: {pool: link for pool, (link, _) in self._lenders.items()},
            agreement=self._agreement,
            collector=given.collector,
        )

    def _guest_order(self, pool: str, order: dict[str, Any], ahead: bool) -> dict[str, Any]:
        """An order to start a job of another pool, or of a user's own other pool."""
        if OF in pool:
            home, _, user = pool.partition(OF)
            return users_order(order, user, home, self.settings.text("UID_DOMAIN"))
        return guest_order(order, pool, ahead=ahead, stays=self._guests_stay(pool))

    def _guests_stay(self, pool: str) -> bool:
        """Whether jobs of a pool keep our machines while our own jobs wait for one."""
        leave = self._agreement(pool).guests_leave
        return not (self.settings.flag("FLOCK_GUESTS_LEAVE") if leave is None else leave)

    @property
    def services(self) -> tuple[Service, ...]:
        return (self, self._door, self.private_borrowing, self._explaining)

    @property
    def served(self) -> Mapping[str, Service]:
        """Its other services on its node, by name: as a startd, and as a schedd."""
        return {AS_STARTD: self.borrowing, AS_SCHEDD: self.lending, AS_PRIVATE: self.private_lending}

    async def stop(self, *, handover: bool) -> None:
        await self.lending.close()
        await self._advertiser.withdraw_all()
        await super().stop(handover=handover)
        self.credit.close()

    async def die(self) -> None:
        await super().die()
        self.credit.close(killed=True)

    def reload(self, settings: Any) -> None:
        super().reload(settings)
        agreements, before = self._read(), self._agreements
        self.credit.measures.terms_change()
        self._agreements = agreements
        for pool, agreed in before.items():
            if set(agreed.direct) - set(self._agreement(pool).direct):
                self._end_direct(pool)
        for pool in {*self._lenders, *self._admitting_pools()}:
            if self._agreement(pool).sends_out:
                self._begin(pool)
            else:
                self._end(pool)
        self.credit.every = settings.number("CLAIM_LEASE")
        for pool, borrower in self._borrowers.items():
            self.credit.greet(pool)
            self.lending.withdraw(pool)
            borrower.wake.set()
        if not settings.flag("PRIVATE_FLOCK"):
            for guest in list(self.private_lending.guests.values()):
                self.spawn(self.private_lending.expel(guest), "part", alone=True)

    def exclude(self, nodes: set[str]) -> None:
        for pool in nodes:
            self.spawn(self._close(pool), "part", alone=True)
            self._borrowers.pop(pool, None)

    async def _close(self, pool: str) -> None:
        await self.lending.withdraw_direct(pool)
        await self.lending.close(pool)

    # -- agreements --------------------------------------------------------------------------------------

    @property
    def _directory(self) -> Path:
        """One directory for each pool that has let us in, with the certificate that it gave us."""
        if self.given.state is None:
            raise NoWay("this node keeps nothing")
        return self.given.state / "flock"

    def _admitting_pools(self) -> list[str]:
        return admitting_pools(self._directory) if self.given.state is not None else []

    def _read(self) -> dict[str, FlockAgreement]:
        path, text = self.settings.text("FLOCK_FILE"), ""
        try:
            text = Path(path).read_text() if path else ""
            found = read_agreements(text)
        except (OSError, UnicodeDecodeError) as error:
            raise PoolError(f"FLOCK_FILE: cannot read {path}: {getattr(error, 'strerror', error)}") from error
        differ = rule_changes(self._rules, text) if self._rules is not None else ()
        self.file_changes = tuple(Change(*one, source=path, live=True) for one in differ)
        self._rules = text
        return found

    def _agreement(self, pool: str) -> FlockAgreement:
        found = self._agreements.get(pool, FlockAgreement(pool))
        return replace(found, lets_in=False, sends_out=False, direct=()) if pool in self._leaving else found

    def _direct_terms(self, pool: str) -> DirectTerms:
        """Whether machines of this pool and another connect directly, and where."""
        own = hosts_of({*self.lending.startds(), self.given.address, self.given.collector})
        return DirectTerms(pool, self._agreement(pool).direct, own)

    def _end_direct(self, pool: str) -> None:
        """The agreement with a pool lets machines connect directly no more, or elsewhere: end what there is."""
        self.borrowing.withdraw_direct(pool)
        self.spawn(self.lending.withdraw_direct(pool), "end direct connections", alone=True)

    # -- pools that lend to us ---------------------------------------------------------------------------

    def _begin(self, pool: str) -> None:
        if pool in self._lenders or not self._agreement(pool).sends_out:
            return
        from pool.wire.credentials import Credentials

        try:
            credentials = Credentials.load(self._directory / pool)
        except PoolError as error:  # this pool's own work goes on
            self.log.error("a pool's certificate cannot be used", extra={"pool": pool, "error": str(error)})
            self._unusable[pool] = str(error)
            return
        self._unusable.pop(pool, None)
        link = LenderLink(
            pool,
            self.given.pool_network(credentials),
            credentials.address,
            ComingBack(pool, self.borrowing, self.credit, self.log),
            offered=lambda slot, ad: self.borrowing.offered(pool, slot, ad),
            lost=lambda: self.borrowing.lost(pool),
            measured=lambda round_trip: self.borrowing.measured(pool, round_trip),
            names=lambda: self._names_read,
            turns=self.given.turns,
            outside=self.outside,
            log=self.log,
        )
        running = self.spawn(link.run(), f"pool {pool}")
        renewing = self.spawn(self._renewal.keep_valid(pool, link, credentials), f"certificate from {pool}")
        self._lenders[pool] = (link, (running, renewing))

    def _end(self, pool: str) -> None:
        known = self._lenders.pop(pool, None)
        for task in known[1] if known is not None else ():
            task.cancel()

    def _lender(self, pool: str) -> LenderLink | PrivateCalls:
        if OF in pool:
            return self.private_borrowing.calls(pool)
        known = self._lenders.get(pool)
        if known is None:
            raise NoWay(f"there is no agreement with a pool {pool[:100]}")
        return known[0]

    @method(Right.ADMINISTER, takes=TERMS)
    async def terms(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Our terms with a pool: {pool, agreement: credit or idle-only, bound: machine-hours, half_life: days}"""
        await self.credit.agree(params["pool"], self._checked_terms(params))
        return {"pool": params["pool"]}

    def _checked_terms(self, params: dict[str, Any]) -> CreditTerms:
        """Terms as an administrator says them.

        Raises:
            PoolError: they make no sense, or the flock's file has others.
        """
        from pool.wire.certificates import check_name

        check_name(params["pool"], ())
        bound, half_life = params.get("bound"), params.get("half_life")
        numbers = (USUAL_BOUND if bound is None else bound, half_life or 0.0)
        if params["agreement"] not in (CREDIT, IDLE_ONLY):
            raise PoolError(f"'{params['agreement'][:40]}' is no agreement", hint=f"{CREDIT} or {IDLE_ONLY}")
        if not all(0 <= number < MOST for number in numbers):
            raise PoolError("the bound or the half-life of an agreement is out of range")
        if (known := self._agreements.get(params["pool"])) is not None and known.terms is not None:
            raise PoolError(f"FLOCK_FILE says what is agreed with {params['pool']}", hint="change it there")
        return credit_terms(params["agreement"], *numbers)

    @method(Right.ADMINISTER, takes={"pool": str})
    async def settle(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Forgive a pool what it owes us: {pool} -> {forgiven, unsigned: machine-seconds, answered: by it}"""
        forgiven, unsigned, answered = await self.credit.settle(params["pool"])
        return {"forgiven": forgiven, "unsigned": unsigned, "answered": answered}

    @method(Right.ADMINISTER, takes={**TERMS, "agreement": str | None, "lifetime": int | float | None})
    async def invite(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A token by which another pool's jobs may run here: {pool, lifetime, and `terms`} -> {token, expires}"""
        terms = self._checked_terms(params) if params.get("agreement") is not None else None
        if self.given.invitations is None:
            raise NoWay("this node has no authority that could invite a pool")
        lifetime = params.get("lifetime")
        made = await self.given.invitations.invite(params["pool"], USUAL_INVITATION if lifetime is None else lifetime)
        if terms is not None:
            await self.credit.agree(params["pool"], terms)
        return made

    @method(Right.ADMINISTER, takes={**TERMS, "token": str, "agreement": str | None})
    async def accept(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Take another pool's invitation: {token, pool: its name here, and `terms`} -> {pool, address, name}"""
        from pool.wire.certificates import check_name
        from pool.wire.join import CannotJoin, join

        pool = params["pool"]
        check_name(pool, ())
        terms = self._checked_terms(params) if params.get("agreement") is not None else None
        if pool == self.own_name:
            raise PoolError(f"{pool} is this pool itself", hint="name the other pool as you like, but not so")
        if pool in self._admitting_pools() or pool in self._accepting:
            raise PoolError(
                f"there is an agreement with a pool {pool} already", hint=f"`poolnode flock leave {pool}` ends it"
            )
        own = self.given.invitations.fingerprint if self.given.invitations is not None else ""
        check_invitation(params["token"], own, await asyncio.to_thread(known_authorities, self._directory))
        self._accepting.add(pool)
        try:
            credentials = await join(params["token"], self.own_name, self._directory / pool)
        except CannotJoin as error:
            hint = f"`poolnode flock invite {self.own_name}` there makes one for this pool"
            raise PoolError(f"the other pool refuses: {error.message}", hint=hint) from error
        finally:  # what is kept of an attempt is the key, with which the same token may be tried again
            self._accepting.discard(pool)
        if terms is not None:
            await self.credit.agree(pool, terms)
        self._leaving.discard(pool)
        self._begin(pool)
        return {"pool": pool, "address": credentials.address, "name": self.own_name}

    @method(Right.ADMINISTER, takes={"pool": str})
    async def leave(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Use a pool's machines no more, take ours back, forget our terms and its key, and make its certificate
        worthless: {pool} -> {left: whether there were any}. Jobs leave with their checkpoints, if the other pool
        answers; else they end with their leases. It is done to the end, also where nobody waits for the answer.
        """
        return await asyncio.shield(self.spawn(self._part_with(params["pool"]), "leave", alone=True))

    async def _part_with(self, pool: str) -> dict[str, Any]:
        known = pool in self.credit.pools
        self._leaving.add(pool)
        self._end_direct(pool)
        if (borrower := self._borrowers.get(pool)) is not None:
            borrower.wake.set()
        try:
            await asyncio.gather(self._let_ours_leave(pool), self.lending.take_all_back(pool, LEFT, PARTING))
            self._end(pool)
        finally:
            if pool not in self._borrowers:
                self._leaving.discard(pool)
        self.credit.forget_key(pool)
        invited = self.given.invitations is not None and await self.given.invitations.withdraw(pool)
        if pool not in self._admitting_pools():
            return {"left": known or invited}
        await asyncio.to_thread(shutil.rmtree, self._directory / pool)
        return {"left": True}

    async def _let_ours_leave(self, pool: str) -> None:
        """Have the other pool send our jobs home, for as long as it answers."""
        known = self._lenders.get(pool)
        if known is None or not self.borrowing.lent().get(pool):
            return
        self.borrowing.withdraw(pool)
        try:
            async with asyncio.timeout(PARTING):
                await known[0].call("world.part", {}, timeout=PARTING)
                while self.borrowing.lent().get(pool):
                    self.borrowing.ended.clear()
                    await self.borrowing.ended.wait()
        except (*TROUBLE, RemoteError, NoWay) as error:
            self.log.info("jobs in another pool end with their leases", extra={"pool": pool, "why": str(error)})

    @method(Right.FLOCK)
    async def part(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The other pool leaves: its jobs leave our machines: {} -> {}"""
        await self.lending.take_all_back(call.identity.node, "its own pool has left the flock", PARTING)
        return {}

    @method(Right.FLOCK, takes={"request": str})
    async def renew(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The other pool's certificate, made anew for its own key before it ends: {request} -> {certificate}"""
        if self.given.invitations is None:
            raise NoWay("this node has no authority that could renew a certificate")
        return {"certificate": await self.given.invitations.renew(call.identity.node, params["request"])}

    @method(Right.READ)
    async def status(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The flock as this pool sees it: {} -> {name, pools: [{pool, ...}]}"""
        offered, borrowed, waiting = self.borrowing.on_offer(), self.borrowing.lent(), self.lending.waiting()
        pools, invitations = [], self.given.invitations
        invited = set(invitations.pools) if invitations is not None else self._borrowers.keys()
        for pool in sorted({*self._admitting_pools(), *self._borrowers, *self._agreements, *self.credit.pools}):
            agreement, lender = self._agreement(pool), self._lenders.get(pool)
            pools.append(
                {
                    "pool": pool,
                    "in": agreement.lets_in,
                    "out": agreement.sends_out and pool in self._admitting_pools(),
                    "guests_leave": not self._guests_stay(pool),
                    **limits_shown(agreement),
                    "invited": pool in invited,
                    "connected_in": pool in self._borrowers,
                    "trouble": lender[0].trouble if lender is not None else self._unusable.get(pool, ""),
                    "address": lender[0].address if lender is not None else "",
                    "offered": offered.get(pool, 0),
                    "borrowed": borrowed.get(pool, 0),
                    "lent": self.lending.lent_to(pool),
                    "waiting": waiting.get(pool, 0),
                    "direct": [str(network) for network in agreement.direct],
                    "round_trip": lender[0].round_trip if lender is not None else 0.0,
                    "values": self._explaining.values(pool, lender[0].round_trip if lender is not None else 0.0),
                    **self._explaining.users(pool),
                    **self.credit.status(pool),
                }
            )
        private = [*self.private_borrowing.shown(), *guests_of(self.private_lending)]
        return {"name": self.own_name, "pools": pools, "private": private}

    @property
    def own_name(self) -> str:
        """The name of this pool for others."""
        return self.settings.text("POOL_NAME") or self.given.node

    # -- pools that borrow from us -----------------------------------------------------------------------

    def _borrower(self, pool: str) -> Connection:
        if OF in pool:
            return self.private_lending.connection(pool)
        known = self._borrowers.get(pool)
        if known is None or known.link.closed.done():
            raise NoWay(f"the pool {pool[:100]} cannot be reached just now", retry=True)
        return known.link

    def _machine_changed(self, slot: str, ad: dict[str, Any] | None) -> None:
        for borrower in self._borrowers.values():
            borrower.changed(slot, ad)

    @streaming(Right.FLOCK)
    async def offers(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The machines that the other pool may have: all now, then each change, as lists of [slot, ad or None]."""
        pool = call.identity.node
        if (before := self._offering.get(pool)) is not None:
            before.cancel()  # it is told once, however often it asks
        self._offering[pool] = asyncio.current_task()
        self._leaving.discard(pool)
        borrower = Borrower(
            pool, call.connection, self.lending.lendable(), self._referred.get(pool, ()), self.given.turns
        )
        self._borrowers[pool] = borrower
        await stream.send([])
        self.credit.greet(pool)
        try:
            while True:
                await borrower.wake.wait()
                borrower.wake.clear()
                await asyncio.sleep(borrower.gather)
                agreement = self._agreement(pool)
                items = await borrower.offers(
                    lets_in=agreement.lets_in,
                    limits=agreement.limits,
                    creditor=self.lending.slots_ahead(pool) > 0,
                    lendable=self.lending.lendable,
                    listed=int(self.settings.number("FLOCK_LISTED_MACHINES")),
                )
                for start in range(0, len(items), BATCH):
                    await stream.send(items[start : start + BATCH])
        finally:
            if self._borrowers.get(pool) is borrower:
                del self._borrowers[pool]
                del self._offering[pool]

    @method(Right.FLOCK, takes={"names": TEXTS})
    async def refer(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The names that the other pool's expressions read in machines, so that ours can be summed up: {names}"""
        pool = call.identity.node
        self._referred[pool] = names_read(params["names"])
        if (borrower := self._borrowers.get(pool)) is not None:
            borrower.refer(self._referred[pool])
        return {}

    @method(Right.FLOCK, takes={"schedd": str, "owner": str, "lease": int | float, "ad": dict, "count": int | None})
    async def claim(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A machine for a job of the other pool: {schedd, owner, lease, ad, count} -> {claims}"""
        return await self.lending.claim(call.identity.node, params)

    @method(Right.FLOCK, takes=PASSED)
    async def pass_call(self, call: Call, params: dict[str, Any]) -> Any:
        """A call of a schedd of the other pool to a startd of ours: {schedd, startd, verb, params}"""
        if params["verb"] not in STARTD_CALLS:
            raise NoWay(f"{params['verb'][:100]} does not pass between pools")
        if params["verb"] == OFFER:
            self._direct_terms(call.identity.node).check_agreed()
        link, inner = await self._tunnel(call, params), params["params"]
        if params["verb"] in ORDERS:
            ahead = self.credit.is_ahead(call.identity.node, params["startd"], inner.get("claim"))
            inner = self._guest_order(call.identity.node, inner, ahead)
        answer = await link.call(f"startd.{params['verb']}", inner, timeout=seconds_left(call))
        if params["verb"] == "release" and isinstance(inner.get("claims"), list):
            self.lending.claims.forget(call.identity.node, params["startd"], inner["claims"])
            self.lending.given_back(inner["claims"])
        self.credit.measures.called(call.identity.node, params["startd"], params["verb"], inner, answer, lends=True)
        return answer

    @streaming(Right.FLOCK, takes=PASSED)
    async def pass_stream(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A stream of a schedd of the other pool to a startd of ours: {schedd, startd, verb, params}"""
        if params["verb"] not in STARTD_STREAMS:
            raise NoWay(f"{params['verb'][:100]} does not pass between pools")
        link = await self._tunnel(call, params)
        ahead = self.lending.read_ahead if params["verb"] in BETWEEN_PARTS else None
        await join_streams(stream, await link.stream(f"startd.{params['verb']}", params["params"]), ahead)

    async def _tunnel(self, call: Call, params: dict[str, Any]) -> Connection:
        return await self.lending.tunnel(call.identity.node, params["schedd"], params["startd"])

    # -- our collector -----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        retry = FIRST_RETRY
        while True:
            try:
                link = await self.given.links.connect(self.given.collector)
                stream = await link.stream("collector.watch", {"types": WATCHED})
                for name in list(self.lending.machines):
                    self.lending.take_in(name, None)
                    self.private_lending.machine(name, None)
                self.own_jobs.forget_all()
                self.lending.own_idle.clear()
                self.private_borrowing.forget_submitters()
                async for items in stream:
                    retry = FIRST_RETRY
                    for kind, name, ad, _ in items:
                        if kind == "Machine":
                            self.lending.take_in(name, ad)
                            self.private_lending.machine(name, ad)
                        elif kind == "Negotiator":
                            self._read_names(ad)
                        elif kind == "Scheduler":
                            self.own_jobs.schedd(name, ad)
                        else:
                            self.lending.submitter(name, ad)
                            self.private_borrowing.submitter(name, ad)
                            self.credit.measures.ahead.set()
            except (*TROUBLE, RemoteError) as error:
                self.log.info("the collector is out of reach", extra={"error": str(error)})
            await asyncio.sleep(retry * (0.5 + self.outside.chance.random()))
            retry = min(retry * 2, LONGEST_RETRY)

    def _read_names(self, ad: dict[str, Any] | None) -> None:
        """Our negotiator says which names our jobs read in machines: the pools that lend to us sum theirs up by it."""
        said = (ad or {}).get(READ_IN_MACHINES)
        names = tuple(said.split(",")) if isinstance(said, str) and said else ()
        if names and names != self._names_read:
            self._names_read = names
            for link, _ in self._lenders.values():
                self.spawn(link.tell_names(), "tell names", alone=True)

    async def _end_payback(self) -> None:
        while True:
            due = await self.lending.end_payback()
            try:
                async with asyncio.timeout(due):
                    await self.credit.measures.ahead.wait()
                await asyncio.sleep(GATHER)
                self.credit.measures.ahead.clear()
            except TimeoutError:
                pass
            self.own_jobs.watch_schedds()
            for borrower in self._borrowers.values():
                if (self.lending.slots_ahead(borrower.pool) > 0) != borrower.creditor:
                    borrower.wake.set()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            self.borrowing.forget_old()
            self.lending.offer_idle_times()
            for pool in self._borrowers:
                if self._agreement(pool).limits.hours:
                    self.lending.withdraw(pool)  # their time may be over

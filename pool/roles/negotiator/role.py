"""The negotiator role: when a cycle is due, and what is asked of the negotiator itself (A7, EV 3.5, RL 3.2.2).

A cycle begins a short settling time after there is something new: idle jobs, or a slot that may be given away; and at
least every five minutes, since expressions can depend on the time. After a cycle the next one waits as long as that one
took, so that a storm of submits is not a storm of cycles.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pool.classad import ClassAd, Expr, parse_expr
from pool.config import Settings
from pool.decimals import real_number
from pool.errors import PoolError
from pool.policy.flock.kinds import READ_IN_MACHINES, NamesRead
from pool.policy.negotiation import NegotiationTerms, Outcome, ResourceRequest, cycle
from pool.policy.priorities.names import parted
from pool.policy.why.outlook import JobDurations
from pool.roles.advertise import Advertiser
from pool.roles.base import Role
from pool.roles.negotiator.accounting import Accounting
from pool.roles.negotiator.explaining import CycleSnapshot, Explaining
from pool.roles.negotiator.match_delivery import MatchDelivery
from pool.roles.negotiator.pool_view import SOON, PoolView, idle
from pool.roles.negotiator.request_collection import TROUBLE, RequestCollection
from pool.wire import Call, Right, method
from pool.wire.parameter_checks import TEXTS

FIRST_RETRY = 0.05
LONGEST_RETRY = 10.0
#: A cycle over so many pairs of slot and request is left to a thread; a smaller one is over in milliseconds.
SMALL = 2000
#: The longest pause between two cycles when there is something to do, seconds.
LONGEST_PAUSE = 5.0
#: After a cycle that matched nothing, more jobs are looked at so many times its length later, and at most so many
#: seconds: where jobs come all the time that no machine takes, others get the loop. News of machines do not wait.
FRUITLESS, LONGEST_REST = 20.0, 0.1


class Negotiator(Role):
    """The negotiator role."""

    name: ClassVar[str] = "negotiator"
    questions: ClassVar[frozenset[str]] = frozenset({"priorities", "why", "why_machine"})

    async def start(self) -> None:
        given = self.given
        self._wake = asyncio.Event()
        self.accounting = Accounting(self.settings, self.outside, given.accounts(), self.log)
        self._lengths = JobDurations()
        self._later: asyncio.TimerHandle | None = None
        self._guests_leave: asyncio.TimerHandle | None = None
        self._rests_until = 0.0
        self._rest: asyncio.TimerHandle | None = None
        self.pool_view = PoolView(
            self.accounting,
            self._wake_in,
            self._record_change,
            more_wanted=self._wake_for_demand,
            by_priority=self._by_priority(),
        )
        self._collection = RequestCollection(given.links, self.log, self.spawn, self._wake.set, self._refresh())
        self._delivery = MatchDelivery(given.links, self.pool_view, self.log, self.spawn)
        self._advertiser = Advertiser(
            given.links,
            given.collector,
            self.outside,
            self.settings.number("UPDATE_INTERVAL"),
            self.settings.number("AD_LIFETIME"),
            self.log,
            given.instance,
        )
        self._names_read = NamesRead()
        self._cycles = 0
        self._cost = 0.0
        self._matched = 0
        self._last: tuple[float, dict[str, list[ResourceRequest]], Outcome] = (0.0, {}, Outcome())
        self._looking = asyncio.Lock()
        self._deaf: float | None = self.outside.wall()
        self._explaining = Explaining(self.snapshot, self.outside, self._looking, given.turns)
        self.spawn(self._watch(), "watch")
        self.spawn(self._cycle_when_due(), "cycles")
        self.spawn(self.accounting.run_forever(), "accounts")
        self.spawn(self._advertiser.run(), "advertise")
        self._advertiser.publish("Negotiator", given.node, self.own_ad())

    async def stop(self, *, handover: bool) -> None:
        self.accounting.advance()
        await self.accounting.save()
        try:
            async with asyncio.timeout(2.0):
                await self._advertiser.withdraw_all()
        except (*TROUBLE, PoolError):
            pass
        await super().stop(handover=handover)
        await self.accounting.close()

    async def die(self) -> None:
        await super().die()
        await self.accounting.close()

    def reload(self, settings: Any) -> None:
        super().reload(settings)
        self.accounting.configure(settings)
        self._collection.forget_all()
        self.pool_view.by_priority = self._by_priority()
        self._collection.refresh = self._refresh()
        self._wake.set()

    def _refresh(self) -> float:
        """Each regular cycle asks everybody: a schedd that is not asked for two takes the negotiator for gone."""
        return 0.9 * self.settings.number("NEGOTIATION_INTERVAL")

    # -- users -------------------------------------------------------------------------------------------

    @method(Right.READ)
    async def priorities(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Everybody's standing: {} -> {policy, accounts, groups, weight, domain}, whoever goes first in front."""
        accounting = self.accounting
        return {
            "policy": accounting.policy.name,
            "accounts": accounting.listed(),
            "groups": accounting.groups(self.pool_view.weight),
            "weight": self.pool_view.weight,
            "domain": self.settings.text("UID_DOMAIN"),
        }

    @method(
        Right.ADMINISTER,
        takes={
            "user": str,
            "factor": int | float | None,
            "priority": int | float | None,
            "reset": bool | None,
            "forget": bool | None,
        },
    )
    async def set_priority(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Change an account: {user, factor, priority, reset, forget} -> {account}. On disk when answered."""
        accounts, user = self.accounting.accounts, str(params["user"])
        if (params.get("reset") or params.get("forget")) and accounts.find(user) is None:
            raise PoolError(f"there is no account {user}", hint="`poolnode userprio` lists them")
        try:
            if params.get("factor") is not None or params.get("priority") is not None:
                accounts.set(user, factor=params.get("factor"), real=params.get("priority"))
        except ValueError as error:
            raise PoolError(f"cannot change the priority of {user}: {error}") from error
        if params.get("reset"):
            accounts.reset(user)
        if params.get("forget"):
            accounts.forget(user)
        try:
            await self.accounting.keep_changes()
        except PoolError as error:
            raise PoolError(
                f"the change for {user} is in force and not kept: {error.message}",
                hint="it is written when that is possible; change it again to know that it is kept",
                retry=True,
            ) from error
        account = accounts.find(user)
        return {"account": account.to_wire() if account is not None else None}

    # -- why ---------------------------------------------------------------------------------------------

    @method(Right.READ, takes={"request": dict})
    async def why(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Why a request has no machine: {request: {ad, submitter, number}} -> {findings, time}"""
        return await self._explaining.job(params)

    @method(Right.READ, takes={"slots": TEXTS})
    async def why_machine(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The pool's idle jobs as slots see them: {slots: names} -> {slots: {name: findings}, time}"""
        return await self._explaining.machine(params)

    def snapshot(self) -> CycleSnapshot:
        """The knowledge to explain with."""
        when, requests, outcome = self._last
        accounting, pool_view = self.accounting, self.pool_view
        return CycleSnapshot(
            pool_view.picture,
            self._terms(requests),
            self._deaf,
            when,
            requests,
            outcome,
            self.settings.number("NEGOTIATION_INTERVAL"),
            self._lengths.by_kind(),
            {submitter: use.slots for submitter, use in accounting.usage.uses.items()},
            accounting.quotas,
            accounting.groups(pool_view.weight),
        )

    # -- the picture -------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        retry = FIRST_RETRY
        while True:
            try:
                link = await self.given.links.connect(self.given.collector)
                asked = {"types": ["Machine", "Submitter"], "private": True, "differences": True}
                stream = await link.stream("collector.watch", asked)
                self.pool_view.begin_anew()
                async for items in stream:
                    retry, self._deaf = FIRST_RETRY, None
                    await self._run_sliced(self.pool_view.learn_all(items), "take in ads")
            except TROUBLE as error:
                self.log.info("the collector is out of reach", extra={"error": str(error)})
            self._deaf = self.outside.wall() if self._deaf is None else self._deaf
            await asyncio.sleep(retry * (0.5 + self.outside.chance.random()))
            retry = min(retry * 2, LONGEST_RETRY)

    async def _run_sliced(self, work: Iterator[None], what: str) -> None:
        """Work in slices, for nobody in particular."""
        async with self.given.turns.work("", what) as turn:
            for _ in work:
                if turn.is_over:
                    await turn.pause()

    def _record_change(self, before: ClassAd | None, after: ClassAd | None) -> None:
        self._lengths.record_change(before, after, self.outside.wall())

    # -- cycles ------------------------------------------------------------------------------------------

    def _wake_in(self, seconds: float) -> None:
        """There will be something to negotiate about; several calls become one cycle."""
        if seconds <= 0:
            self._wake.set()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(seconds, self._wake_later)

    def _wake_later(self) -> None:
        self._later = None
        self._wake.set()

    def _wake_for_demand(self) -> None:
        """A submitter wants more: look at it now, or when the rest after a cycle that matched nothing is over."""
        loop = asyncio.get_running_loop()
        left = self._rests_until - loop.time()
        if left <= 0:
            self._wake.set()
        elif self._rest is None:
            self._rest = loop.call_later(left, self._rest_is_over)

    def _rest_is_over(self) -> None:
        self._rest = None
        self._wake.set()

    def _wake_for_guests(self, seconds: float | None) -> None:
        """Jobs wait for a guest's minimum time, which is over in so many seconds; None where none does."""
        if self._guests_leave is not None:
            self._guests_leave.cancel()
            self._guests_leave = None
        if seconds is not None:
            self._guests_leave = asyncio.get_running_loop().call_later(max(SOON, seconds), self._wake.set)

    def _by_priority(self) -> bool:
        return self.settings.text("PREEMPTION_REQUIREMENTS").strip().lower() != "false"

    async def _cycle_when_due(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.settings.number("NEGOTIATION_INTERVAL")):
                    await self._wake.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(max(self.settings.number("NEGOTIATION_SETTLE"), min(self._cost, LONGEST_PAUSE)))
            self._wake.clear()
            if self.pool_view.any_open and any(idle(ad) for ad in self.pool_view.submitters.values()):
                await self._negotiate()

    async def _negotiate(self) -> None:
        began = asyncio.get_running_loop().time()
        pool_view, accounting = self.pool_view, self.accounting
        references = pool_view.picture.references() | self._terms({}).references
        requests = await self._collection.collect(dict(pool_view.submitters), references, accounting.quotas)
        accounting.wishing = self._collection.named()
        if not requests:
            return
        now = self.outside.wall()
        turns = accounting.turns(
            {
                name: (float(sum(request.count for request in own)), min(request.oldest for request in own))
                for name, own in requests.items()
            },
            pool_view.weight,
        )
        withheld = pool_view.withheld(asyncio.get_running_loop().time())
        terms, together = self._terms(requests), accounting.group_by_machine(requests)
        work = functools.partial(cycle, pool_view.picture, requests, turns, terms, now, withheld, together)
        if len(pool_view.picture) * sum(map(len, requests.values())) <= SMALL:
            outcome = work()
        else:
            pool_view.hold_still()
            try:
                async with self._looking:
                    outcome = await asyncio.get_running_loop().run_in_executor(None, work)
            finally:
                await self._run_sliced(pool_view.go_on(), "take in ads")
        self._cycles += 1
        self._matched += len(outcome.matches)
        self._last = (now, requests, outcome)
        at = outcome.guests_leave_at
        self._wake_for_guests(at - now if at is not None else None)
        for submitter, weight in turns.taken.items():
            accounting.granted(submitter, weight)
            self._collection.invalidate(submitter)
        asked = {(name, request.number): request for name, own in requests.items() for request in own}

        def deliver_matches() -> Iterator[None]:
            for match in outcome.matches:
                pool_view.record_match(match, asked.get((match.submitter, match.request)))
                yield

        await self._run_sliced(deliver_matches(), "note what was matched")
        plain = {name: self._collection.plain(name) for name in requests}
        if outcome.matches:
            await self._delivery.matches((match, plain[match.submitter]) for match in outcome.matches)
        await self._send_reasons(now, outcome, plain)
        ended = asyncio.get_running_loop().time()
        self._cost = ended - began
        self._rests_until = ended if outcome.matches else ended + min(FRUITLESS * self._cost, LONGEST_REST)
        ads = (request.ad for own in requests.values() for request in own)
        ranks = (terms.pre_job_rank, terms.post_job_rank, terms.preemption_rank)
        reading = self._names_read.read(ads, (rank for rank in ranks if isinstance(rank, Expr)))
        await self._run_sliced(reading, "read what requests ask of machines")
        self._advertiser.publish("Negotiator", self.given.node, self.own_ad())
        self.log.debug("cycle", extra={"number": self._cycles, "matches": len(outcome.matches)})

    async def _send_reasons(self, now: float, outcome: Outcome, plain: Mapping[str, str]) -> None:
        names: dict[str, list[str]] = {}
        for name in outcome.rejections:
            names.setdefault(plain[name], []).append(name)
        telling = self._delivery
        await asyncio.gather(*(telling.rejections(submitter, now, outcome, own) for submitter, own in names.items()))

    def _terms(self, requests: Mapping[str, list[ResourceRequest]]) -> NegotiationTerms:
        accounting, settings = self.accounting, self.settings
        known = set(requests) | accounting.usage.holders
        return NegotiationTerms(
            preemption_requirements=parse_expr(settings.text("PREEMPTION_REQUIREMENTS"), syntax="old"),
            preemption_rank=_rank(settings, "PREEMPTION_RANK"),
            pre_job_rank=_rank(settings, "NEGOTIATOR_PRE_JOB_RANK"),
            post_job_rank=_rank(settings, "NEGOTIATOR_POST_JOB_RANK"),
            rank_preemption=settings.flag("RANK_PREEMPTION"),
            minimum_run=settings.number("PREEMPTION_MINIMUM_RUN"),
            guest_minimum=settings.number("GUEST_MINIMUM_RUN"),
            moving_gain=settings.number("REMATCH_GAIN"),
            priorities={name: accounting.policy.effective(accounting.account(name)) for name in known},
            default_priority=accounting.newcomer_priority,
            in_use={name: accounting.usage.held_by(name) for name in known},
            groups={name: group for name in known if (group := parted(name)[0])},
            limits=accounting.limits,
            limits_in_use=accounting.usage.limits,
            default_limit=accounting.default_limit,
        )

    def own_ad(self) -> dict[str, Any]:
        """The ad of this negotiator."""
        return {
            "MyType": "Negotiator",
            "Name": self.given.node,
            "NegotiatorAddress": self.given.address,
            "PriorityPolicy": self.accounting.policy.name,
            "PriorityTrouble": self.accounting.policy.trouble,
            "Cycles": self._cycles,
            "Matches": self._matched,
            "LastCycleDuration": round(self._cost, 6),
            "LastCycleTime": self._last[0],
            "LastCycleSlots": self._last[2].machines,
            READ_IN_MACHINES: ",".join(sorted(self._names_read.names)),
        }


def _rank(settings: Settings, name: str) -> Any:
    """A rank of the administrator's; the same number for all slots is taken as that, which costs nothing."""
    text = settings.text(name)
    number = real_number(text)
    return parse_expr(text, syntax="old") if number is None else number

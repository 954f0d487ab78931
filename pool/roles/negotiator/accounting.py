"""The use of slots, and its effect on users' priorities (A6, EV 2.6).

The negotiator alone remembers nothing about use: after a restart of anything the slots' ads say who holds them
(`usage`). The accounts are remembered; they are saved every few minutes and at the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pool.classad import ClassAd, parse_expr
from pool.config import Settings
from pool.errors import PoolError
from pool.jobs.nice import NICE
from pool.outside import OutsideWorld
from pool.policy.negotiation import SubmitterTurns
from pool.policy.priorities import (
    Accounts,
    AccountUsage,
    CreditorsFirst,
    CycleSubmitter,
    Equal,
    FairShare,
    GroupQuota,
    NiceLast,
    PriorityPolicy,
    Purse,
    SubmitterAccount,
    UpDown,
    WithinQuotas,
    allot,
    read_quotas,
)
from pool.policy.priorities.groups import entitled, lineage
from pool.policy.priorities.names import grouped, nice, parted
from pool.roles.negotiator.usage import PoolUsage, number
from pool.store.accounts import AccountStore


class Accounting:
    """The accounts of one pool.

    Attributes:
        wishing: for each submitter that asked for something in the last cycle, the names that cycles have for it.
    """

    def __init__(self, settings: Settings, outside: OutsideWorld, store: AccountStore, log: logging.Logger) -> None:
        self._outside = outside
        self._store = store
        self._log = log
        self.usage = PoolUsage()
        self._jobs: dict[str, tuple[str, str, bool]] = {}  # submitter: user, node, whether it has jobs to run
        self._gone: set[str] = set()
        self._guests: set[str] = set()  # submitters of other pools
        self.wishing: dict[str, set[str]] = {}
        self._reported = ""
        self._at: float | None = None
        # Numbers of savings: the last asked for, the last on disk, the last that the one under way covers.
        self._asked = self._written = self._covering = 0
        self._writing: asyncio.Task[None] | None = None
        accounts, self._counted = store.load()
        self.accounts = Accounts(SubmitterAccount.from_wire(wire) for wire in accounts)
        if store.note:
            log.error("accounts were lost", extra={"why": store.note})
        self.policy: PriorityPolicy
        self.quotas: tuple[GroupQuota, ...] = ()
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Take in settings, at the start and when they were read again."""
        self._over_machines = settings.text("PRIORITY_OVER").lower() == "machines"
        self.interval = settings.number("PRIORITY_INTERVAL")
        chosen = settings.text("PRIORITY_POLICY").lower()
        if chosen == "fairshare":
            self.policy = FairShare(settings.number("PRIORITY_HALF_LIFE"), settings.number("PRIORITY_FACTOR"))
        elif chosen == "equal":
            self.policy = Equal()
        else:
            inactive, update = (parse_expr(settings.text(name), syntax="old") for name in ("INACTIVE", "UPDATE_PRIO"))
            self.policy = UpDown(inactive, update, self.interval)
        self.limits = dict(_pairs(settings.text("CONCURRENCY_LIMITS"), self._log))
        self.default_limit = settings.number("CONCURRENCY_LIMIT_DEFAULT")
        try:
            self.quotas = read_quotas(settings.text("GROUP_QUOTAS"))
        except PoolError as error:
            self._log.error("GROUP_QUOTAS are not taken in", extra={"why": str(error)})

    def submitter(self, name: str, ad: ClassAd | None) -> None:
        """A submitter's ad has changed, or is gone."""
        if ad is None:
            user, node, _ = self._jobs.get(name, (name, "", False))
            self._jobs[name] = (user, node, False)
            self._gone.add(name)  # what it has used since the last look is still to be counted
            return
        self._gone.discard(name)
        if name.count("@") == 2 and isinstance(ad.value("FlockGuestOf", None), str):
            self._guests.add(name)
        user, node = ad.value("User", name), ad.value("Node", "")
        wants = any(number(ad.value(count, 0)) > 0 for count in ("IdleJobs", "RunningJobs"))
        self._jobs[name] = (str(user), str(node), wants)

    def forget_all(self) -> None:
        """The collector tells everything anew."""
        self.usage.clear()
        for name in list(self._jobs):
            self.submitter(name, None)

    # -- priorities --------------------------------------------------------------------------------------

    def account_name(self, submitter: str) -> str:
        """The account that a submitter's use is charged to."""
        group, plain = parted(submitter)
        user, node, _ = self._jobs.get(plain, (plain, plain.rpartition("@")[2], False))
        if self._over_machines:
            return grouped(node, "", nice(submitter))
        return grouped(user, group, nice(submitter))

    def group_by_machine(self, submitters: Iterable[str]) -> dict[str, list[str]]:
        """For each submitter those of its machine, itself among them, where priorities belong to machines: their jobs
        stand in one order (EV 2.6). Those of different groups do not."""
        if not self._over_machines:
            return {}
        found: dict[tuple[str, str], list[str]] = {}
        for name in submitters:
            found.setdefault((self.account_name(name), parted(name)[0]), []).append(name)
        return {name: names for names in found.values() if len(names) > 1 for name in names}

    def account(self, submitter: str) -> SubmitterAccount:
        return self.accounts.account_of(self.account_name(submitter))

    def tallies(self, *, restart: bool = False) -> dict[str, AccountUsage]:
        """The resources of each account now. With `restart` the averages begin anew."""
        now = asyncio.get_running_loop().time()
        found: dict[str, AccountUsage] = {}
        integral: dict[str, float] = {}
        users: dict[str, set[str]] = {}
        busy: set[str] = set()
        for submitter, use in list(self.usage.uses.items()):
            use.add(0.0, 0, now)
            name = self.account_name(submitter)
            tally = found.setdefault(name, AccountUsage())
            tally.running += use.weight
            tally.jobs += use.slots
            integral[name] = integral.get(name, 0.0) + use.integral
            if use.slots:
                plain = parted(submitter)[1]
                users.setdefault(name, set()).add(plain)
                busy.add(plain)
            if restart:
                use.integral = 0.0
                if not use.slots:
                    del self.usage.uses[submitter]
        for submitter, (_, _, wants) in self._jobs.items():
            # Where nobody has asked yet what the jobs are charged as, they are nothing special.
            names = self.wishing.get(submitter) or (() if submitter in busy else (submitter,))
            for name in names if wants else ():
                users.setdefault(self.account_name(name), set()).add(submitter)
        if restart:
            left = {parted(submitter)[1] for submitter in self.usage.uses}
            self._guests -= self._gone - left
            for submitter in self._gone - left:
                del self._jobs[submitter]
            self._gone &= left
        elapsed = now - self._at if self._at is not None else 0.0
        for name, who in users.items():
            tally = found.setdefault(name, AccountUsage())
            tally.users = len(who) if self._over_machines else 1
        for name, amount in integral.items():
            found[name].average = amount / elapsed if elapsed > 0 else found[name].running
        return found

    def advance(self) -> None:
        """Let the time since the last call go by in all accounts."""
        now, wall = asyncio.get_running_loop().time(), self._outside.wall()
        if self._at is None:
            # Since then no negotiator has counted: priorities recover, and nothing is used.
            gap = max(wall - self._counted, 0.0) if self._counted is not None else 0.0
            self._at = now
            self.tallies(restart=True)
            self.accounts.advance(self.policy, {}, 0.0, wall, gap)
            return
        tallies = self.tallies(restart=True)
        self.accounts.advance(self.policy, tallies, now - self._at, wall)
        self._at = now
        if self.policy.trouble and self.policy.trouble != self._reported:
            self._log.warning("a priority expression has no value", extra={"why": self.policy.trouble})
        self._reported = self.policy.trouble

    async def run_forever(self) -> None:
        """Advance and save for as long as the negotiator runs."""
        self.advance()
        while True:
            await asyncio.sleep(self.interval)
            self.advance()
            await self.save()

    async def save(self) -> None:
        """Write what has changed; what cannot be written is written the next time."""
        try:
            await self.keep_changes()
        except PoolError as error:
            self._log.error("accounts are not saved", extra={"why": str(error)})

    async def keep_changes(self) -> None:
        """Return when all that was changed until now is on disk. One writes at a time, for all who wait.

        Raises:
            PoolError: it could not be written. The changes stay in force, and are written the next time.
        """
        self._asked += 1
        mine = self._asked
        while self._written < mine:
            if self._writing is None or self._writing.done():
                self._covering = self._asked
                self._writing = asyncio.get_running_loop().create_task(self._write(self._asked), name="write accounts")
                self._writing.add_done_callback(_retrieve_error)  # the callers may all have been cancelled
            covering = self._covering
            try:
                await asyncio.shield(self._writing)
            except PoolError:
                if mine <= covering:  # else it began before this change was made
                    raise

    async def _write(self, covered: int) -> None:
        changed, self.accounts.changed = self.accounts.changed, set()
        there = [account.to_wire() for name in sorted(changed) if (account := self.accounts.find(name)) is not None]
        gone = sorted(name for name in changed if self.accounts.find(name) is None)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._store.save, there, gone, self._outside.wall())
        except BaseException:
            self.accounts.changed |= changed
            raise
        self._written = covered

    async def close(self) -> None:
        """Close the store, once the write under way has ended: a thread does it, which nothing can cancel."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._store.close()

    # -- a cycle -----------------------------------------------------------------------------------------

    @property
    def newcomer_priority(self) -> float:
        """The effective priority of somebody who is not known."""
        return self.policy.effective(SubmitterAccount(""))

    def turns(self, wants: Mapping[str, tuple[float, float]], total: float) -> CountedTurns:
        """The order of submitters in a cycle.

        Args:
            wants: for each submitter how many slots it asks for, and since when its oldest job waits.
            total: slot weight of the pool.
        """
        standing = [
            CycleSubmitter(name, self.account(name), self._held_by_account(name), oldest)
            for name, (_, oldest) in sorted(wants.items())
        ]
        first = [one for one in standing if not nice(one.submitter)]
        inner = self.policy.turns(first, total)
        if len(first) < len(standing):
            after = self.policy.turns([one for one in standing if nice(one.submitter)], total)
            inner = NiceLast(inner, after)
        if self.quotas:
            inner = WithinQuotas(inner, self._purses({name: count for name, (count, _) in wants.items()}, total))
        creditors = [name for name in wants if not nice(name) and parted(name)[1] in self._guests]
        return CountedTurns(CreditorsFirst(creditors, inner) if creditors else inner)

    def _held_by_account(self, submitter: str) -> float:
        if not self._over_machines:
            return self.usage.held_by(submitter)
        name = self.account_name(submitter)
        return sum(use.weight for other, use in self.usage.uses.items() if self.account_name(other) == name)

    def _purses(self, wants: Mapping[str, float], total: float) -> dict[str, tuple[Purse, ...]]:
        """The slot weight that each group may still take: its allotment less its holdings, at every level."""
        held = self.usage.by_group(self._paying)
        asked = dict(held)
        for name, count in wants.items():
            if (group := self._paying(name)) is not None:
                asked[group] = asked.get(group, 0.0) + count
        dealt = allot(self.quotas, asked, total)
        alone = {quota.name for quota in self.quotas if quota.alone}
        purses: dict[str, Purse] = {}
        for group in dealt:
            below = [other for other in dealt if other == group or (group and other.startswith(f"{group}."))]
            left = sum(dealt[other] - held.get(other, 0.0) for other in below)
            purses[group] = Purse(group or "users of no group", left, group in alone)
        return {
            name: tuple(purses[one] for one in lineage(group) or ("",))
            for name in {**wants, **self.usage.uses}
            if (group := self._paying(name)) is not None and group in purses
        }

    def _paying(self, submitter: str) -> str | None:
        """The group whose quota pays for a submitter, "" where that is what groups leave; None for nice users of no
        group, who take what is left of that too and count against nobody.
        """
        group = parted(submitter)[0]
        if group or not nice(submitter):
            return group
        return NICE if any(quota.name == NICE for quota in self.quotas) else None

    def granted(self, submitter: str, weight: float) -> None:
        """A submitter was matched with a slot."""
        self.accounts.granted(self.policy, self.account_name(submitter), weight)

    # -- telling -----------------------------------------------------------------------------------------

    def listed(self) -> list[dict[str, Any]]:
        """Every account with what it has now, the one that goes first in front."""
        tallies = self.tallies()
        for name in tallies:
            self.accounts.account_of(name)
        rows = []
        for account in sorted(self.accounts, key=lambda one: (self.policy.effective(one), one.name)):
            tally = tallies.get(account.name, AccountUsage())
            effective = self.policy.effective(account)
            charged = self.policy.charged(account)
            shown = {"effective": effective, "charged": charged, "running": tally.running, "slots": tally.jobs}
            rows.append(account.to_wire() | shown | {"wants": tally.users > 0})
        return rows

    def groups(self, total: float) -> list[dict[str, Any]]:
        """Every group with its quota and what it holds, those below included."""
        held = self.usage.by_group(self._paying)
        entitlement = entitled(self.quotas, total)
        return [
            {
                "name": quota.name,
                "share": quota.share,
                "alone": quota.alone,
                "entitled": entitlement[quota.name],
                "held": sum(
                    weight for name, weight in held.items() if name == quota.name or name.startswith(f"{quota.name}.")
                ),
            }
            for quota in self.quotas
        ]


class CountedTurns:
    """Turns of others, with what each submitter took in them.

    Attributes:
        taken: slot weight by submitter.
    """

    def __init__(self, inner: SubmitterTurns) -> None:
        self._inner = inner
        self.taken: dict[str, float] = {}

    def next(self) -> tuple[str, float] | None:
        """As the inner ones."""
        return self._inner.next()

    def charge(self, submitter: str, weight: float, holder: str = "") -> None:
        """Counted, and passed on."""
        self.taken[submitter] = self.taken.get(submitter, 0.0) + weight
        self._inner.charge(submitter, weight, holder)

    def retire(self, submitter: str) -> None:
        """As the inner ones."""
        self._inner.retire(submitter)

    def allows(self, submitter: str, weight: float, *, preempting: bool, holder: str = "") -> bool:
        """As the inner ones."""
        return self._inner.allows(submitter, weight, preempting=preempting, holder=holder)


def _pairs(text: str, log: logging.Logger) -> Iterable[tuple[str, float]]:
    """`matlab=10, net.big=3`; parts that make no sense are reported and left out."""
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (part.strip() for part in entry.partition("="))
        try:
            most = float(number)
            if not name or not most >= 0:
                raise ValueError
        except ValueError:
            log.error("a concurrency limit is not taken in", extra={"entry": entry, "way": "write NAME=NUMBER"})
            continue
        yield name.lower(), most


def _retrieve_error(writing: asyncio.Task[None]) -> None:
    """Take the error of a write that nobody waits for: its changes stay unwritten, and the next write tries again."""
    if not writing.cancelled():
        writing.exception()

"""The cost of users' priorities: accounts as time goes by, and who holds each slot of a large pool."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import tracemalloc
from typing import Any

from pool.classad import ClassAd
from pool.config import Settings
from pool.outside import OutsideWorld
from pool.policy.priorities import Accounts, AccountUsage, FairShare, PriorityPolicy, SubmitterAccount, UpDown
from pool.roles.negotiator.accounting import Accounting
from pool.roles.negotiator.usage import held_by
from pool.store.accounts import AccountStore
from tests.benchmarks.rows import Effort, Row, benchmark


def seconds(work: Any, times: int = 3) -> float:
    """The least time that some work takes."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def accounting() -> Accounting:
    """Accounts of a pool with shipped settings, kept nowhere."""
    settings = Settings.load(None, sets={"PRIORITY_POLICY": "fairshare"}, environ={}, files=False)
    return Accounting(settings, OutsideWorld(), AccountStore.open(":memory:"), logging.getLogger("benchmark"))


def claimed(number: int, users: int) -> ClassAd:
    """A slot that somebody holds."""
    return ClassAd(
        {
            "Name": f"slot{number % 64}@m{number // 64}",
            "State": "Claimed",
            "Cpus": 1 + number % 4,
            "RemoteUser": f"user{number % users}@head",
            "RemoteGroup": "physics" if number % 3 else "",
            "ConcurrencyLimits": "matlab" if number % 50 == 0 else "",
        }
    )


@benchmark("accounts")
async def accounts(effort: Effort) -> list[Row]:
    """10,000 accounts advanced and listed, and who holds 100,000 slots."""
    many, slots = effort.of(10_000, least=100), effort.of(100_000, least=1000)
    rows = []
    tallies = {f"user{number}@lab": AccountUsage(users=1, running=float(number % 50), jobs=1) for number in range(many)}
    for policy in (UpDown(), FairShare()):
        rows.append(Row(f"{many:,} accounts advanced, {policy.name}", _advanced(policy, tallies) * 1e3, "ms"))
    book = accounting()
    for name in tallies:
        book.accounts.account_of(name).used = 1.0
    rows.append(Row(f"{many:,} accounts listed", seconds(book.listed) * 1e3, "ms"))
    ads = [claimed(number, 1000) for number in range(slots)]

    def take_in(into: Accounting) -> None:
        for number, ad in enumerate(ads):
            into.usage.slot(f"slot{number}", held_by(ad))

    took = seconds(lambda: take_in(accounting()), times=1)
    rows.append(Row(f"{slots:,} slots' ads counted", took, "s", note="1,000 users"))
    gc.collect()
    tracemalloc.start()
    take_in(book)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    rows.append(Row(f"memory of {slots:,} slots' holders", kept / 1e6, "MB"))
    rows.append(Row("who comes when, 1,000 users", seconds(lambda: _turns(book)) * 1e3, "ms"))
    await asyncio.sleep(0)
    return rows


def _advanced(policy: PriorityPolicy, tallies: dict[str, AccountUsage]) -> float:
    book = Accounts(SubmitterAccount(name, index=5.0, real=5.0) for name in tallies)
    return seconds(lambda: book.advance(policy, tallies, 300.0, 0.0))


def _turns(book: Accounting) -> None:
    book.turns({f"user{number}@head": (10.0, 0.0) for number in range(1000)}, 250_000.0)

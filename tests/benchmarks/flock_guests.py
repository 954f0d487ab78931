"""Own jobs of a pool that lends: their waits with and without guests, and a cycle in which guests leave (EV 4.2).

The waits are of simulated roles on the virtual clock: jobs of the pool come by chance, and jobs of another pool have
all its machines when they do. The cycle is of the negotiator's function alone, by processor time.
"""

from __future__ import annotations

import asyncio
import random
import time

from pool.policy.negotiation import ResourceRequest
from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.flock import SimFlock
from pool.testing.keepers import Behaviour
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.policy.negotiation.support import NOW, Slot, negotiate, picture_of, request, slot
from tests.policy.negotiation.test_guest_parts import divided
from tests.policy.negotiation.test_guests import TERMS, guest

MACHINES, JOBS, SPAN = 20, 400, 4000.0
#: Seconds that own jobs run for, and guests; a checkpoint takes; a guest that cannot be saved has its machine.
OWN, GUEST, SAVING, MINIMUM = 100.0, 5000.0, 1.0, 300.0
#: Seconds of messages and of waiting for a cycle, beside an eviction.
MESSAGES = 2.0
SLOTS, KINDS, WANTED = 10_000, 100, 1000


async def _longest_wait(jobs: int, *, guests: bool, saved: bool) -> float:
    """The longest wait of own jobs, seconds."""

    def behave(spec: KeeperSpec) -> Behaviour:
        return Behaviour(GUEST if "@physics" in str(spec.claim.get("owner")) else OWN, saving=SAVING)

    chance = random.Random(1)
    arrivals = sorted(chance.uniform(0, SPAN * jobs / JOBS) for _ in range(jobs))
    submitted: dict[str, float] = {}
    async with SimFlock(["physics", "chem"], 1) as flock:
        flock.agree(lender="chem", borrower="physics")
        await flock.add_pool("chem", MACHINES, behave=behave)
        await flock.add_pool("physics", 0)
        await flock.run_until(lambda: len(flock.machines_shown("physics")) == MACHINES, within=60)
        if guests:
            await flock.submit("physics", count=3 * MACHINES, ad={} if saved else {"JobCheckpoint": "off"})
            await flock.run_until(lambda: flock.running("physics") == MACHINES, within=60)
        begin = flock.now()
        for at in arrivals:
            await flock.settle(max(0.0, begin + at - flock.now()))
            submitted[f"chem:{await flock.submit('chem', owner='bob')}.0"] = flock.now()
        await flock.run_until(lambda: flock.queued("chem") == 0, within=100_000, step=1.0)
        first: dict[str, float] = {}
        for job, _, at in flock.witness.starts:
            first.setdefault(job, at)
    return max(first[job] - at for job, at in submitted.items())


def _cycle(slots: list[Slot], wanted: list[ResourceRequest]) -> float:
    """Seconds of processor time of a cycle, in which each job is matched."""
    picture = picture_of(slots)
    negotiate({"bob": wanted}, picture, terms=TERMS)
    began = time.process_time()
    outcome = negotiate({"bob": wanted}, picture, terms=TERMS)
    spent = time.process_time() - began
    assert outcome.unmatched == {}
    return spent


@benchmark("flock_guests")
async def flock_guests(effort: Effort) -> list[Row]:
    """Own jobs of a pool that lends: how long they wait, and what a cycle costs, where guests leave."""
    jobs = effort.of(JOBS, least=50)
    found: dict[tuple[bool, bool], float] = {}
    for guests, saved in ((False, True), (True, True), (True, False)):
        found[guests, saved] = await asyncio.to_thread(run_virtual, _longest_wait(jobs, guests=guests, saved=saved))
    alone = found[False, True]
    wanted = [request(number, WANTED // KINDS, RequestMemory=10 + number) for number in range(KINDS)]
    idle = _cycle([slot(f"s{number}") for number in range(SLOTS)], wanted)
    whole = _cycle([guest(f"s{number}", since=NOW - 100 - number) for number in range(SLOTS)], wanted)
    parts = _cycle([one for machine in range(SLOTS // 10) for one in divided(f"m{machine}", 0, *[1] * 10)], wanted)
    size = f"{jobs} own jobs, {MACHINES} machines"
    return [
        Row("longest wait of own jobs, all machines with guests that are saved in a second", found[True, True], "s",
            Goal("at most", alone + SAVING + MESSAGES), peer="no guests", peer_value=alone, note=size),
        Row("the same, guests that cannot be saved", found[True, False], "s",
            Goal("at most", alone + MINIMUM + MESSAGES), peer="no guests", peer_value=alone),
        Row("a cycle of 1,000 own jobs of 100 kinds, 10,000 slots with guests", whole, "s", None,
            peer="idle slots", peer_value=idle),
        Row("the same, 1,000 divided machines of 10 guests each", parts, "s", Goal("at most", 1.0),
            peer="idle slots", peer_value=idle),
    ]  # fmt: skip

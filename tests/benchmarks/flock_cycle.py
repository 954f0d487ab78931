"""A negotiator's cycle with the idle machines of ten other pools beside its own: summed up by kind, and one by one.

Each pool is a mixed one (`mixed_pool`) of 10,000 slots, of which those that are idle are lent. The names by which the
lenders tell their machines apart are those that the requests of the borrowing pool read. Of the cycle only processor
time is compared, and both are measured in turns in one process. Kinds that suit no job would make a quick cycle, so the
jobs that are matched are counted: with kinds, and with all machines listed.
"""

from __future__ import annotations

import gc
import statistics
import time

from pool.classad import ClassAd
from pool.policy.flock.kinds import MachineKinds, NamesRead
from pool.policy.flock.shown import is_lendable, lent_machine
from tests.benchmarks.mixed_pool import MixedPool
from tests.benchmarks.negotiation import Measured, garbage_as_in_a_node
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

POOLS, SLOTS = 10, 10_000
TURNS = 3


@benchmark("flock_cycle")
async def flock_cycle(effort: Effort) -> list[Row]:
    """A cycle over an own pool of 10,000 slots, alone and beside ten pools of 10,000; a minute."""
    with garbage_as_in_a_node():
        return _measure(effort.of(SLOTS, least=500))


def _measure(slots: int) -> list[Row]:
    alone, kinds, listed = Measured(slots), Measured(slots), Measured(slots)
    names = NamesRead()
    list(names.read((request.ad for own in alone.requests.values() for request in own), ()))
    lent, shown, seconds = 0, 0, list[float]()
    for pool in range(POOLS):
        other = MixedPool(slots, 1, 1, seed=pool + 2)
        ads = dict(other.slot(number) for number in range(slots))
        idle = {name: ad for name, ad in ads.items() if is_lendable(ad)}
        summed = MachineKinds(names.names)
        began = time.process_time()
        for name, ad in idle.items():
            summed.set_ad(name, ad)
        list(summed.regroup())
        seconds.append(time.process_time() - began)
        lent += len(idle)
        shown += len(summed)
        for measured, found in ((kinds, summed.take_changes()), (listed, idle)):
            for name, offer in found.items():
                if offer is not None:
                    lent_name = f"{name}@pool{pool}@world"
                    ad = lent_machine(offer, name, f"pool{pool}", "tcp://here")
                    measured.picture.set_ad(lent_name, ClassAd.from_wire(ad | {"Name": lent_name}))
    pools = {"alone": alone, "kinds": kinds, "listed": listed}
    first, matched, borrowed = dict[str, float](), dict[str, int](), dict[str, int]()
    for name, measured in pools.items():
        _, first[name], outcome = measured.cycle()
        matched[name] = sum(match.count for match in outcome.matches)
        borrowed[name] = sum(match.count for match in outcome.matches if match.slot.endswith("@world"))
    again: dict[str, list[float]] = {name: [] for name in pools}
    for _ in range(TURNS):
        for name, measured in pools.items():
            measured.change()
            gc.collect()
            again[name].append(measured.cycle()[1])
    middle = {name: statistics.median(times) for name, times in again.items()}
    what = f"{slots:,} own slots, {POOLS} pools of {slots:,}"
    peer = "own slots alone"
    note = f"{lent:,} lent slots, {shown:,} kinds; {matched['kinds']:,} jobs matched, alone {matched['alone']:,}"
    return [
        Row(f"cycle, processor time: {what}, summed up by kind: the first", first["kinds"], "s",
            Goal("at most", 1.3, "ratio"), peer=peer, peer_value=first["alone"],
            note=note),
        Row("the first for each job that it matched", 1e6 * first["kinds"] / max(1, matched["kinds"]), "us", None,
            peer=peer, peer_value=1e6 * first["alone"] / max(1, matched["alone"])),
        Row("jobs matched with lent slots, summed up by kind", borrowed["kinds"], "", Goal("at least", 0.75, "ratio"),
            peer="the same listed one by one", peer_value=borrowed["listed"]),
        Row("the next after 1 % changed", middle["kinds"], "s", Goal("at most", 1.3, "ratio"),
            peer=peer, peer_value=middle["alone"]),
        Row("the same listed one by one, the first", first["listed"], "s", None, peer=peer, peer_value=first["alone"]),
        Row("listed, the next after 1 % changed", middle["listed"], "s", None, peer=peer, peer_value=middle["alone"]),
        Row("a lender divides its idle slots into kinds", statistics.median(seconds), "s"),
    ]  # fmt: skip

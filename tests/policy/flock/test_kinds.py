"""Machines summed up by kind: what no expression can tell apart is one kind, and nothing else is (EV 4.3.2)."""

from __future__ import annotations

import random
from typing import Any

from pool.classad import ClassAd, parse_expr
from pool.policy.flock.kinds import COUNT, MOST_MACHINES, NOT_LENT, MachineKinds, NamesRead, count_of, names_read
from pool.policy.flock.shown import GUEST_LEAVES, GUEST_POOL, LENDER, LENT_MACHINE, SERVER_VALUE, lent_machine
from pool.policy.matching import SlotIndex
from pool.policy.negotiation import EqualTurns, NegotiationTerms, Outcome, ResourceRequest, cycle

EXPRESSIONS = (
    "Memory > 3000 && Arch == \"X86_64\"",
    "HasGpu =?= true || KFlops / 1000 > 700",
    "Site == \"b\" && Memory * Cpus >= 8192",
)  # fmt: skip


def machine(number: int, chance: random.Random, **more: Any) -> dict[str, Any]:
    return {
        "Name": f"slot1@m{number}",
        "Machine": f"m{number}",
        "StartdAddress": f"10.0.0.1:{number}",
        "MyType": "Machine",
        "State": "Unclaimed",
        "Activity": "Idle",
        "Arch": chance.choice(["X86_64", "aarch64"]),
        "Cpus": chance.choice([1, 4]),
        "Memory": chance.choice([2048, 4096]),
        "Disk": 10**6 + number,
        "KFlops": chance.choice([500_000, 900_000]),
        "LoadAvg": chance.random(),
        "HasGpu": chance.choice([True, False]),
        "Site": chance.choice(["a", "b", "c"]),
        "Requirements": ["Limit > TARGET.RequestCpus"],
        "Limit": chance.choice([2, 8]),
        **more,
    }


def summed(kinds: MachineKinds, shown: dict[str, dict[str, Any]]) -> None:
    for name, ad in kinds.take_changes().items():
        if ad is None:
            shown.pop(name, None)
        else:
            shown[name] = ad


def test_no_expression_tells_the_machines_of_a_kind_apart() -> None:
    chance = random.Random(1)
    machines = {f"slot1@m{number}": machine(number, chance) for number in range(400)}
    names = NamesRead()
    jobs = [ClassAd({"Requirements": parse_expr(text), "Rank": parse_expr("Memory")}) for text in EXPRESSIONS]
    list(names.read(jobs, [parse_expr("-KFlops")]))
    assert {"memory", "arch", "hasgpu", "kflops", "site", "cpus"} <= names.names
    kinds = MachineKinds(names.names - {"disk"})
    for slot, ad in machines.items():
        kinds.set_ad(slot, {name: value for name, value in ad.items() if name != "Disk"})
    shown: dict[str, dict[str, Any]] = {}
    summed(kinds, shown)
    assert sum(ad[COUNT] for ad in shown.values()) == 400
    assert len(shown) < 200
    for text in EXPRESSIONS:
        job = ClassAd({"Requirements": parse_expr(text)})
        matching = sum(_accepts(job, ad) for ad in machines.values())
        assert sum(ad[COUNT] for ad in shown.values() if _accepts(job, ad)) == matching, text


def _accepts(job: ClassAd, wire: dict[str, Any]) -> bool:
    return job.eval("Requirements", target=ClassAd.from_wire(wire)) is True


def test_changes_are_by_difference() -> None:
    chance = random.Random(2)
    kinds = MachineKinds(["Site"])
    now: dict[str, dict[str, Any]] = {}
    shown: dict[str, dict[str, Any]] = {}
    for _ in range(300):
        number = chance.randrange(30)
        ad = None if chance.random() < 0.3 else machine(number, chance, Disk=1)
        kinds.set_ad(f"m{number}", ad)
        if ad is None:
            now.pop(f"m{number}", None)
        else:
            now[f"m{number}"] = ad
        if chance.random() < 0.02 and kinds.refer(chance.sample(["Site", "HasGpu", "KFlops"], 2)):
            list(kinds.regroup())
        if chance.random() < 0.5:
            summed(kinds, shown)
    summed(kinds, shown)
    fresh = MachineKinds(kinds._read)
    for name, ad in now.items():
        fresh.set_ad(name, ad)
    again: dict[str, dict[str, Any]] = {}
    summed(fresh, again)
    assert shown == again
    assert sum(ad[COUNT] for ad in shown.values()) == len(now) == kinds.machines
    assert kinds.take_changes() == {}


def test_too_many_kinds_are_told_apart_less() -> None:
    """Disk tells every machine from every other; rounded down a kind never says more than a machine has."""
    chance = random.Random(3)
    kinds = MachineKinds(["Disk"], most=50)
    disks = [chance.randrange(10**6, 10**9) for _ in range(2000)]
    for number, disk in enumerate(disks):
        kinds.set_ad(f"m{number}", machine(0, random.Random(0), Disk=disk))
    list(kinds.regroup())
    shown: dict[str, dict[str, Any]] = {}
    summed(kinds, shown)
    assert 4 < len(shown) <= 50
    for least in (10**6, 10**7, 10**8):
        assert sum(ad[COUNT] for ad in shown.values() if ad["Disk"] >= least) <= sum(disk >= least for disk in disks)


def test_many_sorts_of_machines_are_of_use_in_few_kinds() -> None:
    """No two machines are equal: what jobs take a part of is told of them all, and the rest where they agree."""
    chance = random.Random(4)

    def drawn(number: int) -> dict[str, Any]:
        start = f'(KeyboardIdle > 900 || TARGET.Owner == "p{number}") && TARGET.RequestMemory <= MY.Memory'
        more = {"KeyboardIdle": chance.randrange(1000, 90_000), "FileSystemDomain": f"m{number}", "Limit": 1}
        more |= {"Requirements": [start], "Rank": [f'TARGET.Owner == "p{number}"'], "Version": chance.randrange(40)}
        return machine(number, chance, **more, Site=f"s{number % 97}", Disk=chance.randrange(10**6, 2 * 10**6))

    machines = {f"m{number}": drawn(number) for number in range(600)}
    kinds = MachineKinds(["Disk", "Site", "Version", "HasGpu", "Rank"], most=40)
    for slot, ad in machines.items():
        kinds.set_ad(slot, ad)
    assert len(kinds) == 600
    assert kinds.crowded
    list(kinds.regroup())
    shown: dict[str, dict[str, Any]] = {}
    summed(kinds, shown)
    assert 8 <= len(shown) <= 40
    assert not {"KeyboardIdle", "FileSystemDomain", "Rank"} & {name for ad in shown.values() for name in ad}

    def count(name: str, least: Any) -> tuple[int, int]:
        offered = sum(ad[COUNT] for ad in shown.values() if ad.get(name, -1) >= least)
        return offered, sum(ad[name] >= least for ad in machines.values())

    for name, least in (("Memory", 4096), ("Cpus", 4), ("Disk", 10**6 // 2)):
        offered, there = count(name, least)
        assert offered == there > 100
    assert count("HasGpu", True)[0] <= count("HasGpu", True)[1]
    for number in range(200):
        slot = f"m{chance.randrange(650)}"
        machines[slot] = drawn(number)
        if chance.random() < 0.5:
            del machines[slot]
        kinds.set_ad(slot, machines.get(slot))
    summed(kinds, shown)
    again = MachineKinds(kinds._read)
    again._level, again._order = kinds._level, kinds._order
    for slot, ad in machines.items():
        again.set_ad(slot, ad)
    fresh: dict[str, dict[str, Any]] = {}
    summed(again, fresh)
    assert shown == fresh


def test_machines_that_let_no_guest_in_are_not_shown() -> None:
    kinds = MachineKinds()
    kinds.set_ad("m1", machine(1, random.Random(0), Requirements=["KeyboardIdle > 900"], KeyboardIdle=5))
    kinds.set_ad("m2", machine(2, random.Random(0), Requirements=['TARGET.Owner == "p7"']))
    assert kinds.take_changes() == {}
    kinds.set_ad("m1", machine(1, random.Random(0), Requirements=["KeyboardIdle > 900"], KeyboardIdle=950))
    assert [ad and ad[COUNT] for ad in kinds.take_changes().values()] == [1]
    kinds.set_ad("m1", machine(1, random.Random(0), Requirements=["KeyboardIdle > 900"], KeyboardIdle=5))
    assert list(kinds.take_changes().values()) == [None]


def test_names_that_are_not_believed_tell_no_kinds_apart() -> None:
    assert {name.lower() for name in (COUNT, GUEST_LEAVES, GUEST_POOL, LENDER, LENT_MACHINE, SERVER_VALUE)} <= NOT_LENT


def test_a_kind_names_no_machine_and_an_offer_is_not_believed_blindly() -> None:
    kinds = MachineKinds(["Name", "Machine"])
    kinds.set_ad("slot1@m1", machine(1, random.Random(0)))
    ((name, ad),) = kinds.take_changes().items()
    assert name.startswith("like-")
    assert ad is not None
    assert not {"Name", "Machine", "SlotID"} & ad.keys()
    for lie in (True, -1, 0, "9", 1.5, None):
        assert count_of({COUNT: lie}) == 1
    assert count_of({COUNT: 10**12}) == MOST_MACHINES
    assert COUNT not in lent_machine({"FLOCKCOUNT": 7}, "slot1@m", "chem", "here")
    assert len(names_read([*map(str, range(5000)), 3, "x" * 1000])) == 1000


def _cycle(slots: dict[str, dict[str, Any]], wanted: dict[str, tuple[int, int]]) -> Outcome:
    """A cycle: for each submitter how many jobs want how many processors."""
    picture = SlotIndex()
    for name, wire in slots.items():
        picture.set_ad(name, ClassAd.from_wire(wire))
    requests = {
        name: [
            ResourceRequest(
                1,
                ClassAd({"Requirements": True, "RequestCpus": cpus, "RequestMemory": 1, "RequestDisk": 1}),
                count,
                0.0,
            )
        ]
        for name, (count, cpus) in wanted.items()
    }
    turns = EqualTurns(dict.fromkeys(requests, 0.0), dict.fromkeys(requests, 0.0), 1e6, 1.0)
    return cycle(picture, requests, turns, NegotiationTerms(), 0.0)


def _kind(count: int, *, parts: bool = False) -> dict[str, Any]:
    ad = {"State": "Unclaimed", "Activity": "Idle", "Cpus": 4, "Memory": 4096, "Disk": 100, "Requirements": True}
    return {**ad, COUNT: count, **({"PartitionableSlot": True} if parts else {})}


def test_a_kind_serves_as_many_jobs_as_it_has_machines() -> None:
    found = _cycle({"like-1@many": _kind(100)}, {"alice": (70, 1), "bob": (70, 1)})
    assert sum(match.count for match in found.matches) == 100
    assert {match.submitter: match.count for match in found.matches}.keys() == {"alice", "bob"}
    assert sum(sum(own.values()) for own in found.unmatched.values()) == 40


def test_machines_of_a_kind_are_carved() -> None:
    found = _cycle({"like-1@many": _kind(10, parts=True)}, {"alice": (100, 1)})
    assert sum(match.count for match in found.matches) == 40
    mixed = _cycle({"like-1@many": _kind(10, parts=True)}, {"alice": (8, 2), "bob": (100, 1)})
    assert sum(match.count * (2 if match.submitter == "alice" else 1) for match in mixed.matches) == 40
    assert _cycle({"like-1@many": _kind(10, parts=True)}, {"alice": (5, 8)}).matches == []

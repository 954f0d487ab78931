"""The picture of machines: what it says matches is what the evaluator says, also after machines changed."""

from __future__ import annotations

import random

import pytest

from pool.classad import UNDEFINED, ClassAd, parse_expr, symmetric_match
from pool.classad.match import requirements_accept
from pool.policy.matching import Pair, SlotIndex, tables
from pool.policy.matching.clauses import split
from pool.policy.matching.pairs import WORK
from tests.policy.matching.expressions import Ads

NOW = 1_700_000_000.0


def expected(picture: SlotIndex, request: ClassAd, machines: dict[str, ClassAd], now: float = NOW) -> list[str]:
    return sorted(name for name, ad in machines.items() if symmetric_match(request, ad, now))


@pytest.mark.parametrize("seed", range(20))
def test_matches_are_those_of_the_evaluator(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(tables, "_FEW", 0)  # comparisons by halving, as in a large pool
    ads, picture, chance = Ads(seed, naming=0.3 if seed >= 12 else 0.0), SlotIndex(), random.Random(seed)
    machines: dict[str, ClassAd] = {}
    requests = [ads.request() for _ in range(25)]
    for turn in range(4):
        for number in range(30):
            if turn and chance.random() < 0.6:
                continue
            name = f"slot{number}"
            if turn and chance.random() < 0.3:
                machines.pop(name, None)
                picture.drop(name)
            else:
                machines[name] = ads.machine()
                picture.set_ad(name, machines[name])
        requests[turn] = ads.request()
        if seed % 3:
            picture.read_ahead(requests, ("cpus",))  # what is asked is read at once, and not name by name
        for request in requests:
            wanted = expected(picture, request, machines, NOW + turn // 2)
            kept = picture.pair(request, NOW + turn // 2)
            for asked in (request, kept, kept):
                found = sorted(picture.names(picture.matches(asked, NOW + turn // 2)))
                assert found == wanted, request["Requirements"].text


@pytest.mark.parametrize("seed", range(20))
def test_requirements_accept_where_every_clause_does(seed: int) -> None:
    ads, picture = Ads(1000 + seed), SlotIndex()
    machines = {f"slot{number}": ads.machine() for number in range(20)}
    for name, ad in machines.items():
        picture.set_ad(name, ad)
    for _ in range(20):
        request = ads.request()
        if "Requirements" not in request:
            continue
        found = picture.alive
        for clause in picture.clauses(request):
            found &= picture.holds(clause, request, NOW)
        wanted = [name for name, ad in machines.items() if requirements_accept(request, ad, NOW)]
        assert picture.names(found) == wanted, request["Requirements"].text


def test_an_ad_that_uses_a_scopes_name_makes_others_no_slower() -> None:
    """Any user may have such an ad. The Requirements of all others are still asked clause by clause."""
    requirements = parse_expr("MY.Both && START")
    ordinary = machine(Both="=TARGET.a > 1 && TARGET.b > 2", Start="=self.c", C="=TARGET.d || TARGET.e")
    apart = [clause.text for clause in split(requirements, "request", ordinary.held)]
    assert apart == ["TARGET.a > 1", "TARGET.b > 2", "TARGET.d || TARGET.e"]
    theirs = machine(Both="=TARGET.a > 1 && TARGET.b > 2", Start=True, My="=[Both = false]")
    assert [clause.text for clause in split(requirements, "request", ordinary.held)] == apart
    assert [clause.text for clause in split(requirements, "request", theirs.held)] == ["MY.Both", "START"]
    picture = SlotIndex()
    picture.set_ad("slot", machine(a=2, b=3, d=True, Requirements=True))
    for ad, found in ((ordinary, ["slot"]), (theirs, [])):
        ad["Requirements"] = requirements
        assert picture.names(picture.matches(ad, NOW)) == found


def machine(**attributes: object) -> ClassAd:
    return ClassAd(
        {
            name: parse_expr(value[1:]) if isinstance(value, str) and value.startswith("=") else value
            for name, value in attributes.items()
        }
    )


def small_pool() -> SlotIndex:
    picture = SlotIndex()
    start = '=KeyboardIdle > 900 || Owner == "anna"'
    for number in range(6):
        picture.set_ad(
            f"slot{number}",
            machine(
                Memory=1024 * (number + 1),
                KeyboardIdle=300 * number,
                Start=start,
                Requirements="=START && TARGET.RequestMemory <= MY.Memory",
                Load=parse_expr("Memory / 1024"),
            ),
        )
    return picture


def test_clauses_say_who_fails_them() -> None:
    picture = small_pool()
    job = machine(Requirements="=TARGET.Memory >= 2048 && (TARGET.Memory < 6000)", RequestMemory=4096, Owner="bob")
    clauses = picture.clauses(job)
    assert [clause.text for clause in clauses] == ["TARGET.Memory >= 2048", "TARGET.Memory < 6000"]
    assert [picture.holds(clause, job, NOW).bit_count() for clause in clauses] == [5, 5]
    assert "memory" in clauses[0].references
    refused = {clause.text: picture.names(bits) for clause, bits in picture.refusals(job, NOW)}
    assert refused == {
        'KeyboardIdle > 900 || Owner == "anna"': ["slot0", "slot1", "slot2", "slot3"],
        "TARGET.RequestMemory <= MY.Memory": ["slot0", "slot1", "slot2"],
    }
    assert picture.names(picture.matches(job, NOW)) == ["slot4"]
    through = {clause.text: clause.through for clause, _ in picture.machine_clauses()}
    assert through['KeyboardIdle > 900 || Owner == "anna"'] == ("start",)


def test_attributes_behind_attributes_decide_who_is_accepted() -> None:
    """Machines hold the same Requirements and START; they differ in what these come to, more deeply each time."""
    picture, machines = SlotIndex(), dict[str, ClassAd]()
    chain = {f"A{depth}": f"=A{depth + 1} && true" for depth in range(8)}
    for number in range(40):
        ends = {f"A{number % 9}": ["=TARGET.Size < 5", "=false", True, "=Memory > 100", "=TARGET.Size"][number % 5]}
        machines[f"s{number}"] = machine(**(chain | {"Requirements": "=A0", "Memory": 50 * (number % 4)} | ends))
        picture.set_ad(f"s{number}", machines[f"s{number}"])
    for size in (3, 7, 0):
        job = machine(Requirements=True, Size=size)
        assert sorted(picture.names(picture.matches(job, NOW))) == expected(picture, job, machines)


def test_values_of_an_attribute_are_counted() -> None:
    picture = small_pool()
    assert picture.values("Load") == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1}
    picture.drop("slot0")
    assert picture.values("Nosuch") == {UNDEFINED: 5}
    by_value = {value: picture.names(bits) for value, bits in picture.slots_by_value("Memory")}
    assert by_value == {1024 * (number + 1): [f"slot{number}"] for number in range(1, 6)}
    assert picture.slots_by_value("Nosuch") == [(None, picture.alive)]
    assert picture.count == 5


def test_a_change_of_one_machine_is_followed() -> None:
    picture = small_pool()
    job = machine(Requirements="=TARGET.HasThing", RequestMemory=1, Owner="anna")
    assert picture.matches(job, NOW) == 0
    ad = picture.ad("slot2")
    assert ad is not None
    ad = ad.copy()
    ad["HasThing"] = True
    picture.set_ad("slot2", ad)
    assert picture.names(picture.matches(job, NOW)) == ["slot2"]
    picture.drop("slot2")
    assert picture.matches(job, NOW) == 0
    assert picture.ad("slot2") is None


def test_what_machines_can_look_at_in_a_job_is_known() -> None:
    found = small_pool().references()
    assert {"owner", "requestmemory"} <= found
    assert "memory" not in found


def test_expressions_over_the_time_are_asked_again() -> None:
    picture = SlotIndex()
    picture.set_ad("slot", machine(Since=100, Requirements="=time() - Since > 50"))
    job = machine(Requirements=True)
    assert picture.matches(job, 120.0) == 0
    assert picture.matches(job, 151.0) == 1


@pytest.mark.parametrize("seed", range(8))
def test_comparisons_are_found_by_halving_as_by_asking(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_FEW", 0)
    chance, picture = random.Random(seed), SlotIndex()
    odd = ["0", "1", "true", "undefined", "error", '"a"', '"A"', '""', "9007199254740993", "1e300", 'real("nan")', "b"]

    def value() -> str:
        return chance.choice([chance.choice(odd), str(chance.randrange(-3, 9)), repr(chance.random() * 8)])

    def drawn() -> ClassAd:
        sums = ["b - TARGET.a", "TARGET.a + b", "(time() - TARGET.a)", "9223372036854775807 - TARGET.a", "TARGET.a - c"]
        others = ["b", "c", value(), f"{NOW - 4}", "9223372036854775804"]
        sides = [chance.choice(["TARGET.a", "TARGET.a", *sums]), chance.choice(others)]
        chance.shuffle(sides)
        sign = chance.choice(["==", "!=", "<", "<=", ">", ">=", "=?=", "=!="])
        other = chance.choice(["b", "TARGET.a", "1"])
        return machine(Requirements=f"={sides[0]} {sign} {sides[1]}", b="=" + value(), c="=" + other)

    requests = [drawn() for _ in range(10)]
    slots: dict[str, ClassAd] = {}
    for turn in range(6):
        requests += [drawn() for _ in range(4)]  # asked first when a few slots have moved since the others were
        for number in range(60):
            if turn and chance.random() < 0.9:
                continue
            name, wish = f"s{number}", chance.choice(["=true", "=TARGET.b <= a", "=MY.a == TARGET.b"])
            slots[name] = machine(a="=" + value(), Requirements=wish)
            picture.set_ad(name, slots[name])
        for request in requests:
            found = sorted(picture.names(picture.matches(request, NOW)))
            assert found == expected(picture, request, slots), request["Requirements"].text


def test_a_request_that_asks_too_much_of_every_machine_is_given_up() -> None:
    picture = SlotIndex()
    for number in range(3000):
        picture.set_ad(f"slot{number}", machine(Number=number, Requirements=True))
    doubling = {f"a{number}": f"=a{number + 1} + a{number + 1}" for number in range(60)}
    evil = Pair(machine(**(doubling | {"a60": "=TARGET.Number", "Requirements": "=a0 > 0"})), NOW)
    assert picture.matches(evil) == 0
    assert WORK < evil.spent < 2 * WORK
    slow = Pair(machine(**(doubling | {"a8": "=TARGET.Number", "Requirements": "=a0 >= 0"})), NOW)
    assert 0 < picture.matches(slow).bit_count() < 3000
    plain = machine(Requirements='=TARGET.Number >= 0 && regexp("^[0-9]+$", string(TARGET.Number))')
    assert picture.matches(plain, NOW).bit_count() == 3000

"""Attributes in little memory: as a dict has them, with names and equal values shared."""

from __future__ import annotations

import random
import sys

import pytest

from pool.classad import ClassAd, parse_ad, parse_expr
from pool.classad import compact as compacting
from pool.classad.compact import columns, compact


def drawn(chance: random.Random) -> dict[str, object]:
    names = [f"a{number}" for number in range(8)]
    values: list[object] = [True, 1, 1.0, 0.0, -0.0, "text", "Text", 10**6, parse_expr("a1 + 1"), 2.5]
    return {name: chance.choice(values) for name in chance.sample(names, chance.randrange(9))}


def same(one: object, other: object) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


def test_it_is_as_the_dict_that_it_was_made_of() -> None:
    chance = random.Random(1)
    for _ in range(300):
        held = drawn(chance)
        found = compact(held)
        assert compact(found) is found
        assert list(found) == list(held)
        assert len(found) == len(held)
        for given in (found.items(), found.pairs(), found.copy().items()):
            assert [name for name, _ in given] == list(held)
        for name in [*held, "nosuch"]:
            assert same(found.get(name), held.get(name))
            assert (name in found) == (name in held)
        assert found.get("nosuch", 7) == 7
        with pytest.raises(KeyError):
            found["nosuch"]


def test_columns_are_what_each_ad_holds() -> None:
    chance = random.Random(2)
    ads = [None if chance.random() < 0.1 else compact(drawn(chance)) for _ in range(9000)]
    for names in (["a3"], ["nosuch"], ["a1", "nosuch", "a7", "a0"]):
        found = columns(ads, names)
        for name, column in zip(names, found, strict=True):
            assert len(column) == len(ads)
            assert all(same(value, None if ad is None else ad.get(name)) for ad, value in zip(ads, column, strict=True))
    assert columns([], ["a1", "a2"]) == [[], []]


def test_names_and_equal_values_are_shared() -> None:
    wires = [
        {"Name": f"slot{number}@host", "System": "".join("LINUX"), "Disk": 10**7 + number // 4} for number in range(8)
    ]
    ads = [ClassAd.from_wire(wire).compacted() for wire in wires]
    rows = [compact(ad.holdings) for ad in ads]
    assert all(row.layout is rows[0].layout for row in rows)
    assert all(row["system"] is rows[0]["system"] for row in rows)
    assert rows[0]["disk"] is rows[3]["disk"]
    changed = ads[0].copy()
    changed["System"] = "".join("WINDOWS")
    changed["Disk"] = 10**7 + 1
    row = compact(changed.compacted({"system", "disk", "nosuch"}).holdings)
    assert row.layout is rows[0].layout
    assert row["disk"] is rows[7]["disk"]
    assert row["system"] is compact({"a": "".join("WINDOWS")})["a"]
    many = {f"name{number}": number for number in range(60)}
    assert sys.getsizeof(compact(many)) + sys.getsizeof(compact(many).row) < sys.getsizeof(many) / 2


def test_the_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "_VALUES", 50)
    monkeypatch.setattr(compacting, "_LAYOUTS", 20)
    monkeypatch.setattr(compacting, "_layouts", {})
    recent = compacting._Recent()
    monkeypatch.setattr(compacting, "_recent", recent)
    often = "often, as ever"
    for number in range(500):
        row = compact({f"n{number}": number + 1000, "often": "often, " + "as ever", "long": "x" * 1000 + str(number)})
        assert row["often"] == often
        assert len(recent) <= 50
        assert len(recent.before) <= 50
        assert len(compacting._layouts) <= 20
    assert not any(len(str(value)) > 200 for value in recent)


def test_a_compact_ad_is_changed_by_a_copy() -> None:
    parent = parse_ad("[ Memory = 100; Rank = Memory * 2 ]")
    ad = ClassAd({"memory": 50, "MyName": "x"}, parent=parent).compacted()
    assert ad.parent is None
    assert ad.eval("Rank") == 100
    assert ad.to_wire() == ClassAd({"memory": 50, "MyName": "x"}, parent=parent).merged().to_wire()
    with pytest.raises(TypeError, match="change a copy"):
        ad["Memory"] = 1
    with pytest.raises(TypeError, match="change a copy"):
        del ad["Memory"]
    copy = ad.copy()
    copy["Memory"] = 70
    del copy["MyName"]
    assert copy.eval("Rank") == 140
    assert ad.eval("Rank") == 100
    assert "MyName" in ad

"""The use of a job's own network: reports of machines, which may lie, and what the job's ad and messages say of it."""

from __future__ import annotations

from typing import Any

import pytest

from pool.jobs.network_use import MOST_DOWN, MOST_PAIRS, TO_ALL, Carried, NetworkUse, PartsUse, in_words


def use_of(*reports: tuple[int, NetworkUse]) -> PartsUse:
    found = PartsUse()
    for part, use in reports:
        found.add_report(part, use.to_wire())
    return found


def test_the_attributes_of_a_running_job_and_of_one_that_has_ended() -> None:
    first = NetworkUse({1: 5_200, TO_ALL: 60}, to_outside=7, from_outside=9, rate=100.4, down={"donder": 12.3})
    use = use_of((0, first), (1, NetworkUse({0: 80}, dropped=3, rate=1.0)))
    assert use.attributes(Carried(among=1_000, dropped=1), running=True) == {
        "NetworkBytes": 6_340,
        "NetworkPairs": "0>1 5200, 1>0 80, 0>all 60",
        "NetworkBytesToOutside": 7,
        "NetworkBytesFromOutside": 9,
        "NetworkPacketsDropped": 4,
        "NetworkRate": 101,
        "NetworkLinksDown": "part 0 has no link to donder (for 12 s)",
    }
    ended = use.attributes(Carried(), running=False)
    assert (ended["NetworkRate"], ended["NetworkLinksDown"], ended["NetworkBytes"]) == (None, None, 5_340)
    assert in_words(ended.get) == "5.3 KB between its parts, 7 bytes to outside, 9 bytes from there, 3 packets dropped"
    assert in_words({}.get) == ""
    assert in_words({"NetworkBytes": "much"}.get) == ""


def test_a_later_report_of_a_part_takes_the_place_of_the_earlier() -> None:
    use = use_of((0, NetworkUse({1: 10}, rate=5.0, down={"b": 1.0})), (0, NetworkUse({1: 30}, rate=2.0)))
    assert (use.carried, use.rate, use.down_in_words()) == (Carried(among=30), 2.0, "")


def test_only_the_largest_pairs_are_named() -> None:
    use = use_of((0, NetworkUse({to: 1_000 - to for to in range(1, 100)})), (300, NetworkUse({0: 5})))
    words = use.pairs_in_words()
    assert words.startswith("0>1 999, 0>2 998, ")
    assert words.count(">") == MOST_PAIRS
    assert words.endswith(f", others {sum(1_000 - to for to in range(MOST_PAIRS + 1, 100)) + 5}")
    assert use.carried.among == sum(1_000 - to for to in range(1, 100)) + 5


@pytest.mark.parametrize(
    "said",
    [
        None,
        7,
        [],
        "much",
        {},
        {"sent": 5, "outside": "x", "dropped": -1, "rate": "nan", "down": {"a": 1}},
        {"sent": [[1, -5], [1], "ab", [2, 2**70], [3, True]], "outside": [1.5, None], "dropped": 2**63},
        {"rate": float("nan"), "down": [["a\nb", 1.0], ["", 1.0], ["x" * 300, 1.0], [7, 1.0]]},
        {"rate": float("inf"), "down": 5},
    ],
)
def test_a_machine_that_lies_counts_as_one_that_says_nothing(said: Any) -> None:
    use = PartsUse()
    use.add_report(0, said)
    assert (use.carried, use.rate, use.down_in_words()) == (Carried(), 0.0, "")
    assert "\n" not in str(use.attributes(Carried(), running=True))


def test_a_report_is_no_longer_than_it_may_be() -> None:
    long = {"sent": [[to, 1] for to in range(5_000)], "down": [[f"m{n}", 1.0] for n in range(5_000)]}
    use = PartsUse()
    use.add_report(0, long)
    assert use.carried.among == MOST_PAIRS + 1
    assert use.down_in_words().count("no link") == MOST_DOWN
    wire = NetworkUse(dict.fromkeys(range(1000), 2), down={f"m{n}": 1.0 for n in range(100)}).to_wire()
    assert (len(wire["sent"]), len(wire["down"])) == (MOST_PAIRS + 1, MOST_DOWN)
    assert sum(size for _, size in wire["sent"]) == 2_000


@pytest.mark.parametrize("note", [None, 5, [], [1, 2], ["a", 1, 2, 3], [-1, 2**80, 1.5, 4]])
def test_a_note_that_makes_no_sense_is_none(note: Any) -> None:
    assert Carried.of_note(note).among == 0


def test_counts_do_not_grow_for_ever() -> None:
    most = Carried(2**62, 2**62, 2**62, 2**62)
    assert most + most == most

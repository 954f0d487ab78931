"""Accounts of a job's runs: work done and lost, checkpoints; whatever order and however often they are reported."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pool.jobs import costs
from pool.jobs.notice import span


class Ad(dict[str, Any]):
    """A job's ad with its notes."""

    def tell(self, run: int, **said: float) -> None:
        self.update(costs.cost_changes(self.get, run, self.get(costs.COSTS), said))

    def end(self, wall: float, suspended: float = 0.0, at_home: float | None = None) -> None:
        self.update(costs.ran(self.get, wall, suspended, at_home))


def test_two_runs_of_which_the_first_was_lost_in_part() -> None:
    ad = Ad()
    ad.tell(1, checkpoints=1, seconds=2.0, standstill=0.1, bytes=100, committed=600.0)
    ad.tell(1, checkpoints=2, seconds=5.0, standstill=0.2, bytes=150, committed=1800.0)
    ad.end(2500.0, 100.0, costs.committed(1, ad[costs.COSTS]))
    assert (ad["CommittedTime"], ad["WorkLost"], ad["CumulativeSuspensionTime"]) == (1800.0, 600.0, 100.0)
    ad.tell(2, checkpoints=1, seconds=1.0, standstill=0.1, bytes=10, committed=50.0)
    ad.end(400.0)
    assert (ad["CommittedTime"], ad["WorkLost"]) == (2200.0, 600.0)
    assert (ad["CheckpointSeconds"], ad["CheckpointStandstill"], ad["CheckpointBytes"]) == (6.0, 0.3, 160.0)


def test_what_was_told_of_another_run_is_not_this_ones() -> None:
    ad = Ad()
    ad.tell(1, committed=600.0)
    assert costs.committed(2, ad[costs.COSTS]) == 0.0


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=8), st.data())
def test_telling_twice_or_not_at_all_changes_nothing(rounds: list[tuple[float, float]], data: st.DataObject) -> None:
    ad, seconds, size = Ad(), 0.0, 0.0
    for took, sent in rounds:
        seconds, size = seconds + took, size + sent
        for _ in range(data.draw(st.integers(0, 2))):
            ad.tell(1, seconds=seconds, bytes=size)
    ad.tell(1, seconds=seconds, bytes=size)
    assert abs(ad.get("CheckpointSeconds", 0.0) - seconds) < 0.1
    assert abs(ad.get("CheckpointBytes", 0.0) - size) < 0.1


def test_nonsense_counts_as_nothing() -> None:
    ad = Ad(CheckpointBytes="many")
    ad.update(costs.cost_changes(ad.get, 1, "garbage", {"bytes": float("nan"), "seconds": -5.0, "committed": True}))
    ad.end(10.0, 50.0, -3.0)
    assert "CheckpointSeconds" not in ad
    assert (ad.get("CommittedTime", 0.0), ad.get("WorkLost", 0.0), ad["CumulativeSuspensionTime"]) == (0.0, 0.0, 10.0)


def test_in_words() -> None:
    ad = {"CommittedTime": 7200.0, "WorkLost": 61.0, "NumCkpts": 2, "CheckpointSeconds": 3.21, "CheckpointBytes": 2e6}
    assert costs.lines(ad.get, span) == [
        "Work Done:          0 02:00:00",
        "Work Lost:          0 00:01:01",
        "Checkpoints:        2: 3.2 s, 2.0 MB sent, job stood still 0.000 s",
    ]
    assert costs.lines({"CommittedTime": 7200.0}.get, span) == []


def test_what_is_not_in_the_checkpoint_that_it_goes_on_from_was_done_in_vain() -> None:
    ad = Ad(CommittedTime=0.0)
    for generation, work in ((1, 600.0), (2, 1500.0), (2, 1800.0)):
        ad["CommittedTime"] = work
        ad.update(costs.reached(ad.get(costs.HELD), generation, work))
    ad.update(costs.goes_on(ad.get, ad.get(costs.HELD), 2))
    assert "WorkLost" not in ad
    ad.update(costs.goes_on(ad.get, ad.get(costs.HELD), 1))
    assert (ad["CommittedTime"], ad["WorkLost"]) == (600.0, 1200.0)
    ad.update(costs.goes_on(ad.get, ad.get(costs.HELD), None))
    assert (ad["CommittedTime"], ad["WorkLost"]) == (0.0, 1800.0)
    ad.update(costs.goes_on(ad.get, ad.get(costs.HELD), 2))  # that was of use after all
    assert (ad["CommittedTime"], ad["WorkLost"]) == (1800.0, 0.0)


def test_of_a_checkpoint_that_nothing_is_known_of_nothing_is_counted() -> None:
    ad = Ad(CommittedTime=700.0)
    assert costs.goes_on(ad.get, None, None) == {}
    assert costs.reached(None, None, 5.0) == {}
    ad.update(costs.reached(None, 7, 700.0))
    assert costs.goes_on(ad.get, ad.get(costs.HELD), 3) == {}
    for generation in range(8, 20):
        ad.update(costs.reached(ad.get(costs.HELD), generation, 700.0))
    assert [number for number, _ in ad[costs.HELD]] == [16, 17, 18, 19]

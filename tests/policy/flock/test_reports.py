"""Reports of another pool's startd about our jobs: whole, and with nothing else in them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pool.jobs.reasons import Evict, Reason
from pool.policy.flock.reports import BURST, LONGEST_TEXT, MOST_PACED, BadReport, ReportPace, checked_words
from pool.starter.spec import EndReport

END = EndReport(3, None, False, 1.5, 0.25, 2.0, 1024, "exit", started=1e9).report()


NO_STATUS: tuple[Any, ...] = ("0", 0.5, True, 2**40, -(2**40), [0], {})


def ended(**report: Any) -> dict[str, Any]:
    return {"claim": "x", "job": [1, 0], "run": 1, "report": {**END, **report}}


def test_an_honest_end_passes_as_it_is() -> None:
    whole = {
        **{"ends": [{"name": "a", "code": 0, "core": False, "wall": 1.0}], "network": {"sent": [[1, 2]], "rate": 0.5}},
        **{"costs": {"checkpoints": 2, "seconds": 0.5, "standstill": 0.1, "committed": None}, "released": True},
        **{"started_event": True, "said": "a line", "subcode": 102, "checkpoint": 4, "suspended": 1.25},
    }
    assert checked_words("ended", ended(**whole)) == ended(**whole)


def test_fields_that_nobody_knows_stay_behind_and_texts_are_cut() -> None:
    said = {**ended(junk="x" * 1000, kept={"a": 1}, generation=7, why="y" * 10**6), "more": 1}
    assert checked_words("ended", said) == ended(why="y" * LONGEST_TEXT)


@pytest.mark.parametrize(
    "report",
    [
        *({"code": bad} for bad in NO_STATUS),
        *({"wall": bad} for bad in (math.nan, math.inf, -math.inf, -1, 1e16, "1", None, [1])),
        *({"why": 7}, {"cause": ["exit"]}, {"core": 1}, {"costs": []}, {"costs": {"seconds": math.nan}}),
        *({"costs": {"x" * 101: 1}}, {"costs": {str(number): 1 for number in range(51)}}, {"ends": [[[[[1]]]]]}),
        *({"network": {7: 1}}, {"network": {"sent": math.inf}}, {"ends": [0] * 1001}),
    ],
)
def test_a_wrong_field_makes_a_report_worthless(report: dict[str, Any]) -> None:
    with pytest.raises(BadReport):
        checked_words("ended", ended(**report))


@pytest.mark.parametrize("report", [None, 7, [], "x"])
def test_an_end_without_a_report_is_none(report: Any) -> None:
    with pytest.raises(BadReport):
        checked_words("ended", {"claim": "x", "job": [1, 0], "run": 1, "report": report})


def test_reports_of_running_jobs() -> None:
    def words(kind: Any, data: Any) -> Any:
        return checked_words("report", {"claim": "x", "run": 1, "kind": kind, "data": data})["data"]

    assert words("started", {"started": 1e9, "junk": 1}) == {"started": 1e9}
    usage = {"max_rss": 5, "user_cpu": 0.5, "system_cpu": 0.0, "network": {"rate": 1.0}}
    assert words("usage", usage) == usage
    assert words("saved", {"seconds": 1.0, "bytes": 7}) == {"seconds": 1.0, "bytes": 7}
    assert words("unresumable", {"why": []}) == {"why": []}
    nearer = {"nearer": {"address": "tcp://a:1", "ticket": "t"}}
    assert words("leaving", nearer) == nearer
    for kind, data in (
        *(("nosuch", {}), (7, {}), ("started", {"started": "x"}), ("saved", {"seconds": "x"}), ("usage", [])),
        *(("unresumable", {"why": ["x"] * 101}), ("unresumable", {"why": [None]}), ("suspended", {"why": 7})),
        ("leaving", {"nearer": {"address": 7}}),
    ):
        with pytest.raises(BadReport):
            words(kind, data)


def test_reasons_for_the_end_of_a_claim() -> None:
    reason = Reason(Evict.LEASE_ENDED, "its lease is over").to_wire()
    assert checked_words("revoked", {"claim": "x", "reason": reason, "junk": 1}) == {"claim": "x", "reason": reason}
    for wrong in ({"subcode": "x"}, {"subcode": None}, {"kind": [1]}, {"text": 7}):
        with pytest.raises(BadReport):
            checked_words("revoked", {"claim": "x", "reason": {**reason, **wrong}})


def test_a_job_is_reported_of_as_often_as_makes_sense() -> None:
    pace = ReportPace()
    assert [pace.admits("a", 0.0) for _ in range(int(BURST) + 5)].count(True) == BURST
    assert pace.admits("b", 0.0), "each job by itself"
    assert [pace.admits("a", 10.0) for _ in range(20)].count(True) == 10
    for number in range(2 * MOST_PACED):
        assert pace.admits(str(number), 11.0)
    assert len(pace._spent) == MOST_PACED

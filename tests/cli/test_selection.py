"""Which jobs the words on a command line mean."""

from __future__ import annotations

import pytest

from pool.cli.selection import Selection, UsageProblem, one_job, seconds, select


def test_ids_clusters_and_users() -> None:
    assert select(["12", "12.3", "12.", "alice"]) == Selection(((12,), (12, 3), (12,)), ("alice",))


@pytest.mark.parametrize("word", ["", "12.x", "-3", "a b", '"; true', "1.2.3", "é é"])
def test_nonsense_is_refused_with_the_way_out(word: str) -> None:
    with pytest.raises(UsageProblem, match="give a cluster"):
        select([word])


def test_parameters_use_ids_and_owner_alone_and_an_expression_when_joined() -> None:
    assert select(["12", "13.4"]).parameters() == {"ids": [[12], [13, 4]]}
    assert select(["alice"]).parameters("JobPrio > 1") == {"owner": "alice", "constraint": "JobPrio > 1"}
    assert select([]).parameters() == {}
    assert select(["12"]).parameters("x") == {"constraint": "(ClusterId == 12) && (x)"}
    joined = select(["alice", "12", "13.4"]).parameters("true || false")
    assert joined["constraint"] == (
        '(Owner == "alice" || ClusterId == 12 || (ClusterId == 13 && ProcId == 4)) && (true || false)'
    )
    assert select(["a", "b"]).parameters() == {"constraint": 'Owner == "a" || Owner == "b"'}
    assert select(["a@lab", "b"]).parameters() == {"constraint": 'User == "a@lab" || Owner == "b"'}


def test_one_job_is_no_user() -> None:
    assert one_job("12.3") == (12, 3)
    with pytest.raises(UsageProblem):
        one_job("alice")


@pytest.mark.parametrize(("word", "value"), [("90", 90), ("1.5m", 90), ("2h", 7200), ("7d", 604800), ("30 S", 30)])
def test_times(word: str, value: float) -> None:
    assert seconds(word) == value


@pytest.mark.parametrize("word", ["", "x", "-1", "2y", "inf"])
def test_bad_times(word: str) -> None:
    with pytest.raises(UsageProblem, match="is not a time"):
        seconds(word)

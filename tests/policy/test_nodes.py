"""Nodes of parallel jobs: which end ends the job, and what the ends of all of them come to (WR 5, 6.8)."""

from __future__ import annotations

from typing import Any

import pytest

from pool.jobs.pipes.model import MOST_PROCESSES, read_ends
from pool.policy.nodes import ends_job, merged, ranges, rows, stored_report, taken_over

EXIT: dict[str, Any] = {"cause": "exit", "code": 0, "signal": None}
DEAD: dict[str, Any] = {"cause": "signal", "code": None, "signal": 11, "core": True}
KILLED: dict[str, Any] = {"cause": "killed", "code": None, "signal": 9}


@pytest.mark.parametrize("policy", ["WAIT_FOR_NODE0", "WAIT_FOR_ALL", "WAIT_FOR_ANY"])
@pytest.mark.parametrize("node", [0, 3])
def test_an_exit_ends_the_job_as_the_policy_says(policy: str, node: int) -> None:
    expected = policy == "WAIT_FOR_ANY" or (policy == "WAIT_FOR_NODE0" and node == 0)
    for code in (0, 7):
        assert ends_job(node, {**EXIT, "code": code}, policy, "end") is expected


@pytest.mark.parametrize("report", [{"cause": "lost"}, {"cause": "start"}, {"cause": "misuse"}, KILLED])
@pytest.mark.parametrize("policy", ["WAIT_FOR_NODE0", "WAIT_FOR_ALL"])
def test_one_that_is_lost_or_cannot_start_ends_the_run(report: dict[str, Any], policy: str) -> None:
    for wish in ("end", "wait", "ignore"):
        assert ends_job(2, report, policy, wish)


def test_a_signal_ends_it_at_once_unless_the_job_says_otherwise() -> None:
    assert [ends_job(2, DEAD, "WAIT_FOR_ALL", wish) for wish in ("end", "wait", "ignore")] == [True, False, False]
    assert ends_job(2, {**EXIT, "output_error": "disk full"}, "WAIT_FOR_ALL", "end")


def reports(*each: tuple[int, dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    return [
        (node, stored_report({**one, "user_cpu": 1.0, "max_rss": 5}, f"slot1@m{node}", 100.0 + node))
        for node, one in each
    ]


def test_the_end_is_node_zeros_and_sums_are_of_all() -> None:
    found = reports((1, {**EXIT, "code": 3}), (0, {**EXIT, "code": 5}), (2, KILLED))
    whole = merged(found, 1, "end")
    assert (whole["cause"], whole["code"], whole["user_cpu"], whole["max_rss"]) == ("exit", 5, 3.0, 15)
    ends = read_ends(whole["ends"])
    assert [(end["name"], end["code"], end["with_job"]) for end in ends] == [
        ("node 0", 5, False),
        ("node 1", 3, False),
        ("node 2", None, True),
    ]
    assert [(end["host"], end["at"]) for end in ends] == [(f"slot1@m{n}", 100.0 + n) for n in range(3)]
    assert merged(reports((2, EXIT), (0, {**EXIT, "code": 4}), (1, EXIT)), None, "end")["code"] == 4


def test_the_node_that_died_is_named() -> None:
    whole = merged(reports((3, DEAD), (0, KILLED), (1, KILLED)), 0, "end")
    assert (whole["signal"], whole["core"]) == (11, True)
    assert whole["said"] == "node 3 on slot1@m3 died because of signal 11"
    assert [end["failed"] for end in whole["ends"]] == [False, False, True]


def test_with_wait_the_first_that_died_is_the_jobs_end_and_with_ignore_none_is() -> None:
    found = reports((2, DEAD), (1, EXIT), (0, EXIT))
    assert merged(found, 2, "wait")["signal"] == 11
    assert merged(found, 2, "ignore").get("signal") is None


def test_a_lost_node_leaves_no_table_of_ends() -> None:
    whole = merged(reports((0, EXIT), (1, {"cause": "lost", "why": "gone"})), 1, "end")
    assert (whole["cause"], whole["why"], "ends" in whole) == ("lost", "gone", False)


def test_what_a_killed_node_could_not_bring_is_no_error_of_the_job() -> None:
    found = reports((0, EXIT), (1, {**KILLED, "output_error": "the job did not leave its output file x"}))
    assert "output_error" not in merged(found, 0, "end")
    found = reports((1, {**EXIT, "output_error": "disk full"}), (0, KILLED))
    assert merged(found, 0, "end")["output_error"] == "disk full"


def test_of_a_thousand_nodes_those_that_ended_alike_are_one_row() -> None:
    found = reports((700, DEAD), *((node, KILLED) for node in range(1000) if node not in (700, 5)), (5, EXIT))
    table = rows(found, 0, 0)
    assert [row["name"] for row in table] == ["node 0", "nodes 1-4,6-699,701-999", "node 5", "node 700"]
    assert table[1]["user_cpu"] == 997.0
    assert table[1]["host"] == "997 slots"
    many = rows(reports(*((node, {**EXIT, "code": node % 200}) for node in range(1000))), None, None)
    assert len(many) <= MOST_PROCESSES
    assert sum(row["user_cpu"] for row in many) == 1000.0


def test_numbers_in_short() -> None:
    assert ranges([3, 1, 2, 7]) == "1-3,7"
    assert ranges(range(0, 40, 2)) == "0,2,4,6,8,10,12,14,... (20 ranges)"


def test_what_was_counted_before_a_checkpoint_is_not_counted_again() -> None:
    (one,) = reports((1, {**EXIT, "code": 2}))
    again = taken_over(one[1])
    assert ("user_cpu" in again, again["code"], again["taken_over"]) == (False, 2, True)

"""Parameters are looked at before a method runs, and what is wrong with them is said."""

from __future__ import annotations

from typing import Any

import pytest

from pool.wire.errors import Malformed
from pool.wire.parameter_checks import JOB_ID, JOB_IDS, SIZE, TEXTS, Forms, Takes, check, check_item, optional

TAKES: Takes = {
    "count": int,
    "rate": int | float,
    "name": str | None,
    "sure": bool | None,
    "ids": optional(JOB_IDS),
    "names": optional(TEXTS),
}
GOOD: dict[str, Any] = {"count": 1, "rate": 0.5}


@pytest.mark.parametrize(
    "more",
    [{}, {"name": None}, {"name": "x"}, {"ids": [[1], [1, 2]]}, {"ids": None}, {"sure": True}, {"new": 7}, {"rate": 3}],
)
def test_what_fits(more: dict[str, Any]) -> None:
    check("a.b", TAKES, GOOD | more)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "cannot call a.b: 'count' is missing"),
        (GOOD | {"count": "x"}, "'count' is 'x'"),
        (GOOD | {"count": 1.0}, "'count' is 1.0"),
        (GOOD | {"count": True}, "'count' is True"),
        (GOOD | {"count": 10**18}, "'count' is 1000000000000000000"),
        (GOOD | {"rate": float("inf")}, "'rate' is inf"),
        (GOOD | {"rate": None}, "'rate' is nothing"),
        (GOOD | {"name": ["x"]}, "'name' is a list"),
        (GOOD | {"ids": [["x"]]}, "'ids' is a list"),
        (GOOD | {"ids": [[1, 2, 3]]}, "'ids'"),
        (GOOD | {"ids": [[2**64 - 1, 0]]}, "'ids'"),
        (GOOD | {"rate": float("nan")}, "'rate' is nan"),
        (GOOD | {"names": ["a", 1]}, "'names'"),
        (GOOD | {"sure": 1}, "'sure' is 1"),
    ],
)
def test_what_does_not(params: dict[str, Any], said: str) -> None:
    with pytest.raises(Malformed) as found:
        check("a.b", TAKES, params)
    assert said in found.value.message
    assert found.value.hint.startswith("it takes ")


def test_kinds_have_names_that_people_read() -> None:
    for kind, name in ((int | None, "a whole number or nothing"), (JOB_ID, "a job id [cluster, process]")):
        with pytest.raises(Malformed) as found:
            check("a.b", {"x": kind}, {"x": b""})
        assert found.value.hint == f"it takes {name}"


@pytest.mark.parametrize(
    "item", [None, 7, b"x", {}, [], [1], [["a"]], ["c"], ["a"], ["a", -1], ["a", 2**60], ["a", "1"]]
)
def test_items_of_streams_are_looked_at(item: Any) -> None:
    forms: Forms = {"a": (SIZE,), "b": ()}
    assert check_item(["a", 1, "more"], forms) == ["a", 1, "more"]
    assert check_item(["b"], forms) == ["b"]
    with pytest.raises(Malformed, match="a stream said"):
        check_item(item, forms)

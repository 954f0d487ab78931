"""Times as text."""

from __future__ import annotations

import datetime

import pytest

from pool.classad import AbsTime, RelTime
from pool.classad.timetext import days_before, print_abstime, print_reltime, read_abstime, read_reltime


@pytest.mark.parametrize(
    ("text", "seconds", "offset"),
    [
        ("2021-03-04T05:06:07Z", 1614834367, 0),
        ("2021-03-04T05:06:07-05:00", 1614852367, -18000),
        ("2021-03-04T05:06:07-0500", 1614852367, -18000),
        ("20210304T050607z", 1614834367, 0),
        ("2021/03/04 05:06:07+01:30", 1614828967, 5400),
        ("1970-01-01Z", 0, 0),
    ],
)
def test_absolute_times(text: str, seconds: int, offset: int) -> None:
    assert read_abstime(text) == AbsTime(seconds, offset)


@pytest.mark.parametrize("text", ["", "12", "x", "2021-03-04T05:06:07.25Z", "2021-03-04T05:06:07 8Z"])
def test_what_is_no_absolute_time(text: str) -> None:
    assert read_abstime(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("5", 5.0), ("1+02:03:04", 93784.0), ("1d2h3m4.5s", 93784.5), ("-90", -90.0), ("2h", 7200.0), ("3m", 180.0)),
        *((" - 1:00 ", -60.0), ("", 0.0), (".5", 0.5), ("99999999999999d", 0.0)),
    ],
)
def test_relative_times(text: str, seconds: float) -> None:
    assert read_reltime(text) == RelTime(seconds)


@pytest.mark.parametrize("text", ["x", "1x", "1h2d", "--1"])
def test_what_is_no_relative_time(text: str) -> None:
    assert read_reltime(text) is None


@pytest.mark.parametrize(
    ("span", "wanted"),
    [
        *((0.0, "00"), (59.0, "59"), (3600.0, "01:00:00"), (61.0, "01:01"), (93784.0, "1+02:03:04"), (-90.0, "-01:30")),
        *((1.5, "1.5"), (float("inf"), "inf")),
    ],
)
def test_spans_are_printed(span: float, wanted: str) -> None:
    assert print_reltime(span) == wanted


def test_moments_are_printed_where_they_are() -> None:
    assert print_abstime(AbsTime(0, 3600)) == "1970-01-01T01:00:00+01:00"
    assert print_abstime(AbsTime(0, -5400)) == "1969-12-31T22:30:00-01:30"
    assert print_abstime(AbsTime(2**62, 0)).startswith("1970")


@pytest.mark.parametrize("day", [1, 59, 60, 366, 693594, 719163, 730179, 738000, 3652059])
def test_the_calendar(day: int) -> None:
    date = datetime.date.fromordinal(day)
    assert days_before(date.year, date.month, date.day) == day - 719163
    assert days_before(date.year - 1, date.month + 12, date.day) == day - 719163

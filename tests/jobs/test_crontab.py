"""The moments of a crontab, compared with a plain look at every minute."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

from pool.jobs.crontab import Crontab, NoSuchMoment

START = datetime(2026, 2, 27, 23, 58, 30).timestamp()


def crontab(minute: str = "*", hour: str = "*", day: str = "*", month: str = "*", weekday: str = "*") -> Crontab:
    texts = [minute, hour, day, month, weekday]
    names = ("CronMinute", "CronHour", "CronDayOfMonth", "CronMonth", "CronDayOfWeek")
    found = Crontab.read(dict(zip(names, texts, strict=True)).get)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (("*",), "2026-02-27 23:59"),
        (("0",), "2026-02-28 00:00"),
        (("*/15", "6-7"), "2026-02-28 06:00"),
        (("30", "5", "1"), "2026-03-01 05:30"),
        (("0", "0", "29", "2"), "2028-02-29 00:00"),
        (("0", "12", "*", "*", "1"), "2026-03-02 12:00"),
        (("0", "12", "*", "*", "7"), "2026-03-01 12:00"),
        (("0", "12", "15", "*", "1"), "2026-03-02 12:00"),
        (("5,10", "3", "*", "4,6"), "2026-04-01 03:05"),
        (("50/4", "23"), "2026-02-28 23:50"),
    ],
)
def test_the_next_moment(fields: tuple[str, ...], expected: str) -> None:
    assert datetime.fromtimestamp(crontab(*fields).next(START)).strftime("%Y-%m-%d %H:%M") == expected


def test_moments_follow_each_other_as_the_clock_shows_them() -> None:
    table = crontab("*/20", "1,13", "*", "*", "1-5")
    moment, wanted = START, []
    for minute in range(1, 14 * 1440):
        at = datetime.fromtimestamp(START).replace(second=0) + timedelta(minutes=minute)
        if at.minute % 20 == 0 and at.hour in (1, 13) and at.isoweekday() <= 5:
            wanted.append(at.timestamp())
    found = []
    while (moment := table.next(moment)) <= wanted[-1]:
        found.append(moment)
    assert found == wanted
    assert time.localtime(found[0]).tm_sec == 0


@pytest.mark.parametrize("text", ["60", "-1", "a", "1-", "5-3", "*/0", "1,,2", "9" * 30])
def test_a_field_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(NoSuchMoment, match="'cron_minute'"):
        crontab(text)


def test_a_day_that_no_month_has_is_refused() -> None:
    with pytest.raises(NoSuchMoment, match="day 31"):
        crontab("0", "0", "31", "4")

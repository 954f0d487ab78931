"""A crontab of a job: the `cron_*` commands, whose moments it starts at. Pure: no clock is read."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pool.errors import PoolError

#: The fields of a crontab: minute, hour, day of month, month, day of week.
CRONTAB = ("CronMinute", "CronHour", "CronDayOfMonth", "CronMonth", "CronDayOfWeek")
#: The fields of a crontab's line, in the order of CRONTAB: command, least and greatest value.
_FIELDS = (
    ("cron_minute", 0, 59),
    ("cron_hour", 0, 23),
    ("cron_day_of_month", 1, 31),
    ("cron_month", 1, 12),
    ("cron_day_of_week", 0, 7),
)
#: Days among which a crontab's next moment is looked for: the 29th of February can be eight years away.
_DAYS = 8 * 366 + 1
_PART = re.compile(r"(?:(\*)|([0-9]{1,9})(?:-([0-9]{1,9}))?)(?:/([0-9]{1,9}))?")


class NoSuchMoment(PoolError):
    """A crontab that cannot be read, or names no moment at all."""


@dataclass(frozen=True, slots=True)
class Crontab:
    """The moments that five fields name; a day matches where its date or its weekday does, as cron has it."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    @classmethod
    def read(cls, get: Callable[[str], Any]) -> Crontab | None:
        """The crontab of a job, from its attributes; None where it has none.

        Raises:
            NoSuchMoment: a field cannot be read, or no moment has them all.
        """
        texts = [get(attribute) for attribute in CRONTAB]
        if all(text is None for text in texts):
            return None
        texts = ["*" if text is None else str(text).strip() for text in texts]
        sets = [_values(text, *field) for text, field in zip(texts, _FIELDS, strict=True)]
        weekdays = frozenset(day % 7 for day in sets[4])
        found = cls(sets[0], sets[1], sets[2], sets[3], weekdays, texts[2] == "*", texts[4] == "*")
        if found.any_weekday and not any(min(found.days) <= calendar.monthrange(2024, m)[1] for m in found.months):
            raise NoSuchMoment(f"no month of cron_month has day {min(found.days)}", hint="correct cron_day_of_month")
        return found

    def next(self, after: float) -> float:
        """The first moment later than that, wall time, by this machine's time zone."""
        now = datetime.fromtimestamp(after).replace(second=0, microsecond=0) + timedelta(minutes=1)
        day = now.date()
        for _ in range(_DAYS):
            if self._is_day(day.month, day.day, day.isoweekday() % 7):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        moment = datetime(day.year, day.month, day.day, hour, minute)
                        if moment >= now and moment.timestamp() > after:
                            return moment.timestamp()
            day += timedelta(days=1)
        raise NoSuchMoment("the crontab names no moment")

    def _is_day(self, month: int, day: int, weekday: int) -> bool:
        if month not in self.months:
            return False
        if self.any_day or self.any_weekday:
            return day in self.days and weekday in self.weekdays
        return day in self.days or weekday in self.weekdays


def _values(text: str, command: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        matched = _PART.fullmatch(part.strip())
        if matched is None:
            raise NoSuchMoment(f"expected numbers, ranges or steps for '{command}', not {text!r}", hint="as in crontab")
        first = low if matched[1] else int(matched[2])
        last = high if matched[1] or (matched[4] and not matched[3]) else int(matched[3] or matched[2])
        step = int(matched[4] or 1)
        if not low <= first <= last <= high or step < 1:
            raise NoSuchMoment(f"expected values from {low} to {high} for '{command}', not {text!r}")
        found.update(range(first, last + 1, step))
    return frozenset(found)

"""How single values look in a listing: times, sizes, states, ids.

Pure functions over wire-form ads (`{name: scalar, or a one-element list with an expression's text}`), so that
a listing of ten thousand jobs never builds a ClassAd. It lays out no columns (`tables`) and asks nobody.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

WireAd = Mapping[str, Any]

# EV 2.8 has U (unexpanded), R, I, C and X; held, transferring and suspended came with later pools.
STATUS_LETTERS = {1: "I", 2: "R", 3: "X", 4: "C", 5: "H", 6: ">", 7: "S"}
_IDLE, _UNEXPANDED = 1, "U"
STATUS_WORDS = {
    1: "idle",
    2: "running",
    3: "removed",
    4: "completed",
    5: "held",
    6: "transferring output",
    7: "suspended",
}
NOTHING = "-"
#: In the text of `Processes`; within a string the quote would be escaped.
_PROCESS_NAME = re.compile(r'\bName = "(\w+)"')


@lru_cache(maxsize=4096)
def duration(seconds: float | None) -> str:
    """`d+hh:mm:ss`, the papers' form (EV 2.8). Seconds are cut, not rounded; None gives `-`."""
    if seconds is None:
        return NOTHING
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86400)
    return f"{days}+{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def short_duration(seconds: float | None) -> str:
    """For people who wait: `0.42 s`, `12.3 s`, `4:05`, `1:02:03`, then `d+hh:mm:ss`."""
    if seconds is None:
        return NOTHING
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    if whole < 86400:
        return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return duration(whole)


@lru_cache(maxsize=4096)
def _day_and_minute(minutes: int) -> str:
    moment = time.localtime(minutes * 60)
    return f"{moment.tm_mon}/{moment.tm_mday} {moment.tm_hour:02d}:{moment.tm_min:02d}"


def moment(seconds: float | None) -> str:
    """Month/day hour:minute in local time, as the papers' SUBMITTED column (EV 2.8). Seconds since 1970."""
    return _day_and_minute(int(seconds) // 60) if seconds else NOTHING


@lru_cache(maxsize=4096)
def megabytes(kibibytes: float | None) -> str:
    """An image size given in KiB, shown in megabytes with one decimal (EV 2.8's SIZE)."""
    return f"{(kibibytes or 0) / 1024:.1f}"


def amount(count: int, noun: str) -> str:
    """`1 job`, `3 jobs`, `10,000 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def job_id(ad: WireAd) -> str:
    """`12.3` from an ad; `?` stands for a part that is missing."""
    return f"{ad.get('ClusterId', '?')}.{ad.get('ProcId', '?')}"


def number(value: Any, default: float | None = None) -> float | None:
    """A plain number from a wire value, or `default` where there is none (absent, or an expression)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    return value


def text(value: Any) -> str:
    """A wire value as a person reads it: strings bare, expressions as written, `-` where there is nothing."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return str(value[0]) if len(value) == 1 else str(value)
    return str(value)


def cut(value: str, size: int) -> str:
    """At most `size` characters; the last shows that there were more."""
    return value if len(value) <= size else value[: size - 1] + "…"


def one_line(value: str) -> str:
    """The same text without line ends and control characters, so that a row stays a row."""
    return value if value.isprintable() else re.sub(r"[^\S ]|[\x00-\x1f\x7f-\x9f]", " ", value)


@lru_cache(maxsize=4096)
def platform(requirements: str) -> str:
    """`X86_64_LINUX`, from what a job's Requirements ask of Arch and OpSys; `any` where they ask nothing."""
    parts = [
        match.group(1)
        for name in ("Arch", "OpSys(?:AndVer)?")
        if (match := re.search(rf'\b{name}\s*(?:==|=\?=)\s*"([^"]*)"', requirements, re.IGNORECASE))
    ]
    return "_".join(parts) if parts else "any"


def cpu_seconds(ad: WireAd) -> float:
    """Remote processor seconds, user and system, of all runs that have ended (EV 2.8's CpuUsage)."""
    return (number(ad.get("RemoteUserCpu"), 0.0) or 0.0) + (number(ad.get("RemoteSysCpu"), 0.0) or 0.0)


def command(ad: WireAd) -> str:
    """The job's program (its name alone) with its arguments; the names of all processes of a job of several."""
    if isinstance(several := ad.get("Processes"), list) and several:
        return " | ".join(_PROCESS_NAME.findall(several[0]))
    program = text(ad.get("Cmd")).rpartition("/")[2]
    arguments = ad.get("Args") or ""
    if quoted := ad.get("Arguments"):
        arguments = _unquoted(quoted) if isinstance(quoted, str) and "'" in quoted else quoted
    return one_line(f"{program} {arguments}" if isinstance(arguments, str) and arguments else program)


def _unquoted(arguments: str) -> str:
    """Arguments for reading, without the single quotes of their storage; unchanged if these do not pair."""
    parts = arguments.split("'")
    if len(parts) % 2 == 0:
        return arguments
    # Even parts stand outside quotes; an empty one between two quoted ones is a doubled, so a literal, quote.
    return "".join(
        "'" if not part and index % 2 == 0 and 0 < index < len(parts) - 1 else part for index, part in enumerate(parts)
    )


def exit_text(ad: WireAd) -> str:
    """How a job ended: `0`, `1`, `signal 9`, or `-` when it did not."""
    if ad.get("ExitBySignal") is True:
        return f"signal {ad.get('ExitSignal', '?')}"
    code = number(ad.get("ExitCode"))
    return NOTHING if code is None else str(int(code))


def json_value(value: Any) -> Any:
    """A wire value for JSON. An expression becomes `"/Expr(text)/"`, as ClassAds write it in JSON."""
    if isinstance(value, list | tuple) and len(value) == 1 and isinstance(value[0], str):
        return f"/Expr({value[0]})/"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'/Expr(real("{value}"))/'  # JSON has no word for these
    return value


_PLAIN = frozenset({str, int, bool, type(None)})


def json_ad(ad: WireAd) -> dict[str, Any]:
    """An ad for JSON, in the order of its names whatever their case."""
    return {name: value if type(value := ad[name]) in _PLAIN else json_value(value) for name in _sorted(tuple(ad))}


@lru_cache(maxsize=256)
def _sorted(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names in order; ten thousand ads of one kind have them sorted once."""
    return tuple(sorted(names, key=str.lower))


def long_value(value: Any) -> str:
    """A wire value as expression text of the long form (`Name = text`)."""
    if isinstance(value, list | tuple) and len(value) == 1:
        return str(value[0])
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace('"', '\\"') + '"'
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'real("{value}")'
    return "undefined" if value is None else str(value)


def long_ad(ad: WireAd) -> str:
    """An ad as `Name = text` lines in the order of its names, without a line end after the last."""
    return "\n".join(f"{name} = {long_value(ad[name])}" for name in _sorted(tuple(ad)))


def status_letter(ad: WireAd) -> str:
    """A job's state as one letter; an idle job that has never run is unexpanded (EV's word: it has no image yet)."""
    status = ad.get("JobStatus", 0)
    if status == _IDLE and not ad.get("NumJobStarts"):
        return _UNEXPANDED
    return STATUS_LETTERS.get(status, "?")

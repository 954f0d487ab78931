"""Which columns each listing has (EV 2.8, wider where today's users need it), and its line of totals.

Pure functions over wire-form ads; how the columns are laid out is `tables`' business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pool.cli import formats
from pool.cli.formats import NOTHING, WireAd
from pool.cli.tables import Column, layout

#: Slots of one job on several machines that a row names.
SLOTS_SHOWN = 4
_ID = Column("ID", formats.job_id, ("ClusterId", "ProcId"), right=True)
_OWNER = Column(
    "OWNER",
    lambda ad: formats.text(ad.get("Owner")),
    ("Owner",),
    short=lambda ad: formats.cut(formats.text(ad.get("Owner")), 10),
)
_SUBMITTED = Column("SUBMITTED", lambda ad: formats.moment(ad.get("QDate")), ("QDate",), right=True)
_CPU = Column(
    "CPU_USAGE",
    lambda ad: formats.duration(formats.cpu_seconds(ad)),
    ("RemoteUserCpu", "RemoteSysCpu"),
    right=True,
)
_WALL = Column(
    "RUN_TIME",
    lambda ad: formats.duration(formats.number(ad.get("RemoteWallClockTime"), 0.0)),
    ("RemoteWallClockTime",),
    right=True,
    wide=True,
)
_STATUS = Column("ST", formats.status_letter, ("JobStatus", "NumJobStarts"))
_PRIO = Column("PRI", lambda ad: formats.text(ad.get("JobPrio", 0)), ("JobPrio",), right=True)
_SIZE = Column("SIZE", lambda ad: formats.megabytes(formats.number(ad.get("ImageSize"))), ("ImageSize",), right=True)
_PLATFORM = Column("ARCH_OS", lambda ad: formats.platform(formats.text(ad.get("Requirements"))), ("Requirements",))
_COMMAND = Column("COMMAND", formats.command, ("Cmd", "Arguments", "Args", "Processes"))
_WHERE = Column("HOST", lambda ad: location(ad), ("RemoteHost", "AllRemoteHosts", "JobStatus"), wide=True)

JOBS: tuple[Column, ...] = (
    _ID, _OWNER, _SUBMITTED, _CPU, _WALL, _STATUS, _PRIO, _SIZE, _PLATFORM, _WHERE, _COMMAND,
)  # fmt: skip

HISTORY: tuple[Column, ...] = (
    _ID,
    _OWNER,
    _SUBMITTED,
    Column(
        "COMPLETED",
        lambda ad: formats.moment(ended_at(ad)),
        ("CompletionDate", "EnteredCurrentStatus"),
        right=True,
    ),
    _WALL,
    _CPU,
    Column("CKPTS", lambda ad: formats.text(ad.get("NumCkpts") or 0), ("NumCkpts",), right=True, wide=True),
    Column(
        "LOST",
        lambda ad: formats.duration(formats.number(ad.get("WorkLost"), 0.0)),
        ("WorkLost",),
        right=True,
        wide=True,
    ),
    _STATUS,
    Column("EXIT", formats.exit_text, ("ExitBySignal", "ExitCode", "ExitSignal"), right=True),
    Column("HOST", lambda ad: formats.text(ad.get("LastRemoteHost")), ("LastRemoteHost",), wide=True),
    _COMMAND,
)

HELD: tuple[Column, ...] = (
    _ID,
    _OWNER,
    Column(
        "HELD_SINCE",
        lambda ad: formats.moment(ad.get("EnteredCurrentStatus")),
        ("EnteredCurrentStatus",),
        right=True,
    ),
    Column("REASON", lambda ad: formats.one_line(formats.text(ad.get("HoldReason"))), ("HoldReason", "JobStatus")),
)

IDLE: tuple[Column, ...] = (
    _ID,
    _OWNER,
    Column(
        "IDLE_SINCE",
        lambda ad: formats.moment(ad.get("EnteredCurrentStatus") or ad.get("QDate")),
        ("EnteredCurrentStatus", "QDate"),
        right=True,
    ),
    Column(
        "LOOKED_AT",
        lambda ad: formats.moment(formats.number(ad.get("LastRejMatchTime"))),
        ("LastRejMatchTime",),
        right=True,
    ),
    Column(
        "NOT_MATCHED_FOR",
        lambda ad: formats.one_line(formats.text(ad.get("LastRejMatchReason"))),
        ("LastRejMatchReason",),
    ),
)


def location(ad: WireAd) -> str:
    """The slot a job is at, if it is at one; of a job on several machines the first slots, and how many more."""
    if ad.get("JobStatus") not in (2, 6, 7):
        return NOTHING
    slots = formats.text(ad.get("AllRemoteHosts") or ad.get("RemoteHost")).split(",")
    more = len(slots) - SLOTS_SHOWN
    return ",".join(slots[:SLOTS_SHOWN]) + (f",+{more}" if more > 0 else "")


def ended_at(ad: WireAd) -> float | None:
    """When a job left the queue: completed, or removed. Seconds since 1970."""
    return formats.number(ad.get("CompletionDate")) or formats.number(ad.get("EnteredCurrentStatus"))


def attributes(names: Sequence[str]) -> list[Column]:
    """Columns for attributes that the user named."""

    def column(name: str) -> Column:
        return Column(name, lambda ad: formats.one_line(formats.text(_find(ad, name))), (name,))

    return [column(name) for name in names]


def _find(ad: WireAd, name: str) -> Any:
    """An attribute by its name, whatever the case of either."""
    if name in ad:
        return ad[name]
    folded = name.lower()
    return next((value for key, value in ad.items() if key.lower() == folded), None)


def job_totals(ads: Iterable[WireAd]) -> str:
    """`12 jobs: 4 idle, 8 running` - only the states that occur."""
    return state_totals(Counter(ad.get("JobStatus", 0) for ad in ads))


def state_totals(counts: Mapping[int, int]) -> str:
    """The same from how many jobs are in which state."""
    words = [f"{counts[status]:,} {word}" for status, word in formats.STATUS_WORDS.items() if counts.get(status)]
    jobs = formats.amount(sum(counts.values()), "job")
    return f"{jobs}: {', '.join(words)}" if words else jobs


#: The columns of a summary about work and checkpoints.
_WORK = ("work", "lost", "checkpoint_seconds", "checkpoint_bytes")


def summary_lines(users: Sequence[Mapping[str, Any]], width: int | None = None) -> list[str]:
    """EV 2.8's summary: completed jobs, local and remote processor time and leverage by user, then the total; with work
    and checkpoints where there is any of them.

    Args:
        users: `{owner, jobs, local_cpu, remote_cpu, leverage, work, lost, checkpoint_seconds, checkpoint_bytes}` each,
            times in seconds.
    """
    rows = [_summary_row(str(user["owner"]), user) for user in users]
    keys = ("jobs", "local_cpu", "remote_cpu", *_WORK)
    total = {key: sum(user.get(key) or 0 for user in users) for key in keys}
    rows.append(_summary_row("TOTAL", total))
    titles = ["Name", "Jobs", "Local Cpu", "Remote Cpu", "Leverage"]
    if any(total[key] for key in _WORK):
        titles += ["Work", "Lost", "Saving", "Saved MB"]
    rows = [row[: len(titles)] for row in rows]
    return layout(titles, rows, right=[False, *[True] * (len(titles) - 1)], width=width)


def leverage(remote: float, local: float) -> float | None:
    """Remote processor seconds for each local one (EV 2.8); None while nothing local was used."""
    return remote / local if local > 0 else None


def _summary_row(name: str, user: Mapping[str, Any]) -> list[str]:
    local, remote = float(user.get("local_cpu") or 0), float(user.get("remote_cpu") or 0)
    ratio = leverage(remote, local)
    return [
        name,
        str(user.get("jobs", 0)),
        formats.duration(local),
        formats.duration(remote),
        NOTHING if ratio is None else f"{ratio:.1f}",
        *(formats.duration(float(user.get(key) or 0)) for key in ("work", "lost", "checkpoint_seconds")),
        f"{float(user.get('checkpoint_bytes') or 0) / 1e6:.0f}",
    ]

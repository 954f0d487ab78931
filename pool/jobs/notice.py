"""The notice at the end of a job: whether its user wants one, its text, and its content as data (VS 6.3.3).

The text is the paper's: the job and its processes, how it ended, when, how long, what each process used far away and
the shadow on the submit side, leverage and image size. How it is sent is not decided here. The same content stands as
data in the event of every job's end (`account`), asked for or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from enum import IntEnum
from functools import lru_cache
from typing import Any

from pool.jobs import costs, network_use
from pool.jobs.pipes.model import Ad, end_in_words, ends_of


class NotifyWhen(IntEnum):
    """The `notification` command of a job description; numbers are HTCondor's JobNotification."""

    NEVER = 0
    ALWAYS = 1
    COMPLETE = 2
    ERROR = 3


_COMPLETED, _HELD = 4, 5
#: SIGKILL.
_KILLED = 9


def should_notify(ad: Ad) -> bool:
    """Whether the user asked to hear of the state the job is in now.

    never: no. complete: it ended by itself, however. error: it ended by a signal, or not with its success
    exit code where it names one, or is held for a reason other than the user's own wish. always: any of
    these, and its removal.
    """
    wish, status = _int(ad, "JobNotification"), _int(ad, "JobStatus")
    held = status == _HELD and _int(ad, "HoldReasonCode") not in (1, 15)
    if wish == NotifyWhen.ALWAYS:
        return status != _HELD or held
    if wish == NotifyWhen.COMPLETE:
        return status == _COMPLETED
    if wish == NotifyWhen.ERROR:
        return held or (status == _COMPLETED and _went_wrong(ad))
    return False


def _went_wrong(ad: Ad) -> bool:
    if ad.value("ExitBySignal", False) is True:
        return True
    success = ad.value("JobSuccessExitCode", None)
    return isinstance(success, int) and ad.value("ExitCode", success) != success


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One process of a job and what it used on the execute machine, in seconds; `end`: how it ended, where not well."""

    name: str
    user: float
    system: float
    end: str = ""


def notice(ad: Ad, *, processes: Sequence[ProcessUse] | None = None, zone: tzinfo | None = None) -> str:
    """The text of the notice.

    Args:
        processes: for a job of several processes; None takes the one the ad describes.
        zone: for the dates; None is this machine's zone.
    """
    if processes is None:
        processes = _processes(ad, zone)
    lines = [f"Your poolnode job {_int(ad, 'ClusterId')}.{_int(ad, 'ProcId')}", ""]
    width = max(len(process.name) for process in processes)
    lines += [
        f"  {number:<3} {process.name:<{width}}  {process.end}".rstrip() for number, process in enumerate(processes)
    ]
    lines += ["", *_cause(ad), ""]
    submitted, ended = _real(ad, "QDate"), _real(ad, "CompletionDate") or _real(ad, "EnteredCurrentStatus")
    lines.append(f"Submitted at:      {date(submitted, zone)}")
    happened = {_COMPLETED: "Completed", _HELD: "Held"}.get(_int(ad, "JobStatus"), "Ended")
    lines.append(f"{happened} at:".ljust(19) + date(ended, zone))
    lines.append(f"Real Time:         {span(ended - submitted)}")
    lines += ["", *_table(processes), ""]
    user, system = _real(ad, "LocalUserCpu"), _real(ad, "LocalSysCpu")
    lines.append(f"Local User Time:    {span(user)}")
    lines.append(f"Local System Time:  {span(system)}")
    lines.append(f"Total Local Time:   {span(user + system)}")
    remote = sum(process.user + process.system for process in processes)
    lines += ["", f"Leveraging Factor:  {leverage(remote, user + system)}"]
    lines.append(f"Virtual Image Size: {_int(ad, 'ImageSize')} Kilobytes")
    lines += costs.lines(ad.value, span)
    if carried := network_use.in_words(lambda name: ad.value(name, None)):
        lines.append(f"Its own network carried {carried}")
    if isinstance(trouble := ad.value("CheckpointTrouble", None), str):
        lines.append(f"It could not be checkpointed: {trouble}")
    if isinstance(wanted := ad.value("EmailAttributes", None), str):
        lines += ["", *(f"{name} = {ad.value(name, 'undefined')}" for name in wanted.replace(",", " ").split())]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Plain:
    """An ad in wire form, for what is read here: attributes that are expressions count as absent."""

    wire: Mapping[str, Any]

    def value(self, name: str, default: Any = None) -> Any:
        value = self.wire.get(name, default)
        return default if isinstance(value, list) else value


def account(wire: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The content of the notice as data, for the event of a job's end; keys as `pool.jobs.events` lists them.

    Args:
        wire: the job's last ad in wire form.
        now: when it left the queue, wall seconds.
    """
    values = map(wire.get, FIGURES)
    try:
        figures = _figures(*values)
    except TypeError:  # an expression, which counts as absent
        figures = _figures(*(None if isinstance(wire.get(name), list) else wire.get(name) for name in FIGURES))
    submitted = figures["submitted"]
    return {
        "cause": _cause(Plain(wire))[0],
        "ended": now,
        "real": max(0.0, now - submitted) if submitted else 0.0,
        **figures,
    }


#: The arguments of `_figures`, in its order.
FIGURES = (
    *("QDate", "RemoteUserCpu", "RemoteSysCpu", "LocalUserCpu", "LocalSysCpu", "BytesSent", "BytesRecvd"),
    *("ImageSize", "CommittedTime", "WorkLost", "NumCkpts", "CheckpointSeconds", "CheckpointBytes"),
)


@lru_cache(256)
def _figures(*values: Any) -> Mapping[str, Any]:
    """The figures of `account` that come from the ad alone; the same for many jobs that are removed together."""
    known = [value if isinstance(value, (int, float)) else 0 for value in values]
    submitted, user, system, local_user, local_system, sent, received, image, work, lost, saved, saving, size = known
    local = float(local_user) + float(local_system)
    return {
        "submitted": float(submitted),
        "total_user_cpu": float(user),
        "total_system_cpu": float(system),
        "total_local_user_cpu": float(local_user),
        "total_local_system_cpu": float(local_system),
        "total_sent": int(sent),
        "total_received": int(received),
        "leverage": (float(user) + float(system)) / local if local > 0 else None,
        "image_size": int(image),
        "work": float(work),
        "lost": float(lost),
        "checkpoints": int(saved),
        "checkpoint_seconds": float(saving),
        "checkpoint_bytes": int(size),
    }


def leverage(remote: float, local: float) -> str:
    """Remote seconds for each local one (EV 2.8); '-' where nothing was used on the submit side yet."""
    return f"{remote / local:.1f}" if local > 0 else "-"


def span(seconds: float) -> str:
    """'days hours:minutes:seconds', as the paper prints it. A clock set back gives zero, not a riddle."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day} {hour:02d}:{minute:02d}:{second:02d}"


def _cause(ad: Ad) -> list[str]:
    status = _int(ad, "JobStatus")
    if status == _HELD:
        return [f"was held: {ad.value('HoldReason', 'no reason given')}"]
    if status != _COMPLETED:
        return [f"was removed: {ad.value('RemoveReason', 'no reason given')}"]
    if ad.value("ExitBySignal", False) is True:
        core = ", and left a core file" if ad.value("JobCoreDumped", False) is True else ""
        failed = ad.value("FailedProcess", None)
        which = f"process {failed} " if isinstance(failed, int) else ""
        which = next((f"{end['name']} " for end in ends_of(ad) if end["failed"] and end.get("host")), which)
        said = ad.value("ExitReason", None)
        if isinstance(said, str) and (not which or _int(ad, "ExitSignal") == _KILLED):
            return [f"was ended: {said}"]  # by its keeper, which has said what for
        return [f"{which}died because of signal {_int(ad, 'ExitSignal')}{core}."]
    code = _int(ad, "ExitCode")
    return ["exited normal." if code == 0 else f"exited with status {code}."]


def _end(end: Mapping[str, Any], zone: tzinfo | None) -> str:
    """How a process ended, where not well; of a node of a parallel job also where, and when."""
    how = "" if end.get("code") == 0 and not end.get("host") else end_in_words(end)
    if not end.get("host"):
        return how
    return f"{how} on {end['host']}" + (f" at {date(float(end['at']), zone)}" if end.get("at") else "")


def _processes(ad: Ad, zone: tzinfo | None) -> list[ProcessUse]:
    ends = ends_of(ad)
    if not ends:
        name = str(ad.value("Cmd", "")).rsplit("/", 1)[-1]
        return [ProcessUse(name, _real(ad, "RemoteUserCpu"), _real(ad, "RemoteSysCpu"))]
    return [
        ProcessUse(
            str(end["name"]),
            float(end["user_cpu"]),
            float(end["system_cpu"]),
            _end(end, zone),
        )
        for end in ends
    ]


def _table(processes: Sequence[ProcessUse]) -> list[str]:
    titles = ("Process", "Remote User Time", "Remote System Time", "Total Remote Time")
    rows = [
        (str(number), span(process.user), span(process.system), span(process.user + process.system))
        for number, process in enumerate(processes)
    ]
    widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    made = [
        "  ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in (titles, *rows)
    ]
    rule = "-" * len(made[0])
    return [rule, *made, rule]


def date(when: float, zone: tzinfo | None) -> str:
    """'Wed Aug  3 17:01:55 1994', as the paper prints it; '-' for a time that is not known."""
    if not when:
        return "-"
    moment = datetime.fromtimestamp(when, zone)
    # Not %e and %a, %b: those follow the locale of whoever started the node.
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[moment.weekday()]
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{day} {months[moment.month - 1]} {moment.day:2d} {moment:%H:%M:%S} {moment.year}"


def _int(ad: Ad, name: str) -> int:
    value = ad.value(name, 0)
    return int(value) if isinstance(value, (int, float)) else 0


def _real(ad: Ad, name: str) -> float:
    value = ad.value(name, 0.0)
    return float(value) if isinstance(value, (int, float)) else 0.0

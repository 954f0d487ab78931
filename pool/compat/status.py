"""`condor_status`: the machines and other ads of the pool."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.compat.actions import help_or_version
from pool.compat.asking import ask_pool, write
from pool.compat.c_printf import format_span
from pool.compat.options import ALL, Option, Parsed, parse
from pool.compat.queue import attribute_list, chosen_ads, limit_of, masked, whole_form
from pool.compat.shown_ad import ShownAd, byte_text
from pool.errors import PoolError
from pool.outside import OutsideWorld

if TYPE_CHECKING:
    from pool.client.pool import Pool

_ATTRIBUTES = "-af NAME ATTR ... shows any attribute"
OPTIONS = (
    Option("avail", 2),
    Option("pool", 1, 1),
    Option("ads", 2, 1, colon=True),
    Option("format", 1, 2),
    Option("autoformat", 5, ALL, colon=True),
    Option("af", 2, ALL, colon=True, key="autoformat"),
    Option("aaf", 3, ALL, colon=True, refused="-af ATTR ..., with the attributes of the columns"),
    Option("print-format", 2, 1, refused="-af ATTR ... or -format FMT ATTR"),
    Option("wide", 3, colon=True),
    Option("constraint", 3, 1),
    Option("direct", 3, 1, key="pool"),
    Option("help", 1),
    Option("limit", 2, 1),
    Option("long", 1, colon=True),
    Option("xml", 1),
    Option("json", 2),
    Option("attributes", 2, 1),
    Option("claimed", 2),
    Option("run", 1, key="claimed"),
    Option("gpus", 3, refused=_ATTRIBUTES),
    Option("java", 1, refused=_ATTRIBUTES),
    Option("absent", 2, refused="poolnode status shows each machine that the pool knows"),
    Option("compact", 3),
    Option("nocompact", 5),
    Option("server", 2, refused=_ATTRIBUTES),
    Option("state", 4, refused="poolnode status"),
    Option("startd", 4, key="machines"),
    Option("schedd", 2, key="Scheduler"),
    Option("submitters", 4, key="Submitter"),
    Option("negotiator", 1, key="Negotiator"),
    Option("any", 2, key="Any"),
    Option("sort", 2, 1),
    Option("master", 1, refused="a node has no master; poolnode status"),
    Option("collector", 3, refused="poolnode config COLLECTOR"),
    Option("totals", 1),
    Option("version", 3),
)
_KINDS = ("Scheduler", "Submitter", "Negotiator", "Any")
_STATES = ("Owner", "Claimed", "Unclaimed", "Matched", "Preempting", "Drained", "Backfill")
_DIGITS = re.compile(r"([0-9]+)")


def status(words: Sequence[str]) -> int:
    """Run `condor_status`; returns its exit status."""
    given = parse(OPTIONS, words)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_status", OPTIONS, given, "[machine | slot] ...")
    kind = next((one for one in _KINDS if given.has(one)), "Machine")
    mask, form, now = masked(given), whole_form(given), OutsideWorld().wall()
    ads = _found(given, kind)
    if form is not None:
        from pool.compat.ad_forms import FORMS, project, status_xml

        wanted = attribute_list(given)
        for text in {**FORMS, "xml": status_xml}[form](project(ad, wanted) for ad in ads):
            sys.stdout.write(text)
        return 0
    if mask is not None:
        rows = [mask.cells(ShownAd(ad, now)) for ad in ads]
        write(mask.header() + "".join([mask.row(cells) for cells in rows]))
        return 0
    if ads:
        write("".join(line + "\n" for line in _lines(given, kind, ads, now)))
    return 0


def _lines(given: Parsed, kind: str, ads: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    shown = [ShownAd(ad, now) for ad in ads]
    if given.has("compact") and kind == "Machine":
        raise PoolError("-compact is not possible here", hint="poolnode status")
    if given.has("totals") and kind == "Machine":
        return ["", *platform_totals(shown)]
    if given.has("claimed"):
        return _claimed(shown)
    return {"Machine": _machines, "Scheduler": _schedds, "Submitter": _submitters}.get(kind, _any)(shown)


def _found(given: Parsed, kind: str) -> list[dict[str, Any]]:
    """The ads that are meant, in their order.

    Raises:
        PoolError: a name fits none of them.
    """
    constraints = list(given.all_of("constraint"))
    if given.has("avail"):
        constraints.append('State == "Unclaimed"')
    if given.has("claimed"):
        constraints.append('State == "Claimed"')
    constraint = " && ".join(f"({one})" for one in constraints) or None
    if path := given.value("ads"):
        ads = chosen_ads(Path(path), {"constraint": constraint} if constraint else {})
    else:

        async def question(pool: Pool) -> list[dict[str, Any]]:
            return await pool.advertised(kind, constraint=constraint)

        ads = ask_pool(given.value("pool"), question)
    if given.words:
        for word in given.words:
            if not any(_is_named(ad, word) for ad in ads):
                raise PoolError(f"unknown host {word}", hint="`condor_status` lists them")
        ads = [ad for ad in ads if any(_is_named(ad, word) for word in given.words)]
    ads.sort(key=lambda ad: (_natural(str(ad.get("Machine") or "")), _natural(str(ad.get("Name") or ""))))
    if kind != "Machine":
        ads.sort(key=lambda ad: str(ad.get("Name") or ""))
    for name in reversed(given.all_of("sort")):
        ads.sort(key=lambda ad, name=name: _rank(ShownAd(ad).value(name)))  # type: ignore[misc]
    limit = limit_of(given)
    return ads[:limit] if limit else ads


def _is_named(ad: Mapping[str, Any], word: str) -> bool:
    machine = str(ad.get("Machine") or "")
    return word in (ad.get("Name"), machine, machine.partition(".")[0])


def _natural(text: str) -> list[Any]:
    parts: list[Any] = list(_DIGITS.split(text))
    parts[1::2] = map(int, parts[1::2])
    return parts


def _rank(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 0, float(value), ""
    return (1, 0.0, value) if isinstance(value, str) else (2, 0.0, "")


def _load(ad: ShownAd) -> str:
    load = ad.value("CondorLoadAvg") if ad.has("CondorLoadAvg") else ad.value("LoadAvg")
    return f"{load:6.3f}"[:6] if isinstance(load, int | float) else "[????]"


def _cell(ad: ShownAd, name: str, width: int, default: str = "??") -> str:
    return byte_text(ad.text(name) or default)[:width].ljust(width)


def _name_width(ads: Sequence[ShownAd]) -> int:
    return max([34, *(len(ad.text("Name") or "") for ad in ads)])


def _machines(ads: Sequence[ShownAd]) -> list[str]:
    width = _name_width(ads)
    memory = max([3, *(len(str(ad.integer("Memory"))) for ad in ads)])
    lines = [
        f"{'Name':<{width}} OpSys      Arch     State     Activity LoadAv {'Mem':<{max(memory, 6)}}  ActvtyTime",
        "",
    ]
    for ad in ads:
        since = ad.integer("EnteredCurrentActivity")
        there = ad.integer("MyCurrentTime", int(ad.now or 0))
        lines.append(
            f"{_cell(ad, 'Name', width)} {_cell(ad, 'OpSys', 10)} {_cell(ad, 'Arch', 8)} {_cell(ad, 'State', 9)} "
            f"{_cell(ad, 'Activity', 8)} {_load(ad)} {ad.integer('Memory'):>{max(memory, 6)}} "
            + format_span(max(0, there - since))[-11:]
        )
    return [*lines, "", *platform_totals(ads)]


def platform_totals(ads: Sequence[ShownAd]) -> list[str]:
    """How many slots of each platform are in which state."""
    counts: dict[str, Counter[str]] = {}
    for ad in ads:
        key = f"{ad.text('Arch') or ''}/{ad.text('OpSys') or ''}"
        counts.setdefault(key, Counter())[ad.text("State") or ""] += 1
    width = max([14, *(len(key) + 2 for key in counts)])
    lines = [f"{'':{width}} Total Owner Claimed Unclaimed Matched Preempting  Drain Backfill BkIdle", ""]
    every: Counter[str] = Counter()
    for key in sorted(counts):
        lines.append(_state_counts(key, counts[key], width))
        every.update(counts[key])
    return [*lines, "", _state_counts("Total", every, width)]


def _state_counts(name: str, count: Counter[str], width: int) -> str:
    owner, claimed, unclaimed, matched, preempting, drained, backfill = (count[state] for state in _STATES)
    return (
        f"{name:>{width}} {sum(count.values()):5d} {owner:5d} {claimed:7d} {unclaimed:9d} {matched:7d} "
        f"{preempting:10d} {drained:6d} {backfill:8d} {0:6d}"
    )


def _claimed(ads: Sequence[ShownAd]) -> list[str]:
    width = _name_width(ads)
    lines = [f"{'Name':<{width}} OpSys      Arch     LoadAv RemoteUser           ClientMachine   ", ""]
    for ad in ads:
        lines.append(
            f"{_cell(ad, 'Name', width)} {_cell(ad, 'OpSys', 10)} {_cell(ad, 'Arch', 8)} {_load(ad)} "
            f"{_cell(ad, 'RemoteUser', 20)} {_cell(ad, 'ClientMachine', 16)}"
        )
    return lines


def _schedds(ads: Sequence[ShownAd]) -> list[str]:
    names = ("TotalRunningJobs", "TotalIdleJobs", "TotalHeldJobs")
    return _counted(ads, "Machine", ("RunningJobs", "IdleJobs", "HeldJobs"), names)


def _submitters(ads: Sequence[ShownAd]) -> list[str]:
    names = ("RunningJobs", "IdleJobs", "HeldJobs")
    lines = _counted(ads, "Machine", names, names)[:-5]
    width = max([9, *(len(ad.text("Name") or "") for ad in ads)])
    totals = [sum(ad.integer(name) for ad in ads) for name in names]
    rows = [(ad.text("Name") or "", [ad.integer(name) for name in names]) for ad in ads]
    lines += ["", f"{'':{width}} {names[0]:>11} {names[1]:>10} {names[2]:>10}", ""]
    shown = [f"{name:>{width}} {one[0]:11d} {one[1]:10d} {one[2]:10d}" for name, one in [*rows, ("Total", totals)]]
    return [*lines, *shown[:-1], "", shown[-1]]


def _counted(ads: Sequence[ShownAd], second: str, titles: Sequence[str], names: Sequence[str]) -> list[str]:
    wide = max([4, *(len(ad.text("Name") or "") for ad in ads)])
    also = max([len(second), *(len(ad.text(second) or "") for ad in ads)])
    heading = f"{'Name':<{wide}} {second:<{also}} {titles[0]:>11} {titles[1]:>10} {titles[2]:>10}"
    lines = [heading, ""]
    totals = [0, 0, 0]
    for ad in ads:
        counts = [ad.integer(name) for name in names]
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        shown = f"{counts[0]:11d} {counts[1]:10d} {counts[2]:10d}"
        lines.append(f"{_cell(ad, 'Name', wide)} {_cell(ad, second, also)} {shown}")
    heads = " ".join(f"{name:>18}" for name in names)
    sums = " ".join(f"{total:18d}" for total in totals)
    return [*lines, "", f"{'':14}{heads}", "", " " * 14, f"{'Total':>14}{sums}"]


def _any(ads: Sequence[ShownAd]) -> list[str]:
    lines = ["MyType             TargetType         Name                                     ", ""]
    for ad in ads:
        lines.append(f"{_cell(ad, 'MyType', 18)} {'None':<18} {byte_text(ad.text('Name') or '??'):<41}")
    return lines

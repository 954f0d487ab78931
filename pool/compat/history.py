"""`condor_history`: jobs that have left the queue, newest first."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.compat.actions import help_or_version
from pool.compat.asking import ask_pool, schedd_address, selection, write
from pool.compat.options import ALL, Option, Parsed, parse
from pool.compat.queue import attribute_list, chosen_ads, limit_of, masked, whole_form
from pool.compat.shown_ad import ShownAd, byte_text
from pool.errors import PoolError
from pool.outside import OutsideWorld

if TYPE_CHECKING:
    from pool.client.pool import Pool

_SINCE = "-constraint 'CompletionDate > SECONDS'"
OPTIONS = (
    Option("long", 1, colon=True),
    Option("xml", 3),
    Option("jsonl", 5, refused="-json"),
    Option("json", 4),
    Option("backwards", 1),
    Option("nobackwards", 3, key="forwards"),
    Option("forwards", 4),
    Option("wide", 1, colon=True),
    Option("match", 1, 1, key="limit"),
    Option("limit", 3, 1),
    Option("scanlimit", 4, 1, refused="-limit N"),
    Option("file", 2, 1),
    Option("userlog", 1, 1, refused="the history is the schedd's own"),
    Option("local", 2),
    Option("schedd", 3),
    Option("attributes", 2, 1),
    Option("help", 1),
    Option("format", 1, 2),
    Option("af", 2, ALL, colon=True, key="autoformat"),
    Option("autoformat", 5, ALL, colon=True),
    Option("print-format", 2, 1, refused="-af ATTR ... or -format FMT ATTR"),
    Option("epochs", 2, colon=True, refused="poolnode why JOB tells of a job's runs"),
    Option("constraint", 1, 1),
    Option("since", 4, 1, refused=_SINCE),
    Option("completedsince", 3, 1),
    Option("name", 1, 1),
    Option("pool", 1, 1),
    Option("version", 4),
)
_LISTED = (
    "ClusterId",
    "ProcId",
    "Owner",
    "QDate",
    "RemoteWallClockTime",
    "RemoteUserCpu",
    "JobStatus",
    "CompletionDate",
    "Cmd",
    "Args",
    "Arguments",
    "JobDescription",
    "TransferringInput",
    "TransferringOutput",
    "TransferQueued",
)


def history(words: Sequence[str]) -> int:
    """Run `condor_history`; returns its exit status."""
    given = parse(OPTIONS, words)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_history", OPTIONS, given, "[cluster | cluster.proc | owner] ...")
    mask, form, now = masked(given), whole_form(given), OutsideWorld().wall()
    if form is not None:
        from pool.compat.ad_forms import FORMS, history_xml, project

        wanted = attribute_list(given)
        for text in {**FORMS, "xml": history_xml}[form](project(ad, wanted) for ad in _ads(given, None)):
            sys.stdout.write(text)
        return 0
    if mask is not None:
        rows = [mask.cells(ShownAd(ad, now)) for ad in _ads(given, None)]
        write(mask.header() + "".join([mask.row(cells) for cells in rows]))
        return 0
    write("".join([line + "\n" for line in listing(_ads(given, _LISTED))]))
    return 0


def _ads(given: Parsed, attributes: Sequence[str] | None) -> list[dict[str, Any]]:
    constraints = list(given.all_of("constraint"))
    if since := given.value("completedsince"):
        constraints.append(f"CompletionDate > {_moment(since)}")
    params = selection(given.words, constraints)
    if limit := limit_of(given):
        params["limit"] = limit
    if path := given.value("file"):
        limit = params.pop("limit", None)
        ads = history_file(Path(path), params)
        return (ads if given.has("forwards") else list(reversed(ads)))[:limit]
    if attributes is not None:
        params["attributes"] = list(attributes)

    async def question(pool: Pool) -> list[dict[str, Any]]:
        at = await schedd_address(pool, given.value("name"))
        return await pool.gather("schedd.history", params, at=at)

    found = ask_pool(given.value("pool"), question)
    return list(reversed(found)) if given.has("forwards") else found


def history_file(path: Path, params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The chosen ads of a file as HTCondor keeps its history: ads in long form, each followed by a line of stars."""
    import tempfile

    lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    text = "\n".join("" if line.startswith("***") else line for line in lines)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape", suffix=".ads") as plain:
        plain.write(text)
        plain.flush()
        return chosen_ads(Path(plain.name), params)


def _moment(text: str) -> int:
    from pool.decimals import has_digits_only

    if not has_digits_only(text):
        raise PoolError(f"-completedsince {text}: no time", hint="seconds since 1970, as `date +%s` prints them")
    return int(text)


def listing(ads: Sequence[Mapping[str, Any]]) -> list[str]:
    """The heading and a line for each job."""
    from pool.compat.c_printf import format_date, format_span
    from pool.compat.job_rows import description, status_letters

    rows = []
    for wire in ads:
        ad = ShownAd(wire)
        wall = ad.value("RemoteWallClockTime")
        rows.append(
            (
                f"{ad.integer('ClusterId')}.{ad.integer('ProcId')}",
                byte_text(ad.text("Owner") or "??")[:14],
                format_date(ad.integer("QDate")) if ad.has("QDate") else "[?????????]",
                format_span(int(wall) if isinstance(wall, int | float) else ad.integer("RemoteUserCpu")),
                status_letters(ad),
                format_date(ad.integer("CompletionDate")) if ad.integer("CompletionDate") else "",
                byte_text(description(ad)),
            )
        )
    width = max([12, *(len(row[0]) for row in rows)])
    lines = [f"{' ID':<{width}} OWNER            SUBMITTED   RUN_TIME   ST   COMPLETED CMD"]
    lines += [
        f"{job:<{width}} {owner:<14} {queued:>11} {spent:>12} {letters} {ended:>11} {command}".rstrip()
        for job, owner, queued, spent, letters, ended, command in rows
    ]
    return lines

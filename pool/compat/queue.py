"""`condor_q`: what is in the queue."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.compat.asking import AlikeJobs, alike, ask_pool, job_groups, print_error, schedd_address, selection, write
from pool.compat.options import ALL, Option, Parsed, parse, usage
from pool.compat.shown_ad import ShownAd
from pool.errors import PoolError
from pool.jobs.job_columns import JobColumns, of_item, values
from pool.outside import OutsideWorld

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.compat.print_mask import PrintMask

_DAG = "poolnode dag show"
#: The abbreviations are HTCondor's; of several that fit, the first is meant.
OPTIONS = (
    Option("wide", 1, colon=True),
    Option("long", 1, colon=True),
    Option("xml", 3),
    Option("json", 2),
    Option("limit", 3, 1),
    Option("pool", 1, 1),
    Option("name", 1, 1),
    Option("submitter", 1, 1),
    Option("constraint", 1, 1),
    Option("address", 1, 1, key="pool"),
    Option("addr", 4, 1, key="pool"),
    Option("autocluster", 2, colon=True, refused="poolnode why JOB shows what jobs of a kind wait for"),
    Option("attributes", 2, 1),
    Option("format", 1, 2),
    Option("aaf", 3, ALL, colon=True, refused="-af ATTR ..., with the attributes of the columns"),
    Option("autoformat", 5, ALL, colon=True),
    Option("af", 2, ALL, colon=True, key="autoformat"),
    Option("print-format", 2, 1, refused="-af ATTR ... or -format FMT ATTR"),
    Option("global", 1),
    Option("allusers", 2),
    Option("all-users", 2, key="allusers"),
    Option("help", 1),
    Option("better-analyze", 2, colon=True, key="analyze"),
    Option("better-analyse", 2, colon=True, key="analyze"),
    Option("analyze", 2, colon=True),
    Option("analyse", 2, colon=True, key="analyze"),
    Option("unmatchable", 5, colon=True, refused="poolnode q --idle"),
    Option("run", 1),
    Option("hold", 2),
    Option("held", 2, key="hold"),
    Option("idle", 3),
    Option("cputime", 2),
    Option("currentrun", 3),
    Option("io", 2, refused="poolnode inspect JOB shows what a job reads and writes"),
    Option("dag", 2, refused=_DAG),
    Option("batch", 2, colon=True),
    Option("nobatch", 3),
    Option("totals", 3),
    Option("jobads", 1, 1, colon=True),
    Option("version", 1),
    Option("stream-results", 2),
)
_FORMS = {"xml": "xml", "json": "json", "long": "long", "": "long", "auto": "long"}


def queue(words: Sequence[str]) -> int:
    """Run `condor_q`; returns its exit status."""
    given = parse(OPTIONS, words)
    if given.has("help"):
        sys.stdout.write(usage("condor_q", OPTIONS, "[cluster | cluster.proc | owner] ..."))
        return 0
    if given.has("version"):
        from pool.compat.settings import version

        return version([])
    if given.has("analyze"):
        return _analyze(given)
    mask = masked(given)
    form = whole_form(given)
    now = OutsideWorld().wall()
    if form is not None:
        return _whole(given, form, now)
    return _masked(given, mask, now) if mask is not None else _listed(given, now)


def masked(given: Parsed) -> PrintMask | None:
    """The columns that `-format` and `-autoformat` ask for, None without them."""
    chosen = [one for one in given.options if one.key in ("format", "autoformat")]
    if not chosen:
        return None
    from pool.compat.print_mask import PrintMask

    mask = PrintMask()
    for one in chosen:
        if one.key == "format":
            mask.add_format(*one.values)
        else:
            mask.add_automatic(one.letters or "", one.values)
    return mask


def whole_form(given: Parsed) -> str | None:
    """long, json or xml; None where no whole ads are asked for.

    Raises:
        PoolError: a form that there is not.
    """
    for key in ("json", "xml"):
        if given.has(key):
            return key
    letters = given.letters("long")
    if letters is None:
        return None
    if letters not in _FORMS:
        raise PoolError(f"-long:{letters} is not possible here", hint="the forms are long, json and xml")
    return _FORMS[letters]


def attribute_list(given: Parsed) -> list[str] | None:
    """The names after `-attributes`."""
    text = given.value("attributes")
    return [name for name in text.replace(",", " ").split() if name] if text is not None else None


def limit_of(given: Parsed, key: str = "limit") -> int | None:
    """The number of a limit.

    Raises:
        PoolError: it is no number from 0 on.
    """
    from pool.decimals import has_digits_only

    text = given.value(key)
    if text is None:
        return None
    if not has_digits_only(text):
        raise PoolError(f"-{key} requires a number, and '{text}' is none")
    return int(text)


def _params(given: Parsed, *, everybody: bool = False) -> dict[str, Any]:
    """The jobs that are asked for: by default the user's own."""
    constraints = list(given.all_of("constraint"))
    for key, condition in (("hold", "JobStatus == 5"), ("idle", "JobStatus == 1")):
        if given.has(key):
            constraints.append(condition)
    if given.has("run"):
        constraints.append("JobStatus == 2 || JobStatus == 6 || JobStatus == 7")
    words = [*given.words, *given.all_of("submitter")]
    if not (words or everybody or given.has("allusers") or given.has("global")):
        from pool.client.descriptions import user_name

        if user_name() != "root":
            words = [user_name()]
    params = selection(words, constraints)
    if limit := limit_of(given):
        params["limit"] = limit
    return params


def _file_ads(given: Parsed) -> list[dict[str, Any]] | None:
    """The ads of `-jobads FILE`, those that are chosen; None without it."""
    path = given.value("jobads")
    if path is None:
        return None
    return chosen_ads(Path(path), _params(given, everybody=True))


def chosen_ads(path: Path, params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The ads of a file in long form that a query's parameters choose, in their order.

    Raises:
        PoolError: the file or the constraint cannot be read.
    """
    from pool.classad import ClassAd, evaluate, parse_expr

    parts = [params["constraint"]] if "constraint" in params else []
    if "owner" in params:
        parts.append(f'Owner == "{params["owner"]}"')
    if "ids" in params:
        ids = [" && ".join(map("{} == {}".format, ("ClusterId", "ProcId"), one)) for one in params["ids"]]
        parts.append(" || ".join(f"({one})" for one in ids))
    constraint = parse_expr(" && ".join(f"({part})" for part in parts)) if parts else None
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    ads = [ClassAd.from_long(part) for part in text.split("\n\n") if part.strip()]
    chosen = [ad for ad in ads if constraint is None or evaluate(constraint, ad) is True]
    limit = params.get("limit")
    return [ad.to_wire() for ad in (chosen[:limit] if limit else chosen)]


def _whole(given: Parsed, form: str, now: float) -> int:
    from pool.compat.ad_forms import FORMS, project

    wanted = attribute_list(given)
    ads = _file_ads(given)
    if ads is None:
        everything = _every_schedd(given, lambda pool, at: pool.gather("schedd.query", _params(given), at=at))
        ads = sorted((ad for _, _, found in everything for ad in found), key=job_order)
        for ad in ads:
            ad["ServerTime"] = int(now)
    for text in FORMS[form](project(ad, wanted) for ad in ads):
        sys.stdout.write(text)
    return 0


def job_order(ad: Mapping[str, Any]) -> tuple[int, int]:
    """The place of a job's ad among others."""
    return ad.get("ClusterId", 0), ad.get("ProcId", 0)


def _every_schedd(given: Parsed, ask: Any) -> list[tuple[str, str, Any]]:
    """The answers of the schedd that is meant, or of all with `-global`: (name, address, answer)."""

    async def question(pool: Pool) -> list[tuple[str, str, Any]]:
        info = await pool.info()
        if not given.has("global"):
            at = await schedd_address(pool, given.value("name"))
            name = given.value("name") or str(info.get("node") or "")
            return [(name, str(at or info.get("address") or pool.address), await ask(pool, at))]
        found = []
        for ad in sorted(await pool.advertised("Scheduler", attributes=["Name", "ScheddAddress"]), key=str):
            at = str(ad["ScheddAddress"])
            found.append((str(ad["Name"]), at, await ask(pool, None if at == info.get("address") else at)))
        return found

    return ask_pool(given.value("pool"), question)


def _groups(given: Parsed, wanted: Sequence[str]) -> list[tuple[str, str, list[JobColumns]]]:
    return [(name, at, groups) for name, at, (groups, _) in _groups_and_all(given, wanted, count_all=False)]


def _groups_and_all(
    given: Parsed, wanted: Sequence[str], *, count_all: bool
) -> list[tuple[str, str, tuple[list[JobColumns], list[JobColumns]]]]:
    """The jobs that are asked for, and with `count_all` those of everybody, with their users and states."""
    ads = _file_ads(given)
    if ads is not None:
        path = Path(str(given.value("jobads")))
        return [(str(path), "", (list(map(of_item, ads)), []))]
    params = _params(given)

    async def ask_schedd(pool: Pool, at: str | None) -> tuple[list[JobColumns], list[JobColumns]]:
        groups = await job_groups(pool, params, wanted, at=at)
        if not count_all:
            return groups, []
        return groups, groups if not params and "Owner" in wanted else await job_groups(pool, {}, ["Owner"], at=at)

    return _every_schedd(given, ask_schedd)


def _masked(given: Parsed, mask: PrintMask, now: float) -> int:
    needs = mask.needed_attributes()
    texts: list[str] = []
    for _, _, groups in _groups(given, needs):
        write_masked(mask, needs, alike(groups), now, texts, is_file=given.has("jobads"))
    write("".join(texts))
    return 0


def write_masked(
    mask: PrintMask, needs: Sequence[str], groups: Iterable[AlikeJobs], now: float, texts: list[str], *, is_file: bool
) -> None:
    """Add the heading, if any, and the row of each job in the order of their ids."""
    by_number = any(name.lower() == "procid" for name in needs)
    rows: list[tuple[int, int, list[str]]] = []
    for ad, procs in groups:
        if not is_file:
            ad["ServerTime"] = int(now)
        cluster = ad.get("ClusterId", 0)
        if by_number:
            rows += [(cluster, proc, mask.cells(ShownAd({**ad, "ProcId": proc}, now))) for proc in procs]
        else:
            cells = mask.cells(ShownAd(ad, now))
            rows += [(cluster, proc, cells) for proc in procs]
    rows.sort(key=lambda row: row[:2])
    texts.append(mask.header())
    laid: dict[int, str] = {}
    for _, _, cells in rows:
        text = laid.get(id(cells))
        if text is None:
            text = laid[id(cells)] = mask.row(cells)
        texts.append(text)


def _listed(given: Parsed, now: float) -> int:
    from pool.compat.job_rows import NEEDS, BatchListing, JobListing

    kind = next((one for one in ("hold", "run", "idle", "totals") if given.has(one)), "")
    if not kind:
        kind = "nobatch" if given.has("nobatch") else "batch"
    mine = _mine() if not given.has("jobads") else None
    with_totals = kind in ("batch", "nobatch", "hold", "totals")
    found = _groups_and_all(given, NEEDS[kind], count_all=with_totals and mine is not None)
    texts: list[str] = []

    def shown(ad: Mapping[str, Any]) -> ShownAd:
        return ShownAd(ad, now, exact=mine is not None)

    for name, address, (groups, of_all) in found:
        states: Counter[int] = Counter()
        listing = (
            BatchListing(whole=not any("." in word for word in given.words))
            if kind == "batch"
            else JobListing(kind if kind != "totals" else "hold", now, cpu=given.has("cputime"))
        )
        for group in groups:
            states.update(values(group, "JobStatus", 0))
            if kind != "totals":
                shared, columns = group
                for always in ("RemoteUserCpu", "ImageSize", "JobPrio"):
                    if mine is not None and always not in columns:
                        shared.setdefault(always, 0)
                listing.add(group, shown)
        texts.append(_title(name, address, now, groups, is_file=given.has("jobads")))
        texts += [] if kind == "totals" else [line + "\n" for line in listing.lines()]
        if with_totals:
            texts.append(_totals(states, of_all, mine, ended=kind == "totals"))
    write("".join(texts))
    return 0


def _mine() -> str:
    from pool.client.descriptions import user_name

    return user_name()


def _title(name: str, address: str, now: float, groups: Sequence[JobColumns], *, is_file: bool) -> str:
    when = time.strftime("%m/%d/%y %H:%M:%S", time.localtime(now))
    if is_file:
        now = max((int(ad["ServerTime"]) for ad, _ in groups if "ServerTime" in ad), default=now)
        when = time.strftime("%m/%d/%y %H:%M:%S", time.localtime(now))
        return f"\n\n-- Jobads: {name} @ {when}\n"
    at = address.partition("://")[2] or address
    return f"\n\n-- Schedd: {name} : <{at}?... @ {when}\n"


def _totals(states: Mapping[int, int], of_all: Sequence[JobColumns], mine: str | None, *, ended: bool) -> str:
    """The lines of totals: of what was asked for, of the user's jobs, of everybody's."""
    from pool.compat.job_rows import totals_line

    lines = [totals_line(states)]
    if mine is None:
        return ("" if ended else "\n") + lines[0] + " \n\n"
    own: Counter[int] = Counter()
    everyone: Counter[int] = Counter()
    for group in of_all:
        found, owners = values(group, "JobStatus", 0), values(group, "Owner")
        everyone.update(found)
        own.update(status for status, owner in zip(found, owners, strict=True) if owner == mine)
    lines += [totals_line(own, mine), totals_line(everyone, "all users")]
    return ("" if ended else "\n") + " \n".join(lines) + "\n\n"


def _analyze(given: Parsed) -> int:
    """`-analyze` and `-better-analyze`: the answer of `poolnode why` for each job."""

    async def question(pool: Pool) -> tuple[list[str], list[str]]:
        jobs = await job_groups(pool, _params(given), [], at=await schedd_address(pool, given.value("name")))
        texts, failed = [], []
        for ad, procs in alike(jobs):
            for proc in procs:
                try:
                    texts.append("\n".join((await pool.why((ad["ClusterId"], proc))).lines(None)))
                except PoolError as error:
                    failed.append(f"{ad['ClusterId']}.{proc}: {error}")
        return texts, failed

    texts, failed = ask_pool(given.value("pool"), question)
    sys.stdout.write("\n\n".join(texts) + ("\n" if texts else ""))
    for line in failed:
        print_error(line)
    return 1 if failed else 0

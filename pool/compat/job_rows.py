"""The listings of jobs that `condor_q` and `condor_history` have for people, and which programs take apart.

Pure functions over ads. Columns stand where HTCondor has them: Nextflow reads the sixth word of a line of `-nobatch`,
and takes an empty line for the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from pool.compat.asking import alike
from pool.compat.c_printf import format_date, format_span
from pool.compat.shown_ad import ShownAd, byte_text
from pool.jobs.job_columns import JobColumns, values

#: State -> letter.
LETTERS = {1: "I", 2: "R", 3: "X", 4: "C", 5: "H", 6: ">", 7: "S"}
_UNIVERSES = {5: "Vanilla", 7: "Scheduler", 8: "MPI", 9: "Grid", 10: "Java", 11: "Parallel", 12: "Local", 13: "VM"}
_RUNNING = (2, 6, 7)
#: The value of MemoryUsage in the jobs of our own schedds.
_MEMORY_USAGE = ["((ResidentSetSize + 1023) / 1024)"]
_NO_DATE = "[?????????]"
#: The attributes in the last column of `-nobatch`. Many jobs differ only in these.
_DESCRIBING = ("JobDescription", "Cmd", "Args", "Arguments")
#: Attributes that each listing needs.
NEEDS: dict[str, tuple[str, ...]] = {
    "nobatch": (
        "Owner",
        "QDate",
        "RemoteUserCpu",
        "JobPrio",
        "ImageSize",
        "MemoryUsage",
        "Cmd",
        "Args",
        "Arguments",
        "JobDescription",
        "ShadowBday",
        "JobCurrentStartDate",
        "LastRemoteWallClockTime",
        "TransferringInput",
        "TransferringOutput",
        "TransferQueued",
    ),
    "batch": ("Owner", "QDate", "JobBatchName", "TotalSubmitProcs"),
    "hold": ("Owner", "EnteredCurrentStatus", "HoldReason", "HoldReasonCode", "HoldReasonSubCode"),
    "run": (
        "Owner",
        "QDate",
        "RemoteUserCpu",
        "ShadowBday",
        "JobCurrentStartDate",
        "LastRemoteWallClockTime",
        "RemoteHost",
    ),
    "idle": (
        "Owner",
        "JobUniverse",
        "RequestCpus",
        "RequestMemory",
        "NumShadowStarts",
        "NumJobStarts",
        "LastRemoteHost",
    ),
    "totals": ("Owner",),
}


class JobListing:
    """One listing with a line for each job: `add` all jobs, then take its `lines`.

    Args:
        kind: nobatch, hold, run or idle.
        now: seconds since 1970, for run times.
        cpu: RUN_TIME is processor time.
    """

    def __init__(self, kind: str, now: float, *, cpu: bool = False) -> None:
        self._kind = kind
        self._now = now
        self._cpu = cpu
        self._rows: list[tuple[int, int, tuple[str, ...], str]] = []

    def add(self, group: JobColumns, shown: Callable[[Mapping[str, Any]], ShownAd]) -> None:
        """Add the jobs of a group.

        Args:
            shown: makes the ad whose values are shown from a job's ad.
        """
        shared, columns = group
        if self._kind == "nobatch" and _differ_in_description(group):
            ad = shown(shared)
            cells = _nobatch(ad, self._now, self._cpu)
            texts: Iterable[str] = repeat(description(ad), len(columns["ProcId"]))
            if len(columns) > 1:
                texts = _descriptions(group)
            numbers = values(group, "ClusterId", 0), columns["ProcId"]
            self._rows += zip(*numbers, repeat(cells), map(byte_text, texts), strict=False)
            return
        for wire, procs in alike([group]):
            ad = shown(wire)
            cells = _CELLS[self._kind](ad, self._now, self._cpu)
            last = byte_text(description(ad)) if self._kind == "nobatch" else ""
            cluster = ad.integer("ClusterId")
            self._rows += [(cluster, proc, cells, last) for proc in procs]

    def lines(self) -> list[str]:
        """The heading and a line for each job, in the order of their ids."""
        rows = sorted(self._rows)
        id_width, proc_width, name_width = 4, 3, 14
        longest = max((len(row[2][0]) for row in rows), default=0)
        highest, last = max((row[0] for row in rows), default=0), max((row[1] for row in rows), default=0)
        roomy = not self._cpu and (highest >= 9999 or last >= 999 or longest > 14)
        if roomy:
            id_width, proc_width = max(4, len(str(highest))), max(3, len(str(last)))
        layout = _LAYOUTS[self._kind](rows, roomy)
        titles = " ID".ljust(id_width + 1) + " " * proc_width
        heading = f"{titles} {'OWNER':<{name_width}} " + layout[0].replace(
            "RUN_TIME", "CPU_TIME" if self._cpu else "RUN_TIME"
        )
        lines = [heading]
        laid: dict[int, str] = {}
        for cluster, proc, cells, text in rows:
            before = laid.get(id(cells))
            if before is None:
                before = laid[id(cells)] = f"{cells[0][:name_width]:<{name_width}} " + layout[1](cells)
            lines.append(f"{cluster:{id_width}d}.{proc:<{proc_width}d} {before}{text}".rstrip())
        return lines


def _differ_in_description(group: JobColumns) -> bool:
    """Whether the jobs of a group share all cells of `-nobatch` except the last. Jobs with expressions never do."""
    shared, columns = group
    plain = all(type(value) is not list or value == _MEMORY_USAGE for value in shared.values())
    return (
        plain
        and columns.keys() <= {"ClusterId", "ProcId", *_DESCRIBING}
        and not any(list in map(type, column) for column in columns.values())
    )


def _nobatch(ad: ShownAd, now: float, cpu: bool) -> tuple[str, ...]:
    return (
        byte_text(ad.text("Owner") or "??"),
        f"{_date(ad, 'QDate'):>11}",
        f"{_run_time(ad, now, cpu):>12}",
        status_letters(ad),
        _number_text(ad, "JobPrio"),
        _memory(ad),
    )


def _nobatch_layout(rows: Sequence[Any], roomy: bool) -> Any:
    prio = max([3, *(len(row[2][4]) for row in rows if row[2][4] != "undefined")])
    size = max([4, *(len(row[2][5]) for row in rows)]) if roomy else 4
    heading = f"  SUBMITTED     RUN_TIME ST {'PRI':<{prio}} {'SIZE':<{size}} CMD"
    return (
        heading,
        lambda cells: f"{cells[1]} {cells[2]:.12} {cells[3]} {cells[4]:<{prio}} {cells[5][:size]:>{size}} ",
    )


def _hold(ad: ShownAd, now: float, cpu: bool) -> tuple[str, ...]:
    code, subcode = ad.raw("HoldReasonCode"), ad.raw("HoldReasonSubCode")
    return (
        byte_text(ad.text("Owner") or "??"),
        _date(ad, "EnteredCurrentStatus") or _NO_DATE,
        f"{ad.integer('HoldReasonCode'):4d}" if code is not None else "?   ",
        f"/{ad.integer('HoldReasonSubCode'):<3d}"[:4] if subcode is not None else "    ",
        byte_text(ad.text("HoldReason") or "undefined"),
    )


def _hold_layout(rows: Sequence[Any], roomy: bool) -> Any:
    return "HELD_SINCE  CODE/SUB HOLD_REASON", lambda cells: f"{cells[1]} {cells[2]}{cells[3]} {cells[4]}"


def _run(ad: ShownAd, now: float, cpu: bool) -> tuple[str, ...]:
    host = ad.text("RemoteHost")
    return (
        byte_text(ad.text("Owner") or "??"),
        _date(ad, "QDate") or _NO_DATE,
        f"{_run_time(ad, now, cpu) or '[??????????]':>12}",
        byte_text(host) if host else "",
    )


def _run_layout(rows: Sequence[Any], roomy: bool) -> Any:
    return "  SUBMITTED     RUN_TIME HOST(S)", lambda cells: f"{cells[1]} {cells[2]} {cells[3]}"


def _idle(ad: ShownAd, now: float, cpu: bool) -> tuple[str, ...]:
    starts = ad.integer("NumShadowStarts", ad.integer("NumJobStarts"))
    return (
        byte_text(ad.text("Owner") or "??"),
        f"{_UNIVERSES.get(ad.integer('JobUniverse', 5), 'Unknown'):<9}",
        f"{ad.integer('RequestCpus', 1):4d}",
        f"{ad.integer('RequestMemory'):6d}",
        f"{starts:6d}",
        byte_text(ad.text("LastRemoteHost") or "undefined"),
    )


def _idle_layout(rows: Sequence[Any], roomy: bool) -> Any:
    return "UNIVERSE  CPUS MEMORY STARTS LAST_HOST", lambda cells: " ".join(cells[1:])


_CELLS = {"nobatch": _nobatch, "hold": _hold, "run": _run, "idle": _idle}
_LAYOUTS = {"nobatch": _nobatch_layout, "hold": _hold_layout, "run": _run_layout, "idle": _idle_layout}


def _date(ad: ShownAd, name: str) -> str:
    found = ad.value(name)
    return format_date(int(found)) if isinstance(found, int | float) else ""


def _run_time(ad: ShownAd, now: float, cpu: bool) -> str:
    if not isinstance(ad.value("RemoteUserCpu"), int | float):
        return ""
    if cpu:
        return format_span(ad.integer("RemoteUserCpu"))
    if ad.integer("JobStatus") in _RUNNING:
        began = ad.integer("ShadowBday") or ad.integer("JobCurrentStartDate")
        return format_span(ad.integer("ServerTime", int(now)) - began if began else 0)
    return format_span(ad.integer("LastRemoteWallClockTime"))


def status_letters(ad: ShownAd) -> str:
    """The state in two characters: its letter, and what is being transferred."""
    status = ad.integer("JobStatus")
    first, second = LETTERS.get(status, " "), " "
    queued = ad.value("TransferQueued") is True
    if ad.value("TransferringInput") is True:
        first, second = "<", "q" if queued else " "
    if ad.value("TransferringOutput") is True or status == 6:
        first, second = "q" if queued else " ", ">"
    return first + second


def _number_text(ad: ShownAd, name: str) -> str:
    found = ad.value(name)
    return str(found) if isinstance(found, int | float) else "undefined"


def _memory(ad: ShownAd) -> str:
    used = ad.raw("MemoryUsage")
    if used == _MEMORY_USAGE and type(resident := ad.raw("ResidentSetSize")) in (int, type(None)):
        used = None if resident is None else (resident + 1023) // 1024
    elif used is not None:
        used = ad.value("MemoryUsage")
    image = ad.value("ImageSize")
    if isinstance(used, int | float):
        return f"{int(used):.1f}"
    return f"{int(image) / 1024:.1f}" if isinstance(image, int | float) else ""


def description(ad: ShownAd) -> str:
    """The last column: the program and its arguments, or the job's description."""
    return _description(ad.text("JobDescription"), ad.text("Cmd"), ad.text("Args"), ad.text("Arguments"))


def _descriptions(group: JobColumns) -> Iterator[str]:
    """The last column of each job of a group without expressions."""
    of_jobs = (
        [found if type(found) is str else None for found in values(group, name)]
        for name in ("JobDescription", "Cmd", "Args", "Arguments")
    )
    return map(_description, *of_jobs)


def _description(told: str | None, program: str | None, args: str | None, arguments: str | None) -> str:
    if told:
        return f"({told})"
    name, given = (program or "").rpartition("/")[2], args or arguments
    return f"{name} {given}" if given else name


class BatchListing:
    """A line for each batch: the jobs of a batch name of one owner, or of a cluster without one.

    Args:
        whole: clusters are seen as a whole, so that those of their jobs that are missing are done.
    """

    def __init__(self, *, whole: bool = True) -> None:
        self._whole = whole
        self._batches: dict[Any, dict[str, Any]] = {}

    def add(self, group: JobColumns, shown: Callable[[Mapping[str, Any]], ShownAd]) -> None:
        """The jobs of a group; `shown` makes of an ad the one whose values are shown."""
        for ad, procs in alike([group]):
            self._add_alike(shown(ad), procs)

    def _add_alike(self, ad: ShownAd, procs: Sequence[int]) -> None:
        owner, name, cluster = ad.text("Owner") or "??", ad.text("JobBatchName"), ad.integer("ClusterId")
        batch = self._batches.setdefault(
            (owner, name) if name else cluster,
            {
                "owner": owner,
                "name": name,
                "first": cluster,
                "date": _date(ad, "QDate"),
                "ids": [],
                "states": Counter(),
                "totals": {},
                "present": Counter(),
            },
        )
        low, high = (cluster, min(procs)), (cluster, max(procs))
        ids = batch["ids"]
        batch["ids"] = [min([low, *ids[:1]]), max([high, *ids[1:]])]
        if low == batch["ids"][0]:
            batch["date"] = _date(ad, "QDate")
        batch["states"][ad.integer("JobStatus")] += len(procs)
        batch["totals"][cluster] = ad.integer("TotalSubmitProcs")
        batch["present"][cluster] += len(procs)

    def lines(self) -> list[str]:
        """The heading and a line for each batch, in the order of their first ids."""
        batches = sorted(self._batches.values(), key=lambda one: one["ids"][0])
        held = any(one["states"][5] for one in batches) or not batches
        rows = [self._cells(one) for one in batches]
        owner_width = max([5, *(max(len(row[0]), 1) for row in rows)])
        name_width = max([10 if rows else 12, *(len(row[1]) for row in rows)])
        titles = ["   SUBMITTED", "  DONE", "  RUN ", "  IDLE", *(["  HOLD"] if held else []), " TOTAL", "JOB_IDS"]
        heading = " ".join(["OWNER".ljust(owner_width), "BATCH_NAME".ljust(name_width), *titles])
        lines = [heading]
        for row in rows:
            counts = [row[3], row[4], row[5], *([row[6]] if held else []), row[7]]
            shown = " ".join(f"{count or '_':>6}" for count in counts)
            lines.append(f"{row[0]:<{owner_width}} {row[1]:<{name_width}} {row[2]:>12} {shown} {row[8]}".rstrip())
        return lines

    def _cells(self, batch: Mapping[str, Any]) -> tuple[Any, ...]:
        states, totals = batch["states"], batch["totals"]
        known = all(totals.values())
        total = sum(totals.values()) if known else 0
        done = total - sum(batch["present"].values()) if known and self._whole else 0
        (cluster, proc), (last_cluster, last_proc) = batch["ids"]
        ids = f"{cluster}.{proc}"
        if (last_cluster, last_proc) != (cluster, proc):
            same = f"{ids}-{last_proc}"
            ids = same if last_cluster == cluster else f"{ids} ... {last_cluster}.{last_proc}"
        return (
            byte_text(batch["owner"]),
            byte_text(batch["name"] or f"ID: {batch['first']}"),
            batch["date"],
            max(done, 0),
            states[2] + states[6],
            states[1] + states[7],
            states[5],
            total,
            ids,
        )


def totals_line(states: Mapping[int, int], of: str = "query") -> str:
    """`Total for query: 4 jobs; 0 completed, ...` from a count for each state."""
    counts = [
        states.get(4, 0),
        states.get(3, 0),
        states.get(1, 0),
        states.get(2, 0) + states.get(6, 0),
        states.get(5, 0),
    ]
    words = ("completed", "removed", "idle", "running", "held")
    shown = ", ".join(f"{count} {word}" for count, word in zip(counts, words, strict=True))
    return f"Total for {of}: {sum(states.values())} jobs; {shown}, {states.get(7, 0)} suspended"

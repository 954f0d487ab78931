"""`submit`: queue the jobs of a description file, or say what was understood of it (VS 6.3.2).

Checking and the dry run need no pool: they read the file with this machine's facts and stop there. Where a pool answers
at once, a check says on which of its machines the job could be checkpointed.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pool.cli import formats
from pool.cli.common import names_and_values, print_error, print_json, print_lines, query_pool, run
from pool.cli.options import Address, CommandArgument, CommandOption, Json
from pool.cli.selection import UsageProblem
from pool.errors import PoolError
from pool.outside import OutsideWorld

if TYPE_CHECKING:
    from pool.classad import ClassAd
    from pool.client.pool import Pool
    from pool.client.results import Result
    from pool.jobs.description import ClusterDraft, Description

#: Seconds within which a pool has to answer to be heard in a check.
POOL_MOMENT = 2.0

File = Annotated[str, CommandArgument(metavar="FILE", help="The job description file; - reads standard input.")]
OptionalFile = Annotated[
    str | None,
    CommandArgument(metavar="FILE", help="The job description file; - reads standard input.", show_default=False),
]
Extra = Annotated[
    list[str] | None,
    CommandArgument(metavar="NAME=VALUE", help="Commands that come before the file's own.", show_default=False),
]


def submit(
    file: OptionalFile = None,
    extra: Extra = None,
    check: Annotated[
        bool,
        CommandOption("--check", "-c", help="Only say what was understood, and every mistake. Needs no pool."),
    ] = False,
    dry_run: Annotated[
        bool, CommandOption("--dry-run", help="Print the job ads that would be queued. Needs no pool.")
    ] = False,
    quiet: Annotated[bool, CommandOption("--quiet", "-q", help="Print the cluster's number and nothing else.")] = False,
    wait: Annotated[bool, CommandOption("--wait", "-w", help="Then wait until the jobs have ended.")] = False,
    interactive: Annotated[
        bool,
        CommandOption("--interactive", "-i", help="One job that is a shell on this terminal; FILE may be left out."),
    ] = False,
    spool: Annotated[
        bool | None,
        CommandOption(
            "--spool/--no-spool",
            help="Send the jobs' files along, for `poolnode fetch`. Default: where the schedd is on another machine.",
            show_default=False,
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        CommandOption(
            "--also",
            metavar="POOL",
            help="They may run in this pool, too, where you have an account: see `poolnode flock`.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Queue the jobs of a description file.

    \b
    A description is lines of `command = value`; `queue` makes the jobs:
      executable = simulate
      arguments  = --seed $(Process)
      output     = out.$(Process)
      queue 100

    \b
    Examples:
      poolnode submit sweep.sub
      poolnode submit --check sweep.sub          nothing is queued
      poolnode submit sweep.sub request_memory=2GB
      poolnode submit --dry-run --json sweep.sub | jq .Requirements
      id=$(poolnode submit -q sweep.sub) && poolnode wait $id
      poolnode submit --wait -A HOST:PORT a.sub  files go along, outputs come back
      poolnode submit -i gpu.sub                 a shell with these resources
      poolnode submit --also chem sweep.sub      also_pools = chem
    """
    from pool.client.descriptions import describe

    if interactive:
        from pool.cli.interactive import submit_interactive

        if check or dry_run or quiet or wait or as_json or also or spool is not None:
            raise UsageProblem("--interactive stands alone", hint="poolnode submit -i [FILE]")
        given, name, where = read(file) if file is not None and "=" not in file else ("", "no file", str(Path.cwd()))
        words = [file, *(extra or [])] if file is not None and "=" in file else extra
        return submit_interactive(given, name, where, words, address)
    if file is None:
        raise UsageProblem("Missing argument 'FILE'.", hint="poolnode submit FILE; - reads standard input")
    text, name, where = read(file)
    description = describe(text, name=name, iwd=where, extra=names_and_values(extra))
    if also:
        _add_pools(description, also)
    if dry_run:
        return _show(description, as_json)
    if check:
        return _check(description, name, as_json, _pool_facts(address, _programs(description)))
    warn(description)

    async def question(pool: Pool) -> tuple[list[tuple[int, ...]], list[Result] | None]:
        from pool.cli.progress import Working

        jobs = formats.amount(sum(draft.count for draft in description.clusters), "job")
        with Working(f"submitting {jobs}") as working:
            clusters = await pool.submit_all(
                description,
                progress=lambda sent: working.update(f"submitting {jobs}: {sent:,} sent"),
                spool=spool,
                files=working.update,
            )
        for cluster in clusters:
            report(cluster.cluster, cluster.count or 0, quiet=quiet, as_json=as_json)
        for line in await _refusals(pool, _programs(description)):
            print_error(f"poolnode: {formats.one_line(line)}")
        ids: list[tuple[int, ...]] = [(cluster.cluster,) for cluster in clusters]
        if not wait or not any(cluster.spooled for cluster in clusters):
            return ids, None
        from pool.cli.fetching import wait_and_fetch

        return ids, await wait_and_fetch(pool, ids, quiet=quiet)

    queued, results = query_pool(address, question, working="")
    if results is not None:
        from pool.cli.follow import show

        return show(results, quiet=quiet)
    if wait:
        from pool.cli.follow import wait as wait_for

        return wait_for([str(cluster) for (cluster,) in queued], quiet=quiet, address=address)
    return 0


def _add_pools(description: Description, also: list[str]) -> None:
    """Let the jobs run in other pools, beside those that the description names."""
    from pool.policy.flock.private import ALSO, check_job, pools_of

    for draft in description.clusters:
        names = [*pools_of(draft.attributes.get(ALSO)), *also]
        draft.attributes[ALSO] = ",".join(pools_of(",".join(names)))
        check_job(draft.attributes)


def read(file: str) -> tuple[str, str, str]:
    """The text of a description, the name to call it by, and the directory it is read in.

    Raises:
        PoolError: it cannot be read.
    """
    from pool.client.descriptions import read_file

    here = str(Path.cwd())
    if file == "-":
        return sys.stdin.read(), "standard input", here
    return read_file(Path(file)), file, here


def warn(description: Description) -> None:
    """Prints each warning as one line on standard error."""
    for warning in description.warnings:
        print_error(f"poolnode: {formats.one_line(str(warning))}")


def report(cluster: int, count: int, *, quiet: bool, as_json: bool) -> None:
    if as_json:
        print_json([{"cluster": cluster, "jobs": count}])
    elif quiet:
        print_lines([str(cluster)])
    else:
        print_lines([f"{formats.amount(count, 'job')} submitted to cluster {cluster}"])
    sys.stdout.flush()


def _show(description: Description, as_json: bool) -> int:
    """The dry run: each job's ad, attribute to expression text in long form."""
    warn(description)
    if as_json:
        print_json(job for _, job in jobs_of(description))
    else:
        print_lines(
            "\n".join(f"{name} = {value}" for name, value in job.items()) + "\n" for _, job in jobs_of(description)
        )
    return 0


def jobs_of(description: Description) -> Iterator[tuple[int, dict[str, str]]]:
    """Every job that would be queued, as attribute to long-form text, sorted by name.

    Clusters are numbered from 1, as in a pool that never had a job.
    """
    from pool.jobs.description import bind_cluster

    for cluster, draft in enumerate(description.clusters, 1):
        shared = {name: formats.long_value(v) for name, v in bind_cluster(draft.attributes, cluster).items()}
        spelled = {name.lower(): name for name in shared}
        for proc, delta in enumerate(draft.deltas()):
            job = shared | {"ClusterId": str(cluster), "ProcId": str(proc)}
            for name, value in bind_cluster(delta, cluster).items():
                job[spelled.get(name.lower(), name)] = formats.long_value(value)
            yield cluster, dict(sorted(job.items(), key=lambda pair: pair[0].lower()))


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """The pool's facts about jobs before they are queued: its slots, and why checkpoints of their programs were
    refused.
    """

    machines: list[ClassAd]
    refusals: dict[str, str]


def _pool_facts(address: str | None, programs: list[str]) -> PoolFacts | None:
    """None where no pool can be reached at once, which a check does not need."""
    import asyncio

    from pool.client.pool import Pool

    async def query_facts() -> PoolFacts:
        async with asyncio.timeout(POOL_MOMENT), await Pool.connect(address) as pool:
            return PoolFacts(await pool.machines(), await pool.call("schedd.refusals", {"programs": programs}))

    try:
        return run(query_facts())
    except (PoolError, OSError, TimeoutError):
        return None


def _programs(description: Description) -> list[str]:
    """The programs of the first jobs of all clusters that the pool is to save."""
    from pool.cli.saving import known_program, saves

    ads = [{name.lower(): value for name, value in draft.attributes.items()} for draft in description.clusters]
    return list(dict.fromkeys(known_program(ad) for ad in ads if ad.get("cmd") and saves(ad)))


async def _refusals(pool: Pool, programs: list[str]) -> list[str]:
    """The programs that could not be checkpointed when they ran last, with the reasons."""
    from pool.cli.saving import earlier

    if not programs:
        return []
    try:
        found = await pool.call("schedd.refusals", {"programs": programs}, timeout=POOL_MOMENT)
    except PoolError:  # they are queued; this would have been more to know
        return []
    return [earlier(program, why) for program, why in found.items()]


def _check(description: Description, name: str, as_json: bool, known: PoolFacts | None) -> int:
    """VS 6.3.2's check: a summary in which a person sees at once what was not understood as meant."""
    if as_json:
        print_json(
            {"cluster": number, "jobs": draft.count, **_facts(draft, known), **({"pipes": drawn} if drawn else {})}
            for number, draft in enumerate(description.clusters, 1)
            for drawn in [_drawn(draft)]
        )
        warn(description)
        return 0
    from pool.jobs.gangs import is_parallel

    several = len(description.clusters) > 1
    for number, draft in enumerate(description.clusters, 1):
        facts = _facts(draft, known)
        lines = [f"{'cluster ' + str(number) + ': ' if several else ''}{formats.amount(draft.count, 'job')}"]
        width = max(map(len, facts))
        if drawn := _drawn(draft, _columns() - width - 4):
            label = "nodes" if is_parallel(draft.ad) else "pipes"
            lines += [f"  {'' if i else label:<{width}}  {line}" for i, line in enumerate(drawn)]
        lines += [f"  {label:<{width}}  {value}" for label, value in facts.items()]
        print_lines([*lines, ""])
    warn(description)
    total = sum(draft.count for draft in description.clusters)
    warnings = f", {formats.amount(len(description.warnings), 'warning')}" if description.warnings else ""
    print_lines([f"{name}: understood, {formats.amount(total, 'job')}{warnings}; nothing was queued"])
    return 0


def _columns() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def _drawn(draft: ClusterDraft, width: int = 100) -> list[str]:
    """The processes of a job of several and its pipes, as a picture; nothing for a job of one."""
    from pool.jobs.gangs import is_parallel, parts_of
    from pool.jobs.pipes.drawing import draw
    from pool.jobs.pipes.model import is_several, joints_of, processes_of

    if is_parallel(draft.ad):
        return _nodes(draft)
    if not is_several(draft.ad):
        return []
    lines = draw(processes_of(draft.ad), joints_of(draft.ad), width)
    if parts := parts_of(draft.ad):
        lines.append("runs in parts: " + ", ".join(" ".join(part.processes) for part in parts))
    return [_as_written(formats.one_line(line), draft) for line in lines]


def _nodes(draft: ClusterDraft) -> list[str]:
    """The nodes of a parallel job, a line for those that are alike."""
    from pool.jobs.arguments import arguments_of
    from pool.jobs.gangs import parts_of

    parts, lines = parts_of(draft.ad), []
    for kind, part in enumerate(parts.kinds):
        numbers = parts.numbers_of(kind)
        wire = {**draft.attributes, **part.own}
        which = f"node {numbers[0]}" if len(numbers) == 1 else f"nodes {numbers[0]} to {numbers[-1]}"
        lines.append(f"{which}: {shlex.join([str(wire.get('Cmd', '')), *arguments_of(wire)])}")
    return [_as_written(formats.one_line(line), draft) for line in lines]


def _as_written(text: str, draft: ClusterDraft) -> str:
    """Values that are not known yet, as the description has them: the cluster's number, a node's."""
    from pool.jobs.gangs import NODE_MARKS

    for mark, name in {str(draft.cluster): "$(Cluster)", **dict.fromkeys(NODE_MARKS.values(), "$(Node)")}.items():
        text = text.replace(mark, name)
    return text


def _command_lines(draft: ClusterDraft) -> dict[str, str]:
    """The program of each process of a job of several."""
    from pool.jobs.pipes.model import processes_of

    return {
        f"process {one.name}": formats.one_line(shlex.join([one.cmd, *one.arguments])) for one in processes_of(draft.ad)
    }


# The rows of the summary: label, attribute, and the value that is not worth a row.
_SUMMARY = (
    ("executable", "Cmd", ()),
    ("arguments", "Arguments", ("",)),
    ("arguments", "Args", ("",)),
    ("directory", "Iwd", ()),
    ("input", "In", ("/dev/null",)),
    ("output", "Out", ("/dev/null",)),
    ("error", "Err", ("/dev/null",)),
    ("log", "UserLog", ("",)),
    ("environment", "Environment", ("",)),
    ("files in", "TransferInput", ("",)),
    ("files out", "TransferOutput", ("",)),
    ("transfer", "ShouldTransferFiles", ()),
    ("remote io", "RemoteIO", ()),
    ("cpus", "RequestCpus", ()),
    ("memory, MB", "RequestMemory", ()),
    ("disk, KiB", "RequestDisk", ()),
    ("gpus", "RequestGPUs", ()),
    ("requirements", "Requirements", ()),
    ("also in", "FlockAlso", ("",)),
    ("rank", "Rank", ("0.0", "0")),
    ("priority", "JobPrio", ("0",)),
    ("hold when", "PeriodicHold", ("false",)),
    ("release when", "PeriodicRelease", ("false",)),
    ("remove when", "PeriodicRemove", ("false",)),
    ("hold at exit when", "OnExitHold", ("false",)),
    ("leave at exit when", "OnExitRemove", ("true",)),
    ("retries", "JobMaxRetries", ()),
)


def _facts(draft: ClusterDraft, known: PoolFacts | None = None) -> dict[str, str]:
    """A cluster as a person reads it: the first job's values, and how many values there are of each that varies.

    Args:
        known: what the pool tells, where it can be reached.
    """
    folded = {name.lower(): value for name, value in draft.attributes.items()}
    varied: dict[str, list[Any]] = {}
    if not draft.uniform:
        for proc, delta in enumerate(draft.deltas()):
            for name, value in delta.items():
                varied.setdefault(name.lower(), [folded.get(name.lower())] * (proc > 0)).append(value)
    facts = _command_lines(draft)
    of_several = bool(facts)
    for label, attribute, dull in _SUMMARY:
        key = attribute.lower()
        if of_several and label in ("executable", "arguments"):
            continue
        first: Any = varied[key][0] if key in varied else folded.get(key)
        if first is None:
            continue
        text = _as_written(formats.one_line(formats.text(first) if first != "" else ""), draft)
        several = len({str(one) for one in varied.get(key, ())})
        if text in dull and several < 2:
            continue
        facts[label] = f"{text}   ... {several:,} different" if several > 1 else text
    if not of_several:
        from pool.cli.saving import checkpoints

        facts["checkpoints"] = checkpoints(folded, known.refusals if known is not None else {})
    if known is not None:
        from pool.cli.saving import checkpoint_machines, saves

        if saves(folded):
            facts["machines"] = checkpoint_machines(draft.ad, known.machines, OutsideWorld().wall())
    state = folded.get("jobstatus")
    if state == 5:
        facts["state"] = "held at submission"
    return facts

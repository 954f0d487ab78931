"""`condor_submit`: queue the jobs of a description."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.compat.actions import help_or_version
from pool.compat.asking import ask_schedd, print_error
from pool.compat.options import Option, Parsed, parse
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.handles import Cluster
    from pool.client.pool import Pool
    from pool.jobs.description import Description

OPTIONS = (
    Option("verbose", 1),
    Option("terse", 3),
    Option("disable", 3),
    Option("dry-run", 3, 1, colon=True),
    Option("spool", 1),
    Option("file", 2, 1),
    Option("factory", 2, refused="every queue statement is quick here: leave it out"),
    Option("address", 2, 1, key="pool"),
    Option("addr", 4, 1, key="pool"),
    Option("remote", 1, 1),
    Option("name", 1, 1),
    Option("append", 1, 1),
    Option("batch-name", 1, 1),
    Option("queue", 1, -1),
    Option("maxjobs", 3, 1),
    Option("single-cluster", 3),
    Option("pool", 2, 1),
    Option("unused", 1),
    Option("version", 4),
    Option("help", 1),
    Option("interactive", 1),
)


def submit(words: Sequence[str]) -> int:
    """Run `condor_submit`; returns its exit status."""
    words, statement = _split_queue(list(words))
    given = parse(OPTIONS, words)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_submit", OPTIONS, given, "[NAME=VALUE ...] [file | -]")
    if given.has("interactive"):
        raise PoolError("-interactive is not possible here", hint="poolnode submit -i gives a shell as a job")
    description = _read(given, statement)
    for warning in description.warnings:
        print_error(f"WARNING: {' '.join(str(warning).split())}")
    total = sum(draft.count for draft in description.clusters)
    most = given.value("maxjobs")
    if most is not None and total > int(most):
        raise PoolError(f"Number of submitted jobs would exceed -maxjobs ({most})")
    if given.has("single-cluster") and len(description.clusters) > 1:
        raise PoolError("Number of submitted clusters would exceed 1 and -single-cluster was specified")
    if (path := given.value("dry-run")) is not None:
        return _dry_run(description, path, terse=given.has("terse"))

    async def question(pool: Pool) -> list[Cluster]:
        return await pool.submit_all(description, spool=True if given.has("spool") or given.value("remote") else None)

    clusters = ask_schedd(given.value("pool"), given.value("remote") or given.value("name"), question)
    counts = [(cluster.cluster, cluster.count or 0) for cluster in clusters]
    sys.stdout.write(_outcome_lines(counts, "Submitting", "submitted", terse=given.has("terse")))
    return 0


def _split_queue(words: list[str]) -> tuple[list[str], str | None]:
    """Take `-queue ...` off: everything behind it is the queue statement."""
    for at, word in enumerate(words):
        if word.startswith("-") and word.strip("-") and "queue".startswith(word.strip("-")):
            return words[:at], "queue " + " ".join(words[at + 1 :])
    return words, None


def _read(given: Parsed, statement: str | None) -> Description:
    """The description: the file's commands, after `NAME=VALUE` and before `-append` and `-queue`.

    Raises:
        PoolError: there is no file, or more than one.
    """
    from pool.client.descriptions import describe, read_file

    extra = [word for word in given.words if "=" in word and not Path(word).exists()]
    files = [word for word in given.words if word not in extra] + given.all_of("file")
    if len(files) > 1:
        raise PoolError(f"more than one file: {' '.join(files)}", hint="one description at a time")
    if not files or files[0] == "-":
        text, name = sys.stdin.read(), "standard input"
    else:
        text, name = read_file(Path(files[0])), files[0]
    if batch := given.value("batch-name"):
        extra.append(f"batch_name = {batch}")
    return describe(with_appended(text, given.all_of("append"), statement), name=name, extra=extra)


def with_appended(text: str, lines: Sequence[str], statement: str | None = None) -> str:
    """A description with lines before its queue statement, where `-append` puts them, and with a queue statement.

    Raises:
        PoolError: it has a queue statement, and another was given.
    """
    found = text.splitlines()
    queues = [at for at, line in enumerate(found) if line.split()[:1] and line.split()[0].lower() == "queue"]
    if statement is not None and queues:
        raise PoolError("-queue and a queue statement in the file", hint="leave out one of them")
    at = queues[0] if queues else len(found)
    added = list(lines)
    if statement is not None:
        added.append(statement)
    elif not queues and any(line.split()[:1] and line.split()[0].lower() == "queue" for line in lines):
        at = len(found)
    return "\n".join([*found[:at], *added, *found[at:]]) + "\n"


def _outcome_lines(counts: Sequence[tuple[int, int]], doing: str, done: str, *, terse: bool) -> str:
    """The lines about the clusters: tools read the number off the last one, or the ids of `-terse`."""
    if terse:
        return "".join(f"{cluster}.0 - {cluster}.{count - 1}\n" for cluster, count in counts)
    dots = "." * min(sum(count for _, count in counts), 100)
    lines = "".join(f"{count} job(s) {done} to cluster {cluster}.\n" for cluster, count in counts)
    return f"{doing} job(s){dots}\n{lines}"


def _dry_run(description: Description, path: str, *, terse: bool) -> int:
    """Write the ads that would be queued."""
    from pool.compat.ad_forms import long_form
    from pool.jobs.description import bind_cluster

    counts: list[tuple[int, int]] = []
    ads: list[dict[str, Any]] = []
    for cluster, draft in enumerate(description.clusters, 1):
        shared = bind_cluster(draft.attributes, cluster)
        deltas = draft.wire_deltas() or [None] * draft.count
        for proc, delta in enumerate(deltas):
            own = bind_cluster(delta, cluster) if delta else {}
            ads.append({**shared, **own, "ClusterId": cluster, "ProcId": proc})
        counts.append((cluster, draft.count))
    text = "".join(long_form(ads))
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8", errors="surrogateescape")
        sys.stdout.write(_outcome_lines(counts, "Dry-Run", "dry-run", terse=terse))
    return 0

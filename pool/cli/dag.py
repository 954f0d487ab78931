"""`dag`: work flows of jobs that wait for each other, from files in DAGMan's language."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pool.cli.common import print_error, print_json, print_lines, query_pool
from pool.cli.formats import short_duration
from pool.cli.options import Address, CommandArgument, CommandOption, Json
from pool.cli.selection import UsageProblem
from pool.decimals import whole_number
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.workflows import WorkflowDraft, WorkflowOptions

ACTIONS = ("submit", "check", "status", "show", "edit", "rescue", "retry", "rm")
#: States in the order of a node's life, as they are shown.
STATES = ("DONE", "POSTRUN", "SUBMITTED", "PRERUN", "READY", "NOT_READY", "ERROR", "FUTILE")
_SHOWN = {"NOT_READY": "waiting", "ERROR": "failed", "POSTRUN": "post", "PRERUN": "pre", "SUBMITTED": "queued"}


def dag(
    action: Annotated[str, CommandArgument(metavar="ACTION", help=", ".join(ACTIONS))],
    words: Annotated[
        list[str] | None,
        CommandArgument(metavar="FILE|ID", help="DAG files, or a work flow's number.", show_default=False),
    ] = None,
    max_jobs: Annotated[int, CommandOption("--max-jobs", min=0, metavar="N", help="Nodes in the queue at most.")] = 0,
    max_idle: Annotated[int, CommandOption("--max-idle", min=0, metavar="N", help="Idle jobs at most.")] = 0,
    max_pre: Annotated[int, CommandOption("--max-pre", min=0, metavar="N", help="PRE scripts at a time.")] = 0,
    max_post: Annotated[int, CommandOption("--max-post", min=0, metavar="N", help="POST scripts at a time.")] = 0,
    force: Annotated[bool, CommandOption("--force", "-f", help="Begin anew: use no rescue file.")] = False,
    rescue_from: Annotated[
        int | None,
        CommandOption("--rescue-from", min=1, metavar="N", help="Go on from rescue file N.", show_default=False),
    ] = None,
    load_save: Annotated[
        str, CommandOption("--load-save", metavar="FILE", help="Go on from a save file.", show_default=False)
    ] = "",
    priority: Annotated[int, CommandOption("--priority", metavar="N", help="Added to each node's priority.")] = 0,
    use_dag_dir: Annotated[
        bool, CommandOption("--use-dag-dir", help="Names in each DAG file start from its own directory.")
    ] = False,
    always_run_post: Annotated[
        bool, CommandOption("--always-run-post", help="Run a POST script although the PRE script failed.")
    ] = False,
    dot: Annotated[Path | None, CommandOption("--dot", metavar="FILE", help="show: write it for Graphviz.")] = None,
    svg: Annotated[
        Path | None,
        CommandOption("--svg", metavar="FILE", help="show: draw it; Graphviz does that.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, CommandOption("--dry-run", help="edit: only show the difference.")] = False,
    keep_begun: Annotated[
        bool, CommandOption("--keep-begun", help="edit: nodes that have begun stay as they are.")
    ] = False,
    close: Annotated[
        bool, CommandOption("--close", help="edit: no more nodes are to come (keep_open from Python).")
    ] = False,
    quiet: Annotated[bool, CommandOption("--quiet", "-q", help="submit: print the number and nothing else.")] = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Run jobs that wait for each other: a graph from files in DAGMan's language.

    The schedd runs the graph itself. When it fails, FILE.rescue001 names the
    nodes that are done, and the next submit goes on from there. The number of a
    work flow is a job's: wait, hold, release and rm take it, too.

    \b
    Examples:
      poolnode dag check diamond.dag         read it with all descriptions
      poolnode dag submit diamond.dag        (--force: not from a rescue file)
      poolnode dag status                    the work flows in the queue
      poolnode dag status 12                 how far it is, and when it ends
      poolnode dag edit 12                   read its changed file, go on with it
      poolnode dag retry 12                  its failed nodes, while it runs
      poolnode dag show 12 --dot now.dot     its graph with the nodes' states
      poolnode dag show diamond.dag --svg diamond.svg
      poolnode dag rescue diamond.dag        what the newest rescue file has
      poolnode dag retry diamond.dag         what failed or was not reached
      poolnode dag rm 12                     it ends, with a rescue file
      id=$(poolnode dag submit -q a.dag) && poolnode wait $id
    """
    from pool.client.workflows import WorkflowOptions

    if action not in ACTIONS:
        raise UsageProblem(f"dag: there is no action '{action}'", hint=f"one of {', '.join(ACTIONS)}")
    given = list(words or [])
    if not given and action == "status":
        return _status_of_all(as_json, address)
    if not given:
        wanted = "a work flow's number (poolnode dag status lists them)"
        raise UsageProblem(f"dag {action} needs {wanted if action in ('rm', 'edit') else 'a DAG file'}")
    for name, said in (("dry-run", dry_run), ("keep-begun", keep_begun), ("close", close)):
        if said and action != "edit":
            raise UsageProblem(f"dag {action} has no --{name}", hint="dag edit has it")
    options = WorkflowOptions(
        max_jobs=max_jobs,
        max_idle=max_idle,
        max_pre=max_pre,
        max_post=max_post,
        force=force,
        rescue_from=rescue_from,
        load_save=load_save,
        priority=priority,
        use_dag_dir=use_dag_dir,
        always_run_post=always_run_post,
    )
    if action in ("status", "rm"):
        number = _number(action, given)
        return _remove(number, address) if action == "rm" else _status(number, as_json, address)
    if action == "edit":
        number = _number(action, given[:1])
        return _edit(
            number, given[1:], options, address, dry_run=dry_run, keep_begun=keep_begun, close=close, as_json=as_json
        )
    if action == "retry" and whole_number(given[0].removesuffix(".0")) is not None and not Path(given[0]).exists():
        return _retry(_number(action, given[:1]), given[1:], as_json, address)
    if action == "show" and len(given) == 1 and whole_number(given[0].removesuffix(".0")) is not None:
        return _show_running(_number(action, given), dot, svg, address)
    from pool.client.workflows import draft_workflow

    if action == "retry" and not force:
        _need_rescue(given[0])
    draft = draft_workflow(given, options)
    for warning in draft.warnings:
        print_error(warning)
    if action == "check":
        return _check(draft, as_json)
    if action == "rescue":
        return _rescued(draft)
    if action == "show":
        nodes = [(node.name, 5 if node.done else 0) for node in draft.dag.nodes.values()]
        return _show(nodes, draft.wire["edges"], dot, svg)
    return _submit(draft, quiet, as_json, address)


def _number(action: str, words: list[str]) -> int:
    number = whole_number(words[0].removesuffix(".0")) if len(words) == 1 else None
    if number is None:
        raise UsageProblem(f"dag {action} takes a work flow's number, not {' '.join(words)}")
    return number


def _need_rescue(file: str) -> None:
    path = Path(file)
    if not any(path.parent.glob(f"{path.name}.rescue[0-9][0-9][0-9]")):
        raise PoolError(f"{file} has no rescue file: nothing of it has failed", hint=f"poolnode dag submit {file}")


def _submit(draft: WorkflowDraft, quiet: bool, as_json: bool, address: str | None) -> int:
    from pool.client.workflow_requests import submit_workflow

    number = query_pool(address, lambda pool: submit_workflow(pool, draft), working="submitting")
    for note in draft.notes:
        print_error(note)
    if as_json:
        print_json([{"cluster": number, "nodes": len(draft.nodes), "rescue": draft.rescue}])
    elif quiet:
        print_lines([str(number)])
    else:
        begun = f", from {draft.rescue}" if draft.rescue else ""
        print_lines([f"{len(draft.nodes)} nodes submitted as work flow {number}{begun}"])
    return 0


def _check(draft: WorkflowDraft, as_json: bool) -> int:
    done = sum(node.done for node in draft.dag.nodes.values())
    edges = sum(len(edge.parents) * len(edge.children) for edge in draft.dag.dependencies)
    if as_json:
        print_json([{"file": draft.dag.file, "nodes": len(draft.nodes), "edges": edges, "done": done}])
        return 0
    rest = f", {done} done in {draft.rescue}" if draft.rescue else ""
    print_lines([f"{draft.dag.file}: {len(draft.nodes)} nodes, {edges} edges{rest}; nothing was queued"])
    return 0


def _rescued(draft: WorkflowDraft) -> int:
    if not draft.rescue:
        print_error(f"{draft.dag.file} has no rescue file")
        return 1
    done = [node.name for node in draft.dag.nodes.values() if node.done]
    left = len(draft.nodes) - len(done)
    print_lines([f"{draft.rescue}: {len(done)} of {len(draft.nodes)} nodes are done, {left} are left", *done])
    return 0


def _status_of_all(as_json: bool, address: str | None) -> int:
    from pool.client.workflow_requests import queued_workflows

    found = query_pool(address, queued_workflows)
    if as_json:
        print_json(found)
        return 0
    width = max((len(str(one["cluster"])) for one in found), default=0)
    for one in found:
        done, total = one["counts"].get("DONE", 0), one.get("total", sum(one["counts"].values()))
        failed = f", {one['counts']['ERROR']} failed" if one["counts"].get("ERROR") else ""
        how = "held" if one["halted"] else "running"
        print_lines([f"{one['cluster']:>{width}}  {how}  {done} of {total} nodes done{failed}  {one['file']}"])
    if not found:
        print_lines(["no work flow is in the queue (poolnode dag submit FILE; poolnode history has those that ended)"])
    return 0


def _status(number: int, as_json: bool, address: str | None) -> int:
    from pool.client.workflow_requests import workflow_status

    found = query_pool(address, lambda pool: workflow_status(pool, number))
    if as_json:
        print_json([found])
        return 0
    counts: dict[str, int] = found["counts"]
    total = found.get("total", sum(counts.values()))
    parts = [f"{counts[state]} {_SHOWN.get(state, state.lower())}" for state in STATES if counts.get(state)]
    how = f"ended with {found['code']}" if found.get("ended") else "held" if found["halted"] else "running"
    lines = [f"{number}  {found['file']}  {how}", f"{total} nodes: {', '.join(parts)}"]
    for name, state, cluster, _ in found.get("queued", ()):
        lines.append(f"  {name}  {_SHOWN.get(state, state.lower())}  {cluster}")
    lines += [f"  {name}  failed with {code}  {cluster}" for name, code, cluster in found.get("failed", ())]
    print_lines([*lines[:2], *_outlook(found), *lines[2:]])
    return 0


def _outlook(found: dict[str, Any]) -> list[str]:
    """The critical path, and when the end is expected."""
    if "critical_path" not in found:
        return []
    lines, path = [], found["critical_path"]
    if path:
        shown = path if len(path) <= 6 else [*path[:3], "...", *path[-2:]]
        least = "at least " if found["unknown"] else ""
        lines.append(f"critical path: {' -> '.join(shown)}, {least}{short_duration(found['critical_seconds'])}")
    if found["expected_end"] is not None:
        end = datetime.datetime.fromtimestamp(found["expected_end"])
        left = short_duration(found["expected_end"] - found["now"])
        late = f"; {found['overdue']} nodes run longer than others did" if found["overdue"] else ""
        lines.append(f"expected end: {end:%d %b %H:%M:%S}, in {left}{late}")
    elif found["halted"]:
        lines.append("expected end: not known, it is held")
    elif found["open"]:
        lines.append("expected end: not known, it stays open for more nodes")
    elif found["unknown"]:
        lines.append(f"expected end: not known: {found['unknown']} nodes are of descriptions that have not run yet")
    return lines


def _edit(
    number: int,
    files: list[str],
    given: WorkflowOptions,
    address: str | None,
    *,
    dry_run: bool,
    keep_begun: bool,
    close: bool,
    as_json: bool,
) -> int:
    from pool.client.workflow_requests import edit_workflow, workflow_status
    from pool.client.workflows import draft_workflow, reading_options

    now = query_pool(address, lambda pool: workflow_status(pool, number))
    if now.get("ended"):
        raise PoolError(f"work flow {number} has ended", hint="poolnode dag retry FILE")
    options = reading_options(now.get("reading"))
    for name in ("max_jobs", "max_idle", "max_pre", "max_post"):
        setattr(options, name, getattr(given, name) or getattr(options, name))
    chosen = [os.path.abspath(file) for file in files] or now["reading"]["files"]
    draft = draft_workflow(chosen, options, iwd=now["iwd"])
    draft.wire["open"] = now["open"] and not close
    for warning in draft.warnings:
        print_error(warning)
    found = query_pool(
        address,
        lambda pool: edit_workflow(pool, number, draft, dry_run=dry_run, keep_begun=keep_begun),
        working="reading",
    )
    if as_json:
        print_json([found])
        return 1 if found["refused"] else 0
    lines = [f"+ {name}" for name in found["added"]] + [f"- {name}" for name in found["removed"]]
    lines += [f"~ {name}: {', '.join(what)}" for name, what in found["changed"]]
    lines += [f"~ {name}" for name in found["other"]] + [f"= {name}: has begun, stays" for name in found["kept"]]
    for name, why in found["refused"]:
        print_error(f"{name}: {why}")
    counts = found["counts"]
    if found["refused"]:
        hint = "--keep-begun leaves nodes that have begun as they are"
        print_lines(lines)
        raise PoolError(f"nothing of work flow {number} is changed: {counts['refused']} refused", hint=hint)
    parts = [f"{counts[kind]} {kind}" for kind in ("added", "removed", "changed") if counts[kind]]
    done = f"work flow {number}: {', '.join(parts) or ('changed' if found['other'] else 'nothing is changed')}"
    print_lines([*lines, f"{done}; nothing was done" if dry_run else done])
    return 0


def _retry(number: int, names: list[str], as_json: bool, address: str | None) -> int:
    from pool.client.workflow_requests import retry_nodes

    revived = query_pool(address, lambda pool: retry_nodes(pool, number, names))
    if as_json:
        print_json([{"cluster": number, "revived": revived}])
    else:
        print_lines([f"work flow {number}: {', '.join(revived)} begin anew"])
    return 0


def _show_running(number: int, dot: Path | None, svg: Path | None, address: str | None) -> int:
    from pool.client.workflow_requests import workflow_status

    found = query_pool(address, lambda pool: workflow_status(pool, number, nodes=True))
    if "nodes" not in found:
        raise PoolError(f"work flow {number} has ended", hint="poolnode dag show FILE draws its file")
    return _show([(name, state) for name, state, _, _ in found["nodes"]], found["edges"], dot, svg)


def _show(nodes: list[tuple[str, int]], edges: list[Any], dot: Path | None, svg: Path | None) -> int:
    from pool.jobs.dag.drawing import draw_dot

    text = draw_dot(nodes, edges)
    if dot is None and svg is None:
        print_lines([text.rstrip("\n")])
    if dot is not None:
        _write(dot, text.encode(errors="surrogateescape"))
    if svg is not None:
        _write(svg, _as_svg(text))
    return 0


def _as_svg(text: str) -> bytes:
    """The drawing of a DOT text, by Graphviz."""
    import subprocess

    try:
        drawn = subprocess.run(["dot", "-Tsvg"], input=text.encode(errors="replace"), capture_output=True, check=False)
    except OSError as error:
        raise PoolError("there is no program 'dot' to draw with", hint="apt-get install graphviz, or --dot") from error
    if drawn.returncode:
        said = drawn.stderr.decode(errors="replace").strip().splitlines() or [f"it ended with {drawn.returncode}"]
        raise PoolError(f"dot cannot draw this graph: {said[0]}")
    return drawn.stdout


def _write(place: Path, content: bytes) -> None:
    try:
        place.write_bytes(content)
    except OSError as error:
        raise PoolError(f"cannot write {place}: {(error.strerror or str(error)).lower()}") from error


def _remove(number: int, address: str | None) -> int:
    acted = query_pool(address, lambda pool: pool.act("remove", ids=[[number]], reason="by poolnode dag rm"))
    for job, why in acted.refused:
        print_error(f"{job}: {why}")
    if acted.done:
        print_lines([f"work flow {number} is being removed; its rescue file says what was done"])
    return 0 if acted.done else 1

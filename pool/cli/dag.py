"""`dag`: work flows of jobs that wait for each other, from files in DAGMan's language."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pool.cli.common import Address, Json, print_error, print_json, print_lines, query_pool
from pool.cli.selection import UsageProblem
from pool.decimals import whole_number
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.workflows import WorkflowDraft

ACTIONS = ("submit", "check", "status", "show", "rescue", "retry", "rm")
#: States in the order of a node's life, as they are shown.
STATES = ("DONE", "POSTRUN", "SUBMITTED", "PRERUN", "READY", "NOT_READY", "ERROR", "FUTILE")
_SHOWN = {"NOT_READY": "waiting", "ERROR": "failed", "POSTRUN": "post", "PRERUN": "pre", "SUBMITTED": "queued"}


def dag(
    action: Annotated[str, typer.Argument(metavar="ACTION", help=", ".join(ACTIONS))],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|ID", help="DAG files, or a work flow's number.", show_default=False),
    ] = None,
    max_jobs: Annotated[int, typer.Option("--max-jobs", min=0, metavar="N", help="Nodes in the queue at most.")] = 0,
    max_idle: Annotated[int, typer.Option("--max-idle", min=0, metavar="N", help="Idle jobs at most.")] = 0,
    max_pre: Annotated[int, typer.Option("--max-pre", min=0, metavar="N", help="PRE scripts at a time.")] = 0,
    max_post: Annotated[int, typer.Option("--max-post", min=0, metavar="N", help="POST scripts at a time.")] = 0,
    force: Annotated[bool, typer.Option("--force", "-f", help="Begin anew: use no rescue file.")] = False,
    rescue_from: Annotated[
        int | None,
        typer.Option("--rescue-from", min=1, metavar="N", help="Go on from rescue file N.", show_default=False),
    ] = None,
    load_save: Annotated[
        str, typer.Option("--load-save", metavar="FILE", help="Go on from a save file.", show_default=False)
    ] = "",
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Added to each node's priority.")] = 0,
    use_dag_dir: Annotated[
        bool, typer.Option("--use-dag-dir", help="Names in each DAG file start from its own directory.")
    ] = False,
    always_run_post: Annotated[
        bool, typer.Option("--always-run-post", help="Run a POST script although the PRE script failed.")
    ] = False,
    dot: Annotated[Path | None, typer.Option("--dot", metavar="FILE", help="show: write it for Graphviz.")] = None,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="show: draw it; Graphviz does that.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="submit: print the number and nothing else.")] = False,
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
      poolnode dag status 12                 how far it is
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
    if not given:
        raise UsageProblem(f"dag {action} needs {'a number' if action in ('status', 'rm') else 'a DAG file'}")
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
    from pool.client.workflows import submit_workflow

    number = query_pool(address, lambda pool: submit_workflow(pool, draft), working="submitting")
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


def _status(number: int, as_json: bool, address: str | None) -> int:
    from pool.client.workflows import workflow_status

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
    print_lines(lines)
    return 0


def _show_running(number: int, dot: Path | None, svg: Path | None, address: str | None) -> int:
    from pool.client.workflows import workflow_status

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

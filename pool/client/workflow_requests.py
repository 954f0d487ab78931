"""Work flows at the schedd: submitted, edited while they run, tried again, looked at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.client.workflows import WorkflowDraft

Wire = dict[str, Any]
#: Nodes, or differences of their jobs, in one message.
BATCH = 500


async def submit_workflow(pool: Pool, draft: WorkflowDraft) -> int:
    """Hands a work flow to the schedd; returns its number, a cluster's. It is never lost from then on.

    Raises:
        PoolError: it is refused.
    """
    answer = await _send(pool, draft, "schedd.submit_dag", {})
    if beside := answer.get("beside"):
        note = f"work flow {beside} runs the same file: the files of this one are named {answer['files']}.*"
        draft.warnings.append(note)
        draft.notes.append(note)
    return int(answer["cluster"])


async def edit_workflow(
    pool: Pool, number: int, draft: WorkflowDraft, *, dry_run: bool = False, keep_begun: bool = False
) -> Wire:
    """Puts a changed work flow in the place of one that runs; nothing of it is done where a part is refused.

    Args:
        dry_run: only tell the difference.
        keep_begun: nodes that have begun stay as they are, though they are changed in the files.

    Returns:
        Names by what is done with them: `added`, `removed`, `changed` (each with the words of it), `revived`, `kept`,
        `refused` (each with the reason), `other`; `counts` of each.

    Raises:
        PoolError: there is no such work flow that runs, or it is somebody else's.
    """
    return await _send(
        pool, draft, "schedd.edit_dag", {"cluster": number, "dry_run": dry_run, "keep_begun": keep_begun}
    )


async def retry_nodes(pool: Pool, number: int, names: Sequence[str] = ()) -> list[str]:
    """Have failed nodes of a work flow that runs done again: those of these names, or all; returns their names.

    Raises:
        PoolError: one of them has not failed.
    """
    answer = await pool.call("schedd.retry_dag", {"cluster": number, "names": list(names)})
    return [str(name) for name in answer["revived"]]


async def _send(pool: Pool, draft: WorkflowDraft, method: str, more: Wire) -> Wire:
    from pool.client.addresses import NoPool
    from pool.client.descriptions import domain_here
    from pool.client.spooling import is_elsewhere

    if await is_elsewhere(pool):
        hint = "submit it on the schedd's machine, or where both see the same files"
        raise PoolError("a work flow needs a schedd that sees this machine's files", hint=hint)
    domain = (await pool.info()).get("filesystem_domain")
    wire = dict(draft.wire)
    if domain:
        _set_domain(wire, domain_here(), str(domain))
        for node in draft.nodes:
            if isinstance(node.get("plan"), dict):
                _set_domain(node["plan"], domain_here(), str(domain))
    async with pool.streaming(method, {"plan": wire, **more}) as stream:
        for some in _slices(draft.nodes):
            await stream.send(["nodes", some])
        for template, deltas in enumerate(draft.deltas):
            for some in _slices(deltas or []):
                await stream.send(["deltas", template, some])
        await stream.send("done")
        async for answer in stream:
            found: Wire = answer
            return found
    raise NoPool(f"{pool.address} did not answer", hint="look before trying again", retry=True)


def _set_domain(plan: Wire, here: str, domain: str) -> None:
    """The node knows the name of its files better than this process."""
    plan["templates"] = [
        one | {"ad": one["ad"] | {"FileSystemDomain": domain}} if one["ad"].get("FileSystemDomain") == here else one
        for one in plan["templates"]
    ]
    for node in plan.get("nodes", ()):
        if isinstance(node.get("plan"), dict):
            _set_domain(node["plan"], here, domain)


def _slices(whole: Sequence[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(whole), BATCH):
        yield list(whole[start : start + BATCH])


async def workflow_status(pool: Pool, cluster: int, *, nodes: bool = False) -> Wire:
    """How far a work flow in the queue is; of one that has ended its last ad's numbers.

    Returns:
        `counts` by state, `status`, `queued` and `failed` nodes; of an ended one `ended` and `code`.

    Raises:
        PoolError: there is no such work flow.
    """
    try:
        answer: Wire = await pool.call("schedd.dag_status", {"cluster": cluster, "nodes": nodes})
    except PoolError as error:
        ads = await pool.gather("schedd.history", {"ids": [[cluster, 0]], "limit": 1})
        if not ads or "DAG_NodesTotal" not in ads[0]:
            raise error
        return _ended(ads[0])
    return answer


async def queued_workflows(pool: Pool) -> list[Wire]:
    """How far each work flow in the queue is that the caller may ask about, the oldest first, as `workflow_status`."""
    ads = await pool.jobs(constraint="DAG_NodesTotal =!= undefined", attributes=["ClusterId"])
    found = []
    for cluster in sorted({int(ad.value("ClusterId")) for ad in ads}):
        with contextlib.suppress(PoolError):  # another user's, or it has just ended
            found.append(await workflow_status(pool, cluster))
    return [one for one in found if not one.get("ended")]


def _ended(ad: Wire) -> Wire:
    counts = {"DONE": "Done", "ERROR": "Failed", "FUTILE": "Futile", "NOT_READY": "Unready"}
    return {
        "cluster": ad["ClusterId"],
        "file": ad.get("WorkflowFile", ""),
        "owner": ad.get("Owner", ""),
        "ended": True,
        "code": ad.get("ExitCode"),
        "status": ad.get("DAG_Status", 0),
        "counts": {state: ad.get(f"DAG_Nodes{name}", 0) for state, name in counts.items()},
        "total": ad["DAG_NodesTotal"],
    }

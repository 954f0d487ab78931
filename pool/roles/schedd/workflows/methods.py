"""The schedd's methods about work flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pool.errors import PoolError
from pool.policy.workflow.plan import MOST_NODES
from pool.roles.schedd.workflows.workflows import Workflows, read_plan
from pool.wire import Call, Right, Service, Stream, method, streaming

#: Differences of nodes' jobs, and bytes of a plan as they come in.
MOST_DELTAS = 2 * MOST_NODES


class WorkflowMethods(Service):
    """Served under the schedd's name.

    Args:
        submitter: the user that a call queues jobs for; raises for one who may not.
    """

    def __init__(self, workflows: Workflows, submitter: Callable[[Call, dict[str, Any]], str]) -> None:
        self._workflows = workflows
        self._submitter = submitter

    @streaming(Right.SUBMIT, takes={"plan": dict, "owner": str | None})
    async def submit_dag(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Accept a work flow: {plan} without its nodes, then ["nodes", [...]] and ["deltas", template, [...]], "done".

        Answers {cluster, nodes}, durably, or nothing has happened.
        """
        owner = self._submitter(call, params)
        plan, count = await self._receive(dict(params["plan"]), stream)
        cluster = await self._workflows.submit(owner, plan)
        await stream.send({"cluster": cluster.id, "nodes": count, **self._workflows.beside_which(cluster.id)})
        await stream.finish()

    @streaming(
        Right.SUBMIT,
        takes={"plan": dict, "cluster": int, "owner": str | None, "dry_run": bool | None, "keep_begun": bool | None},
    )
    async def edit_dag(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Put a changed plan, sent as for `submit_dag`, in the place of a work flow's that runs.

        Answers the difference (`pool.policy.workflow.edit.PlanEdit.to_wire`), durably done unless `refused` has names
        or `dry_run` is true.
        """
        owner = self._submitter(call, params)
        workflow = self._workflows.owned(params["cluster"], owner)
        plan, _ = await self._receive(dict(params["plan"]), stream)
        keeps, dry = params.get("keep_begun") is True, params.get("dry_run") is True
        await stream.send(await workflow.edits.edit(await read_plan(plan), keeps_begun=keeps, dry=dry))
        await stream.finish()

    @method(Right.SUBMIT, takes={"cluster": int, "names": list | None, "owner": str | None})
    async def retry_dag(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Do failed nodes of a work flow that runs again, all where none is named: {cluster, names} -> {revived}"""
        workflow = self._workflows.owned(params["cluster"], self._submitter(call, params))
        names = params.get("names") or []
        if not all(isinstance(name, str) for name in names):
            raise PoolError("names of nodes are texts")
        return {"revived": await workflow.edits.retry(names)}

    @staticmethod
    async def _receive(plan: dict[str, Any], stream: Stream) -> tuple[dict[str, Any], int]:
        """A whole plan, and how many nodes it has."""
        nodes: list[Any] = []
        templates = plan.get("templates")
        plan["nodes"] = nodes
        differences = 0
        async for item in stream:
            if item == "done":
                break
            match item:
                case ["nodes", list(more)] if len(nodes) + len(more) <= MOST_NODES:
                    nodes += more
                case ["deltas", int(number), list(more)] if (
                    isinstance(templates, list) and 0 <= number < len(templates) and isinstance(templates[number], dict)
                ):
                    differences += len(more)
                    known = templates[number].setdefault("deltas", [])
                    if differences > MOST_DELTAS or not isinstance(known, list):
                        raise PoolError("cannot queue: the work flow has too many jobs")
                    known += more
                case _:
                    raise PoolError("cannot queue: this is no part of a work flow", hint="submit it from a DAG file")
        else:
            raise PoolError("the submit broke off; nothing was queued", retry=True)
        return plan, len(nodes)

    @method(Right.READ, takes={"cluster": int, "nodes": bool | None})
    async def dag_status(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """How far a work flow is: {cluster, nodes} -> {status, counts, queued, failed, nodes, edges}"""
        return await self._workflows.status(params["cluster"], nodes=params.get("nodes") is True)

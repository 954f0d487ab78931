"""The schedd's methods about work flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pool.errors import PoolError
from pool.policy.workflow.plan import MOST_NODES
from pool.roles.schedd.workflows.workflows import Workflows
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
        owner, plan = self._submitter(call, params), dict(params["plan"])
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
        cluster = await self._workflows.submit(owner, plan)
        await stream.send({"cluster": cluster.id, "nodes": len(nodes)})
        await stream.finish()

    @method(Right.READ, takes={"cluster": int, "nodes": bool | None})
    async def dag_status(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """How far a work flow is: {cluster, nodes} -> {status, counts, queued, failed, nodes, edges}"""
        return await self._workflows.status(params["cluster"], nodes=params.get("nodes") is True)

"""The files that a work flow leaves beside its DAG file: rescue file, metrics, the state of its nodes, its drawing.

They are written with the user's rights. A file that cannot be written is logged, and changes nothing for the work flow.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import re
from collections.abc import Awaitable, Callable, Mapping

from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy.packed import pack, unpack
from pool.policy.workflow import WorkflowEngine, WorkflowPlan
from pool.policy.workflow.logs import dot_text
from pool.policy.workflow.words import metrics_text, rescue_text, status_text
from pool.roles.schedd.workflows.large import beside
from pool.roles.schedd.workflows.records import rescue_key
from pool.shadow.files import FilesOf

_RESCUE = re.compile(r"\.rescue([0-9]{3})$")


def own_path(plan: WorkflowPlan, workflow: int, path: str) -> str:
    """A file of a run: with the run's number in its name where another run of the same DAG file goes on."""
    return f"{path}.{workflow}" if plan.files.get("apart") is True else path


class WorkflowFiles:
    """Writes the files of all work flows of one schedd.

    Args:
        recall: a named value of the store from before the schedd was started; None where there is none.
        keep: makes a named value durable.
    """

    def __init__(
        self,
        files: FilesOf,
        outside: OutsideWorld,
        log: logging.Logger,
        recall: Callable[[str], bytes | None],
        keep: Callable[[str, bytes], Awaitable[None]],
    ) -> None:
        self._files = files
        self._outside = outside
        self._log = log
        self._recall = recall
        self._keep = keep

    async def write_rescue(self, owner: str, workflow: int, plan: WorkflowPlan, engine: WorkflowEngine) -> None:
        """The rescue file with the next number. Its number is durable first: a restart writes the same file."""
        known = self._recall(rescue_key(workflow))
        number = unpack(known) if known is not None else await self._next_rescue(owner, workflow, plan)
        if known is None:
            await self._keep(rescue_key(workflow), pack(number))
        moment = f"{self._moment():%m/%d/%Y %H:%M:%S}"
        text = await beside(len(plan.nodes), rescue_text, plan, engine, moment, number)
        await self._write(owner, f"{own_path(plan, workflow, plan.file)}.rescue{number:03d}", text)

    async def write_save(self, owner: str, plan: WorkflowPlan, engine: WorkflowEngine, path: str) -> None:
        """A save point; one that is there gets the end `.old`."""
        if not path.startswith("/"):
            return
        user, moment = self._files(owner), f"{self._moment():%m/%d/%Y %H:%M:%S}"
        text = await beside(len(plan.nodes), rescue_text, plan, engine, moment, 0)
        with contextlib.suppress(PoolError):
            await user.makedirs(path.rpartition("/")[0])
        with contextlib.suppress(PoolError):
            await user.rename(path, f"{path}.old")
        await self._write(owner, path, text)

    async def _next_rescue(self, owner: str, workflow: int, plan: WorkflowPlan) -> int:
        folder, _, name = own_path(plan, workflow, plan.file).rpartition("/")
        try:
            names = await self._files(owner).listdir(folder or "/")
        except PoolError:
            names = []
        ends = [_RESCUE.fullmatch(one.removeprefix(name)) for one in names if one.startswith(name)]
        numbers = [int(found[1]) for found in ends if found]
        return min(plan.most_rescues, max(numbers, default=0) + 1)

    async def write_metrics(
        self, owner: str, workflow: int, engine: WorkflowEngine, code: int, began: float, parent: int
    ) -> None:
        """The metrics of a work flow that has ended.

        Args:
            began: wall seconds. parent: the work flow around it; 0 for none.
        """
        now, plan = self._outside.wall(), engine.plan
        text = await beside(len(plan.nodes), metrics_text, plan, engine, workflow, parent, code, began, now)
        await self._write(owner, f"{own_path(plan, workflow, plan.file)}.metrics", text)

    async def write_status(
        self, owner: str, workflow: int, engine: WorkflowEngine, following: int, held: Mapping[int, int]
    ) -> None:
        """The node status file, where the work flow has one.

        Args:
            following: when it is written next, wall seconds; 0 for never.
            held: of nodes' jobs, how many are held.
        """
        plan = engine.plan
        path = plan.files.get("status")
        if isinstance(path, str) and path.startswith("/"):
            name = plan.file.rpartition("/")[2]
            now = int(self._outside.wall())
            text = await beside(len(plan.nodes), status_text, [name], engine, now, following, held)
            await self._write(owner, own_path(plan, workflow, path), text)

    async def write_dot(self, owner: str, workflow: int, engine: WorkflowEngine) -> None:
        """The drawing of DOT; a new file with the next number where none is written over."""
        plan = engine.plan
        wanted = plan.files.get("dot")
        path = wanted.get("path") if isinstance(wanted, dict) else None
        if not isinstance(wanted, dict) or not isinstance(path, str) or not path.startswith("/"):
            return
        path = own_path(plan, workflow, path)
        if wanted.get("overwrite") is False:
            folder, _, name = path.rpartition("/")
            try:
                there = set(await self._files(owner).listdir(folder or "/"))
            except PoolError:
                there = set()
            path = f"{path}.{next(number for number in range(len(there) + 1) if f'{name}.{number}' not in there)}"
        include = wanted.get("include")
        more = [str(part) for part in include] if isinstance(include, list) else []
        text = await beside(len(plan.nodes), dot_text, engine, self._outside.wall(), more)
        await self._write(owner, path, text)

    def _moment(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._outside.wall())

    async def _write(self, owner: str, path: str, text: str) -> None:
        try:
            writer = await self._files(owner).create(path)
            try:
                await writer.write(text.encode(errors="surrogateescape"))
                await writer.commit()
            finally:
                await writer.abandon()
        except PoolError as error:
            self._log.warning("a work flow's file cannot be written", extra={"file": path, "why": str(error)})

"""The files that a work flow leaves beside its DAG file: rescue file, metrics, its log, the state of its nodes.

They are written with the user's rights. A file that cannot be written is logged, and changes nothing for the work flow.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import re
from collections.abc import Awaitable, Callable

from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy.packed import pack, unpack
from pool.policy.workflow import WorkflowEngine, WorkflowPlan
from pool.policy.workflow.words import metrics_text, rescue_text, status_text
from pool.roles.schedd.workflows.large import beside
from pool.roles.schedd.workflows.records import rescue_key
from pool.shadow.files import FilesOf

_RESCUE = re.compile(r"\.rescue([0-9]{3})$")


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
        number = unpack(known) if known is not None else await self._next_rescue(owner, plan)
        if known is None:
            await self._keep(rescue_key(workflow), pack(number))
        moment = f"{self._moment():%m/%d/%Y %H:%M:%S}"
        text = await beside(len(plan.nodes), rescue_text, plan, engine, moment, number)
        await self._write(owner, f"{plan.file}.rescue{number:03d}", text)

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

    async def _next_rescue(self, owner: str, plan: WorkflowPlan) -> int:
        folder, _, name = plan.file.rpartition("/")
        try:
            names = await self._files(owner).listdir(folder or "/")
        except PoolError:
            names = []
        ends = [_RESCUE.fullmatch(one.removeprefix(name)) for one in names if one.startswith(name)]
        numbers = [int(found[1]) for found in ends if found]
        return min(plan.most_rescues, max(numbers, default=0) + 1)

    async def write_end(
        self,
        owner: str,
        workflow: int,
        plan: WorkflowPlan,
        engine: WorkflowEngine,
        code: int,
        began: float,
        parent: int,
    ) -> None:
        """The metrics, the last state of the nodes, and the last lines of its log."""
        now = self._outside.wall()
        text = await beside(len(plan.nodes), metrics_text, plan, engine, workflow, parent, code, began, now)
        await self._write(owner, f"{plan.file}.metrics", text)
        await self.write_status(owner, plan, engine, 0)
        await self.log_line(
            owner, plan, f"**** condor_scheduniv_exec.{workflow}.0 (condor_DAGMAN) pid 0 EXITING WITH STATUS {code}"
        )

    async def write_status(self, owner: str, plan: WorkflowPlan, engine: WorkflowEngine, following: int) -> None:
        """The node status file, where the work flow has one."""
        path = plan.files.get("status")
        if isinstance(path, str) and path.startswith("/"):
            name = plan.file.rpartition("/")[2]
            now = int(self._outside.wall())
            text = await beside(len(plan.nodes), status_text, [name], engine, now, following, {})
            await self._write(owner, path, text)

    async def log_line(self, owner: str, plan: WorkflowPlan, text: str) -> None:
        """A line of FILE.dagman.out."""
        line = f"{self._moment():%m/%d/%y %H:%M:%S} {text}\n"
        try:
            await self._files(owner).append(f"{plan.file}.dagman.out", line.encode(errors="surrogateescape"))
        except PoolError as error:
            self._log.warning("a work flow's log cannot be written", extra={"file": plan.file, "why": str(error)})

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

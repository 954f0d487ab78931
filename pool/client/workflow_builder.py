"""Work flows written in Python: jobs, and calls of functions, that wait for each other.

    flow = Workflow("analysis")
    parts = [flow.call(count, path) for path in paths]      # a function in a job of its own
    total = flow.call(sum, parts)                           # waits for the nodes among its arguments
    flow.job("report", {"executable": "report.sh"}, after=[total])
    async with await Pool.connect() as pool:
        run = await flow.submit(pool)
        await run.wait()
        print(run.result(total))

A work flow is written into a directory as a DAG file with all that its calls need, and the schedd runs that file: the
program may end meanwhile. Arguments and results are pickles there, so machines either see the directory, or get the
files that a call needs.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.client.commands import text_of
from pool.client.descriptions import read_file
from pool.client.workers import one_call
from pool.client.workers.packing import pickler_class
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.client.results import Result
    from pool.client.workflows import WorkflowDraft

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
#: Lines of a failed call's errors that are shown.
SHOWN = 8


@dataclass(frozen=True, eq=False)
class FlowNode:
    """A node of a work flow: a job, or a call.

    Attributes:
        name: in the DAG file. number: from 0 up.
        after: the nodes that it waits for.
        text: the description of a job; empty for a call. retries: how often it is tried again.
        commands: of a call's job.
    """

    name: str
    number: int
    after: tuple[FlowNode, ...]
    text: str = ""
    retries: int = 0
    commands: Mapping[str, Any] = field(default_factory=dict)

    @property
    def result_file(self) -> str:
        """The name of the file in which a call leaves its result."""
        return f"{self.name}.result"

    def __repr__(self) -> str:
        return f"<FlowNode {self.name}>"


class Workflow:
    """A graph that is being written.

    Args:
        name: of the work flow and its files: letters, digits, `_` and `-`.
        directory: where its files lie, which the schedd must see; by default NAME.flow in the current one. It is made.
        python: the Python that performs calls, on every machine; by default this one.
        paths: directories in which calls find modules; by default those of this program that are below the
            current directory.
        ship: files and directories of modules that are copied into the work flow's directory, and sent with its calls.
    """

    def __init__(
        self,
        name: str,
        directory: str | os.PathLike[str] | None = None,
        *,
        python: str | None = None,
        paths: Sequence[str | os.PathLike[str]] | None = None,
        ship: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        if not _NAME.fullmatch(name):
            raise PoolError(f"{name!r} cannot be the name of a work flow", hint="use letters, digits, '_' and '-'")
        self.name = name
        self.directory = Path(directory if directory is not None else f"{name}.flow").absolute()
        self.nodes: list[FlowNode] = []
        self._names: set[str] = set()
        self._python = python or sys.executable
        here = os.getcwd()
        known = [here if one == "" else one for one in sys.path]
        self._paths = [os.fspath(one) for one in paths] if paths is not None else [p for p in known if _below(p, here)]
        self._ship = [Path(one) for one in ship]
        self._calls: dict[FlowNode, bytes] = {}

    def job(
        self,
        name: str,
        description: Mapping[str, Any] | str | os.PathLike[str],
        *,
        after: Iterable[FlowNode] = (),
        retries: int = 0,
    ) -> FlowNode:
        """Add a job.

        Args:
            description: a dictionary of commands without `queue`, a text, or the path of a file. Names in it begin at
                the work flow's directory.
            after: the nodes that it waits for.
            retries: how often it is tried again when its program fails. An eviction is no failure.

        Raises:
            PoolError: the name is taken, or a command has no such value.
        """
        if isinstance(description, Mapping):
            if "queue" in description or "items" in description:
                raise PoolError(f"the description of node {name} says how many", hint="a node is one job")
            text = text_of(description).removesuffix("queue\n")
        elif isinstance(description, str) and ("\n" in description or "=" in description):
            text = description if description.endswith("\n") else f"{description}\n"
        else:
            text = read_file(Path(description).absolute())
            text = re.sub(r"(?im)^[ \t]*queue[ \t]*1?[ \t]*$", "", text)
        return self._add(name, text, after, retries, {})

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        after: Iterable[FlowNode] = (),
        name: str | None = None,
        retries: int = 0,
        commands: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> FlowNode:
        """Add a call of a function. Nodes among its arguments, also in lists, stand for their results.

        Args:
            commands: further commands of the call's job: `{"request_memory": "2GB"}`.
            after, name, retries: as for `job`; the name is otherwise made from the function's.

        Raises:
            PoolError: it cannot be pickled; cloudpickle may be missing.
        """
        needs: list[FlowNode] = []
        data = self._pickled(function, arguments, named, needs)
        base = re.sub(r"[^A-Za-z0-9_]", "_", getattr(function, "__name__", "call")).strip("_") or "call"
        name = name if name is not None else f"{base}-{len(self.nodes)}"
        node = self._add(name, "", [*needs, *after], retries, dict(commands or {}))
        self._calls[node] = data
        return node

    def _pickled(self, function: Any, arguments: Any, named: Any, needs: list[FlowNode]) -> bytes:
        own = set(self.nodes)

        class Writer(pickler_class()):  # type: ignore[misc]
            def persistent_id(self, value: Any) -> str | None:
                if not isinstance(value, FlowNode):
                    return None
                if value not in own or value.text:
                    raise PoolError(f"{value.name} has no result", hint="give nodes of this work flow that are calls")
                if value not in needs:
                    needs.append(value)
                return value.result_file

        into = io.BytesIO()
        pickle.dump(self._paths, into)
        try:
            Writer(into, protocol=5).dump((function, arguments, named))
        except PoolError:
            raise
        except Exception as error:
            called = getattr(function, "__name__", function)
            raise PoolError(f"cannot send the call of {called}: {error}", hint="pip install cloudpickle") from error
        return into.getvalue()

    def _add(
        self, name: str, text: str, after: Iterable[FlowNode], retries: int, commands: Mapping[str, Any]
    ) -> FlowNode:
        if not _NAME.fullmatch(name):
            raise PoolError(f"{name!r} cannot be the name of a node", hint="use letters, digits, '_' and '-'")
        if name.lower() in self._names:
            raise PoolError(f"there is a node {name} already", hint="give each node a name of its own")
        waits = tuple(dict.fromkeys(after))
        if foreign := [node.name for node in waits if node not in self.nodes]:
            raise PoolError(f"{foreign[0]} is no node of the work flow {self.name}")
        if retries < 0:
            raise PoolError(f"node {name} cannot be tried again {retries} times")
        node = FlowNode(name, len(self.nodes), waits, text, retries, commands)
        self.nodes.append(node)
        self._names.add(name.lower())
        return node

    # -- as a file ---------------------------------------------------------------------------------------------

    @property
    def file(self) -> Path:
        """The DAG file."""
        return self.directory / f"{self.name}.dag"

    def text(self) -> str:
        """The work flow in DAGMan's language."""
        shared: dict[str, str] = {}
        for node in self._calls:
            shared.setdefault(self._call_text(node), f"call{len(shared)}")
        lines = [f"SUBMIT-DESCRIPTION {name} {{\n{text}}}" for text, name in shared.items()]
        for node in self.nodes:
            if node.text:
                lines.append(f"JOB {node.name} {{\n{node.text}}}")
            else:
                inputs = ",".join(f"{one.result_file}" for one in node.after if not one.text)
                more = f",{inputs}" if inputs else ""
                lines.append(f"JOB {node.name} {shared[self._call_text(node)]}")
                lines.append(f'VARS {node.name} call="{node.name}" needed="{more}"')
            if node.retries:
                lines.append(f"RETRY {node.name} {node.retries}")
            if node.after:
                lines.append(f"PARENT {' '.join(one.name for one in node.after)} CHILD {node.name}")
        return "\n".join([*lines, ""])

    def _call_text(self, node: FlowNode) -> str:
        shipped = [one.name for one in self._ship]
        commands = {
            "executable": self._python,
            "transfer_executable": False,
            "arguments": "one_call.py $(call).call $(call).result",
            "transfer_input_files": ",".join(["one_call.py", *shipped, "$(call).call$(needed)"]),
            "error": "$(call).err",
            "output": "$(call).out",
        }
        return text_of(commands | dict(node.commands)).removesuffix("queue\n")

    def write(self) -> Path:
        """Write the DAG file and all that its calls need; returns the file.

        Raises:
            PoolError: there are no nodes.
        """
        if not self.nodes:
            raise PoolError(f"the work flow {self.name} has no nodes")
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._calls:
            _replace(self.directory / "one_call.py", Path(one_call.__file__).read_bytes())
            for one in self._ship:
                if one.is_dir():
                    shutil.copytree(one, self.directory / one.name, dirs_exist_ok=True)
                else:
                    shutil.copyfile(one, self.directory / one.name)
        for node, data in self._calls.items():
            _replace(self.directory / f"{node.name}.call", data)
        _replace(self.file, self.text().encode(errors="surrogateescape"))
        return self.file

    async def submit(self, pool: Pool, *, force: bool = False, keep_open: bool = False) -> FlowRun:
        """Write it, and queue it. Nodes that an earlier run of it has done are not done again, unless `force`.

        Args:
            keep_open: it does not end when nothing is left to do, but waits for `FlowRun.update` and `FlowRun.close`.

        Raises:
            PoolError: something in it is wrong, or it is refused.
        """
        from pool.client.workflow_requests import submit_workflow

        draft = self._draft(force=force, keep_open=keep_open)
        return FlowRun(self, pool, await submit_workflow(pool, draft))

    def _draft(self, *, force: bool, keep_open: bool) -> WorkflowDraft:
        from pool.client.workflows import WorkflowOptions, draft_workflow

        self.write()
        draft = draft_workflow([self.file.name], WorkflowOptions(force=force), iwd=os.fspath(self.directory))
        draft.wire["open"] = keep_open
        return draft


@dataclass(frozen=True)
class FlowRun:
    """A work flow in the queue.

    Attributes:
        cluster: its number.
    """

    workflow: Workflow
    pool: Pool
    cluster: int

    async def status(self) -> dict[str, Any]:
        """How far it is, as `poolnode dag status --json` says."""
        from pool.client.workflow_requests import workflow_status

        return await workflow_status(self.pool, self.cluster)

    async def update(self, *, keep_open: bool | None = None) -> dict[str, Any]:
        """Add to the run the nodes that the work flow has got since: it goes on with them.

        Args:
            keep_open: whether it waits for further nodes; by default as before.

        Returns:
            The difference, with `added` and so on: see `poolnode dag edit --json`.

        Raises:
            PoolError: it has ended, or a part of the change is refused.
        """
        from pool.client.workflow_requests import edit_workflow

        now = await self.status()
        if now.get("ended"):
            raise _has_ended(self.cluster)
        stays = now.get("open") is True if keep_open is None else keep_open
        draft = self.workflow._draft(force=True, keep_open=stays)
        try:
            found = await edit_workflow(self.pool, self.cluster, draft)
        except PoolError:
            if (await self.status()).get("ended"):  # since it was asked
                raise _has_ended(self.cluster) from None
            raise
        if found["refused"]:
            name, why = found["refused"][0]
            raise PoolError(f"node {name} cannot be changed: {why}")
        return found

    async def close(self) -> None:
        """No more nodes are to come: it ends when nothing is left to do."""
        await self.update(keep_open=False)

    async def retry(self, *nodes: FlowNode) -> list[str]:
        """Have failed nodes done again while it runs: these, or all; returns their names.

        Raises:
            PoolError: one of them has not failed.
        """
        from pool.client.workflow_requests import retry_nodes

        return await retry_nodes(self.pool, self.cluster, [node.name for node in nodes])

    async def wait(self, timeout: float | None = None) -> Result:
        """Wait until it has ended: with exit code 0 where all nodes are done. TimeoutError after so many seconds."""
        return await self.pool.job(self.cluster, 0).wait(timeout)

    def result(self, node: FlowNode) -> Any:
        """The value of a call that has ended.

        Raises:
            PoolError: it has none yet, or it failed; the last lines of what it wrote to its errors say why.
        """
        place = self.workflow.directory / node.result_file
        try:
            with place.open("rb") as file:
                return pickle.load(file)
        except FileNotFoundError:
            pass
        failed, said = self._failure(node)
        if failed is None:
            raise PoolError(f"{node.name} has no result", hint="it has not ended yet", retry=True)
        raise PoolError(f"{node.name} has no result, since {failed.name} has failed", hint=said)

    def _failure(self, node: FlowNode) -> tuple[FlowNode | None, str]:
        """The node for which another has no result, and the last lines of its errors."""
        waiting, seen = [node], set[FlowNode]()
        while waiting:
            one = waiting.pop()
            seen.add(one)
            waiting += [before for before in one.after if before not in seen and not self._has_result(before)]
            try:
                said = (self.workflow.directory / f"{one.name}.err").read_text(errors="replace").strip()
            except OSError:
                said = ""
            if said and not one.text and not self._has_result(one):
                return one, "\n".join(said.splitlines()[-SHOWN:])
        return None, ""

    def _has_result(self, node: FlowNode) -> bool:
        return (self.workflow.directory / node.result_file).exists()


def _has_ended(number: int) -> PoolError:
    return PoolError(f"work flow {number} has ended", hint="submit it again: done nodes stay done")


def _replace(place: Path, data: bytes) -> None:
    """Write a file as a whole; jobs that run may read it meanwhile."""
    try:
        if place.read_bytes() == data:
            return
    except OSError:
        pass
    fresh = place.with_name(f".{place.name}.new")
    fresh.write_bytes(data)
    fresh.replace(place)


def _below(path: str, here: str) -> bool:
    """Whether a path of modules is the program's own: below the current directory, and no installed packages."""
    return os.path.isdir(path) and "site-packages" not in path and os.path.commonpath([here, path]) == here

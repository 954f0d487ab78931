"""Real nodes for the tests: `python -m pool --roles ...` in processes of their own, and what watches and ends them.

A node's log is read as it is written, so that a test waits for what a node says and never for a while. Nothing is
imported from a role here: the tests see what a user sees, and /proc.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from pool.client import Pool, Result
from tests.conftest import REPOSITORY
from tests.e2e.node_forks import ForkedNode, NodeForks
from tests.ordinary_user import OrdinaryUser, as_root

ALL = "collector,negotiator,schedd,startd"
HEAD = "collector,negotiator,schedd"
#: Seconds for anything that is waited for: the machine may be busy. Working code takes a small part of it.
PATIENCE = 60.0
ROOT = os.geteuid() == 0
#: That of the tests, also while these are an ordinary user, who may not be able to run it.
PYTHON_OF_NODES = sys.executable


#: Has the program loaded, and forks nodes; None where each is started by the command.
forks: NodeForks | None = None
#: The user who the tests are while root runs their nodes; None where the nodes are of the user who runs the tests.
submitter: OrdinaryUser | None = None


@contextlib.contextmanager
def submitting(user: OrdinaryUser) -> Iterator[None]:
    """Nodes are root's, with RUN_AS = owner; this user submits."""
    global submitter
    submitter = user
    try:
        yield
    finally:
        submitter = None


class Took(AssertionError):
    """The awaited event did not come in time; shows the log."""


def free_port() -> int:
    """A port on loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Node:
    """One node in a process of its own.

    Attributes:
        log: what it has said so far, one dict for each line; a line that is no JSON as {"text": line}.
    """

    def __init__(
        self, state: Path, arguments: list[str], environ: Mapping[str, str], machine: Sequence[str] = ()
    ) -> None:
        self.state = state
        self.log: list[dict[str, Any]] = []
        self._heard = threading.Condition()
        self._closed = False
        words = ["--log-json", "--state", str(state), *arguments]
        variables = {**os.environ, **(submitter.of_root if submitter else {}), **environ}
        self.process: subprocess.Popen[str] | ForkedNode
        with as_root():
            if forks is not None and not environ and not machine:
                self.process = forks.start(words, variables)
            else:
                self.process = subprocess.Popen(
                    [*machine, PYTHON_OF_NODES, "-m", "pool", *words],
                    cwd=REPOSITORY,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def address(self) -> str:
        return f"unix://{self.state}/node.sock"

    @property
    def text(self) -> str:
        return "\n".join(entry.get("text") or json.dumps(entry) for entry in self.log)

    def said(self, message: str, *, after: int = 0, **fields: Any) -> dict[str, Any]:
        """Wait for a line of the log: the message, and fields whose values contain the given text.

        Args:
            after: the number of lines to pass over.
        """

        def found() -> dict[str, Any] | None:
            for line in self.log[after:]:
                if line.get("message") == message and all(
                    str(text) in str(line.get(name)) for name, text in fields.items()
                ):
                    return line
            return None

        deadline = time.monotonic() + PATIENCE
        with self._heard:
            while (line := found()) is None:
                if self._closed or not self._heard.wait(deadline - time.monotonic()):
                    raise Took(f"the node did not say {message!r} {fields}:\n{self.text[-4000:]}")
            return line

    def ready(self) -> Node:
        self.said("ready")
        return self

    def ended(self) -> int:
        """Wait until it has ended by itself; its status."""
        status = self.process.wait(PATIENCE)
        with self._heard:
            self._heard.wait_for(lambda: self._closed, 2.0)
        return status

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        """SIGTERM, and wait."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def crash(self) -> None:
        """kill -9, of the node's process alone."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                entry = json.loads(line)
            except ValueError:
                entry = {"text": line.rstrip("\n")}
            with self._heard:
                self.log.append(entry)
                self._heard.notify_all()
        with self._heard:
            self._closed = True
            self._heard.notify_all()


class Nodes:
    """The nodes of one test, and a place for their files. A node is named, and keeps its state when started again."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.all: list[Node] = []
        self._joined: set[str] = set()

    def directory(self, name: str) -> Path:
        """A directory for a user's files. On other machines root's jobs run as nobody, who may write here too."""
        path = self.place / name
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
        return path

    def home(self, name: str) -> Path:
        """A directory for a user's files that `elsewhere` does not see."""
        return self.directory(f"{self.directory('file_servers').name}/{name}")

    def elsewhere(self) -> tuple[str, ...]:
        """The words before the command of a node whose machine does not see the homes. Root's jobs see them nowhere
        else as it is, where the user of the tests is root: they run as nobody.
        """
        if submitter is None:
            return ()
        hiding = f'mount -t tmpfs none {self.directory("file_servers")} && exec "$@"'
        return ("unshare", "--mount", "sh", "-c", hiding, "machine")

    def state(self, name: str) -> Path:
        return self.place / f"{name}.state"

    def start(
        self,
        name: str,
        roles: str,
        *,
        join: str | None = None,
        config: Path | None = None,
        environ: Mapping[str, str] | None = None,
        machine: Sequence[str] = (),
        **sets: str,
    ) -> Node:
        """Start a node; `ready()` waits for it. `machine`: what comes before its command (tests/ordinary_user.py)."""
        given = {"NODE_NAME": name, "LISTEN": "127.0.0.1:0", "POLICY": "dedicated", "MAIL": "none", **sets}
        if join is not None:
            self._joined.add(name)
        if submitter is not None:
            given.setdefault("RUN_AS", "owner")
        elif name in self._joined and "FILESYSTEM_DOMAIN" not in sets:
            # It shares the files of the user who runs the tests: its jobs have to run as that user.
            given.setdefault("RUN_AS", "node")
        arguments = ["--roles", roles]
        if join is not None:
            arguments += ["--join", join]
        if config is not None:
            arguments += ["--config", str(config)]
        for setting, value in given.items():
            arguments += ["--set", f"{setting}={value}"]
        node = Node(self.state(name), arguments, environ or {}, machine)
        self.all.append(node)
        return node

    def close(self) -> None:
        """End every node, and whatever is left of any."""
        for node in self.all:
            if node.process.poll() is None:
                node.process.kill()
                node.process.wait(PATIENCE)
        kill_family()
        # Some jobs here take away everybody's rights to their directories.
        subprocess.run(["chmod", "-R", "u+rwX", self.place], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.place)


#: The nodes that live now, of a test or of all tests of a module.
there: list[Nodes] = []


@contextlib.contextmanager
def nodes() -> Iterator[Nodes]:
    """Nodes in a directory with a short name (sockets need one) that every user may go through."""
    with as_root():
        place = Path(tempfile.mkdtemp(prefix="e2e-"))
    place.chmod(0o755)
    with adopting():
        made = Nodes(place)
        there.append(made)
        try:
            yield made
        finally:
            there.remove(made)
            made.close()


@contextlib.contextmanager
def running(start: Callable[[Nodes], Coroutine[Any, Any, None]]) -> Iterator[Nodes]:
    """Nodes as `start` has begun them, for the tests of one module; at the end none of them has logged a fault."""
    with nodes() as made:
        asyncio.run(start(made))
        yield made
        for node in made.all:
            assert "Traceback" not in node.text, node.text
            assert not any("trace" in line for line in node.log), node.text


# -- processes -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Orphans of this process's children become its own: what a killed node leaves is found and ended."""
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    subreaper = 36
    prctl(subreaper, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(subreaper, 0, 0, 0, 0)


def _below() -> list[psutil.Process]:
    """Every process below this one, apart from the one that forks nodes."""
    own = forks.pid if forks is not None else 0
    return [process for process in psutil.Process().children(recursive=True) if process.pid != own]


def family() -> list[psutil.Process]:
    """Every live process below this one."""
    alive = []
    for process in _below():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def family_in_words() -> str:
    """Every process below this one, dead ones too, a line each: what it is and what it waits for."""
    lines = []
    for process in _below():
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            waits = Path(f"/proc/{process.pid}/wchan").read_text()
            words = " ".join(process.cmdline())[:150]
            lines.append(f"{process.pid} of {process.ppid()} {process.name()} {process.status()} {waits} {words}")
    return "\n".join(lines)


def kill_family() -> None:
    """End everything below this process, and collect what was adopted."""
    for _ in range(20):
        left = _below()
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=0.5)


def processes_with(mark: str) -> list[psutil.Process]:
    """Live processes below this one that have `mark` in their command line."""
    found = []
    for process in family():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(mark in word for word in process.cmdline()):
                found.append(process)
    return found


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Look at something outside that tells nobody when it happens, such as a file or a process, until it is so."""

    async def look() -> Any:
        return condition()

    return await asked(look, what)


async def asked(question: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Ask until the answer is not empty."""
    deadline = time.monotonic() + PATIENCE
    while not (found := await question()):
        if time.monotonic() > deadline:
            raise Took(f"waited in vain for {what}")
        await asyncio.sleep(0.01)
    return found


# -- the user ------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def client(node: Node) -> AsyncIterator[Pool]:
    """A connection of the user's."""
    async with await Pool.connect(node.address) as pool:
        yield pool


@contextlib.asynccontextmanager
async def administrator(node: Node) -> AsyncIterator[Pool]:
    """A connection of the user's who runs the node. By its ids at this moment the node knows a process."""
    with as_root():
        pool = await Pool.connect(node.address)
    async with pool:
        yield pool


async def token(node: Node, *roles: str, **more: Any) -> str:
    """A join token, made by the node for its own user."""
    async with administrator(node) as pool:
        made = await pool.call("node.token", {"roles": list(roles), "lifetime": 600, "uses": 1, **more})
        text: str = made["token"]
        return text


async def slots(pool: Pool, number: int) -> None:
    """Wait until the collector knows that many machines."""

    async def known() -> bool:
        return len({ad.value("Machine") for ad in await pool.machines()}) >= number

    await asked(known, f"{number} machines")


async def outcome(pool: Pool, iwd: Path, **commands: Any) -> Result:
    """Submit one job and wait until it has ended or is held."""
    cluster = await pool.submit(commands, iwd=str(iwd))
    try:
        return (await cluster.wait(PATIENCE, until_stuck=True))[0]
    except TimeoutError:
        jobs = [str(ad) for ad in await cluster.ads()]
        names = ("Name", "State", "Activity", "RemoteOwner", "EnteredCurrentState", "Start")
        machines = [str(ad) for ad in await pool.machines(attributes=names)]
        said = "\n".join([*jobs, *machines, str(await pool.why((cluster.ids[0][0], 0)))])
        raise Took(f"a job has neither ended nor been held:\n{said}") from None


def program(directory: Path, text: str, name: str = "job.sh") -> str:
    """A shell script; its path."""
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


#: Commands for administrators, which the user of root's pool leaves to root; and what makes `userprio` one.
ADMINISTERS = {"drain", "reload", "revoke", "stop", "token", "undrain"}
CHANGES_PRIORITIES = {"--factor", "--priority", "--reset", "--forget"}


def poolnode(*arguments: str, cwd: Path = REPOSITORY, **environ: str) -> subprocess.CompletedProcess[str]:
    """The program as a user types it."""
    by_root = arguments[0] in ADMINISTERS or not CHANGES_PRIORITIES.isdisjoint(arguments)
    python, more = sys.executable, {}
    if submitter is not None and by_root:
        python, more = PYTHON_OF_NODES, {**submitter.of_root, "PYTHONPATH": str(REPOSITORY)}
    with as_root() if by_root else contextlib.nullcontext():
        return subprocess.run(
            [python, "-m", "pool", *arguments],
            cwd=cwd,
            env={**environ_with_sources(), **more, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def environ_with_sources() -> dict[str, str]:
    """The environment, with the sources under test among Python's packages."""
    # That of an ordinary user has them, with all that they import.
    return {**os.environ, **({} if submitter else {"PYTHONPATH": str(REPOSITORY)})}


def directory_name(request: pytest.FixtureRequest) -> str:
    """A name for the directory of a test, without signs that a shell or a description reads."""
    return re.sub(r"\W+", "-", request.node.name.removeprefix("test_"))[-60:].strip("-")


def own_name() -> str:
    """The account of the user who submits."""
    return pwd.getpwuid(os.geteuid()).pw_name


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a failed command has to say."""
    assert done.returncode != 0, done.stdout
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "defect" not in done.stderr
    return lines[0]

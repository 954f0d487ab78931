"""Nodes that begin with the program loaded. A process has imported what a node with all roles needs, and each node is a
fork of it: a process of its own from the program's first line on, as `python -m pool` is.

To import the program takes 0.4 s of processor time, and the tests start some thousand nodes. Nodes on machines of their
own, and with other variables than the tests have, are still started by the command.

A request is a message of JSON (arguments, environment, resource limits) with the write end of a pipe for the node's
output and the mount namespace that it is to be in. The answer is its process id. The node is no child of the process
that forks: the one who asks adopts it, as the `adopting` of support.py has it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from typing import NoReturn

REPOSITORY = Path(__file__).resolve().parents[2]
#: Bytes of one request: arguments and environment.
MOST = 1 << 19
CLONE_NEWNS = 0x20000
LIMITS = sorted(value for name, value in vars(resource).items() if name.startswith("RLIMIT_"))


class ForkedNode:
    """A node's process, as `subprocess.Popen` has one.

    Attributes:
        returncode: its status as `Popen` has it; None while it runs.
    """

    def __init__(self, pid: int, stdout: TextIO) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._ended = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Its status; None while it runs."""
        return self._look(0.0)

    def wait(self, timeout: float) -> int:
        """Wait for its end, for so many seconds.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        status = self._look(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"node {self.pid}", timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._ended, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout)[0]:
            try:
                _, status = os.waitpid(self.pid, 0)
                self.returncode = os.waitstatus_to_exitcode(status)
            except ChildProcessError:  # somebody else has collected it, with all that a test has left
                self.returncode = -signal.SIGKILL
            os.close(self._ended)
        return self.returncode


class NodeForks:
    """The process that forks nodes, started when this is made.

    Attributes:
        pid: of that process, which is a child of this one.
    """

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.node_forks", str(theirs.fileno())],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # as a node's own
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
            )
        self.pid = self._process.pid

    def start(self, arguments: Sequence[str], environ: Mapping[str, str]) -> ForkedNode:
        """`python -m pool ARGUMENTS` in the repository, in this thread's mount namespace and with its limits."""
        limits = [(kind, resource.getrlimit(kind)) for kind in LIMITS]
        request = json.dumps({"arguments": list(arguments), "environ": dict(environ), "limits": limits}).encode()
        out, into = os.pipe()
        mounts = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)
        try:
            socket.send_fds(self._requests, [request], [into, mounts])
        finally:
            os.close(into)
            os.close(mounts)
        pid = self._requests.recv(100)
        if not pid:
            raise AssertionError(f"no node can be forked: {self._process.communicate()[0]!r}")
        return ForkedNode(int(pid), os.fdopen(out, encoding="utf-8", errors="replace"))

    def close(self) -> None:
        """End the process; nodes go on."""
        self._requests.close()
        self._process.wait()


@contextlib.contextmanager
def node_forks() -> Iterator[NodeForks]:
    """The process, for as long as tests run."""
    forks = NodeForks()
    try:
        yield forks
    finally:
        forks.close()


# -- in that process -----------------------------------------------------------------------------------------


def serve(requests: socket.socket) -> None:
    """Fork a node for each request; returns in the node's process, where it is to be run."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, MOST, 2)
        if not request:
            sys.exit()
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            node = os.fork()
            if node:
                os.write(tell, str(node).encode())
                os._exit(0)
            for end in (told, tell):
                os.close(end)
            requests.close()
            become_node(json.loads(request), *descriptors)
            return
        os.waitpid(between, 0)  # from now on the node is a child of the one who asks
        requests.send(os.read(told, 100))
        for end in (told, tell, *descriptors):
            os.close(end)


def become_node(request: Mapping[str, Any], output: int, mounts: int) -> None:
    """Be as a process is that was started by the command."""
    if os.readlink(f"/proc/self/fd/{mounts}") != os.readlink("/proc/self/ns/mnt"):
        _enter(mounts)
    os.close(mounts)
    os.chdir(REPOSITORY)
    for kind, limit in request["limits"]:
        if resource.getrlimit(kind) != tuple(limit):
            resource.setrlimit(kind, limit)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv = [str(REPOSITORY / "pool/__main__.py"), *request["arguments"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _enter(mounts: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(mounts, CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "enter the mount namespace of the tests")


#: The modules whose import brings all that a node with all roles imports until it is ready.
MODULES = (
    *("uvloop", "pool.cli.main", "pool.cli.join_token", "pool.node", "pool.machine", "pool.classad.compiling"),
    *("pool.shadow.files", "pool.starter.abilities", "pool.starter.keeper", "pool.store.accounts"),
    *("pool.wire.certificates", "pool.wire.credentials"),
)
ROLES = ("collector", "negotiator", "schedd", "startd")


def load_program() -> None:
    """Import it."""
    for name in MODULES:
        importlib.import_module(name)
    for role in ROLES:
        sys.modules["pool.node"].role_named(role)


def run() -> NoReturn:
    """Serve, and in each fork be a node."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    load_program()
    serve(socket.socket(fileno=int(sys.argv[1])))
    from pool.cli.entry import main

    main()
    sys.exit()


if __name__ == "__main__":
    run()

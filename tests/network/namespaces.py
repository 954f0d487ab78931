"""Processes of tests that each make a network namespace of their own and stay in it."""

from __future__ import annotations

import subprocess

import pytest

#: A namespace without anything in it.
EMPTY = "echo up; exec sleep 1000"


def begin_namespace(script: str) -> subprocess.Popen[bytes]:
    """Run a shell script in a new network namespace; it says "up" when that is ready."""
    command = ["unshare", "--net", "sh", "-c", script]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def wait_until_up(process: subprocess.Popen[bytes]) -> None:
    """Wait for its "up"; skips the test where the machine makes no namespace."""
    assert process.stdout is not None
    if process.stdout.readline() != b"up\n":
        pytest.skip("needs root, network namespaces, and ip of iproute2")

"""Which tests may be skipped in a run of `.ci/run`, and why. Any other skip fails there: a test that is skipped tests
nothing, and nobody reads a number at the end of a long run.

As root `.ci/run` sets the variable `CHECK`, and it installs what tests wish for from Debian. So only three kinds of
skips are left: cases that exist on no machine, abilities that neither root nor Debian can give to a machine, and two
programs that are too large to install. The list stays short: before a row is added, ask whether `.ci/run` can install
what is missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest

#: The environment variable under which a skip that is not listed is a failure.
CHECK = "TESTS_CHECK_SKIPS"

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@dataclass(frozen=True)
class Skip:
    """Tests that may be skipped for a reason.

    Attributes:
        tests: a regular expression that is found in the test's node id.
        reason: a regular expression for the whole reason, as the test gives it.
        where: on which machines it is skipped, and why nothing can be done about it there.
    """

    tests: str
    reason: str
    where: str


NO_ARCHIVE = "where Debian's archive cannot be reached: `.ci/run` installs it"

LISTED = (
    Skip(
        r"^tests/checkpoint/remote/\w+\.py::.*\bnotification\b",
        r"needs remote files in this way and /dev/fuse",
        "on all: the case needs what the way without FUSE does not have",
    ),
    Skip(
        r"^tests/checkpoint/test_servers\.py::",
        r"needs the Debian package (golang-go|python3-torch)",
        "where nobody has installed it: it is too large for `.ci/run`",
    ),
    Skip(r"^tests/checkpoint/", r"needs the Debian package [\w-]+", NO_ARCHIVE),
    Skip(r"^tests/e2e/test_fetching\.py::", r"needs the Debian package default-jdk-headless", NO_ARCHIVE),
    Skip(r"^tests/starter/test_registries\.py::", r"needs (skopeo|podman)", NO_ARCHIVE),
    Skip(r"^tests/e2e/test_registry_login\.py::", r"needs the Debian packages docker-registry and skopeo", NO_ARCHIVE),
    Skip(r"^tests/jobs/dag/test_drawing\.py::", r"needs graphviz", NO_ARCHIVE),
    Skip(r"^tests/machine/test_logind\.py::", r"needs dbus-daemon", NO_ARCHIVE),
    Skip(
        r"^tests/(mpi|e2e)/test_\w*(mpi|pmi)\w*\.py::",
        r"needs the Debian packages? [\w-]+( and [\w-]+)?",
        NO_ARCHIVE,
    ),
    Skip(
        r"^tests/(mpi/test_\w+|e2e/test_(network_)?mpi|test_examples)\.py::",
        r"needs MPICH: pip.*",
        "on other processors than x86-64",
    ),
    Skip(
        r"^tests/remoteio/journal/test_undo\.py::",
        r"needs a file system that uses the numbers of removed files again",
        "where the tests' files lie on tmpfs, XFS or Btrfs, which seldom or never do",
    ),
    Skip(r"^tests/mpi/test_ranker\.py::", r"needs two processors", "on machines with one"),
    Skip(
        r"^tests/(mpi/test_ranker|e2e/test_mpi)\.py::",
        r"kernel\.core_pattern names no file in the working directory",
        "where core_pattern is a pipe or another directory: it is the host's, and no container can change it",
    ),
    Skip(r"^tests/(chaos/|e2e/test_mpi_machines)", r"needs the programs ip", NO_ARCHIVE),
    Skip(r"^tests/(chaos/|e2e/test_mpi_machines)", r"needs /dev/net/tun", "where the host gives no such device"),
    Skip(
        r"^tests/checkpoint/test_increments\.py::",
        r"this kernel cannot tell which pages were written",
        "kernels before 6.7, as Debian 12's own",
    ),
    Skip(
        r"^tests/starter/test_filter\.py::",
        r"needs the ability filter and landlock",
        "kernels that are started without the security module landlock",
    ),
    Skip(
        r"^tests/starter/test_filter\.py::",
        r"this kernel runs no 32-bit programs",
        "kernels that are built without CONFIG_IA32_EMULATION",
    ),
    Skip(
        r"^tests/(shadow/test_shadow|starter/test_scratch)\.py::",
        r"needs a file system with extended attributes of users",
        "where temporary files lie in a tmpfs of a kernel before 6.6, as Debian 12's own",
    ),
    Skip(
        r"^tests/classad/test_fuzz\.py::",
        r"the reference engine is not installed",
        "on other processors than x86-64: the engine is on PyPI for that one only",
    ),
)


def is_listed(nodeid: str, reason: str, listed: Sequence[Skip] = LISTED) -> bool:
    """Whether a test may be skipped for that reason."""
    return any(re.search(skip.tests, nodeid) and re.fullmatch(skip.reason, reason) for skip in listed)


def judged(report: Report, environ: Mapping[str, str] = os.environ) -> Report:
    """The report of a test or of a file's collection: where skips are checked, one that is not listed is a failure."""
    if report.skipped and CHECK in environ:
        told = report.longrepr
        reason = (told[2] if isinstance(told, tuple) else str(told)).removeprefix("Skipped: ")
        if not is_listed(report.nodeid, reason):
            report.outcome = "failed"
            report.longrepr = f"skipped: {reason}\nThe list in tests/skips.py does not have this test with this reason."
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return judged((yield))

"""An ordinary user for the tests that root runs: an account that exists in mount namespaces of the tests' own only.

`/etc/passwd` and `/etc/group` are covered there by files with one more line, so that the machine's accounts stay as
they are.

Commands run as this user by a prefix (`OrdinaryUser.command`). Or a whole test does (`OrdinaryUser.is_the_tester`): its
thread has the user's ids, so that what it connects to takes it for the user, what it writes is the user's, and
what it starts has the user's powers only. The thread itself keeps root's capabilities, since a test looks into what
is not the user's, and can start what root runs (`as_root`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

NAME, UID, GID = "ann-of-tests", 61234, 61234
#: A Python that this user can run: that of the tests may lie in somebody's home.
PYTHON = "/usr/bin/python3"


class OrdinaryUser:
    """The account, with a home directory below `place`, which every user may go through.

    Skips the test where root's powers are lacking.
    """

    def __init__(self, place: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("needs root")
        self.home = place / "home-of-ann"
        self.home.mkdir()
        os.chown(self.home, UID, GID)
        #: The environment variables of root's processes in place of this user's.
        self.of_root: dict[str, str] = {}
        self._covers: list[str] = []
        self._files: list[Path] = []
        for name, line in (
            ("passwd", f"{NAME}:x:{UID}:{GID}:Ann:{self.home}:/bin/sh"),
            ("group", f"{NAME}:x:{GID}:"),
        ):
            cover = place / name
            cover.write_text(Path("/etc", name).read_text().rstrip("\n") + f"\n{line}\n")
            self._files.append(cover)
            self._covers.append(f"mount --bind {shlex.quote(str(cover))} /etc/{name}")
        tried = subprocess.run([*self.machine, "id", "-u", NAME], capture_output=True, text=True, check=False)
        if tried.stdout.strip() != str(UID) or shutil.which("setpriv") is None or not Path(PYTHON).exists():
            pytest.skip(f"needs root, mount namespaces, setpriv and {PYTHON}: {tried.stderr.strip()}")

    @property
    def machine(self) -> tuple[str, ...]:
        """Before a command: root's, on a machine that has the account."""
        script = " && ".join([*self._covers, 'exec "$@"'])
        return ("unshare", "--mount", "sh", "-c", script, "machine")

    @property
    def command(self) -> tuple[str, ...]:
        """Before a command: the user's own, on that machine."""
        return (*self.machine, "setpriv", "--reuid", str(UID), "--regid", str(GID), "--clear-groups")

    @property
    def environ(self) -> dict[str, str]:
        """The user's environment, with the sources under test among Python's packages."""
        packages = os.pathsep.join([str(REPOSITORY), sysconfig.get_paths()["purelib"]])
        path = "/usr/local/bin:/usr/bin:/bin"
        return {"PATH": path, "HOME": str(self.home), "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"}

    def poolnode(self, *arguments: str, cwd: Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """The program as this user types it."""
        return subprocess.run(
            [*self.command, PYTHON, "-m", "pool", *arguments],
            cwd=cwd,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def owns(self, directory: Path) -> Path:
        """Give the user a directory with all that is in it."""
        for path in (directory, *directory.rglob("*")):
            os.chown(path, UID, GID, follow_symlinks=False)
        return directory

    @contextlib.contextmanager
    def is_the_tester(self) -> Iterator[None]:
        """This thread, and what it starts, is the user until the end; the account is known to this process."""
        self.of_root = {name: os.environ.get(name, "") for name in ("HOME", "PYTHONPATH")}
        patch = pytest.MonkeyPatch()
        # Programs that the tests compiled are kept in a directory of root's.
        patch.delenv("CC", raising=False)
        for name in ("HOME", "PYTHONPATH"):
            patch.setenv(name, self.environ[name])
        patch.setattr(sys, "executable", PYTHON)
        _own_mounts()
        for file in self._files:
            subprocess.run(["mount", "--bind", file, f"/etc/{file.name}"], check=True)
        try:
            _become(UID, GID)
            yield
        finally:
            _become(0, 0)
            for file in self._files:
                subprocess.run(["umount", f"/etc/{file.name}"], check=True)
            patch.undo()


@contextlib.contextmanager
def as_root() -> Iterator[None]:
    """Root's ids for this thread, where a test is the user. All that it does meanwhile it does as root."""
    ids = os.getresuid()[0], os.getresgid()[0]
    if ids[0] == 0 or not _may_become_root():
        yield
        return
    _become(0, 0)
    try:
        yield
    finally:
        _become(*ids)


# -- the ids of one thread -----------------------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
#: The kernel's calls: those of libc change the ids of all threads.
SETRESUID, SETRESGID, SETGROUPS = {"x86_64": (117, 119, 116), "aarch64": (147, 149, 159)}.get(
    platform.machine(), (0, 0, 0)
)
PR_SET_DUMPABLE, PR_GET_SECUREBITS, PR_SET_SECUREBITS = 4, 27, 28
NO_SETUID_FIXUP = 1 << 2
CLONE_NEWNS = 0x20000


def _checked(result: int, doing: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{doing}: {os.strerror(ctypes.get_errno())}")
    return result


def _become(uid: int, gid: int) -> None:
    """Take on these ids in this thread, and keep all capabilities; a program that it starts has them as root only."""
    bits = _checked(_libc.prctl(PR_GET_SECUREBITS, 0, 0, 0, 0), "read the secure bits")
    _checked(_libc.prctl(PR_SET_SECUREBITS, bits | NO_SETUID_FIXUP, 0, 0, 0), "keep capabilities")
    _checked(_libc.syscall(SETGROUPS, 0, None), "leave all groups")
    _checked(_libc.syscall(SETRESGID, gid, gid, gid), "change the group")
    _checked(_libc.syscall(SETRESUID, uid, uid, uid), "change the user")
    _checked(_libc.prctl(PR_SET_SECUREBITS, bits, 0, 0, 0), "lose capabilities again")
    _checked(_libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "be seen in /proc")


def _may_become_root() -> bool:
    """Whether this thread has the capability that `_become` left it."""
    text = Path("/proc/thread-self/status").read_text()
    effective = next(line for line in text.splitlines() if line.startswith("CapEff:"))
    setuid = 7
    return bool(int(effective.split()[1], 16) >> setuid & 1)


_with_own_mounts = False


def _own_mounts() -> None:
    """A mount namespace of this process's own, for what it mounts; once, since what it starts then lives there."""
    global _with_own_mounts
    if not _with_own_mounts:
        _checked(_libc.unshare(CLONE_NEWNS), "make a mount namespace")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        _with_own_mounts = True

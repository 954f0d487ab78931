"""An ordinary user for the tests that root runs: an account that exists in mount namespaces of the tests' own only.

`/etc/passwd` and `/etc/group` are covered there by files with one more line, so that the machine's accounts stay as
they are.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
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
        self._covers = []
        for name, line in (
            ("passwd", f"{NAME}:x:{UID}:{GID}:Ann:{self.home}:/bin/sh"),
            ("group", f"{NAME}:x:{GID}:"),
        ):
            cover = place / name
            cover.write_text(Path("/etc", name).read_text().rstrip("\n") + f"\n{line}\n")
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
        """What the user has in the environment, with the sources under test among Python's packages."""
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

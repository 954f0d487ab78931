"""Which programs the suite has, and the words that each is started with, as its own Makefile says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

#: Started with words of their own; "" for those that the Makefile's lists would give too many.
OTHERS = {
    "cmdlinenv00": "--arg1=arg1 --arg2=arg2 --arg3=arg3",
    "env00": "--envname=ENV_00_TEST",
    "umask00": "--mask=0345",
    "mtime_mmap": "--filename=mtime_mmap.test",
    "shm": "--shmem_size=5000",
    "fifo_wronly": "--name_master=f.master.test --name_slave=f.slave.test",
    "pty": "--name_master=p --name_slave=q",
    "maps007": "",
    "console": "",
}


class NoSuite(Exception):
    """There is no built suite where the environment says."""


def find_suite() -> Path:
    """The directory of the built programs.

    Raises:
        NoSuite: there is none.
    """
    source = os.environ.get("CRIU_SOURCE", "")
    if not source:
        raise NoSuite("CRIU_SOURCE has to name a checkout of CRIU with a built test/zdtm/static")
    static = Path(source) / "test/zdtm/static"
    if not static.is_dir():
        raise NoSuite(f"{source} has no test/zdtm/static")
    if not (static / "env00").is_file():
        raise NoSuite(f"the programs in {static} are not built: make -k -C {static.parent}/lib; make -k -C {static}")
    return static


def list_programs(static: Path) -> dict[str, str]:
    """Each program by its name, with its words."""
    words = _words_of_lists(static) | OTHERS
    names = sorted(path.name for path in static.iterdir() if _is_program(path))
    return {name: words.get(name, "") for name in names}


def _is_program(path: Path) -> bool:
    return "." not in path.name and path.is_file() and os.access(path, os.X_OK)


def _words_of_lists(static: Path) -> dict[str, str]:
    rules = subprocess.run(["make", "-pn"], cwd=static, capture_output=True, text=True, check=False).stdout
    words = {}
    for name in _list(rules, "TST_FILE"):
        words[name] = f"--filename={name}.test"
    for name in _list(rules, "TST_DIR"):
        words[name] = f"--dirname={name}.test"
    for name in _list(rules, "TST_DIR_FILE"):
        words[name] = f"--dirname={name}.dir.test --filename={name}.test"
    return words


def _list(rules: str, name: str) -> list[str]:
    found = re.search(rf"^{name} :?= (.*)$", rules, re.MULTILINE)
    return found.group(1).split() if found else []

"""The file system as the description language sees it, behind a protocol.

`RealFiles` asks the operating system. Tests and checks hand in their own. Nothing here decides whether a
missing file is an error.
"""

from __future__ import annotations

import glob
import os
import stat
import subprocess
from typing import Literal, Protocol

Kind = Literal["file", "directory", "other", "missing"]
COMMAND_SECONDS = 30.0
#: Links that one name leads through at most (path_resolution(7)).
MOST_LINKS = 40


class DescriptionFiles(Protocol):
    """The file operations that reading and checking a description needs; paths are absolute. Errors are OSError."""

    def read_text(self, path: str) -> str:
        """The whole text of a file."""

    def head(self, path: str, size: int) -> bytes:
        """The first bytes of a file."""

    def kind(self, path: str) -> Kind:
        """The file that a path leads to."""

    def size(self, path: str) -> int:
        """Bytes of a file."""

    def allowed(self, path: str, mode: int) -> bool:
        """Whether the submitter may do that (os.R_OK, os.W_OK, os.X_OK) with an existing path."""

    def closed_above(self, path: str) -> str | None:
        """The first directory on the way to a path, also behind links, that the submitter may not enter."""

    def matching(self, pattern: str) -> list[str]:
        """The sorted paths that an absolute pattern matches; directories end with a slash."""

    def run(self, command: str, folder: str) -> str:
        """The output of a command; only asked where the caller allowed commands."""


class RealFiles:
    """The machine's own files, with the rights of this process."""

    def read_text(self, path: str) -> str:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()

    def head(self, path: str, size: int) -> bytes:
        with open(path, "rb") as file:
            return file.read(size)

    def kind(self, path: str) -> Kind:
        try:
            mode = os.stat(path).st_mode
        except OSError:
            return "missing"
        return "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def allowed(self, path: str, mode: int) -> bool:
        return os.access(path, mode)

    def closed_above(self, path: str) -> str | None:
        at, names, links = "/", path.split("/"), 0
        while names:
            if not os.access(at, os.X_OK):
                return at if os.path.isdir(at) else None
            name = names.pop(0)
            entry = os.path.join(at, name)
            if name == ".." or not os.path.islink(entry):
                at = os.path.normpath(entry)  # no link: `..` leads to the directory above
                continue
            links += 1
            if links > MOST_LINKS:
                return None
            target = os.readlink(entry)
            at, names = ("/" if target.startswith("/") else at), [*target.split("/"), *names]
        return None

    def matching(self, pattern: str) -> list[str]:
        found = sorted(glob.glob(pattern))
        return [f"{path.rstrip('/')}/" if os.path.isdir(path) else path for path in found]

    def run(self, command: str, folder: str) -> str:
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            raise OSError(f"the command ended with status {done.returncode}")
        return done.stdout

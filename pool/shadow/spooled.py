"""The files of jobs that were submitted from another machine: a tree of the schedd's that stands for the submitter's.

A job's path /home/ann/data lies at ROOT/home/ann/data here, so that its description stays as its user wrote it. All
work in the tree is done with the rights of the job's owner, as in any directory of a user's.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable
from typing import Any

from pool.errors import PoolError
from pool.shadow.access import FileProblem
from pool.shadow.files import UserFiles

#: Operations whose first argument is a path.
_NAMED = frozenset(
    {
        *("stat", "listdir", "open", "create", "append", "begin_journal", "finish_journal", "makedirs", "remove"),
        *("place_unnamed", "check"),
    }
)
#: Those that make something there; the directories above it are made where they are missing.
_MAKING = frozenset({"create", "append", "begin_journal"})


#: Directories one in the other; what is deeper is refused.
DEEPEST = 200


def located(root: str, path: str) -> str:
    """Where a path of the submitter's lies below a root; `..` leads no further up than to the root.

    Raises:
        PoolError: it is no absolute path, or lies too deep.
    """
    if path.count("/") > DEEPEST:
        raise PoolError(f"refused a file more than {DEEPEST} directories deep: {path[:100]!r}...")
    if not path.startswith("/") or "\0" in path:
        raise PoolError(f"refused a file with the name {path[:100]!r}: it has to be an absolute path")
    return root + posixpath.normpath("/" + path.lstrip("/"))


class SpooledFiles(UserFiles):
    """A user's files as the user's jobs from elsewhere name them.

    Args:
        files: the user's files on this machine.
        root: the directory that stands for the submitter's root directory.
        charge: called with the number of bytes before they are written; may refuse them.
    """

    def __init__(self, files: UserFiles, root: str, charge: Callable[[int], None] = lambda size: None) -> None:
        self._files = files
        self._root = root
        self._charge = charge

    def real(self, path: str) -> str:
        return located(self._root, path)

    async def place_unnamed(self, path: str, job: str) -> str:
        place = await super().place_unnamed(path, job)
        return place.removeprefix(self._root)

    async def _call(self, name: str, path: str, *arguments: Any, size: int = 0, slow: bool = False) -> Any:
        if name in ("write", "append"):
            self._charge(size)
        if name in _NAMED:
            arguments = (located(self._root, str(arguments[0])), *arguments[1:])
        try:
            return await self._files._call(name, path, *arguments, size=size, slow=slow)
        except FileProblem as problem:
            if problem.errno != errno.ENOENT or name not in _MAKING:
                raise
        above = posixpath.dirname(arguments[0])
        await self._files._call("makedirs", path, above, 0o755)
        return await self._files._call(name, path, *arguments, size=size, slow=slow)

    def _let_go(self, number: int) -> None:
        self._files._let_go(number)

    def _held(self) -> None:
        self._files._held()

    def _released(self) -> None:
        self._files._released()

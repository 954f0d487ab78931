"""Performs one call of a work flow: `python one_call.py CALL RESULT`, where both are files.

A copy of this file lies beside the calls, so that a machine needs Python and no part of this package. Results of
earlier calls are arguments by the names of their files, which lie beside the call.
"""

import os
import pickle
import sys
from typing import Any, BinaryIO


class _Reader(pickle.Unpickler):
    """Reads a call; results of others are read from their files."""

    def persistent_load(self, pid: Any) -> Any:
        """The result of another call: its file is `pid`."""
        with open(pid, "rb") as file:
            return pickle.load(file)


def perform(call: BinaryIO) -> Any:
    """The value of a call: (paths of modules, function, arguments, named arguments)."""
    sys.path[:0] = pickle.load(call)
    function, arguments, named = _Reader(call).load()
    return function(*arguments, **named)


def main(call: str, result: str) -> None:
    """Perform the call of one file, and leave its value in the other, whole or not at all."""
    with open(call, "rb") as file:
        value = perform(file)
    try:
        import cloudpickle as pickler  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        pickler = pickle
    with open(f"{result}.part", "wb") as file:
        pickler.dump(value, file, protocol=5)
    os.replace(f"{result}.part", result)


if __name__ == "__main__":
    main(*sys.argv[1:])

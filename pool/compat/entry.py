"""The first lines of a drop-in: finds its module by its name, and turns every failure into one line.

It imports next to nothing, since a tool that asks for the queue every few seconds pays for each import.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence

from pool.errors import PoolError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the drop-in that the program is called by, and exit with its status: 0 well, 1 failed, 130 interrupted."""
    words = list(sys.argv if arguments is None else arguments)
    ended = status(os.path.basename(words[0]), words[1:])
    gc.freeze()  # there is nothing to look for at the end
    sys.exit(ended)


def status(name: str, words: list[str]) -> int:
    """Run one command line and return its exit status."""
    from pool.compat.tools import TOOLS

    if name not in TOOLS:
        return _fail(name, f"there is no drop-in '{name}' (there are {', '.join(sorted(TOOLS))})")
    from importlib import import_module

    module, function = TOOLS[name]
    try:
        result = getattr(import_module(module), function)(words)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except PoolError as error:
        if diagnostics := getattr(error, "diagnostics", ()):  # a description: every mistake in it, a line each
            for diagnostic in diagnostics:
                _fail(name, " ".join(str(diagnostic).split()))
            return 1
        return _fail(name, str(error))
    except TimeoutError:
        return _fail(name, "no answer in time")
    except OSError as error:
        return _fail(name, f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
    return int(result or 0)


def _fail(name: str, text: str) -> int:
    try:
        sys.stdout.flush()
    except OSError:  # what could not be written cannot be written at the end either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.stderr.write(f"ERROR: {name}: {text}\n")
    return 1

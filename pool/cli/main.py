"""The entry of the program `poolnode`: finds out what a command line asks for, and turns every failure into one line.

A plain line is read by the declaration of its command, all others by typer (`app`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from pool.cli.commands import COMMAND_MODULES
from pool.cli.common import EndedBySignal, writing_output
from pool.cli.plain_lines import read_plain
from pool.cli.selection import UsageProblem
from pool.errors import PoolError

Command = Callable[[], Any]
#: Without one of these a line starts no node.
STARTING = frozenset({"roles", "config", "join"})
#: Set where a shell asks for completions.
COMPLETING = "_POOLNODE_COMPLETE"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program and exits with its status: 0 well, 1 failed, 2 wrongly called, 130 interrupted."""
    sys.exit(status(list(sys.argv[1:] if arguments is None else arguments)))


def status(arguments: list[str]) -> int:
    """Runs one command line and returns its exit status."""
    return run_command(*command_of(arguments))


def command_of(arguments: list[str]) -> tuple[Command, bool]:
    """The command that a line calls, with its modules imported, and whether the line says `--debug`."""
    arguments, debug = _split_debug(arguments)
    command = _plain_command(arguments) if COMPLETING not in os.environ else None
    if command is None:
        from pool.cli.app import run_app

        command = partial(run_app, arguments)
    return command, debug


def _plain_command(arguments: list[str]) -> Command | None:
    """The command of a line that is plain."""
    if not arguments:
        return None
    if arguments[0] in COMMAND_MODULES:
        module, name, _ = COMMAND_MODULES[arguments[0]]
        function = getattr(import_module(module), name)
        given = read_plain(function, arguments[1:])
    elif arguments[0].startswith("-"):
        from pool.cli.starting import start_node as function

        given = read_plain(function, arguments)
        if given is not None and given.keys().isdisjoint(STARTING):
            given = None
    else:
        return None
    return None if given is None else partial(function, **given)


def run_command(command: Command, debug: bool) -> int:
    """Runs a command and returns the exit status; with `debug` an error is raised instead of explained."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    output = sys.stdout
    try:
        result = command()
        with writing_output():
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has closed it. End as a program in C would, without a message.
        _discard_output()
        return 128 + signal.SIGPIPE
    except SystemExit as end:  # typer's: after completion, or when its own output found no reader any more
        return int(end.code or 0) if sys.stdout is output else 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except EndedBySignal as end:
        return 128 + end.signal
    except Exception as error:
        if debug:
            raise
        try:
            sys.stdout.flush()
        except OSError:  # what could not be written cannot be written at the end either
            _discard_output()
        return _explain(error)
    return result if isinstance(result, int) else 0


def _discard_output() -> None:
    """Let Python write what is left of the output nowhere when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _split_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """`--debug` is heard wherever it stands before `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    rest = [word for word in arguments[:end] if word != "--debug"] + arguments[end:]
    return rest, len(rest) < len(arguments) or bool(os.environ.get("POOLNODE_DEBUG"))


def _explain(error: Exception) -> int:
    """Prints an error as one line and returns the exit status that goes with it."""
    code = 1
    if diagnostics := getattr(error, "diagnostics", ()):  # a description: every mistake in it, a line each
        for diagnostic in diagnostics:
            print("poolnode:", " ".join(str(diagnostic).split()), file=sys.stderr)
        return code
    if isinstance(error, PoolError):
        text, code = str(error), 2 if isinstance(error, UsageProblem) else 1
        if getattr(error, "kind", "") == "ParseError":  # the other side could not read what we passed on
            text = f"the expression cannot be read: {text}"
    elif isinstance(error, TimeoutError):
        text = "no answer in time"
    elif isinstance(error, OSError):
        text = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    else:
        text = f"a defect of the program: {type(error).__name__}: {error} (--debug shows where)"
    print("poolnode:", " ".join(text.split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    main()

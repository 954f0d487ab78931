"""The first lines of the program that run: `--version` without any module, and Ctrl-C while modules are imported.

Apart from `main`, which tests and other programs import without giving up their own SIGINT.
"""

from __future__ import annotations

import sys

from pool import __version__


def main() -> None:
    """Runs the program and exits with its status, as `pool.cli.main.main` says."""
    if sys.argv[1:] == ["--version"] and _version_is_shown():
        return
    import gc
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # modules stay: to look for garbage among them takes a tenth of a command's time
    from pool.cli.main import command_of, run_command

    command, debug = command_of(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.freeze()
    gc.enable()
    status = run_command(command, debug)
    gc.freeze()  # nor is there anything to look for at the end
    sys.exit(status)


def _version_is_shown() -> bool:
    """Shows the version; false where the output takes nothing, which the whole program says in words."""
    try:
        sys.stdout.write(f"poolnode {__version__}\n")
        sys.stdout.flush()
    except (OSError, AttributeError):
        return False
    return True

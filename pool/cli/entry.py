"""The first lines of the program that run: Ctrl-C while its modules are imported ends it without a word.

Apart from `main`, which tests and other programs import without giving up their own SIGINT.
"""

from __future__ import annotations

import signal


def main() -> None:
    """Runs the program and exits with its status, as `pool.cli.main.main` says."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pool.cli.main import main as run_program

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run_program()

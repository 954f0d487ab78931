"""`compat`: HTCondor's commands and Python modules in front of PATH."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pool.cli.common import print_error, print_lines
from pool.cli.options import CommandOption


def compat(
    install: Annotated[
        Path | None,
        CommandOption("--install", metavar="DIR", help="Put them into this directory, and print how to use it."),
    ] = None,
) -> int:
    """Print shell that puts condor_submit, condor_q and the others in front of PATH, and htcondor2 in front for Python.

    Programs that drive HTCondor (Snakemake, Parsl, Dask and others) then drive this pool, unchanged. Nothing
    else changes: a shell that has not evaluated it sees what it saw before.

    \b
    Examples:
      eval "$(poolnode compat)"
      condor_q
      poolnode compat --install ~/htcondor && . ~/htcondor/env
    """
    from pool.compat.install import exports, own_directory
    from pool.compat.install import install as write_files

    directory = own_directory(os.environ) if install is None else install.absolute()
    written = write_files(directory)
    if install is None:
        print_lines([exports(directory).rstrip("\n")])
        return 0
    print_lines([f". {directory / 'env'}"])
    print_error(f"{written} files written; the line above, in a shell or its start-up file, puts them in front")
    return 0

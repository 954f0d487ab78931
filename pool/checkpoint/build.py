"""Compiles the C programs: keeper, ranker of MPI jobs with its helper for PMIx, relay of networks and
their way out:
`python -m pool.checkpoint.build [--sanitize] [--output PATH] [--ranker | --relay]`; the package's build calls `build`.

Imports nothing of the package, so that the build can load this file by its path before anything is installed. Keeper,
ranker and way out are linked statically: a wheel that was built here runs where there is no compiler and another C
library. The helper and the relay open a library where they run, so they need that machine's C library, of this version
or later; there is a second relay, linked statically, for machines where that is missing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "bin" / "keeper"
#: The sources of the ranker, and where it is built.
RANKER_SOURCES = HERE.parent / "mpi" / "ranker"
RANKER = HERE.parent / "mpi" / "bin" / "ranker"
#: The same of the ranker's helper for PMIx.
PMIX_SOURCES = HERE.parent / "mpi" / "pmix_server"
PMIX_SERVER = HERE.parent / "mpi" / "bin" / "pmix_server"
#: The sources of the relay of jobs' networks, and where it is built.
RELAY_SOURCES = HERE.parent / "network" / "relay"
RELAY = HERE.parent / "network" / "bin" / "relay"
#: The same for machines where it finds no library to seal links with, or another C library.
STATIC_RELAY = RELAY.with_name("relay_static")
#: The same of the way out of these networks. It makes its devices as the keeper does.
WAY_OUT_SOURCES = HERE.parent / "network" / "way_out"
WAY_OUT = HERE.parent / "network" / "bin" / "way_out"
SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
    "-O0",
)


class CannotBuild(Exception):
    """The keeper cannot be compiled. The message is one line: what is missing, and what to install."""


def compiler() -> str:
    """The C compiler: $CC, else cc or gcc.

    Raises:
        CannotBuild: there is none.
    """
    for name in (os.environ.get("CC"), "cc", "gcc"):
        if name and shutil.which(name.split()[0]):
            return name
    raise CannotBuild("poolnode's keeper needs a C compiler: install one (Debian: apt install gcc libc6-dev)")


def build(output: Path = PROGRAM, *, sanitize: bool = False, sources: Path = HERE, static: bool = False) -> Path:
    """Compile a program to `output`, which is replaced in one step, also while the old one runs.

    The sources are compiled one by one, on all CPUs, so that a compiler with a cache (ccache, or tests/compiler.py)
    compiles only the changed ones.

    Args:
        sanitize: a variant for tests, dynamically linked, that stops at the first error in memory or
            arithmetic.
        sources: the folder of its C files; the keeper's by default. The helper for PMIx and the relay are linked
            dynamically, since they open libraries where they run.
        static: the relay without a library.

    Raises:
        CannotBuild: no compiler, no static C library, or a compile error.
    """
    output.parent.mkdir(exist_ok=True)
    aside = output.with_name(f".{output.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="keeper-build-") as directory:
        dynamic = sanitize or sources == PMIX_SOURCES or (sources == RELAY_SOURCES and not static)
        objects = compile_all(Path(directory), sanitize=sanitize, folder=sources, static=static)
        link = [*compiler().split(), *(SANITIZERS if sanitize else ("-s",))]
        try:
            kind = ("-pthread", "-ldl") if dynamic else ("-static",)
            _run([*link, "-o", str(aside), *map(str, objects.values()), *kind])
            os.replace(aside, output)
        finally:
            aside.unlink(missing_ok=True)
    return output


def compile_all(
    directory: Path, *, sanitize: bool = False, folder: Path = HERE, static: bool = False
) -> dict[Path, Path]:
    """Compile every source to an object in `directory`: the objects by their sources.

    Raises:
        CannotBuild: no compiler, no C library, no sources, or a compile error.
    """
    sources = sorted(folder.rglob("*.c"))
    if folder == WAY_OUT_SOURCES:
        sources += [HERE / "sandbox" / name for name in ("netlink.c", "network_lists.c")]
    if not sources:
        raise CannotBuild(f"the C sources are not in {folder}: build from a checkout or a source distribution")
    objects = {source: directory / f"{source.parent.name}-{source.stem}.o" for source in sources}
    command = [*compiler().split(), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{folder}", f"-I{HERE}"]
    command += SANITIZERS if sanitize else ("-O2",)
    if folder == RELAY_SOURCES and not static:
        command.append("-DRELAY_SEALS")
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        commands = [[*command, "-c", "-o", str(target), str(source)] for source, target in objects.items()]
        list(workers.map(_run, commands))
    return objects


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotBuild(_explain(done.stderr))


def _explain(stderr: str) -> str:
    if "cannot find -lc" in stderr or re.search(r"(stdio|errno|linux/\w+)\.h: No such file", stderr):
        return "poolnode's keeper needs the C library's files: install them (Debian: apt install libc6-dev)"
    lines = [line for line in stderr.splitlines() if "error" in line.lower()] or stderr.splitlines()
    return f"poolnode's keeper does not compile: {lines[0].strip() if lines else 'no message'}"


def main() -> int:
    """Build as the command line says; 0 for success."""
    parser = argparse.ArgumentParser(
        prog="python -m pool.checkpoint.build", description="Compile keeper, ranker, relay and way out."
    )
    parser.add_argument("--sanitize", action="store_true", help="with address and undefined behaviour sanitizers")
    parser.add_argument("--output", type=Path, help="where to put it; without it all are built")
    parser.add_argument("--ranker", action="store_true", help="only the ranker of MPI jobs, and its helper for PMIx")
    parser.add_argument("--relay", action="store_true", help="relay and way out of jobs' networks")
    given = parser.parse_args()
    try:
        if not given.ranker and not given.relay:
            print(build(given.output or PROGRAM, sanitize=given.sanitize))
        if given.ranker or (given.output is None and not given.relay):
            print(build(given.output or RANKER, sanitize=given.sanitize, sources=RANKER_SOURCES))
        if given.output is None and not given.relay:
            print(build(PMIX_SERVER, sanitize=given.sanitize, sources=PMIX_SOURCES))
        if given.relay or (given.output is None and not given.ranker):
            print(build(given.output or RELAY, sanitize=given.sanitize, sources=RELAY_SOURCES))
        if given.output is None and not given.ranker:
            print(build(STATIC_RELAY, sources=RELAY_SOURCES, static=True))
        if given.output is None and not given.ranker:
            print(build(WAY_OUT, sanitize=given.sanitize, sources=WAY_OUT_SOURCES))
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

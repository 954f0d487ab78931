"""The C compiler of the tests: `compiler.py STORE COMPILER ARGUMENT...`, the compiler that remembers keepers.

Many tests want a keeper built, by the package's build or by themselves, each from the same sources; that takes ten
seconds of a processor. Here it is compiled once for each set of flags and contents, however many processes the tests
run in, and copied from STORE from then on. All else goes to the compiler as it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path


def compiled(store: Path, compiler: str, arguments: list[str]) -> int:
    """The compiler's status."""
    sources = [Path(word) for word in arguments if word.endswith(".c")]
    if "-o" not in arguments or "main.c" not in {source.name for source in sources} or not os.access(store, os.W_OK):
        return subprocess.call([compiler, *arguments])
    at = arguments.index("-o") + 1
    key = hashlib.sha256(repr([word for word in arguments if word[0] == "-"]).encode())
    for source in sorted(file for place in {source.parent for source in sources} for file in place.glob("*.[ch]")):
        key.update(source.name.encode() + b"\0" + source.read_bytes())
    program = store / key.hexdigest()
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            aside = program.with_suffix(".aside")
            status = subprocess.call([compiler, *arguments[:at], str(aside), *arguments[at + 1 :]])
            if status:
                return status
            aside.rename(program)
    shutil.copy(program, arguments[at])
    return 0


if __name__ == "__main__":
    sys.exit(compiled(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))

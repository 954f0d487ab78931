"""The C compiler of the tests: `compiler.py STORE COMPILER ARGUMENT...`, a compiler that remembers objects.

Many tests want a keeper built, by the package's build or by themselves, each from the same sources; that takes ten
seconds of a processor. Here each source is compiled once for each set of flags and contents, however many processes the
tests run in, and its object is copied from STORE from then on. Everything else goes to the compiler as it is.
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
    if "-c" not in arguments or "-o" not in arguments or len(sources) != 1 or not os.access(store, os.W_OK):
        return subprocess.call([compiler, *arguments])
    at = arguments.index("-o") + 1
    stored = store / object_key(sources[0], arguments)
    with stored.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stored.exists():
            aside = stored.with_suffix(".aside")
            status = subprocess.call([compiler, *arguments[:at], str(aside), *arguments[at + 1 :]])
            if status:
                return status
            aside.rename(stored)
    shutil.copy(stored, arguments[at])
    return 0


def object_key(source: Path, arguments: list[str]) -> str:
    """A name for the object of this source with these flags: any header that it may include counts."""
    flags = [word for word in arguments if word[0] == "-" and not word.startswith("-I")]
    key = hashlib.sha256(repr([source.name, *flags]).encode())
    includes = {source.parent, *(Path(word[2:]) for word in arguments if word.startswith("-I"))}
    for file in [source, *sorted({header for place in includes for header in place.rglob("*.h")})]:
        key.update(file.name.encode() + b"\0" + file.read_bytes())
    return key.hexdigest()


if __name__ == "__main__":
    sys.exit(compiled(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))

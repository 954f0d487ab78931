"""The C compiler of the tests: `compiler.py STORE COMPILER ARGUMENT...`, a compiler that remembers objects.

Many tests want a keeper built, by the package's build or by themselves, each from the same sources; that takes ten
seconds of a processor. Here each source is compiled once for each set of flags and contents, however many processes the
tests run in, and its object is copied from STORE from then on. Everything else goes to the compiler as it is.

This runs for each source of each build, a thousand times in a run of the tests: so it imports little.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys


def compiled(store: str, compiler: str, arguments: list[str]) -> int:
    """The compiler's status."""
    sources = [word for word in arguments if word.endswith(".c")]
    if "-c" not in arguments or "-o" not in arguments or len(sources) != 1 or not os.access(store, os.W_OK):
        return _called([compiler, *arguments])
    at = arguments.index("-o") + 1
    stored = f"{store}/{object_key(sources[0], arguments)}"
    with open(f"{stored}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(stored):
            status = _called([compiler, *arguments[:at], f"{stored}.aside", *arguments[at + 1 :]])
            if status:
                return status
            os.rename(f"{stored}.aside", stored)
    with open(stored, "rb") as file, open(arguments[at], "wb") as target:
        target.write(file.read())
    return 0


def object_key(source: str, arguments: list[str]) -> str:
    """A name for the object of this source with these flags: any header that it may include counts."""
    flags = [word for word in arguments if word[0] == "-" and not word.startswith("-I")]
    key = hashlib.sha256(repr([os.path.basename(source), *flags]).encode())
    includes = {os.path.dirname(source) or ".", *(word[2:] for word in arguments if word.startswith("-I"))}
    for path in [source, *sorted({header for place in includes for header in _headers(place)})]:
        with open(path, "rb") as file:
            key.update(os.path.basename(path).encode() + b"\0" + file.read())
    return key.hexdigest()


def _headers(place: str) -> list[str]:
    """The headers in a directory and in all below it."""
    found = []
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.endswith(".h"):
                found.append(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                found += _headers(entry.path)
    return found


def _called(command: list[str]) -> int:
    process = os.posix_spawnp(command[0], command, os.environ)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


if __name__ == "__main__":
    sys.exit(compiled(sys.argv[1], sys.argv[2], sys.argv[3:]))

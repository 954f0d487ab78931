"""The directory with the drop-ins: `bin/` for PATH, `python/` for PYTHONPATH, `env` to be read by a shell.

The commands start with the Python of this installation. The modules run in whichever Python imports them: they find
this installation's packages behind that Python's own, so that nothing of a user's environment is shadowed but the names
`htcondor`, `htcondor2`, `classad` and `classad2` themselves.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from pool.compat.tools import TOOLS
from pool.errors import PoolError

#: Look-alike module -> the module of ours that has its names.
MODULES = {
    "classad": "pool.compat.bindings.classad_module",
    "classad2": "pool.compat.bindings.classad_module",
    "htcondor": "pool.compat.bindings.htcondor_module",
    "htcondor2": "pool.compat.bindings.htcondor2_module",
}
#: Packages that the client needs, and that may lie in other directories than its own.
_NEEDED = ("pool", "msgpack", "cryptography", "cffi", "_cffi_backend", "zstandard", "psutil")
_MARK = "# made by `poolnode compat`"


def install(directory: Path) -> int:
    """Make the directory, or bring it up to date; returns how many files were written.

    Raises:
        PoolError: a file of that name is there, and is not ours.
        OSError: it cannot be written.
    """
    files = {f"bin/{name}": _command() for name in TOOLS}
    files |= {f"python/{name}/__init__.py": _module(source) for name, source in MODULES.items()}
    files["env"] = f"{_MARK}\n{exports(directory)}"
    written = 0
    for name, text in files.items():
        path = directory / name
        if path.exists() or path.is_symlink():
            before = path.read_text(errors="replace")
            if before == text:
                continue
            if _MARK not in before:
                raise PoolError(f"{path} is there already, and is not ours", hint="choose another directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755 if name.startswith("bin/") else 0o644)
        draft.replace(path)
        written += 1
    return written


def exports(directory: Path) -> str:
    """Shell that puts the directory in front; it may be evaluated again."""
    commands, modules = shlex.quote(str(directory / "bin")), shlex.quote(str(directory / "python"))
    return (
        f'case ":$PATH:" in *:{commands}:*) ;; *) export PATH={commands}:"$PATH" ;; esac\n'
        f'case ":$PYTHONPATH:" in *:{modules}:*) ;; '
        f'*) export PYTHONPATH={modules}"${{PYTHONPATH:+:$PYTHONPATH}}" ;; esac\n'
    )


def own_directory(environ: Mapping[str, str]) -> Path:
    """Where the drop-ins of this installation lie for this user; one directory for each installation and version."""
    import hashlib

    from pool import __version__

    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    which = hashlib.sha256(f"{sys.prefix} {__file__}".encode()).hexdigest()[:12]
    return Path(cache, "poolnode", f"compat-{__version__}-{which}")


def _command() -> str:
    return (
        f"#!{sys.executable} -sP\n{_MARK}\nimport signal\n\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "from pool.compat.entry import main\n\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nmain()\n"
    )


def _module(source: str) -> str:
    return (
        f"{_MARK}\nimport sys\n\nfor _place in {_places()!r}:\n    if _place not in sys.path:\n"
        f"        sys.path.append(_place)\nfrom {source} import *\nfrom {source} import __version__\n"
    )


def _places() -> list[str]:
    """The directories of the packages that the client needs."""
    from importlib.util import find_spec

    found: dict[str, None] = {}
    for name in _NEEDED:
        spec = find_spec(name)
        if spec is not None and spec.origin:
            origin = Path(spec.origin)
            found[str(origin.parent.parent if spec.submodule_search_locations else origin.parent)] = None
    return list(found)

"""Files of the trust directory: written whole or not at all, and for nobody else to read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pool.errors import PoolError


class TrustError(PoolError):
    """A file of the pool's trust cannot be read, written or made."""


def write_private(path: Path, text: str) -> None:
    """Put a file in its place, readable by its owner alone, on disk when this returns.

    Raises:
        TrustError: it cannot be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(aside, path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise TrustError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error


def read_private(path: Path) -> str:
    """The content of a file.

    Raises:
        TrustError: it is missing or cannot be read.
    """
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        said = (getattr(error, "strerror", None) or "it is damaged").lower()
        raise TrustError(f"cannot read {path}: {said}", hint="restore it, or join the pool again") from error


def write_map(path: Path, value: dict[str, Any]) -> None:
    """`write_private` for a map, as JSON."""
    write_private(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def kept_map(path: Path) -> dict[str, Any]:
    """`read_private` for a map; an empty one when the file is not there.

    Raises:
        TrustError: it cannot be read, or is damaged.
    """
    if not path.exists():
        return {}
    try:
        value = json.loads(read_private(path))
    except ValueError as error:
        raise TrustError(f"cannot read {path}: it is damaged", hint="restore it from a copy") from error
    if not isinstance(value, dict):
        raise TrustError(f"cannot read {path}: it is damaged", hint="restore it from a copy")
    return value

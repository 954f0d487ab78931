"""Nodes that have been removed from the pool: their certificates are good for nothing from then on.

Each node keeps the list beside its own credentials, so that it holds after a restart and while the authority is away.
A name is on it with the time of its revocation: a certificate that was issued later, to whoever joined under that
name again, is not meant.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pool.wire import certificates
from pool.wire.errors import WireError
from pool.wire.trust_files import kept_map, write_map

REVOKED = "revoked.json"


class Revoked(WireError):
    """The node has been removed from the pool."""


class Revocations:
    """The list of one node.

    Attributes:
        since: wall time of each revocation, by the node's name.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / REVOKED
        self.since: dict[str, float] = {name: float(when) for name, when in kept_map(self._path).items()}

    def check(self, certificate: Mapping[str, Any]) -> None:
        """Raises Revoked for a certificate, as `ssl` gives it, of a node that was removed after it was issued."""
        name, _ = certificates.read_identity(certificate)
        when = self.since.get(name)
        if when is not None and issued_at(certificate) <= when:
            raise Revoked(f"the node {name} has been removed from this pool", hint="join again with a new token")

    def replace(self, since: Mapping[str, float]) -> set[str]:
        """Take over the authority's list, on disk when this returns; the names that are new on it.

        Entries of the list stay: a pool never forgets a node that it has removed.
        """
        fresh = {name for name, when in since.items() if self.since.get(name, -1.0) < when}
        if fresh:
            self.since |= {name: float(since[name]) for name in fresh}
            write_map(self._path, self.since)
        return fresh


def issued_at(certificate: Mapping[str, Any]) -> float:
    """When a certificate was issued, wall seconds; it counts from a little earlier, for clocks that are behind."""
    try:
        return ssl.cert_time_to_seconds(certificate["notBefore"]) + certificates.CLOCK_SLACK.total_seconds()
    except (KeyError, ValueError):
        return 0.0

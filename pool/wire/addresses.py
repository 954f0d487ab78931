"""Addresses as text: `tcp://HOST:PORT`, `unix:///PATH`, `local:`, and `mem://HOST` in tests."""

from __future__ import annotations

from pool.decimals import has_digits_only
from pool.errors import PoolError


class BadAddress(PoolError):
    """Not an address."""


def parse_address(address: str) -> tuple[str, str, int]:
    """(scheme, host or path, port); the port is 0 where there is none.

    Raises:
        BadAddress: it is none of the forms above.
    """
    scheme, colon, rest = address.partition(":")
    if scheme == "local" and colon and not rest:
        return scheme, "", 0
    if scheme == "unix" and rest.startswith("///"):
        return scheme, rest[2:], 0
    if scheme == "mem" and rest.startswith("//") and len(rest) > 2:
        return scheme, rest[2:], 0
    if scheme == "tcp" and rest.startswith("//"):
        host, _, port = rest[2:].rpartition(":")
        if host and has_digits_only(port) and int(port[:6]) < 65536:
            return scheme, host.removeprefix("[").removesuffix("]"), int(port)
    raise BadAddress(f"'{address}' is not an address", hint="tcp://HOST:PORT, unix:///PATH, local:")


def tcp_address(host: str, port: int) -> str:
    """The address of a TCP port."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"

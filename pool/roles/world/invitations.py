"""Invitations of other pools, looked at before anything is done with them: a token is good once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pool.errors import PoolError
from pool.wire.identity import PEER_POOL
from pool.wire.tokens import Token, WrongToken


class NoInvitation(PoolError):
    """The token is no invitation of another pool."""


def check_invitation(text: str, own: str, known: Mapping[str, str]) -> Token:
    """An invitation that can be taken.

    Args:
        text: the token.
        own: fingerprint of this pool's authority; empty where there is none here.
        known: the fingerprints of the authorities of pools with which there is an agreement, by name.

    Raises:
        NoInvitation: it cannot.
    """
    try:
        token = Token.read(text)
    except WrongToken as error:
        raise NoInvitation(error.message, hint="`poolnode flock invite` in the other pool prints one") from error
    if token.kind == "user":
        raise NoInvitation("this token lets a user in, and no pool", hint="`poolnode flock join POOL FILE` takes it")
    if token.roles != (PEER_POOL,):
        raise NoInvitation(
            "this token lets a machine join a pool, and is no invitation",
            hint="`poolnode flock invite` in the other pool prints one",
        )
    if token.fingerprint == own:
        raise NoInvitation("this invitation is of this pool itself", hint="it is for the other pool's administrator")
    for pool, fingerprint in known.items():
        if token.fingerprint == fingerprint:
            raise NoInvitation(
                f"there is an agreement with this pool already, under the name {pool}",
                hint=f"`poolnode flock leave {pool}` ends it",
            )
    return token


def known_authorities(directory: Path) -> dict[str, str]:
    """The fingerprints of the authorities of all pools whose certificates are kept below a directory, by name."""
    from pool.wire.certificates import fingerprint
    from pool.wire.credentials import AUTHORITY

    return {name: fingerprint((directory / name / AUTHORITY).read_text()) for name in admitting_pools(directory)}


def admitting_pools(directory: Path) -> list[str]:
    """The pools whose certificates are kept below a directory; not one whose invitation was taken half."""
    from pool.wire.credentials import Credentials

    return sorted(place.name for place in directory.iterdir() if Credentials.exist(place)) if directory.is_dir() else []

"""The identity of the other side, and its rights.

An identity comes from the kernel (peer credentials of a unix socket), from a certificate of the pool's own authority,
or from a user's token; never from the other side's own words. Every method names the one right it needs. The schedd,
not this module, decides whose jobs a user may touch.
"""

from __future__ import annotations

import functools
import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pool.wire.errors import CannotConnect


class Right(StrEnum):
    """The right that a method asks of its caller."""

    READ = "read"
    SUBMIT = "submit"
    ADVERTISE = "advertise"
    NEGOTIATE = "negotiate"
    EXECUTE = "execute"
    MAINTAIN = "maintain"
    ADMINISTER = "administer"
    FLOCK = "flock"


ALL_RIGHTS = frozenset(Right)
USER_RIGHTS = frozenset({Right.READ, Right.SUBMIT})
NO_RIGHTS: frozenset[Right] = frozenset()

#: The role that the certificate of the node with the pool's authority names beside that node's own roles. No token
#: gives it. That node passes its administrator's orders on to the other machines of the pool.
AUTHORITY_ROLE = "authority"
#: The rights of a node with the others, by its roles. A schedd submits: it claims slots.
ROLE_RIGHTS: dict[str, frozenset[Right]] = {
    AUTHORITY_ROLE: frozenset({Right.READ, Right.MAINTAIN}),
    "collector": frozenset({Right.READ, Right.ADVERTISE}),
    "negotiator": frozenset({Right.READ, Right.ADVERTISE, Right.NEGOTIATE}),
    "schedd": frozenset({Right.READ, Right.ADVERTISE, Right.SUBMIT}),
    "startd": frozenset({Right.READ, Right.ADVERTISE, Right.EXECUTE}),
    # It is a schedd to this pool's startds, and a startd to its schedds.
    "world": frozenset({Right.READ, Right.ADVERTISE, Right.SUBMIT, Right.EXECUTE}),
}
#: The role of another pool's world node: it may ask this pool's world for machines, and nothing else of any node.
PEER_POOL = "flock"


@dataclass(frozen=True, slots=True)
class Identity:
    """The other side of a connection.

    Attributes:
        kind: "node", "user", or "anonymous" (a stranger, who may only ask to join).
        name: the node's name or the user's.
        node: the node's name; empty for users and strangers, so that nobody passes for a node.
        token, seconds: of a user who came with a token: which one, and how long it is good for.
        uid: the user id the kernel vouches for, on this machine only.
    """

    kind: Literal["node", "user", "anonymous"]
    name: str
    node: str = ""
    uid: int | None = None
    rights: frozenset[Right] = NO_RIGHTS
    roles: frozenset[str] = frozenset()
    token: str = ""
    seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind


ANONYMOUS = Identity("anonymous", "")


def node_identity(name: str, roles: Iterable[str], *, uid: int | None = None) -> Identity:
    """A node with the rights of its roles; a role that is not known here gives none."""
    roles = frozenset(roles)
    if PEER_POOL in roles:
        return Identity("node", name, name, uid, frozenset({Right.FLOCK}), frozenset({PEER_POOL}))
    rights = frozenset({Right.READ}).union(*(ROLE_RIGHTS.get(role, NO_RIGHTS) for role in roles))
    return Identity("node", name, name, uid, rights, roles)


def own_identity(name: str, roles: Iterable[str] = ()) -> Identity:
    """A node as it sees itself: what its roles ask of each other within the process needs no leave."""
    return Identity("node", name, name, os.getuid(), ALL_RIGHTS, frozenset(roles))


def user_identity(name: str, *, administer: bool = False) -> Identity:
    """A user who was vouched for by a token."""
    rights = USER_RIGHTS | {Right.MAINTAIN, Right.ADMINISTER} if administer else USER_RIGHTS
    return Identity("user", name, "", None, rights)


def peer_identity(uid: int, own_uid: int, node: str = "") -> Identity:
    """The user at the other end of a unix socket, by the kernel.

    Root and the user the node runs as may do everything, for they could anyway; and a process of theirs may
    say that it is a node. Everybody else of this machine may read and submit, in their own name.

    Args:
        node: the node that the other side says it is; empty for a user's tool.
    """
    trusted = uid in (0, own_uid)
    if node and trusted:
        return Identity("node", node, node, uid, ALL_RIGHTS, frozenset(ROLE_RIGHTS))
    return Identity("user", user_name(uid), "", uid, ALL_RIGHTS if trusted else USER_RIGHTS)


def user_name(uid: int) -> str:
    """The name of a user id. This process's own user may have none, as in containers; then it is the number.

    Raises:
        CannotConnect: it cannot be found out: there is none, or this process is short of descriptors.
    """
    try:
        if uid == os.getuid():
            return _own_name()
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError) as error:
        raise CannotConnect(
            f"cannot find out who the user with the number {uid} is",
            hint="`getent passwd` tells whether this machine knows him; else try again",
            retry=True,
        ) from error


@functools.cache
def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        with open("/etc/passwd"):  # a process that is short of descriptors finds nobody; the error says so
            return str(os.getuid())

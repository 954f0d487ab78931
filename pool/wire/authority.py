"""The pool's certificate authority, and the gate by which new nodes come in.

It is made at the first start of the pool's first node and lives in that node's state directory. It records the holder
of each name: a name belongs to the first key that asked for it, so that a token for a new machine cannot be used to
become an old one. The tokens decide who may join (`pool.wire.tokens`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from pool.outside import OutsideWorld
from pool.wire import certificates
from pool.wire.dispatch import Call, Service, method
from pool.wire.errors import WireError
from pool.wire.identity import PEER_POOL
from pool.wire.revocation import REVOKED
from pool.wire.tokens import TokenStore
from pool.wire.trust_files import TrustError, kept_map, read_private, write_map, write_private

KEY = "authority.key"
CERTIFICATE = "authority.crt"
NODES = "nodes.json"
LONGEST_REQUEST = 8192


class NodeNameTaken(WireError):
    """The name belongs to another node."""


class Authority:
    """Signs the certificates of nodes.

    Attributes:
        certificate: its own, PEM; everybody may have it.
        fingerprint: SHA-256 of that, in hexadecimal; what a token carries.
        life: of the certificates it signs.
    """

    def __init__(self, directory: Path, key: str, certificate: str, outside: OutsideWorld) -> None:
        self.certificate = certificate
        self.fingerprint = certificates.fingerprint(certificate)
        self._directory = directory
        self._key = key
        self._outside = outside
        self.life = timedelta(days=certificates.NODE_DAYS)

    @classmethod
    def open(cls, directory: Path, pool: str, outside: OutsideWorld) -> Self:
        """The authority kept in a directory, made there when there is none. `pool` is a name for people.

        Raises:
            TrustError: one half of it is missing or damaged, or it cannot be written.
        """
        key, certificate = directory / KEY, directory / CERTIFICATE
        if not certificate.exists():
            if (directory / NODES).exists():
                raise TrustError(f"{certificate} is missing", hint="restore it from a copy")
            if not key.exists():
                write_private(key, certificates.new_key())
            write_private(certificate, certificates.new_authority(read_private(key), pool, outside.wall()))
        return cls(directory, read_private(key), read_private(certificate), outside)

    @staticmethod
    def exists(directory: Path) -> bool:
        """Whether an authority is kept there, and not only its certificate, which every node has."""
        return (directory / KEY).exists()

    def issue_node(
        self, request: str, name: str, roles: Iterable[str], *, replace: bool = False, joins: bool = False
    ) -> str:
        """A certificate for a node, PEM. Takes milliseconds, the first time more: not for the loop's thread.

        Args:
            request: a PEM signing request; what it says about names does not count.
            replace: whether the name may go over from the key that has it now.
            joins: whether the caller has shown a token: the certificate is then newer than a removal of that name,
                though a certificate's time has whole seconds.

        Raises:
            BadRequest: the request or the name cannot be.
            NodeNameTaken: another key has the name.
        """
        roles, now = sorted(set(roles)), self._outside.wall()
        if joins and (removed := kept_map(self._directory / REVOKED).get(name)) is not None:
            now = max(now, math.floor(float(removed)) + 1.0)
        certificate, key = certificates.sign_request(self._key, self.certificate, request, name, roles, now, self.life)
        nodes = kept_map(self._directory / NODES)
        alike = [other for other in nodes if other.lower() == name.lower() and other != name]
        if alike:  # the language that jobs choose machines in does not tell them apart
            raise NodeNameTaken(f"the pool has a node {alike[0]} already", hint="set NODE_NAME to another")
        known = nodes.get(name)
        if known is not None and (PEER_POOL in known["roles"]) != (PEER_POOL in roles):
            kind = "pool" if PEER_POOL in known["roles"] else "machine"
            raise NodeNameTaken(f"{name} is the name of another {kind} here", hint="choose another name")
        if known is not None and known["key"] != key and not replace:
            raise NodeNameTaken(
                f"the pool has a node {name} already",
                hint="set NODE_NAME to another, or have a token made for that very name",
            )
        nodes[name] = {"key": key, "roles": roles, "issued": round(self._outside.wall())}
        write_map(self._directory / NODES, nodes)
        return certificate

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The nodes that have a certificate: name to {key, roles, issued}."""
        return kept_map(self._directory / NODES)

    def forget(self, name: str) -> bool:
        """Let another key have the name; returns whether anybody had it. The old certificate stays valid."""
        nodes = kept_map(self._directory / NODES)
        known = nodes.pop(name, None)
        if known is not None:
            write_map(self._directory / NODES, nodes)
        return known is not None


class JoinService(Service):
    """The methods for strangers on the node that has the authority: added as `node`, beside the node's own methods."""

    def __init__(self, authority: Authority, tokens: TokenStore) -> None:
        self._authority = authority
        self._tokens = tokens
        self._one_at_a_time = asyncio.Lock()

    @method(None)
    async def authority(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The authority's certificate: {} -> {certificate}"""
        return {"certificate": self._authority.certificate}

    @method(None)
    async def join(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A certificate for a token: {id, secret, name, request} -> {certificate, name, roles}

        It may be asked again with the same request, in case the answer was lost.

        Raises:
            WrongToken, ExpiredToken, UsedToken, BadRequest, NodeNameTaken
        """
        name, request = params.get("name"), params.get("request")
        number, secret = params.get("id"), params.get("secret")
        grant = self._tokens.peek_grant(number, secret)
        certificates.check_name(name, ())
        if not isinstance(request, str) or len(request) > LONGEST_REQUEST:
            raise certificates.BadRequest("this is not a request for a certificate")
        async with self._one_at_a_time:
            key = await asyncio.to_thread(certificates.key_fingerprint, request)
            grant = self._tokens.peek_grant(number, secret, key=key, node=str(name))
            certificate = await asyncio.to_thread(
                self._authority.issue_node, request, str(name), grant.roles, replace=grant.node is not None, joins=True
            )
            self._tokens.use(grant, key)
        return {"certificate": certificate, "name": name, "roles": list(grant.roles)}

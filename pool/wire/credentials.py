"""The credentials of a node or a user's tool, and those it trusts: keys and certificates for TLS 1.3.

    DIR/node.key  node.crt  authority.crt  node.json

Both sides of a connection between nodes prove themselves by certificates of the pool's authority. Host names
are not checked: machines move and have many; who it is says the certificate. A user's tool has a token
instead of a certificate. Needs no `cryptography` unless something is made.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.wire import certificates
from pool.wire.identity import Identity, node_identity
from pool.wire.revocation import Revocations
from pool.wire.trust_files import TrustError, kept_map, read_private, write_map, write_private

if TYPE_CHECKING:
    from pool.wire.authority import Authority

KEY = "node.key"
CERTIFICATE = "node.crt"
AUTHORITY = "authority.crt"
ABOUT = "node.json"


@dataclass(frozen=True)
class Credentials:
    """A node's or a user's.

    Attributes:
        authority: the certificate of the pool's authority, PEM.
        directory: where a node's key and certificate are; None for a user's tool.
        name, roles: the node's, as its certificate says.
        address: the node by which it joined; empty on the pool's first.
        token: what a user's tool shows.
    """

    authority: str
    directory: Path | None = None
    name: str = ""
    roles: tuple[str, ...] = ()
    address: str = ""
    token: str | None = None

    @staticmethod
    def exist(directory: Path) -> bool:
        """Whether a node's credentials are kept there."""
        return (directory / CERTIFICATE).exists()

    @classmethod
    def load(cls, directory: Path) -> Credentials:
        """A node's credentials.

        Raises:
            TrustError: they are missing or damaged.
        """
        authority = read_private(directory / AUTHORITY)
        about = kept_map(directory / ABOUT)
        try:
            loaded = cls(
                authority,
                directory,
                str(about["name"]),
                tuple(map(str, about["roles"])),
                str(about["address"]),
            )
        except (KeyError, TypeError) as error:
            raise TrustError(f"{directory / ABOUT} is damaged", hint="join the pool again") from error
        loaded.client_context()
        return loaded

    @classmethod
    def create(cls, directory: Path, authority: Authority, name: str, roles: Iterable[str]) -> Credentials:
        """The credentials of the node that has the authority itself. Its own name is its to take."""
        key = pending_key(directory)
        certificate = authority.issue_node(certificates.new_request(key, name), name, roles, replace=True)
        return cls.save(directory, certificate, authority.certificate, name, roles, "")

    @classmethod
    def save(
        cls,
        directory: Path,
        certificate: str,
        authority: str,
        name: str,
        roles: Iterable[str],
        address: str,
    ) -> Credentials:
        """Keep what was issued for the key in the directory; the certificate is written last."""
        write_private(directory / AUTHORITY, authority)
        write_map(directory / ABOUT, {"name": name, "roles": sorted(set(roles)), "address": address})
        write_private(directory / CERTIFICATE, certificate)
        return cls.load(directory)

    @classmethod
    def for_user(cls, authority: str, proof: str) -> Credentials:
        """A user's: the authority's certificate and what the token shows at the door (`Token.proof`)."""
        return cls(authority, token=proof)

    def client_context(self) -> ssl.SSLContext:
        """TLS for connecting."""
        return self._client

    def server_context(self) -> ssl.SSLContext:
        """TLS for listening. Users and those who want to join have no certificate; a wrong one is refused."""
        return self._server

    def identify(self, certificate: Mapping[str, Any]) -> Identity:
        """The subject of a verified certificate.

        Raises:
            NotOfThisPool: nobody of the pool.
            Revoked: a node that was removed from it.
        """
        if self.revocations is not None:
            self.revocations.check(certificate)
        return node_identity(*certificates.read_identity(certificate))

    @cached_property
    def revocations(self) -> Revocations | None:
        """The nodes that have been revoked, as far as this node knows; none for a user's tool."""
        return Revocations(self.directory) if self.directory is not None else None

    def renewed(self, certificate: str) -> None:
        """Use a new certificate for the same key from the next connection on; on disk when this returns.

        Raises:
            TrustError: it is not for this node's key, or cannot be kept.
        """
        assert self.directory is not None
        aside = self.directory / f"{CERTIFICATE}.new"
        write_private(aside, certificate)
        try:
            for context in (self._client, self._server):
                context.load_cert_chain(aside, self.directory / KEY)
            write_private(self.directory / CERTIFICATE, certificate)
        except (OSError, ValueError) as error:
            raise TrustError(f"the new certificate cannot be used: {error}", hint="join the pool again") from error
        finally:
            aside.unlink(missing_ok=True)

    @cached_property
    def _client(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        return self._prepared(context)

    @cached_property
    def _server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.num_tickets = 0
        return self._prepared(context)

    def _prepared(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_verify_locations(cadata=self.authority)
            if self.directory is not None:
                context.load_cert_chain(self.directory / CERTIFICATE, self.directory / KEY)
        except (OSError, ValueError) as error:
            where = self.directory or "the authority's certificate"
            said = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise TrustError(f"cannot use {where}: {said}", hint="join the pool again") from error
        return context


def pending_key(directory: Path) -> str:
    """The private key in a directory, made when there is none; so that a join may be tried again with the
    same."""
    path = directory / KEY
    if not path.exists():
        write_private(path, certificates.new_key())
    return read_private(path)

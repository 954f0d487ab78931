"""Coming into a pool from outside, with a token.

The token's fingerprint is all that is trusted at first. So the authority's certificate is fetched over a
connection that proves nothing, compared with the fingerprint, and only then, over a second connection that is
verified by it, the secret is shown. Somebody in between learns nothing and can hand out nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pool.wire import certificates
from pool.wire.credentials import Credentials, pending_key
from pool.wire.errors import RemoteError, WireError
from pool.wire.identity import ANONYMOUS, Identity
from pool.wire.network import RealNetwork
from pool.wire.tokens import Token, WrongToken

PATIENCE = 20.0  # seconds for each step


class AnotherPool(WireError):
    """The node that answers is not of the pool that made the token."""


class CannotJoin(WireError):
    """The pool would not have this node."""


class _Unproven:
    """TLS that believes anything: good for fetching what is then compared with a fingerprint, and as the way to a
    port on which both sides prove themselves in another way."""

    token: str | None = None

    def client_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    def server_context(self) -> ssl.SSLContext:
        raise ssl.SSLError("nobody listens without credentials")

    def identify(self, certificate: Mapping[str, Any]) -> Identity:
        return ANONYMOUS


def strangers_network() -> RealNetwork:
    """Connects to any node, and proves nothing: neither who it is nor who is there."""
    return RealNetwork(credentials=_Unproven())


async def fetch_authority(token: Token) -> str:
    """The certificate of the authority that a token names, PEM.

    Raises:
        CannotConnect: nobody answers at the token's address.
        AnotherPool: somebody else does.
    """
    link = await strangers_network().connect(token.address)
    try:
        answer = await link.call("node.authority", {}, timeout=PATIENCE)
    except RemoteError as error:
        raise AnotherPool(
            f"the node at {token.address} has no authority: {error.message}",
            hint="have a token made on the pool's first node",
        ) from error
    finally:
        await link.close()
    certificate = answer.get("certificate") if isinstance(answer, dict) else None
    if not isinstance(certificate, str) or certificates.fingerprint(certificate) != token.fingerprint:
        raise AnotherPool(
            f"the node at {token.address} is not of the pool that made the token",
            hint="check the address and who answers there; have a new token made",
        )
    return certificate


async def join(text: str, name: str, directory: Path) -> Credentials:
    """Join a pool: the credentials that are kept in `directory` from then on.

    It may be tried again with the same token if it fails half-way.

    Raises:
        WrongToken: the text is no join token.
        CannotConnect, AnotherPool: see `fetch_authority`.
        CannotJoin: the token is wrong, expired or used, or the name is taken; its message says which.
    """
    token = Token.read(text)
    if token.kind != "join":
        raise WrongToken("this token lets a user in, not a machine", hint="`poolnode token --roles ...` makes one")
    certificates.check_name(name, ())
    authority = await fetch_authority(token)
    key = await asyncio.to_thread(pending_key, directory)
    request = await asyncio.to_thread(certificates.new_request, key, name)
    network = RealNetwork(credentials=Credentials(authority))
    link = await network.connect(token.address)
    try:
        answer = await link.call(
            "node.join",
            {"id": token.id, "secret": token.secret, "name": name, "request": request},
            timeout=PATIENCE,
        )
    except RemoteError as error:
        raise CannotJoin(f"cannot join as {name}: {error.message}", hint=error.hint, retry=error.retry) from error
    finally:
        await link.close()
    return await asyncio.to_thread(
        Credentials.save,
        directory,
        answer["certificate"],
        authority,
        answer["name"],
        answer["roles"],
        token.address,
    )


async def user_credentials(text: str) -> tuple[str, Credentials]:
    """The address and the credentials that a user's token gives. The authority's certificate may be kept.

    Raises:
        WrongToken: the text is no user's token.
        CannotConnect, AnotherPool: see `fetch_authority`.
    """
    token = Token.read(text)
    if token.kind != "user":
        raise WrongToken("this token lets a machine join, not a user in")
    return token.address, Credentials.for_user(await fetch_authority(token), token.proof)

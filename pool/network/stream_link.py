"""A link between two machines that are in different pools: its bytes are items of a stream that worlds pass on.

    relay === socket --- startd ~~~ world ~~~ schedd ~~~ world ~~~ startd --- socket === relay

The relays seal it like any link. Both ends draw a key pair for this one link and agree on its keys (X25519), with the
secret that the parts of the job share. Each end brings something new, so nobody can have a key used twice. The nodes
between may delay or end a link; what is in it they could only read if they took the place of an end before it is made,
and knew the job's secret. That leaves the submit side and the two pools' worlds, which have the job's files, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from pool.errors import PoolError
from pool.network.forwarding import carry
from pool.network.sealed_link import KEYS
from pool.wire import Stream
from pool.wire.errors import CallRefused

#: Bytes of what an end draws, and of what it tells the other one.
SEED = PUBLIC = 32
#: Seconds for the other end's answer.
PATIENCE = 20.0
_WHAT = b"poolnode link between pools"


class LinkKeys:
    """One end's part in the keys of a link. Its making loads a library: not on the event loop.

    Args:
        seed: `SEED` random bytes that nothing else has had.

    Attributes:
        public: for the other end.
    """

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._own = X25519PrivateKey.from_private_bytes(seed)
        self.public = self._own.public_key().public_bytes_raw()

    def agree(self, theirs: Any, secret: str, *, dialed: bool) -> bytes:
        """The keys of the link: `KEYS` bytes, the same at both ends.

        Args:
            theirs: what the other end has told; not trusted.
            secret: of the job's parts.
            dialed: whether this end has asked for the link.

        Raises:
            CallRefused: the other end's is no key.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        if not isinstance(theirs, bytes) or len(theirs) != PUBLIC:
            raise CallRefused("the other machine's key for a link is none")
        try:
            shared = self._own.exchange(X25519PublicKey.from_public_bytes(theirs))
        except ValueError:
            raise CallRefused("the other machine's key for a link is none") from None
        both = self.public + theirs if dialed else theirs + self.public
        return HKDF(SHA256(), KEYS, salt=secret.encode(), info=_WHAT + both).derive(shared)


async def agree_over(stream: Stream, own: LinkKeys, secret: str) -> bytes:
    """The keys of a link that this end has asked for: its first item is the other end's.

    Raises:
        PoolError, EOFError, TimeoutError: there is no such link.
    """
    async with asyncio.timeout(PATIENCE):
        return own.agree(await stream.receive(), secret, dialed=True)


def ends() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets: for the relay, and for `carry_link`."""
    near, far = socket.socketpair()
    far.setblocking(False)
    return near, far


async def carry_link(stream: Stream, far: socket.socket) -> None:
    """Carry a link's bytes until it ends."""
    with contextlib.suppress(PoolError, EOFError, OSError):
        await carry(stream, far)

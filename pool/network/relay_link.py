"""A link between two machines' relays that the relays seal themselves: the node makes the connection, hands it over
with its keys, and hears when it ends.

The records are those of `sealed_link`, so that the other machine may be one whose node seals.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence

from pool.network.relay_process import RelayProcess
from pool.wire.bulk_stream import KEY


class RelayLink:
    """One link, from its making until it ends.

    Args:
        parts: the parts behind it.
        peer: the connection to the other machine; the relay takes it over.
        keys: as of `SealedLink`.
        dialed: whether this side made the connection.
        large: whether the other machine takes large packets whole.
        ended: called on the event loop when the link is over.
    """

    def __init__(
        self,
        relay: RelayProcess,
        parts: Sequence[int],
        peer: socket.socket,
        keys: bytes,
        *,
        dialed: bool,
        large: bool,
        ended: Callable[[], None],
    ) -> None:
        with contextlib.suppress(OSError):  # not of TCP
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._leash, far = socket.socketpair()
        self._leash.setblocking(False)
        with peer, far:
            relay.add_sealed_link(parts, peer, keys if dialed else keys[KEY:] + keys[:KEY], far, large=large)
        self._loop.add_reader(self._leash, self.close)

    def close(self) -> None:
        """It is over: the relay has ended it, or has gone, or has another in its place."""
        if self._leash.fileno() < 0:
            return
        self._loop.remove_reader(self._leash)
        self._leash.close()
        self._loop.call_soon(self._ended)

"""The network of a user's tool: unix sockets by the kernel's word, TCP with the pool's certificates.

Nothing of TLS is loaded for a unix socket, which is what nearly every command uses.
"""

from __future__ import annotations

from pool.wire import Connection, Dispatcher, Listening, RealNetwork


class UserNetwork:
    """Connects as this user; it does not listen."""

    def __init__(self) -> None:
        self._local = RealNetwork()

    async def connect(self, address: str, dispatcher: Dispatcher | None = None) -> Connection:
        """Connect.

        Raises:
            CannotConnect: nobody answers, or there are no credentials for TCP.
        """
        return await self._local.connect(address, dispatcher)

    async def listen(self, address: str, dispatcher: Dispatcher) -> Listening:
        """Raises CannotListen or serves, as the real network does."""
        return await self._local.listen(address, dispatcher)


def user_network() -> UserNetwork:
    """The network of this user's tools."""
    return UserNetwork()

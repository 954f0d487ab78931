"""How many connections a node takes, and from whom, so that nobody can keep the others out.

A connection that is not identified yet can be closed at any time: when there are too many, the oldest one of the peer
with the most is closed. A member needs only a moment to identify itself. From then on its name has room of its own,
and ordinary users together leave a reserve of descriptors for nodes, for administrators, and for the node's own work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

from pool.wire.errors import CannotConnect
from pool.wire.identity import Identity, Right

T = TypeVar("T")
#: At most, where there are descriptors enough: of strangers in all, of one peer's, of one name.
STRANGERS, OF_PEER, OF_NAME = 256, 64, 1024


class Admission(Generic[T]):
    """The connections of a process.

    Args:
        descriptors: how many files this process may have open.
        disconnect: ends a stranger's connection.
    """

    def __init__(self, descriptors: int, disconnect: Callable[[T], None]) -> None:
        self.strangers = max(4, min(STRANGERS, descriptors // 8))
        self.of_peer = max(2, min(OF_PEER, self.strangers // 2))
        self.of_name = max(4, min(OF_NAME, descriptors // 16))
        self.of_users = max(8, descriptors // 2)
        self._disconnect = disconnect
        self._strangers: dict[T, str] = {}  # the longest waiting first
        self._peers: Counter[str] = Counter()
        self._known: dict[T, tuple[str, bool]] = {}
        self._names: Counter[str] = Counter()
        self._users = 0

    def connection_opened(self, one: T, peer: str) -> None:
        """Somebody has come, from a machine or of a local user."""
        self._strangers[one] = peer
        self._peers[peer] += 1
        if self._peers[peer] > self.of_peer:
            self._drop_one_of(peer)
        elif len(self._strangers) > self.strangers:
            self.drop_stranger()

    def drop_stranger(self) -> None:
        """A stranger goes, of the peer that has most."""
        if self._strangers:
            self._drop_one_of(self._peers.most_common(1)[0][0])

    def identify(self, one: T, who: Identity) -> None:
        """It is known who that is.

        Raises:
            CannotConnect: there are too many of that name, or of users at all.
        """
        if who.kind == "anonymous" or one not in self._strangers:
            return
        unbound = who.uid == 0 or Right.ADMINISTER in who.rights
        user = who.kind == "user" and not unbound
        name = f"{who.kind} {who.name}"
        if not unbound and self._names[name] >= self.of_name:
            raise CannotConnect(
                f"{who} has {self._names[name]} connections to this node already", hint="end some", retry=True
            )
        if user and self._users >= self.of_users:
            raise CannotConnect("this node has as many users' connections as it takes", retry=True)
        self._forget(one)
        self._known[one] = (name, user)
        self._names[name] += 1
        self._users += user

    def connection_ended(self, one: T) -> None:
        """A connection has ended."""
        self._forget(one)
        name, user = self._known.pop(one, ("", False))
        if name:
            self._users -= user
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]

    def _drop_one_of(self, peer: str) -> None:
        one = next(one for one, its in self._strangers.items() if its == peer)
        self._forget(one)
        self._disconnect(one)

    def _forget(self, one: T) -> None:
        peer = self._strangers.pop(one, None)
        if peer is not None:
            self._peers[peer] -= 1
            if not self._peers[peer]:
                del self._peers[peer]

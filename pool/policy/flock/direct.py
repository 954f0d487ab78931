"""Direct connections between machines of two pools: which addresses a pool lets its machines connect to.

Both administrators name networks in their agreement (`direct` in the flock's file). Without them a pool tells no other
pool where its machines are for a connection, and connects to no address that another pool names.

    machine --offer--> its world -------> home's world --> home's schedd --> asker's world -------> asker
                       direct agreed?     checked_offer                      checked_offer

An address is a number, never a host's name: a name could mean another machine by the time that it is used.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pool.errors import PoolError
from pool.wire.addresses import BadAddress, parse_address

DirectNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Networks that one agreement may name.
MOST_NETWORKS = 100
#: Characters of a ticket and of an address; bytes of a key.
LONGEST_TICKET, LONGEST_ADDRESS, PUBLIC = 100, 100, 32


class BadNetwork(PoolError):
    """A network in the flock's file cannot be understood."""


class NotDirect(PoolError):
    """Machines of two pools do not connect directly, or not to that address."""


@dataclass(frozen=True, slots=True)
class DirectTerms:
    """The agreement of this pool with another about direct connections.

    Attributes:
        pool: the other pool.
        networks: those that its administrator has named.
        own: hosts of this pool's machines, as numbers or names.
    """

    pool: str
    networks: tuple[DirectNetwork, ...] = ()
    own: Collection[str] = ()

    def check_agreed(self) -> None:
        """Raises NotDirect where this pool's machines do not connect directly with the other's."""
        if not self.networks:
            raise NotDirect(
                f"machines of this pool do not connect directly with those of {self.pool}",
                hint="`direct` in FLOCK_FILE of both pools lets them",
                retry=True,
            )

    def checked_offer(self, said: Any) -> dict[str, Any]:
        """A machine's offer of a connection as another pool tells it, with what is known of it.

        Args:
            said: {address, ticket, key}; not trusted.

        Raises:
            NotDirect: it makes no sense, or leads where this pool's machines do not connect.
        """
        self.check_agreed()
        match said:
            case {"address": str(address), "ticket": str(ticket), "key": bytes(key)}:
                if len(address) <= LONGEST_ADDRESS and len(ticket) <= LONGEST_TICKET and len(key) == PUBLIC:
                    self._check_address(address)
                    return {"address": address, "ticket": ticket, "key": key}
        raise NotDirect(f"the pool {self.pool} offers a connection that makes no sense")

    def _check_address(self, address: str) -> None:
        try:
            scheme, host, port = parse_address(address)
            number = ipaddress.ip_address(host)
        except (BadAddress, ValueError):
            scheme, port, number = "", 0, ipaddress.IPv4Address(0)
        if scheme != "tcp" or not port:
            raise NotDirect(f"the pool {self.pool} names {address!r:.60}, which is no address of a machine")
        mapped = number.ipv4_mapped if isinstance(number, ipaddress.IPv6Address) else None
        number = number if mapped is None else mapped
        inside = [network for network in self.networks if number.version == network.version and number in network]
        if not inside:
            raise NotDirect(f"the pool {self.pool} names {host}, which is in no network of the agreement")
        if (why := self._is_special(number)) and not any(network.num_addresses == 1 for network in inside):
            hint = f"`direct` would have to name {host} by itself"
            raise NotDirect(f"the pool {self.pool} names {host}, {why}", hint=hint)

    def _is_special(self, number: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
        """Why an address must be named by itself; empty if it need not."""
        if number.is_loopback or number.is_unspecified:
            return "which is each machine itself"
        if number.is_link_local:
            return "which serves one network, as a cloud's metadata"
        if number.is_multicast or number.is_reserved:
            return "which is no machine"
        return "which is a machine of this pool" if str(number) in self.own else ""


def read_networks(texts: Sequence[Any]) -> tuple[DirectNetwork, ...]:
    """Networks as an administrator writes them: 192.0.2.0/24, 2001:db8::/32, or one address.

    Raises:
        BadNetwork: one of them is none, or there are too many.
    """
    if len(texts) > MOST_NETWORKS:
        raise BadNetwork(f"{len(texts)} networks are too many", hint=f"up to {MOST_NETWORKS}")
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text if isinstance(text, str) else ""))
        except ValueError as error:
            raise BadNetwork(f"{text!r:.60} is no network", hint="as 192.0.2.0/24, without bits for a host") from error
    return tuple(found)


def hosts_of(addresses: Collection[str]) -> frozenset[str]:
    """The hosts of nodes' addresses, without ports."""
    found = set()
    for address in addresses:
        try:
            found.add(parse_address(address.partition("#")[0])[1])
        except BadAddress:
            continue
    return frozenset(found)


#: Finds what was agreed with a pool.
TermsWith = Callable[[str], DirectTerms]

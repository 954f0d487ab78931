"""JOB_NETWORK_DESTINATIONS: the addresses outside that jobs may reach from networks of their own. Plain data, pure.

    10.1.0.0/16:443          a range of addresses, and a port          [2001:db8::]/32:80-443   ports from and to
    192.0.2.7                one address, all ports                    *:443                    all addresses
    pypi.org:443             the addresses of a name                   dns                      the machine's resolver
    localhost:5432           the machine's own loopback, as `host.poolnode.internal`

Addresses of the machine itself, of its loopback and of links are reached by no rule for many addresses. The rules are
packed for `pool/network/way_out`, where every address is an IPv6 one and IPv4 is ::ffff:a.b.c.d.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from pool.decimals import whole_number
from pool.jobs.network import RANGE4, RANGE6

#: Words of the setting.
DNS, LOCALHOST, ALL = "dns", "localhost", "*"
#: Addresses that are nobody's (RFC 5737) and stand for the machine's loopback and for its resolver.
HOST_ADDRESS, RESOLVER_ADDRESS = "192.0.2.253", "192.0.2.254"
#: The name by which a job reaches ports of its machine's loopback.
HOST_NAME = "host.poolnode.internal"
DNS_PORT, LAST_PORT = 53, 65535
_RULE = Struct("=16s16sHHHBB")
_NAMED, _DENIED, _CHANGED = 1, 2, 4
_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_ENTRY = re.compile(r"(\[[0-9A-Fa-f:.]+\](?:/[0-9]{1,3})?|[^:\[\]]+)(?::([0-9]+)(?:-([0-9]+))?)?")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Destination(NamedTuple):
    """One entry.

    Attributes:
        name: of a host; DNS, LOCALHOST or ALL; empty for addresses.
        network: the addresses; None for a name.
        first, last: the ports.
    """

    name: str
    network: Network | None
    first: int
    last: int


class OutsideNames(NamedTuple):
    """The names of the outside for a job: lines of its /etc/hosts, and the text of its /etc/resolv.conf."""

    hosts: tuple[str, ...]
    resolver: str


def parse_destinations(text: str) -> tuple[Destination, ...]:
    """The entries of the setting, which stand between blanks or commas.

    Raises:
        ValueError: one cannot be read; says which and why.
    """
    return tuple(_entry(word) for word in text.replace(",", " ").split())


def _entry(word: str) -> Destination:
    if word.lower() == DNS:
        return Destination(DNS, None, DNS_PORT, DNS_PORT)
    found = _ENTRY.fullmatch(word)
    if found is None:
        raise ValueError(f"{word} is no destination: write ADDRESS/BITS:PORT, NAME:PORT, [IPV6]/BITS:PORT or dns")
    host, first, last = found.groups()
    ports = _port(word, first, 0), _port(word, last or first, LAST_PORT)
    if ports[0] > ports[1]:
        raise ValueError(f"{word}: the first port is beyond the last one")
    if host.lower() == LOCALHOST:
        if first is None:
            raise ValueError(f"{word}: ports of this machine's own loopback are named, as in localhost:5432")
        return Destination(LOCALHOST, None, *ports)
    if host == ALL:
        return Destination(ALL, None, *ports)
    try:
        network = ipaddress.ip_network(host.replace("[", "").replace("]", ""))
    except ValueError as error:
        if "has host bits set" in str(error):
            raise ValueError(f"{word}: the address has bits beyond its range") from None
        if not _NAME.fullmatch(host) or re.fullmatch(r"[0-9.]+", host):
            raise ValueError(f"{word}: {host} is neither an address nor a name") from None
        return Destination(host.lower(), None, *ports)
    if any(network.version == own.version and network.subnet_of(own) for own in (RANGE4, RANGE6)):  # type: ignore[arg-type]
        raise ValueError(f"{word}: these addresses are those of jobs' own networks")
    return Destination("", network, *ports)


def _port(word: str, text: str | None, otherwise: int) -> int:
    port = otherwise if text is None else whole_number(text)
    if port is None or port > LAST_PORT:
        raise ValueError(f"{word}: ports are 0 to {LAST_PORT}")
    return port


def names_of(destinations: Iterable[Destination]) -> list[str]:
    """The names whose addresses are to be found."""
    return sorted({each.name for each in destinations} - {"", DNS, LOCALHOST, ALL})


def outside_names(
    destinations: Sequence[Destination], found: Mapping[str, Sequence[str]], resolv_conf: str
) -> OutsideNames:
    """The names for a job.

    Args:
        found: the addresses of each name.
        resolv_conf: the machine's; its domains for short names are the job's, too.
    """
    hosts = [f"{address} {name}" for name in names_of(destinations) for address in found.get(name, ())]
    if any(each.name == LOCALHOST for each in destinations):
        hosts.append(f"{HOST_ADDRESS} {HOST_NAME}")
    if not any(each.name == DNS for each in destinations) or not resolver_of(resolv_conf):
        return OutsideNames(tuple(hosts), "# names outside: those in /etc/hosts\n")
    kept = [line for line in resolv_conf.splitlines() if line.split()[:1] in (["search"], ["domain"])]
    return OutsideNames(tuple(hosts), "\n".join([*kept, f"nameserver {RESOLVER_ADDRESS}", ""]))


def addresses_in(hosts: str, destinations: Iterable[Destination]) -> dict[str, tuple[str, ...]]:
    """The addresses of the setting's names in a job's /etc/hosts: those that the names had at its start."""
    found: dict[str, tuple[str, ...]] = dict.fromkeys(names_of(destinations), ())
    for line in hosts.splitlines():
        address, *names = line.split() or [""]
        for name in names:
            if name in found:
                found[name] += (address,)
    return found


def resolver_of(resolv_conf: str) -> str:
    """The address of the machine's first resolver; empty for none."""
    for line in resolv_conf.splitlines():
        match line.split():
            case ["nameserver", address, *_]:
                try:
                    return str(ipaddress.ip_address(address))
                except ValueError:
                    continue
    return ""


def pack_rules(
    destinations: Sequence[Destination],
    found: Mapping[str, Sequence[str]],
    resolver: str,
    denied: Iterable[tuple[str, int]] = (),
) -> bytes:
    """The rules as `pool/network/way_out` reads them.

    Args:
        found: the addresses of each name. resolver: the machine's; empty for none.
        denied: ports that only an address that is written in the setting opens; an empty address is every one.
    """
    rules = [_rule(network, port, port, _DENIED) for text, port in denied for network in _all_of(text)]
    for each in destinations:
        if each.name == DNS:
            if resolver:
                rules.append(_rule(_host(RESOLVER_ADDRESS), DNS_PORT, DNS_PORT, _CHANGED, resolver))
        elif each.name == LOCALHOST:
            rules.append(_rule(_host(HOST_ADDRESS), each.first, each.last, _CHANGED, "127.0.0.1"))
        elif each.network is not None:
            flags = _NAMED if each.network.num_addresses == 1 else 0
            rules.append(_rule(each.network, each.first, each.last, flags))
        else:
            networks = _all_of("") if each.name == ALL else [_host(address) for address in found.get(each.name, ())]
            rules += [_rule(network, each.first, each.last, 0) for network in networks]
    return b"".join(rules)


def _host(address: str) -> Network:
    return ipaddress.ip_network(address)


def _all_of(address: str) -> list[Network]:
    return [ipaddress.ip_network(text) for text in ([address] if address else ["0.0.0.0/0", "::/0"])]


def _mapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bytes:
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


def _rule(network: Network, first: int, last: int, flags: int, to: str = "") -> bytes:
    prefix = network.prefixlen + (96 if network.version == 4 else 0)
    changed = _mapped(ipaddress.ip_address(to)) if to else bytes(16)
    return _RULE.pack(_mapped(network.network_address), changed, first, last, 0, prefix, flags)

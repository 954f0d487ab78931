"""The network of a job: its modes, the addresses of its parts, and their names. Plain data and pure functions.

Every private network has the same range of addresses, since no packet of one reaches another or the machine's own
network. A part keeps its address wherever it runs, because the address follows from its number.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple

#: From the least to the most: a job may ask for less than its machine's JOB_NETWORK, never for more.
NONE, PRIVATE, PRIVATE_OUT, HOST = MODES = ("none", "private", "private+out", "host")
#: The modes in which a job has a network of its own.
OWN = frozenset({PRIVATE, PRIVATE_OUT})
#: The job's attribute, and the machine's.
JOB_NETWORK = "JobNetwork"
#: A checkpoint of a job with connections to processes outside it: none is made, or the restore resets them.
REFUSE, RESET = OUTSIDE = ("refuse", "reset")
#: The job's attribute for it.
OUTSIDE_CONNECTIONS = "OutsideConnections"
HAS_PRIVATE, WHY = "HasPrivateNetwork", "PrivateNetworkWhy"
HAS_OUT, OUT_WHY = "HasNetworkOut", "NetworkOutWhy"
#: The machine's attributes about networks, in lower case.
FACTS = frozenset({JOB_NETWORK.lower(), HAS_PRIVATE.lower(), HAS_OUT.lower()})
#: By the network that a job asks for, the clause that its Requirements get.
CLAUSES = {
    PRIVATE: f"TARGET.{HAS_PRIVATE}",
    PRIVATE_OUT: f"TARGET.{HAS_OUT}",
    HOST: f'(TARGET.{JOB_NETWORK} == "{HOST}")',
}
#: The addresses of all parts; the first is part 0's.
RANGE4 = ipaddress.IPv4Network("10.77.0.0/16")
RANGE6 = ipaddress.IPv6Network("fd70:6f6f:6c00::/64")
#: So many parts have addresses; the last ones are left over.
MOST_ADDRESSES = 65_000
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")


class Setup(NamedTuple):
    """A keeper's data for a job's network, as texts; pool/checkpoint/sandbox/network.c reads them.

    Attributes:
        name: the job's hostname.
        address4, address6: its addresses, with the length of the prefix.
        hosts: the text of its /etc/hosts.
        resolver: of a job with a way out, the text of its /etc/resolv.conf; empty for one without.
    """

    name: str
    address4: str
    address6: str
    hosts: str
    resolver: str = ""


def address4(part: int) -> str:
    """The IPv4 address of a part, by its number from 0 up."""
    return str(RANGE4.network_address + 1 + part)


def address6(part: int) -> str:
    """The IPv6 address of a part, by its number from 0 up."""
    return str(RANGE6.network_address + 1 + part)


def rank_name(part: int) -> str:
    """The name of a part in its network."""
    return f"rank{part}"


def setup_of(part: int, hosts: Sequence[str], outside: Sequence[str] = (), resolver: str = "") -> Setup:
    """The network of one part of a job.

    Args:
        part: its number; 0 for a job of one part.
        hosts: by number, the machine of each part. A machine's name leads to its first part.
        outside: of a job with a way out, lines of /etc/hosts for the outside. resolver: see `Setup`.
    """
    return Setup(
        name=rank_name(part),
        address4=f"{address4(part)}/{RANGE4.prefixlen}",
        address6=f"{address6(part)}/{RANGE6.prefixlen}",
        hosts=hosts_file(hosts) + "".join(f"{line}\n" for line in outside),
        resolver=resolver,
    )


def node_addresses(parts: int, own: int, hosts: Sequence[str]) -> str:
    """The addresses of the nodes of a parallel job, by number, with blanks between them.

    Args:
        own: this node's number.
        hosts: by number, the machine of each node; empty for one that is in no network with this node, since it has
            ended or is in another pool. Such a node has `-` in place of its address, and so have those that are left
            out.
    """
    there = {part for part, host in enumerate(hosts) if host} | {own}
    return " ".join(address4(part) if part in there else "-" for part in range(parts))


def has_way_out(setup: Sequence[str]) -> bool:
    """Whether a keeper's data are those of a network with a way out."""
    return bool(setup) and bool(Setup(*setup).resolver)


def hosts_file(hosts: Sequence[str]) -> str:
    """The text of /etc/hosts in every part: `rank0` and so on, and the machines' own names.

    Args:
        hosts: by number, the machine of each part; a name that could not be one of DNS is left out.
    """
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    seen: set[str] = set()
    for part, host in enumerate(hosts):
        names = [rank_name(part)]
        for name in (host, host.partition(".")[0]):
            if _NAME.fullmatch(name) and name not in seen and not re.fullmatch(r"rank[0-9]+|localhost|[0-9.]+", name):
                seen.add(name)
                names.append(name)
        lines += [f"{address} {' '.join(names)}" for address in (address4(part), address6(part))]
    return "\n".join(lines) + "\n"


def chosen(wish: str, networking: bool, machine: str) -> str | None:
    """The network that a job gets, of `MODES`; None where it may not have the one that it asks for.

    Args:
        wish: the network that it asks for; empty for none in particular.
        networking: False for a job that wants no network at all.
        machine: the machine's JOB_NETWORK.
    """
    if not networking:
        return NONE
    if not wish:
        return machine
    return wish if MODES.index(wish) <= MODES.index(machine) else None


def offered(why_not: str, machine: str, out_why_not: str) -> dict[str, bool | str]:
    """A machine's attributes about the networks of its jobs.

    Args:
        why_not: why it cannot give jobs networks of their own; empty where it can.
        machine: its JOB_NETWORK.
        out_why_not: why it cannot give these a way out; empty where it can.
    """
    most = MODES.index(machine)
    set_so = f"its administrator has set JOB_NETWORK = {machine}"
    why_not = why_not or (set_so if most < MODES.index(PRIVATE) else "")
    out_why_not = why_not or (set_so if most < MODES.index(PRIVATE_OUT) else "") or out_why_not
    facts: dict[str, bool | str] = {JOB_NETWORK: machine, HAS_PRIVATE: not why_not, HAS_OUT: not out_why_not}
    return facts | ({WHY: why_not} if why_not else {}) | ({OUT_WHY: out_why_not} if out_why_not else {})

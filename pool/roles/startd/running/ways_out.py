"""The way out of jobs' private networks on this machine: JOB_NETWORK_DESTINATIONS, its names and rules, and whether it
works here. Names are looked up again from time to time; a job keeps the addresses of its start."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from pool.config import Settings
from pool.decimals import whole_number
from pool.jobs.destinations import (
    Destination,
    OutsideNames,
    addresses_in,
    names_of,
    outside_names,
    pack_rules,
    parse_destinations,
    resolver_of,
)
from pool.network.way_out_process import why_no_way_out
from pool.policy.shipped import PolicyError

#: Seconds between two looks for the addresses of names.
AGAIN = 300.0
RESOLV_CONF = Path("/etc/resolv.conf")
#: Why there is no way out, before and without a look.
NOT_YET = "whether it can is not known yet"
NO_DESTINATIONS = "its administrator has set no JOB_NETWORK_DESTINATIONS"


class WaysOut:
    """The destinations in force.

    Args:
        settings: those in force.
        program: of one job's way out.
        closed: addresses of nodes, as tcp://HOST:PORT, that no rule for many addresses opens; this node's first.
        changed: called when `why_not` is another.

    Attributes:
        why_not: why jobs get no way out here; empty where they do.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        program: Path,
        closed: Callable[[], tuple[str, ...]],
        changed: Callable[[], None],
        log: logging.Logger,
    ) -> None:
        self._settings = settings
        self._closed = closed
        self.program = program
        self._changed = changed
        self._log = log
        self._destinations: tuple[Destination, ...] = ()
        self._found: dict[str, tuple[str, ...]] = {}
        self._resolv_conf = ""
        self._wanted, self._resolved = asyncio.Event(), asyncio.Event()
        self.why_not = NO_DESTINATIONS
        self.reload()

    def reload(self) -> None:
        """Take in the settings.

        Raises:
            PolicyError: JOB_NETWORK_DESTINATIONS cannot be read; the destinations before stay in force.
        """
        try:
            destinations = parse_destinations(self._settings().text("JOB_NETWORK_DESTINATIONS"))
        except ValueError as error:
            raise PolicyError(f"JOB_NETWORK_DESTINATIONS: {error}") from error
        if destinations != self._destinations:
            self._destinations = destinations
            self.why_not = NOT_YET if destinations else NO_DESTINATIONS
            self._wanted.set()
            self._resolved.clear()

    async def run(self) -> None:
        """Look up the names now, when the setting changes, and from time to time; never ends."""
        while True:
            if self._destinations:
                self._wanted.clear()
                await self._resolve()
                try:
                    async with asyncio.timeout(AGAIN):
                        await self._wanted.wait()
                except TimeoutError:
                    continue
            else:
                await self._wanted.wait()
                self._wanted.clear()

    async def _resolve(self) -> None:
        why_not = await why_no_way_out(self.program)
        try:
            self._resolv_conf = await asyncio.to_thread(RESOLV_CONF.read_text, errors="replace")
        except OSError:
            self._resolv_conf = ""
        found = {}
        for name in names_of(self._destinations):
            found[name] = await _addresses(name)
            if not found[name]:
                self._log.warning("JOB_NETWORK_DESTINATIONS names a host without address", extra={"host": name})
        self._found = found
        self._resolved.set()
        if why_not != self.why_not:
            self.why_not = why_not
            self._changed()

    def names(self) -> OutsideNames | None:
        """The names of the outside for a job that begins now; None where it can have no way out."""
        return None if self.why_not else outside_names(self._destinations, self._found, self._resolv_conf)

    async def rules_for(self, nodes: Sequence[str], hosts: str) -> bytes:
        """The packed rules for a job, when the machine's resolver is known.

        Args:
            nodes: the addresses of the nodes of its parts.
            hosts: its /etc/hosts, whose addresses count for the names of the setting.
        """
        await self._resolved.wait()
        own, *others = self._closed()
        denied = [("", _host_and_port(own)[1])]
        for host, port in map(_host_and_port, (*others, *nodes)):
            denied += [(address, port) for address in await _addresses(host) or ("",)]
        return pack_rules(
            self._destinations,
            addresses_in(hosts, self._destinations),
            resolver_of(self._resolv_conf),
            [(address, port) for address, port in denied if port],
        )


async def _addresses(name: str) -> tuple[str, ...]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(at[0]) for *_, at in found))


def _host_and_port(address: str) -> tuple[str, int]:
    """Those of tcp://HOST:PORT; port 0 for another kind of address."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), (whole_number(port) or 0) if address.startswith("tcp://") else 0

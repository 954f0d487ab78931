"""Staying in the pool, or being removed from it: revocation, and certificates renewed before they end.

The node with the authority keeps the list of revoked nodes and signs anew. Every other node holds a stream to it over
its ordinary connection, learns of each revocation as it happens, and keeps the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pool.enrolment import Enrolment
from pool.errors import PoolError
from pool.roles.links import Links
from pool.wire import Call, RealNetwork, Right, Service, Stream, method, streaming
from pool.wire.errors import CallRefused

FIRST_RETRY, LONGEST_RETRY = 0.2, 30.0
#: Seconds between two looks at the age of this node's certificate.
LOOK = 86400.0


class Revocation(Service):
    """The part of a node that knows who belongs to the pool; its methods stand beside the node's others."""

    def __init__(
        self,
        enrolment: Enrolment,
        network: RealNetwork,
        report: Callable[[str, str], None],
        expel: Callable[[set[str]], None] = lambda names: None,
    ) -> None:
        super().__init__()
        self._enrolment = enrolment
        self._network = network
        self._report = report
        self._expel = expel
        self._changed = asyncio.Event()

    @method(Right.ADMINISTER, takes={"node": str})
    async def revoke(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Remove a node from the pool: {node} -> {node}. On the node that has the pool's authority."""
        await self.revoke_name(params["node"])
        return {"node": params["node"]}

    async def revoke_name(self, name: str) -> None:
        """Remove a node from the pool, and tell all others."""
        await asyncio.to_thread(self._enrolment.revoke, name)
        self._enforce({name})
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @method(Right.ADMINISTER)
    async def tokens(self, call: Call, params: dict[str, Any]) -> list[dict[str, Any]]:
        """The tokens that were made here, used or not, without what opens anything."""
        return self._enrolment.tokens().listed()

    @method(Right.ADMINISTER, takes={"id": str})
    async def revoke_token(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Make a token worthless: {id} -> {id}. A user's connections with it end; who has joined with it stays."""
        number = params["id"]
        if not self._enrolment.tokens().revoke(number):
            raise CallRefused(f"there is no token {number[:40]}", hint="`poolnode token --list` shows them")
        self._network.part_with_token(number)
        return {"id": number}

    @streaming(Right.READ)
    async def trust(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The nodes that have been removed from the pool, now and at each change: {} -> {revoked: {name: time}}..."""
        while True:
            changed = self._changed
            await stream.send({"revoked": self._enrolment.revoked()})
            await changed.wait()

    @method(Right.READ, takes={"request": str})
    async def renew(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A new certificate for the caller's own key, name and roles: {request} -> {certificate}"""
        if call.identity.kind != "node":
            raise CallRefused(f"{call.identity} is no node and has no certificate")
        certificate = await asyncio.to_thread(
            self._enrolment.sign_anew, params["request"], call.identity.node, call.identity.roles
        )
        return {"certificate": certificate}

    # -- of a node that has joined -----------------------------------------------------------------------

    async def follow(self, links: Links) -> None:
        """Hold a stream to the authority's node, and take over what it says, until cancelled."""
        retry = FIRST_RETRY
        while True:
            try:
                link = await links.connect(self._enrolment.collector)
                async with await link.stream("node.trust") as stream:
                    async for said in stream:
                        retry = FIRST_RETRY
                        fresh = await asyncio.to_thread(self._enrolment.exclude, dict(said["revoked"]))
                        self._enforce(fresh)
            except (PoolError, OSError, TimeoutError, KeyError, TypeError):
                pass  # it is away, or another version of the program; what is known already holds
            await asyncio.sleep(retry)
            retry = min(retry * 2, LONGEST_RETRY)

    async def renew_forever(self, links: Links) -> None:
        """Have this node's certificate renewed when a third of its life is left, until cancelled."""
        retry = FIRST_RETRY
        while True:
            left = await asyncio.to_thread(self._enrolment.time_to_renewal)
            if left > 0:
                await asyncio.sleep(min(left, LOOK))
                continue
            try:
                await self._renew(links)
                retry = FIRST_RETRY
            except (PoolError, OSError, TimeoutError) as error:
                self._report("this node's certificate was not renewed; it will be tried again", str(error))
                await asyncio.sleep(retry)
                retry = min(retry * 2, LONGEST_RETRY)

    async def _renew(self, links: Links) -> None:
        request = await asyncio.to_thread(self._enrolment.request)
        if self._enrolment.collector:
            link = await links.connect(self._enrolment.collector)
            certificate = str((await link.call("node.renew", {"request": request}))["certificate"])
        else:
            certificate = await asyncio.to_thread(self._enrolment.sign_own, request)
        await asyncio.to_thread(self._enrolment.renewed, certificate)
        self._report("this node's certificate was renewed", "")

    def _enforce(self, names: set[str]) -> None:
        """No removed node stays connected."""
        if names:
            self._network.part_with(names)
            self._expel(names)
            self._report("removed from the pool", ", ".join(sorted(names)))

"""The certificates that other pools have given this pool's world, renewed before they end.

Each lender's authority issued one when its invitation was accepted. With it this pool's world connects there, so an
agreement would end with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.wire.credentials import Credentials

#: Seconds between two looks at a certificate's age, at most; and until a renewal that failed is tried again.
LOOK, AGAIN = 86400.0, 60.0
#: Seconds for a lender to answer.
PATIENCE = 30.0


class Lender(Protocol):
    """A pool that lends, as it is asked to renew a certificate."""

    async def call(self, method: str, params: Mapping[str, Any], timeout: float) -> Any: ...


class AgreementRenewal:
    """The renewal of one pool's certificates at all its lenders.

    Args:
        wall: tells the time, wall seconds.
        name: this pool's, as others know it.
    """

    def __init__(self, wall: Callable[[], float], name: Callable[[], str], log: logging.Logger) -> None:
        self._wall = wall
        self._name = name
        self._log = log

    async def keep_valid(self, pool: str, lender: Lender, credentials: Credentials) -> None:
        """Renew the certificate from one lender whenever a third of its life is left, until cancelled."""
        while True:
            left = await asyncio.to_thread(self._time_to_renewal, credentials)
            if left > 0:
                await asyncio.sleep(min(left, LOOK))
                continue
            try:
                await self._renew(lender, credentials)
                self._log.info("the certificate from another pool was renewed", extra={"pool": pool})
            except (PoolError, OSError, TimeoutError, KeyError, TypeError) as error:
                said = {"pool": pool, "error": str(error)}
                self._log.warning(
                    "the certificate from another pool was not renewed; it will be tried again", extra=said
                )
                await asyncio.sleep(AGAIN)

    def _time_to_renewal(self, credentials: Credentials) -> float:
        from pool.wire.certificates import renewal_time
        from pool.wire.credentials import CERTIFICATE

        assert credentials.directory is not None
        return renewal_time((credentials.directory / CERTIFICATE).read_text()) - self._wall()

    async def _renew(self, lender: Lender, credentials: Credentials) -> None:
        request = await asyncio.to_thread(self._request, credentials)
        answer = await lender.call("world.renew", {"request": request}, PATIENCE)
        await asyncio.to_thread(credentials.renewed, str(answer["certificate"]))

    def _request(self, credentials: Credentials) -> str:
        from pool.wire.certificates import new_request
        from pool.wire.credentials import pending_key

        assert credentials.directory is not None
        return new_request(pending_key(credentials.directory), self._name())

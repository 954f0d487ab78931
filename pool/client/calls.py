"""Small helpers of the client: where to connect, how a failure to connect reads, what a query is made of."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pool.client.addresses import NoPool, find_address
from pool.client.ids import job_ids
from pool.wire import ConnectionLost

if TYPE_CHECKING:
    from pool.classad import ClassAd
    from pool.wire import Connection, Network


def where_to(address: str | None) -> str:
    """The address to connect to: where the tools look (`find_address`), then where the user's token leads."""
    try:
        return find_address(address)
    except NoPool:
        from pool.client.network import user_token

        token = None if address else user_token(os.environ)
        if token is None:
            raise
        from pool.wire.tokens import Token

        return Token.read(token).address


async def open_link(network: Network, address: str, timeout: float) -> Connection:
    """Connect, or say in one line why not.

    Raises:
        NoPool: nobody answers there within `timeout` seconds.
    """
    try:
        async with asyncio.timeout(timeout):
            return await network.connect(address)
    except TimeoutError as error:
        raise NoPool(f"the node at {address} did not answer within {timeout:g} s", retry=True) from error
    except ConnectionLost as error:
        raise NoPool(error.message, hint=error.hint or "is the node started?", retry=True) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise NoPool(f"cannot reach the node at {address}: {why}", retry=True) from error


def question(
    ids: Iterable[Sequence[int]] | None,
    owner: str | None,
    constraint: str | None,
    attributes: Sequence[str] | None,
    limit: int | None,
) -> dict[str, Any]:
    """The parameters of a query: what is None is left out."""
    question: dict[str, Any] = {}
    if ids is not None:
        question["ids"] = [list(job) for job in job_ids(ids)]
    if owner is not None:
        question["owner"] = owner
    if constraint is not None:
        question["constraint"] = constraint
    if attributes is not None:
        question["attributes"] = list(attributes)
    if limit is not None:
        question["limit"] = limit
    return question


def as_ads(found: Iterable[Mapping[str, Any]]) -> list[ClassAd]:
    """Ads from their wire form."""
    from pool.classad import ClassAd

    return [ClassAd.from_wire(dict(ad)) for ad in found]


def id_text(job: Any) -> str:
    """`12.3` from `[12, 3]`."""
    return ".".join(map(str, job)) if isinstance(job, list | tuple) else str(job)

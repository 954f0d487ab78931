"""The parts of one job in different pools: each hears the others' names, and no addresses.

A part brings a *card* to the meeting of all parts: {node, address, network, large}. Parts of one pool get each other's
cards whole, and connect. A part in another pool gets a name, and no address: bytes for it pass through the worlds
(`pool.roles.schedd.parallel.between_pools`).

    a machine's card --> its world --> the home's world --> schedd --> each part's world --> each part
                                       checked_card         seen_from  checked_cards

Names of nodes hold no `@`. A machine of another pool is NODE@POOL, so it can never pass for one of this pool.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pool.errors import PoolError
from pool.jobs.network import MOST_ADDRESSES, OWN

Card = dict[str, Any]
#: Characters of a name, and of an address.
LONGEST_NAME, LONGEST_ADDRESS = 300, 500


class BadCard(PoolError):
    """Another pool says of a part of a job what makes no sense."""


class PartCard(NamedTuple):
    """The card of a part, as its schedd keeps it.

    Attributes:
        pool: that its machine is in; empty for the schedd's own.
        machine: NODE, or NODE@POOL.
        said: by the part itself.
    """

    pool: str
    machine: str
    said: Card


def seen_from(pool: str, card: PartCard) -> Card:
    """A part's card for a part in some pool.

    Args:
        pool: as of `PartCard`.
    """
    if pool == card.pool:
        return card.said
    name = card.machine if card.pool else str(card.said.get("node", ""))
    return {"node": name, **{key: card.said[key] for key in ("network", "large") if key in card.said}}


def checked_card(said: Any) -> Card:
    """A card that another pool's machine brings for a job of ours, with what is known of it.

    Raises:
        BadCard: it makes no sense.
    """
    if not isinstance(said, Mapping):
        raise BadCard("a part's card is no mapping")
    found: Card = {}
    for key, most in (("node", LONGEST_NAME), ("address", LONGEST_ADDRESS)):
        value = said.get(key, "")
        if not isinstance(value, str) or len(value) > most or (key == "node" and "@" in value):
            raise BadCard(f"a part's {key} is {value!r:.60}")
        found[key] = value
    network, large = said.get("network"), said.get("large", False)
    if network is not None and not (isinstance(network, str) and network in OWN):
        raise BadCard(f"a part's network is {network!r:.60}")
    if not isinstance(large, bool):
        raise BadCard(f"a part's machine takes large packets: {large!r:.60}")
    return found | ({"network": network, "large": large} if network is not None else {})


def checked_cards(said: Any, pool: str, ours: Collection[str]) -> list[Card | None]:
    """The cards of all parts that another pool's schedd sends to a part on a machine of this pool.

    Args:
        said: its answer, {cards}; not trusted.
        pool: that pool's name here.
        ours: the addresses of this pool's machines. No other address is passed on: a machine of ours connects to none
            that another pool names.

    Raises:
        BadCard: they make no sense.
    """
    cards = said.get("cards") if isinstance(said, Mapping) else None
    if not isinstance(cards, list) or len(cards) > MOST_ADDRESSES:
        raise BadCard(f"the pool {pool} has sent no list of a job's parts")
    return [None if card is None else _checked(card, pool, ours) for card in cards]


def _checked(said: Any, pool: str, ours: Collection[str]) -> Card:
    if isinstance(said, Mapping) and "address" in said:
        card = checked_card(said)
        if card["address"] not in ours:
            raise BadCard(f"the pool {pool} names a machine at {card['address']!r:.60}, which is none of this pool's")
        return card
    name = said.get("node") if isinstance(said, Mapping) else None
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise BadCard(f"the pool {pool} names a part's machine {name!r:.60}")
    own = {key: value for key, value in checked_card({**said, "node": ""}).items() if key in ("network", "large")}
    return {"node": name if "@" in name else f"{name}@{pool}", **own}

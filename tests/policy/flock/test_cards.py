"""The cards of parts in several pools: names and no addresses for another pool; nothing that it says is believed."""

from __future__ import annotations

from typing import Any

import pytest

from pool.jobs.network import MOST_ADDRESSES
from pool.policy.flock.cards import BadCard, PartCard, checked_card, checked_cards, seen_from

OWN = PartCard("", "one", {"node": "one", "address": "tcp://one", "network": "private", "large": True})
CHEM = PartCard("chem", "lab@chem", {"node": "lab", "address": "tcp://lab", "network": "private", "large": False})
OURS = frozenset({"tcp://lab", "tcp://den"})


@pytest.mark.parametrize(
    ("viewer", "card", "seen"),
    [
        ("", OWN, OWN.said),
        ("", CHEM, {"node": "lab@chem", "network": "private", "large": False}),
        ("chem", OWN, {"node": "one", "network": "private", "large": True}),
        ("chem", CHEM, CHEM.said),
        ("bio", CHEM, {"node": "lab@chem", "network": "private", "large": False}),
        ("bio", PartCard("", "one", {"node": "one", "address": "tcp://one"}), {"node": "one"}),
    ],
)
def test_a_part_in_another_pool_is_a_name(viewer: str, card: PartCard, seen: dict[str, Any]) -> None:
    assert seen_from(viewer, card) == seen


def test_a_card_is_taken_in_with_what_is_known_of_it() -> None:
    said = {"node": "lab", "address": "tcp://lab", "network": "private", "large": True, "more": "x" * 10_000}
    assert checked_card(said) == {"node": "lab", "address": "tcp://lab", "network": "private", "large": True}
    assert checked_card({}) == {"node": "", "address": ""}


@pytest.mark.parametrize(
    "said",
    [
        *(None, "card", []),
        *({"node": value} for value in (1, None, "head@", "a@chem", "x" * 301)),
        *({"address": value} for value in (1, None, b"a", "x" * 501)),
        *({"network": value} for value in ("host", "none", "", 1, ["private"], {"private": 1})),
        *({"network": "private", "large": value} for value in (1, "yes", None)),
    ],
)
def test_a_card_that_makes_no_sense_is_refused(said: Any) -> None:
    with pytest.raises(BadCard):
        checked_card(said)


def test_a_lenders_part_hears_of_its_own_pool_and_of_names() -> None:
    mine = {"node": "den", "address": "tcp://den", "network": "private", "large": False}
    said = [mine, None, {"node": "one", "network": "private", "large": True}, {"node": "m@bio", "x": 1}]
    assert checked_cards({"cards": said}, "physics", OURS) == [
        mine,
        None,
        {"node": "one@physics", "network": "private", "large": True},
        {"node": "m@bio"},
    ]


@pytest.mark.parametrize(
    "said",
    [
        *(None, [], {}, {"cards": None}, {"cards": {}}, {"cards": [None] * (MOST_ADDRESSES + 1)}),
        *({"cards": [card]} for card in (1, "x", {}, {"node": ""}, {"node": 5}, {"node": "x" * 301})),
        {"cards": [{"node": "router", "address": "tcp://router"}]},
        {"cards": [{"node": "den@x", "address": "tcp://den"}]},
        {"cards": [{"node": "one", "network": "host"}]},
        {"cards": [{"node": "one", "address": None}]},
    ],
)
def test_whatever_else_a_borrower_says_is_refused(said: Any) -> None:
    with pytest.raises(BadCard):
        checked_cards(said, "physics", OURS)

"""The bounds on what one pool's offers take here."""

from __future__ import annotations

from typing import Any

from pool.policy.flock.offer_bounds import LARGEST_AD, OfferBounds


def ad(size: int) -> dict[str, Any]:
    return {"A": "x" * size}


def test_offers_beyond_a_number_are_not_taken_in_until_others_go() -> None:
    bounds = OfferBounds((2, 10**6))
    assert [bounds.admit(f"slot{number}@m", ad(1)) for number in range(4)] == [True, True, False, False]
    assert bounds.admit("slot0@m", ad(2)), "one that is there may change"
    assert bounds.admit("slot0@m", None)
    assert bounds.admit("slot3@m", ad(1))
    assert not bounds.admit("slot0@m", ad(1))


def test_bytes_are_counted_by_what_is_there_now() -> None:
    bounds = OfferBounds((10, 1000))
    assert bounds.admit("slot1@m", ad(900))
    assert not bounds.admit("slot2@m", ad(900))
    assert bounds.admit("slot1@m", ad(10))
    assert bounds.admit("slot2@m", ad(900))
    assert not bounds.admit("slot1@m", ad(200)), "too large in the place of a small one: it is not to be had any more"
    assert bounds.admit("slot3@m", ad(10))
    assert bounds.admit("nosuch@m", None)


def test_no_ad_is_larger_than_the_largest() -> None:
    assert not OfferBounds().admit("slot1@m", ad(LARGEST_AD))
    assert OfferBounds().admit("slot1@m", {"Name": "\udc80"}), "a name that is not UTF-8"

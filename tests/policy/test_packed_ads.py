"""Packed ads: equal rests are one, and the last ones are kept unpacked, in a bounded number of bytes."""

from __future__ import annotations

import gc
import tracemalloc

from pool.policy.packed import ad_of, layers_of, parted, wire_of


def large(number: int) -> dict[str, object]:
    return {"Owner": "ann", "Large": f"{number} " + "x" * 1_000_000, "Cmd": "/bin/true"}


def test_ads_that_are_wanted_again_are_kept() -> None:
    for wire in ({"Owner": "ann", "Cmd": "/bin/true", "Args": "1"}, large(1)):
        parts = parted(wire)
        assert wire_of(parts) == wire
        assert wire_of(parts) is wire_of(parts)
        assert ad_of(parts) is ad_of(parts)
        assert layers_of(parts)[1] is layers_of(parts)[1]
        assert parted(dict(wire))[0] is parts[0]


def test_ads_as_large_as_messages_do_not_fill_the_memory() -> None:
    """A user may submit as many different ones as he likes: they are not kept when nobody has them any more."""
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(100):
            parts = parted(large(number))
            assert ad_of(parts).value("Large", "").startswith(f"{number} ")
            layers_of(parts)
        del parts
        assert tracemalloc.get_traced_memory()[0] < 30_000_000
    finally:
        tracemalloc.stop()

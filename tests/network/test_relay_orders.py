"""Orders of every wrong form change nothing in a relay, and cost it no descriptor."""

from __future__ import annotations

import array
import os
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.network.relay_process import OrderVerb
from tests.network.support import Bench, bench, between, heard, silent
from tests.ordinary_user import as_root

#: The relay's PARTS_MOST; the parts of the network under test; descriptors that it takes with an order.
PARTS_MOST, PARTS, FDS = 65000, 4, 3
KEYS = [7] * 8
BEGIN, WIRE, LINK, HOLD, SEALED, SPLICE = (
    OrderVerb.BEGIN,
    OrderVerb.ADD_WIRE,
    OrderVerb.ADD_LINK,
    OrderVerb.HOLD,
    OrderVerb.ADD_SEALED,
    OrderVerb.ADD_SPLICE,
)


def order(verb: int, *numbers: int, count: int | None = None) -> bytes:
    return struct.pack(f"=II{len(numbers)}I", verb, len(numbers) if count is None else count, *numbers)


@pytest.fixture
def pairs() -> Iterator[list[socket.socket]]:
    """Sockets to hand over: of each pair the first one is ours."""
    made: list[socket.socket] = []
    for _ in range(8):
        made += socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    yield made
    for end in made:
        end.close()


def give(made: Bench, message: bytes, passed: list[socket.socket]) -> None:
    assert made.relay._orders is not None
    fds = array.array("i", [each.fileno() for each in passed])
    made.relay._orders.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if passed else [])


def open_files(made: Bench) -> int:
    with as_root():
        if os.geteuid() != 0:
            pytest.skip("needs root to look into a relay")
        return len(list(Path(f"/proc/{made.relay.pid}/fd").iterdir()))


#: With the number of descriptors that come with each.
WRONG = {
    "shorter than its head": (struct.pack("=I", WIRE), 1),
    "one byte": (b"\1", 1),
    "numbers that are not there": (order(WIRE, 1, count=2), 1),
    "more numbers than it says": (order(WIRE, 1, 2, count=1), 1),
    "a part of a number": (order(WIRE, 1) + b"\0", 1),
    "more numbers than parts can be": (order(LINK, count=PARTS_MOST + 1), 1),
    "a count that wraps round": (order(LINK, count=0xFFFFFFFF), 1),
    "a count that wraps round to its size": (order(LINK, 1, count=0x40000001), 1),
    "no such verb": (order(0, 1), 1),
    "no such verb, either": (order(SPLICE + 1, 1), 1),
    "the largest verb": (order(0xFFFFFFFF, 1), 1),
    "a wire without its socket": (order(WIRE, 1), 0),
    "a sealed link without its leash": (order(SEALED, *KEYS, 1), 1),
    "a sealed link without keys": (order(SEALED, 1), 2),
    "a sealed link with a part of its keys": (order(SEALED, *KEYS[1:]), 2),
    "a splice without its leash": (order(SPLICE), 2),
    "a second beginning": (order(BEGIN, 2), 0),
    "a beginning with a socket": (order(BEGIN, 1), 1),
    "a beginning of nothing": (order(BEGIN, 0), 0),
    "a beginning of too much": (order(BEGIN, PARTS_MOST + 1), 0),
    "a hold without its number": (order(HOLD), 0),
    "a hold with two": (order(HOLD, 1, 1), 0),
    "more sockets than an order has": (order(OrderVerb.REPORT, 1), FDS + 1),
    "many more": (order(OrderVerb.REPORT, 1), FDS + 5),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_order_changes_nothing(sanitized_relay: Path, pairs: list[socket.socket], what: str) -> None:
    message, count = WRONG[what]
    async with bench(sanitized_relay, PARTS) as made:
        one, other = await made.wire(0), await made.wire(1)
        before = open_files(made)
        give(made, message, pairs[1 : 2 * count : 2])
        await made.traffic()
        assert open_files(made) == before
        one.send(between(0, 1, b"as before"))
        assert await heard(other) == between(0, 1, b"as before")
        other.send(between(1, 3))  # a part of this network that is nowhere
        assert (await made.counted(2)).unreachable == 1
        assert silent(one)


async def test_random_orders_break_nothing(sanitized_relay: Path, pairs: list[socket.socket]) -> None:
    """Verbs, counts, numbers, lengths and descriptors by chance: the relay answers after each."""
    rng = random.Random(14)
    async with bench(sanitized_relay, PARTS) as made:
        for _ in range(400):
            numbers = [rng.choice((0, 1, 3, PARTS, PARTS_MOST, 0xFFFFFFFF)) for _ in range(rng.randrange(12))]
            message = order(rng.randrange(12), *numbers, count=rng.choice((len(numbers), rng.randrange(14))))
            cut = message[: rng.choice((len(message), rng.randrange(1, len(message) + 1)))]
            give(made, cut, rng.sample(pairs[1::2], rng.randrange(FDS + 2)))
            await made.traffic()

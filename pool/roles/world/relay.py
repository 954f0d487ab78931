"""Calls and streams between a schedd and a startd of two pools, as they pass through a world node.

The tables name all that may pass. A claim's id is changed on the way: to its schedd it is POOL|STARTD|ID, so that any
world node finds the way to its startd, also one that has just been restarted and knows nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pool.errors import PoolError
from pool.policy.flock.offer_bounds import is_plain_name, is_small
from pool.wire import Call, Right, Service, Stream, method, streaming
from pool.wire.joined_streams import pass_both_ways

#: Methods of a startd that a schedd of another pool may call, about a claim that it has.
STARTD_CALLS = (
    *("activate", "deactivate", "checkpoint", "checkpoint_part", "release", "resume", "restore_order", "inspect"),
    *((OFFER := "direct_from_part"), (END_DIRECT := "end_direct")),
)
STARTD_STREAMS = ("tail", "forward", "shell", *(BETWEEN_PARTS := ("link_from_part", "pipe_from_part")))
#: Methods of a schedd that a startd of another pool may call, about a claim of that schedd's.
SCHEDD_CALLS = (
    *("renew", "report", "revoked", "ended", MEETING := "wait_for_parts"),
    *(ASKS_DIRECT := ("direct_to_part", "direct_to_schedd")),
)
SCHEDD_STREAMS = (
    *("fetch_inputs", "store_outputs", "remote_io", "store_image", "fetch_image", "link_to_part", "pipe_to_part"),
)
#: Parts of a claim's id.
BETWEEN = "|"
#: Seconds for a call whose caller would wait without end.
LONGEST = 3600.0
#: Bytes that a stream may carry ahead of its reader beyond an ordinary window: what 100 ms at 80 MB/s hold.
AHEAD = 8 * 1024 * 1024
#: Bytes that all streams together may carry so, and the part of what is left of them that one stream gets at most.
ALL_AHEAD, PART = 1024 * 1024 * 1024, 64


Class = TypeVar("Class", bound=type[Service])


class NoWay(PoolError):
    """There is no way to the other side just now."""


@dataclass(frozen=True, slots=True)
class ClaimRoute:
    """The way to a claim in another pool.

    Attributes:
        pool: the pool that has the machine.
        startd: the address of the machine's startd, in that pool.
        claim: the id that the startd gave.
    """

    pool: str
    startd: str
    claim: str

    @property
    def id(self) -> str:
        """The claim's id as its schedd has it."""
        return BETWEEN.join((self.pool, self.startd, self.claim))

    @classmethod
    def read(cls, text: str) -> ClaimRoute:
        """The route that an id tells.

        Raises:
            NoWay: it is none.
        """
        parts = text.split(BETWEEN, 2)
        if len(parts) != 3:
            raise NoWay(f"'{text[:100]}' is no claim on a machine of another pool")
        return cls(*parts)


def is_claim(said: Any) -> bool:
    """Whether another pool's word is a claim: {claim, slot: SLOT@MACHINE, startd, ad}"""
    match said:
        case {"claim": str(claim), "slot": str(slot), "startd": str(startd), "ad": dict(ad)}:
            plain = slot.count("@") == 1 and BETWEEN not in startd and all(map(is_plain_name, (claim, slot, startd)))
            return plain and all(isinstance(name, str) for name in ad) and is_small(ad)
    return False


def claims_of(answer: Any, most: int) -> list[dict[str, Any]]:
    """The claims that another pool has given, no more than were asked for: each that begins here is one that we may be
    asked to pay for.

    Raises:
        NoWay: they are none.
    """
    found = answer.get("claims") if isinstance(answer, dict) else None
    if not isinstance(found, list) or not found or not all(is_claim(claim) for claim in found):
        raise NoWay("the other pool's answer has no claims that can be read")
    if len({(claim["startd"], claim["claim"]) for claim in found[:most]}) < len(found[:most]):
        raise NoWay("the other pool has given one claim twice")
    return found[:most]


def seconds_left(call: Call) -> float:
    """For how long the caller waits."""
    if call.deadline is None:
        return LONGEST
    return max(0.01, call.deadline - asyncio.get_running_loop().time())


def with_claim(params: Mapping[str, Any], claim: str) -> dict[str, Any]:
    """Parameters of a call about one claim, with another id of it."""
    return {**params, "claim": claim}


class ReadAhead:
    """The bytes of jobs that streams between two pools may carry ahead of their readers.

    A stream has a window for each connection that it passes. Between two pools, which may be far apart, an ordinary
    window would bring half a megabyte each round trip, however wide the windows of both ends are. A stream gets its
    part for as long as it lasts. Where many streams pass, new ones get less, so that their bytes cannot fill this
    node's memory, whatever the other pool sends.

    Attributes:
        left: bytes that are not given to a stream.
    """

    def __init__(self, most: int = ALL_AHEAD) -> None:
        self.left = most

    @contextlib.contextmanager
    def widen(self, *streams: Stream) -> Iterator[None]:
        """Let these streams' other sides send further ahead while the block lasts, which ends with the streams."""
        taken = 0
        try:
            for stream in streams:
                size = min(AHEAD, self.left // PART)
                if size > 0:
                    self.left, taken = self.left - size, taken + size
                    stream.raise_limit(size)
            yield
        finally:
            self.left += taken


async def join_streams(near: Stream, far: Stream, ahead: ReadAhead | None = None) -> None:
    """Pass items on in both directions until the method that serves `far` is done, or `near` is given up.

    Args:
        ahead: for streams that carry the bytes of jobs.

    Raises:
        RemoteError: that method raised it.
    """
    async with far:
        with contextlib.nullcontext() if ahead is None else ahead.widen(near, far):
            await pass_both_ways(near, far)


class Passing(Protocol):
    """A service whose methods pass calls and streams on."""

    async def pass_call(self, verb: str, call: Call, params: dict[str, Any]) -> Any:
        """Pass a call on; its result."""

    async def pass_stream(self, verb: str, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Pass a stream on until it is over."""


def passes(right: Right, calls: tuple[str, ...], streams: tuple[str, ...]) -> Callable[[Class], Class]:
    """Declare methods of these names that hand over to `pass_call` and `pass_stream` (see `Passing`).

    Raises:
        TypeError: the class has something of such a name already, which nobody would call any more.
    """

    def declare(service: Class) -> Class:
        passed = [(verb, method(right)(_passed_call(verb))) for verb in calls]
        passed += [(verb, streaming(right)(_passed_stream(verb))) for verb in streams]
        for verb, declared in passed:
            if hasattr(service, verb):
                raise TypeError(f"{service.__name__}.{verb} is there already, and would not be called")
            setattr(service, verb, declared)
        return service

    return declare


def _passed_call(verb: str) -> Any:
    async def passed(service: Passing, call: Call, params: dict[str, Any]) -> Any:
        return await service.pass_call(verb, call, params)

    return passed


def _passed_stream(verb: str) -> Any:
    async def passed(service: Passing, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await service.pass_stream(verb, call, params, stream)

    return passed

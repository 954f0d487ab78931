"""How much one side takes from the other. Announced in the hello, kept by the other side, enforced here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SMALLEST_FRAME = 64 * 1024  # bytes; every error fits


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on what arrives.

    Attributes:
        frame: bytes in one frame.
        requests: requests that have not been replied to.
        streams: streams opened by the other side that are not over.
        window: bytes of items in a stream that were sent and not used yet; the last item may go beyond.
    """

    frame: int
    requests: int
    streams: int
    window: int

    def to_wire(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_wire(cls, hello: Mapping[Any, Any]) -> Bounds:
        """The bounds in a hello.

        Raises:
            ValueError: one is missing or no reasonable number.
        """
        values: dict[str, int] = {}
        for name in cls.__slots__:
            value = hello.get(name)
            if type(value) is not int or not 0 <= value < 2**31:
                raise ValueError(name)
            values[name] = value
        if values["frame"] < SMALLEST_FRAME:
            raise ValueError(f"frames of at least {SMALLEST_FRAME} bytes are needed")
        return cls(**values)


#: Until it is known who is there, and for those who stay strangers.
STRANGER = Bounds(frame=SMALLEST_FRAME, requests=4, streams=0, window=0)
#: Nodes and users of the pool.
MEMBER = Bounds(frame=16 * 1024 * 1024, requests=1024, streams=1024, window=512 * 1024)

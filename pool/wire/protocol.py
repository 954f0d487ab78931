"""The protocol without any I/O: bytes in, events out; what is asked for, bytes out.

The messages (each is one frame, see `pool.wire.frames`), after the msgpack-rpc specification:

    [0, id, method, [params, seconds?]]     request; `seconds` is what is left until its deadline
    [1, id, error, result]                  reply; error is nil or [kind, message, hint, retry]
    [2, method, [params]]                   notification; the names that begin with `$` are the protocol's
                                            own: $hello, $bye, $cancel
    [3, id, step, value]                    stream, our addition: OPEN [method, params, seconds?], ITEM value,
                                            CREDIT bytes, FINISH nil, END error

Rules
1. Each side says `$hello` first: the version, the features it has, and its bounds. The side that connected speaks first
   and then waits; the other answers once it knows the caller's identity. Until then only a small frame is read.
   Versions differ in the major number: refused in words. Features are used when both sides name them.
2. Both sides may ask at any time after that. Ids count up. Each side has its own requests; streams are odd for the side
   that connected and even for the other. (The specification has 32 bits for an id; here 63 never wrap.)
3. A request is replied to exactly once, also when it was cancelled. Bounds that a side has announced are kept
   by the other: passing one is a fault, not a wish.
4. A stream has two halves, each OPEN until its side says FINISH or END. Both sides say END once, then the id is gone.
   END by the opener gives the stream up; END by the other is the result. Items that arrive for a half that this side
   has already ended are dropped.
5. A side sends items while it has credit, counted in bytes of their frames; the last may go beyond it. Credit
   starts at the window of the other's hello and comes back as the items are used.

A front end feeds what it read to `receive` and handles the events, asks by the other methods, and writes what
`take_output` returns. A fault of the other side is an event, `Closed`; a fault of this side is raised (`LocalFault`)
and changes nothing. Nothing here knows methods, identities or time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pool.wire.bounds import MEMBER, STRANGER, Bounds
from pool.wire.errors import LocalFault, RemoteFault, from_wire, to_wire
from pool.wire.events import (
    Cancel,
    Closed,
    Event,
    Hello,
    Notification,
    Reply,
    Request,
    StreamCredit,
    StreamEnded,
    StreamFinished,
    StreamItem,
    StreamOpened,
)
from pool.wire.frames import LARGE, Decoder, Encoder
from pool.wire.states import (
    FRAMES,
    HALVES,
    ConnectionPhase,
    FrameKind,
    StreamHalf,
    StreamStep,
)

VERSION = (2, 0)
FEATURES: frozenset[str] = frozenset()
LONGEST_METHOD = 200
LARGEST_ID = 2**63 - 1


@dataclass(slots=True)
class _Stream:
    ours: StreamHalf
    theirs: StreamHalf
    credit: int  # bytes we may send
    window: int  # bytes they may send


class Protocol:
    """One side of one connection.

    Args:
        opener: whether this side connected.
        hello: what else to say in the hello (name, software, token).
        bounds: what this side takes from the other.

    Attributes:
        phase: see `pool.wire.states`.
        peer: the bounds that the other side has announced.
        features: what both sides have.
        out: what is to be written; see `take_output`.
    """

    def __init__(self, *, opener: bool, hello: Mapping[str, Any] | None = None, bounds: Bounds = MEMBER) -> None:
        self.opener = opener
        self.phase = ConnectionPhase.GREETING
        self.bounds = bounds
        self.peer = STRANGER
        self.features: frozenset[str] = frozenset()
        self._hello = dict(hello or {})
        self._encoder = Encoder()
        self._decoder = Decoder(STRANGER.frame)
        self.out: list[bytes] = []
        self._next_request = 1
        self._asked: set[int] = set()
        self._cancelled: set[int] = set()
        self._serving: set[int] = set()
        self._last_request = 0
        self._next_stream = 1 if opener else 2
        self._last_stream = 0
        self._streams: dict[int, _Stream] = {}
        self._accepted = 0  # streams the other side has opened that are not over
        self._opened = 0  # streams this side has opened that are not over

    # -- what this side wants --------------------------------------------------------------------------------

    def send_hello(self, bounds: Bounds | None = None) -> None:
        """Say hello: at once by the side that connected, by the other when it knows who that is."""
        if self.closed:
            return
        if bounds is not None:
            self.bounds = bounds
        hello = {
            **self._hello,
            "version": list(VERSION),
            "features": sorted(FEATURES),
            **self.bounds.to_wire(),
        }
        self._append_frame([2, "$hello", [hello]], STRANGER.frame)
        if not self.opener:
            self.phase = ConnectionPhase.READY
            self._decoder.limit = self.bounds.frame

    @property
    def closed(self) -> bool:
        """Whether one side has said goodbye or was at fault."""
        return self.phase is ConnectionPhase.CLOSED

    @property
    def spare_requests(self) -> int:
        """How many more requests are within the other side's bounds."""
        return self.peer.requests - len(self._asked)

    @property
    def may_open(self) -> bool:
        """Whether one more stream is within the other side's bounds."""
        return self._opened < self.peer.streams

    def request(self, method: str, params: object, seconds: float | None = None) -> int:
        """Ask; returns the id that the `Reply` will have."""
        self._must_be_ready()
        if self.spare_requests <= 0:
            raise LocalFault(f"{self.peer.requests} requests are under way already", retry=True)
        number = self._next_request
        self._append_frame([0, number, method, [params] if seconds is None else [params, seconds]])
        self._next_request = number + 1
        self._asked.add(number)
        return number

    def cancel(self, number: int) -> None:
        """Give a request up. Its reply is still waited for, but not reported."""
        if number in self._asked and number not in self._cancelled and self.phase is ConnectionPhase.READY:
            self._append_frame([2, "$cancel", [number]])
            self._cancelled.add(number)

    def reply(self, number: int, result: object = None, error: BaseException | None = None) -> None:
        """Answer a request of the other side."""
        if number not in self._serving:
            raise LocalFault(f"there is no request {number} to answer")
        self._append_frame([1, number, to_wire(error), result])
        self._serving.discard(number)

    def notify(self, method: str, params: object) -> None:
        """Tell, without an answer."""
        self._must_be_ready()
        self._append_frame([2, method, [params]])

    def open(self, method: str, params: object, seconds: float | None = None) -> int:
        """Open a stream; returns its id."""
        self._must_be_ready()
        if not self.may_open:
            raise LocalFault(f"{self.peer.streams} streams are open already", hint="end some first", retry=True)
        number = self._next_stream
        value = [method, params] if seconds is None else [method, params, seconds]
        self._append_frame([3, number, int(StreamStep.OPEN), value])
        self._next_stream = number + 2
        self._opened += 1
        self._streams[number] = _Stream(StreamHalf.OPEN, StreamHalf.OPEN, self.peer.window, self.bounds.window)
        return number

    def credit(self, number: int) -> int:
        """How many bytes of items may be sent now."""
        stream = self._streams.get(number)
        return stream.credit if stream is not None else 0

    def send(self, number: int, item: object) -> int:
        """Send an item; returns the credit that is left (sending needs more than none)."""
        stream = self._stream(number)
        if stream.ours is not StreamHalf.OPEN:
            raise LocalFault("this side of the stream is finished")
        if stream.credit <= 0:
            raise LocalFault("the stream has no credit", retry=True)
        data = item[-1] if type(item) is list and 0 < len(item) < 15 else item
        if type(data) is bytes and len(data) > LARGE:
            within = item[:-1] if type(item) is list else None
            head, body = self._encoder.encode_bytes([3, number, int(StreamStep.ITEM)], data, self.peer.frame, within)
            self.out += (head, body)
            stream.credit -= len(head) + len(body)
        else:
            stream.credit -= self._append_frame([3, number, int(StreamStep.ITEM), item])
        return stream.credit

    def grant_credit(self, number: int, count: int) -> None:
        """Let the other side send that many bytes more."""
        stream = self._streams.get(number)
        if stream is None or stream.theirs is not StreamHalf.OPEN or stream.ours is StreamHalf.ENDED:
            return
        stream.window += count
        self._append_frame([3, number, int(StreamStep.CREDIT), count])

    def finish(self, number: int) -> None:
        """This side sends no more items."""
        stream = self._stream(number)
        if stream.ours is StreamHalf.OPEN:
            stream.ours = StreamHalf.FINISHED
            self._append_frame([3, number, int(StreamStep.FINISH), None])

    def end(self, number: int, error: BaseException | None = None) -> None:
        """This side is done with the stream: the result, or giving it up."""
        stream = self._streams.get(number)
        if stream is None or stream.ours is StreamHalf.ENDED:
            return
        self._append_frame([3, number, int(StreamStep.END), to_wire(error)])
        stream.ours = StreamHalf.ENDED
        self._forget_if_over(number, stream)

    def send_goodbye(self, error: BaseException | None = None) -> None:
        """Say why this side closes; nothing is read or asked after that."""
        if not self.closed:
            self._append_frame([2, "$bye", [to_wire(error)]], STRANGER.frame)
            self.phase = ConnectionPhase.CLOSED

    # -- bytes -----------------------------------------------------------------------------------------------

    def take_output(self) -> list[bytes]:
        """The bytes to write, in pieces; they are removed here."""
        out, self.out = self.out, []
        return out

    def receive(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """The meaning of the bytes."""
        events: list[Event] = []
        if self.closed:
            return events
        try:
            for frame, size in self._decoder.decode(data):
                if self.closed:
                    break
                event = self._frame(frame, size)
                if event is not None:
                    events.append(event)
        except RemoteFault as fault:
            if not self.closed:
                self.send_goodbye(fault)
                events.append(Closed(fault.with_traceback(None)))
        return events

    def _frame(self, frame: Any, size: int) -> Event | None:
        if type(frame) is not list or not frame:
            raise RemoteFault("a frame is not a list")
        kind, parts = frame[0], len(frame)
        if parts == 4 and type(frame[1]) is int:
            _, number, third, fourth = frame
            if kind == 0 and type(third) is str and type(fourth) is list:
                self._allowed(FrameKind.REQUEST)
                return self._on_request(number, third, fourth)
            if kind == 1:
                self._allowed(FrameKind.REPLY)
                return self._on_reply(number, third, fourth)
            if kind == 3 and type(third) is int:
                self._allowed(FrameKind.STREAM)
                return self._on_stream(number, third, fourth, size)
        elif kind == 2 and parts == 3 and type(frame[1]) is str and type(frame[2]) is list and len(frame[2]) == 1:
            return self._on_notification(frame[1], frame[2][0])
        raise RemoteFault(f"a frame of no known form ({kind!r:.40}, {parts} parts)")

    # -- frames ----------------------------------------------------------------------------------------------

    def _on_notification(self, method: str, value: Any) -> Event | None:
        if not method.startswith("$"):
            self._allowed(FrameKind.NOTIFICATION)
            return Notification(_name(method), value)
        if method == "$hello":
            self._allowed(FrameKind.HELLO)
            return self._on_hello(value)
        if method == "$cancel":
            self._allowed(FrameKind.CANCEL)
            if type(value) is not int or not 0 < value <= self._last_request:
                raise RemoteFault("a cancellation of a request that was not made")
            return Cancel(value) if value in self._serving else None
        if method == "$bye":
            self._allowed(FrameKind.BYE)
            reason = None if value is None else from_wire(value)
            self.phase = ConnectionPhase.CLOSED
            return Closed(reason)
        raise RemoteFault(f"an unknown notice {method:.40}")

    def _on_hello(self, value: Any) -> Event:
        match value:
            case {"version": [int(major), int(minor)], "features": [*features]} if minor >= 0:
                pass
            case _:
                raise RemoteFault("a hello without version and features")
        if major != VERSION[0]:
            raise RemoteFault(
                f"it speaks version {major} of the protocol, here it is {VERSION[0]}",
                hint="run versions of poolnode that are nearer to each other",
            )
        try:
            self.peer = Bounds.from_wire(value)
        except ValueError as error:
            raise RemoteFault(f"a hello with wrong bounds: {error}") from None
        self.features = FEATURES & {feature for feature in features if isinstance(feature, str)}
        if self.opener:
            self.phase = ConnectionPhase.READY
            self._decoder.limit = self.bounds.frame
        else:
            self.phase = ConnectionPhase.IDENTIFYING
        return Hello(value)

    def _on_request(self, number: int, method: str, rest: list[Any]) -> Event:
        if not self._last_request < number <= LARGEST_ID:
            raise RemoteFault(f"request {number} comes after {self._last_request}")
        if len(self._serving) >= self.bounds.requests:
            raise RemoteFault(f"more than {self.bounds.requests} requests at a time")
        if len(rest) not in (1, 2):
            raise RemoteFault("a request without parameters")
        self._last_request = number
        self._serving.add(number)
        return Request(number, _name(method), rest[0], _seconds(rest[1:]))

    def _on_reply(self, number: int, error: Any, result: Any) -> Event | None:
        if number not in self._asked:
            raise RemoteFault(f"a reply to request {number}, which was not made")
        self._asked.discard(number)
        failed = None if error is None else from_wire(error)
        if number in self._cancelled:
            self._cancelled.discard(number)
            return Reply(number, None, None, True)
        return Reply(number, failed, result, False)

    def _on_stream(self, number: int, step: int, value: Any, size: int) -> Event | None:
        if step == StreamStep.OPEN:
            return self._on_open(number, value)
        stream = self._streams.get(number)
        if stream is None:
            raise RemoteFault(f"a frame for stream {number}, which is not open")
        try:
            stream.theirs = HALVES[stream.theirs, StreamStep(step)]
        except (KeyError, ValueError):
            raise RemoteFault(f"step {step} in a stream whose half is {stream.theirs.name}") from None
        dropped = stream.ours is StreamHalf.ENDED
        if step == StreamStep.ITEM:
            if stream.window <= 0:
                raise RemoteFault(f"an item beyond the credit of stream {number}")
            stream.window -= size
            return None if dropped else StreamItem(number, value, size)
        if step == StreamStep.CREDIT:
            if type(value) is not int or not 0 < value <= LARGEST_ID:
                raise RemoteFault("a wrong amount of credit")
            stream.credit = min(stream.credit + value, LARGEST_ID)
            return None if dropped else StreamCredit(number)
        if step == StreamStep.FINISH:
            return None if dropped else StreamFinished(number)
        failed = None if value is None else from_wire(value)
        if not dropped and self._is_ours(number):
            self._append_frame([3, number, int(StreamStep.END), None])
            stream.ours = StreamHalf.ENDED
        self._forget_if_over(number, stream)
        return None if dropped else StreamEnded(number, failed)

    def _on_open(self, number: int, value: Any) -> Event:
        if self._is_ours(number) or not self._last_stream < number <= LARGEST_ID:
            raise RemoteFault(f"stream {number} comes after {self._last_stream}")
        if self._accepted >= self.bounds.streams:
            raise RemoteFault(f"more than {self.bounds.streams} streams at a time")
        match value:
            case [str(method), params, *rest] if len(rest) < 2:
                seconds = _seconds(rest)
            case _:
                raise RemoteFault("a stream without a method")
        self._last_stream = number
        self._accepted += 1
        self._streams[number] = _Stream(StreamHalf.OPEN, StreamHalf.OPEN, self.peer.window, self.bounds.window)
        return StreamOpened(number, _name(method), params, seconds)

    # -- small things ----------------------------------------------------------------------------------------

    def _allowed(self, frame: FrameKind) -> None:
        if (self.phase, frame) not in FRAMES:
            raise RemoteFault(f"a {frame.name.lower()} in phase {self.phase.name.lower()}")

    def _must_be_ready(self) -> None:
        if self.phase is not ConnectionPhase.READY:
            raise LocalFault(f"the connection is {self.phase.name.lower()}")

    def _stream(self, number: int) -> _Stream:
        stream = self._streams.get(number)
        if stream is None or self.phase is not ConnectionPhase.READY:
            raise LocalFault("the stream has ended")
        return stream

    def _is_ours(self, number: int) -> bool:
        return number % 2 == (1 if self.opener else 0)

    def _forget_if_over(self, number: int, stream: _Stream) -> None:
        if stream.ours is StreamHalf.ENDED and stream.theirs is StreamHalf.ENDED:
            del self._streams[number]
            if self._is_ours(number):
                self._opened -= 1
            else:
                self._accepted -= 1

    def _append_frame(self, value: object, limit: int | None = None) -> int:
        header, body = self._encoder.encode(value, self.peer.frame if limit is None else limit)
        if len(body) > LARGE:
            self.out += (header, body)
        else:
            self.out.append(header + body)
        return len(body) + 4


def _name(method: str) -> str:
    if not 0 < len(method) <= LONGEST_METHOD:
        raise RemoteFault("a method name of no or too many letters")
    return method


def _seconds(rest: list[Any]) -> float | None:
    if not rest or rest[0] is None:
        return None
    seconds = rest[0]
    if type(seconds) not in (int, float) or not 0 <= seconds <= 1e12:
        raise RemoteFault("a deadline that is no number of seconds")
    return float(seconds)

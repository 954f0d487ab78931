"""The protocol core: two of them talk without any I/O; rules kept, rules broken, and bytes from nowhere."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pool.wire import events as ev
from pool.wire.bounds import MEMBER, STRANGER, Bounds
from pool.wire.errors import Cancelled, LocalFault, NotPermitted, RemoteError, RemoteFault
from pool.wire.frames import HEADER
from pool.wire.protocol import VERSION, Protocol
from pool.wire.states import FRAMES, HALVES, ConnectionPhase, FrameKind, StreamHalf, StreamStep

SMALL = Bounds(frame=64 * 1024, requests=3, streams=2, window=1000)
HELLO = {"version": list(VERSION), "features": [], **MEMBER.to_wire()}


def frame(value: object) -> bytes:
    body: bytes = msgpack.packb(value)
    return HEADER.pack(len(body)) + body


def pair(bounds: Bounds = SMALL) -> tuple[Protocol, Protocol]:
    """The side that connected and the other one, both ready."""
    one, two = Protocol(opener=True, bounds=bounds), Protocol(opener=False, bounds=bounds)
    one.send_hello()
    (hello,) = carry(one, two)
    assert isinstance(hello, ev.Hello)
    two.send_hello()
    carry(two, one)
    assert one.phase is two.phase is ConnectionPhase.READY
    return one, two


def carry(source: Protocol, target: Protocol) -> list[ev.Event]:
    return target.receive(b"".join(source.take_output()))


def faulty(core: Protocol, *frames: object) -> str:
    """The answer of a core to frames it must refuse."""
    events = core.receive(b"".join(map(frame, frames)))
    closed = events[-1]
    assert isinstance(closed, ev.Closed)
    assert isinstance(closed.reason, RemoteFault)
    assert core.phase is ConnectionPhase.CLOSED
    (bye,) = core.take_output()[-1:]
    assert msgpack.unpackb(bye[4:])[1] == "$bye"
    assert core.receive(frame([2, "x", [{}]])) == []
    return closed.reason.message


# -- as it should be -----------------------------------------------------------------------------------------


def test_a_request_and_its_reply() -> None:
    one, two = pair()
    number = one.request("a.b", {"x": 1}, 2.5)
    assert carry(one, two) == [ev.Request(number, "a.b", {"x": 1}, 2.5)]
    two.reply(number, [7])
    assert carry(two, one) == [ev.Reply(number, None, [7], False)]
    number = two.request("c.d", None)
    assert carry(two, one) == [ev.Request(number, "c.d", None, None)]
    one.reply(number, None, NotPermitted("no", hint="ask"))
    (reply,) = carry(one, two)
    assert isinstance(reply, ev.Reply)
    assert isinstance(reply.error, RemoteError)
    assert (reply.error.kind, reply.error.message, reply.error.hint) == ("NotPermitted", "no", "ask")
    with pytest.raises(LocalFault):
        one.reply(number, 1)


def test_requests_look_like_msgpack_rpc() -> None:
    one, two = pair()
    one.request("a.b", {"x": 1})
    one.notify("a.c", {})
    assert [msgpack.unpackb(piece[4:]) for piece in one.take_output()] == [
        [0, 1, "a.b", [{"x": 1}]],
        [2, "a.c", [{}]],
    ]
    two.receive(frame([0, 1, "a.b", [1]]))
    two.reply(1, "r")
    assert [msgpack.unpackb(piece[4:]) for piece in two.take_output()] == [[1, 1, None, "r"]]


def test_a_cancelled_request_is_still_replied_to() -> None:
    one, two = pair()
    number = one.request("a.b", {})
    one.cancel(number)
    one.cancel(number)
    assert carry(one, two) == [ev.Request(number, "a.b", {}, None), ev.Cancel(number)]
    two.reply(number, None, Cancelled("given up"))
    assert carry(two, one) == [ev.Reply(number, None, None, True)]
    assert one.spare_requests == SMALL.requests


def test_a_cancellation_that_crosses_the_reply() -> None:
    one, two = pair()
    number = one.request("a.b", {})
    carry(one, two)
    two.reply(number, 1)
    one.cancel(number)
    assert carry(one, two) == []
    assert carry(two, one) == [ev.Reply(number, None, None, True)]


def test_bounds_are_kept_by_who_asks() -> None:
    one, _ = pair()
    for _ in range(SMALL.requests):
        one.request("a.b", {})
    with pytest.raises(LocalFault, match="3 requests"):
        one.request("a.b", {})
    for _ in range(SMALL.streams):
        one.open("a.b", {})
    with pytest.raises(LocalFault, match="2 streams"):
        one.open("a.b", {})
    with pytest.raises(LocalFault, match="at most 65536"):
        one.notify("a.b", b"x" * 70_000)


def test_a_stream_in_both_directions() -> None:
    one, two = pair()
    number = one.open("a.b", {"x": 1}, 9)
    assert carry(one, two) == [ev.StreamOpened(number, "a.b", {"x": 1}, 9.0)]
    one.send(number, "up")
    one.finish(number)
    two.send(number, "down")
    up, finished = carry(one, two)
    assert isinstance(up, ev.StreamItem)
    assert up.item == "up"
    assert finished == ev.StreamFinished(number)
    two.end(number)
    down, ended = carry(two, one)
    assert isinstance(down, ev.StreamItem)
    assert ended == ev.StreamEnded(number, None)
    assert carry(one, two) == []
    assert not one._streams
    assert not two._streams
    with pytest.raises(LocalFault):
        one.send(number, 1)


def test_credit_runs_out_and_comes_back() -> None:
    one, two = pair()
    number = one.open("a.b", {})
    sent = 0
    while one.credit(number) > 0:
        sent += 1
        one.send(number, b"x" * 100)
    assert sent == 10
    with pytest.raises(LocalFault, match="no credit"):
        one.send(number, b"x")
    items = [event for event in carry(one, two) if isinstance(event, ev.StreamItem)]
    two.grant_credit(number, sum(item.size for item in items))
    assert carry(two, one) == [ev.StreamCredit(number)]
    assert one.credit(number) == SMALL.window


def test_giving_a_stream_up_while_the_other_side_sends() -> None:
    one, two = pair()
    number = one.open("a.b", {})
    carry(one, two)
    two.send(number, "on its way")
    one.end(number, Cancelled("enough"))
    (ended,) = carry(one, two)
    assert isinstance(ended, ev.StreamEnded)
    assert ended.error is not None
    two.send(number, "not known to be useless")
    two.finish(number)
    two.end(number)
    two.grant_credit(number, 5)
    assert carry(two, one) == []
    assert not one._streams
    assert not two._streams


def test_a_hello_that_is_not_answered_yet() -> None:
    two = Protocol(opener=False)
    two.receive(frame([2, "$hello", [HELLO]]))
    assert two.phase is ConnectionPhase.IDENTIFYING
    with pytest.raises(LocalFault):
        two.request("a.b", {})
    assert "request in phase identifying" in faulty(two, [0, 1, "a.b", [{}]])


def test_goodbye_with_and_without_a_reason() -> None:
    one, two = pair()
    one.send_goodbye()
    assert carry(one, two) == [ev.Closed(None)]
    one, two = pair()
    two.send_goodbye(NotPermitted("too late"))
    (closed,) = carry(two, one)
    assert isinstance(closed, ev.Closed)
    assert closed.reason is not None
    assert closed.reason.message == "too late"
    for act in (lambda: one.request("a", {}), lambda: one.notify("a", {}), lambda: one.open("a", {})):
        with pytest.raises(LocalFault):
            act()


# -- as it should not be -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ([0, 1, "a.b", [{}]], "a request in phase greeting"),
        ([2, "a.b", [{}]], "a notification in phase greeting"),
        ([2, "$cancel", [1]], "a cancel in phase greeting"),
        ([3, 1, 0, ["a.b", {}]], "a stream in phase greeting"),
        ([1, 1, None, None], "a reply in phase greeting"),
        ([2, "$hello", [{}]], "without version"),
        ([2, "$hello", [7]], "without version"),
        ([2, "$hello", [{**HELLO, "version": [VERSION[0]]}]], "without version"),
        ([2, "$hello", [{**HELLO, "version": [VERSION[0] + 1, 0]}]], f"speaks version {VERSION[0] + 1}"),
        ([2, "$hello", [{**HELLO, "frame": 10}]], "wrong bounds"),
        ([2, "$hello", [{**HELLO, "window": -1}]], "wrong bounds: window"),
        ([2, "$hello", [{**HELLO, "streams": 2**40}]], "wrong bounds: streams"),
        ([2, "$hello", [{**HELLO, "requests": True}]], "wrong bounds: requests"),
        ([2, "$else", [1]], "unknown notice"),
        ([9, 1], "no known form"),
        ([], "not a list"),
        ({}, "not a list"),
        (7, "not a list"),
        ("x" * 70_000, "where 65536 are allowed"),
    ],
)
def test_what_a_first_frame_must_not_be(first: object, said: str) -> None:
    assert said in faulty(Protocol(opener=False), first)


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ([[2, "$hello", [HELLO]]], "a hello in phase ready"),
        ([[0, 1, "a", [1]], [0, 1, "a", [1]]], "request 1 comes after 1"),
        ([[0, 2**63, "a", [1]]], "comes after"),
        ([[0, -1, "a", [1]]], "comes after"),
        ([[0, 1, "", [1]]], "method name"),
        ([[0, 1, "a" * 201, [1]]], "method name"),
        ([[0, 1, "a", []]], "without parameters"),
        ([[0, 1, "a", [1, 2, 3]]], "without parameters"),
        ([[0, 1, "a", [1, "soon"]]], "no number of seconds"),
        ([[0, 1, "a", [1, -1]]], "no number of seconds"),
        ([[0, 1, "a", [1, float("nan")]]], "no number of seconds"),
        ([[0, 1, "a", [1, float("inf")]]], "no number of seconds"),
        ([[0, n, "a", [1]] for n in range(1, 5)], "more than 3 requests"),
        ([[1, 1, None, None]], "which was not made"),
        ([[2, "$cancel", [1]]], "was not made"),
        ([[2, "$cancel", ["x"]]], "was not made"),
        ([[2, "$bye", ["x"]]], "an error is not"),
        ([[2, "a", [1, 2]]], "no known form"),
        ([[3, 1, 1, "x"]], "which is not open"),
        ([[3, 2, 0, ["a", 1]]], "comes after"),
        ([[3, 1, 0, ["a", 1]], [3, 1, 0, ["a", 1]]], "comes after"),
        ([[3, n, 0, ["a", 1]] for n in (1, 3, 5)], "more than 2 streams"),
        ([[3, 1, 0, "a"]], "without a method"),
        ([[3, 1, 0, ["a"]]], "without a method"),
        ([[3, 1, 0, ["a", 1]], [3, 1, 9, 1]], "step 9"),
        ([[3, 1, 0, ["a", 1]], [3, 1, 3, None], [3, 1, 1, 1]], "step 1 in a stream whose half is FINISHED"),
        ([[3, 1, 0, ["a", 1]], [3, 1, 4, None], [3, 1, 2, 1]], "step 2 in a stream whose half is ENDED"),
        ([[3, 1, 0, ["a", 1]], [3, 1, 2, 0]], "amount of credit"),
        ([[3, 1, 0, ["a", 1]], [3, 1, 2, "x"]], "amount of credit"),
        ([[3, 1, 0, ["a", 1]], [3, 1, 4, "x"]], "an error is not"),
        ([[3, 1, 0, ["a", 1]], [3, 1, 1, b"x" * 1000], [3, 1, 1, 1]], "beyond the credit"),
    ],
)
def test_what_a_peer_must_not_send(frames: list[object], said: str) -> None:
    assert said in faulty(pair()[1], *frames)


def test_what_was_good_before_the_fault_is_reported() -> None:
    _, two = pair()
    events = two.receive(frame([2, "a.b", [1]]) + frame([9]) + frame([2, "a.c", [1]]))
    assert events[0] == ev.Notification("a.b", 1)
    assert isinstance(events[1], ev.Closed)
    assert len(events) == 2


def test_strangers_get_little() -> None:
    two = Protocol(opener=False)
    two.receive(frame([2, "$hello", [HELLO]]))
    two.send_hello(STRANGER)
    assert "where 65536" in faulty(two, [0, 1, "a.b", [b"x" * 70_000]])


def test_the_tables_cover_every_state() -> None:
    assert {phase for phase, _ in FRAMES} == set(ConnectionPhase) - {ConnectionPhase.CLOSED}
    assert {step for _, step in FRAMES} == set(FrameKind)
    assert {half for half, _ in HALVES} == set(StreamHalf) - {StreamHalf.ENDED}
    assert {step for _, step in HALVES} == set(StreamStep) - {StreamStep.OPEN}


# -- from nowhere --------------------------------------------------------------------------------------------

small: Any = st.none() | st.booleans() | st.integers(-2, 6) | st.text(max_size=3) | st.floats() | st.binary(max_size=3)
nested: Any = st.recursive(
    small | st.sampled_from(["$hello", "$bye", "$cancel", "a.b"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


@given(st.lists(st.binary(max_size=100), max_size=4))
def test_random_bytes_never_raise(pieces: list[bytes]) -> None:
    for core in (Protocol(opener=False), *pair()):
        for piece in pieces:
            core.receive(piece)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(nested, max_size=6))
def test_random_frames_never_raise(frames: list[Any]) -> None:
    for core in (Protocol(opener=False), *pair()):
        for value in frames:
            core.receive(frame(value))


def test_good_talk_with_flipped_bits_never_raises() -> None:
    chance = random.Random(11)
    for _ in range(300):
        one, two = pair()
        for _ in range(3):
            one.request("a.b", {"x": [1, 2, "three"]}, 1.5)
        stream = one.open("c.d", {})
        one.send(stream, b"item")
        one.finish(stream)
        data = bytearray(b"".join(one.take_output()))
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        while data:
            size = chance.randrange(1, len(data) + 1)
            for event in two.receive(bytes(data[:size])):
                assert event is not None
            del data[:size]


class Talk(RuleBasedStateMachine):
    """Two cores that do whatever they may, with bytes that arrive in pieces of any size: nobody is ever at
    fault."""

    def __init__(self) -> None:
        super().__init__()
        self.cores = pair()
        self.wires = [bytearray(), bytearray()]
        self.serving: list[set[int]] = [set(), set()]
        self.asked: list[set[int]] = [set(), set()]
        self.streams: list[dict[int, str]] = [{}, {}]

    sides = st.integers(0, 1)

    @rule(side=sides)
    def ask(self, side: int) -> None:
        if self.cores[side].spare_requests > 0:
            self.asked[side].add(self.cores[side].request("a.b", {}))

    @rule(side=sides)
    def tell(self, side: int) -> None:
        self.cores[side].notify("a.b", {})

    @rule(side=sides, data=st.data())
    def cancel(self, side: int, data: st.DataObject) -> None:
        if self.asked[side]:
            self.cores[side].cancel(data.draw(st.sampled_from(sorted(self.asked[side]))))

    @rule(side=sides, data=st.data())
    def reply(self, side: int, data: st.DataObject) -> None:
        if self.serving[side]:
            number = data.draw(st.sampled_from(sorted(self.serving[side])))
            self.serving[side].discard(number)
            self.cores[side].reply(number, "result")

    @rule(side=sides)
    def open(self, side: int) -> None:
        if self.cores[side].may_open:
            self.streams[side][self.cores[side].open("a.b", {})] = "open"

    @rule(side=sides, data=st.data(), size=st.integers(0, 700))
    def send(self, side: int, data: st.DataObject, size: int) -> None:
        ready = [n for n, s in self.streams[side].items() if s == "open" and self.cores[side].credit(n) > 0]
        if ready:
            self.cores[side].send(data.draw(st.sampled_from(ready)), b"x" * size)

    @rule(side=sides, data=st.data(), error=st.booleans())
    def end(self, side: int, data: st.DataObject, error: bool) -> None:
        if self.streams[side]:
            number = data.draw(st.sampled_from(sorted(self.streams[side])))
            del self.streams[side][number]
            self.cores[side].end(number, Cancelled("so") if error else None)

    @rule(side=sides, data=st.data())
    def finish(self, side: int, data: st.DataObject) -> None:
        if self.streams[side]:
            number = data.draw(st.sampled_from(sorted(self.streams[side])))
            self.streams[side][number] = "finished"
            self.cores[side].finish(number)

    @precondition(lambda self: any(self.wires))
    @rule(side=sides, data=st.data())
    def arrive(self, side: int, data: st.DataObject) -> None:
        wire = self.wires[side]
        if not wire:
            return
        size = data.draw(st.integers(1, len(wire)))
        piece = bytes(wire[:size])
        del wire[:size]
        other = 1 - side
        for event in self.cores[other].receive(piece):
            match event:
                case ev.Request(number):
                    self.serving[other].add(number)
                case ev.Reply(number):
                    self.asked[other].discard(number)
                case ev.StreamOpened(number):
                    self.streams[other][number] = "open"
                case ev.StreamItem(number, _, size):
                    self.cores[other].grant_credit(number, size)
                case ev.StreamEnded(number):
                    if number % 2 == (1 if self.cores[other].opener else 0):
                        self.streams[other].pop(number, None)
                case ev.Closed():
                    raise AssertionError(event)

    @invariant()
    def all_goes_on_the_wire(self) -> None:
        for side in (0, 1):
            self.wires[side] += b"".join(self.cores[side].take_output())
            assert self.cores[side].phase is ConnectionPhase.READY


TestTalk = Talk.TestCase
TestTalk.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

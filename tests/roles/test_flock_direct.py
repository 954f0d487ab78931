"""Worlds and direct connections: nothing passes without consent, and no address outside the agreement."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pool.policy.flock.agreements import FlockAgreement
from pool.policy.flock.direct import DirectTerms, NotDirect, hosts_of, read_networks
from pool.roles.world.borrowing import ComingBack, MachineBorrower
from pool.roles.world.lending import GuestSchedd, MachineLender
from pool.roles.world.relay import ASKS_DIRECT, OFFER, ClaimRoute
from pool.roles.world.role import World
from pool.wire import Call, Dispatcher, Service, method, own_identity
from pool.wire.local import LocalConnection

OFFERED = {"address": "tcp://192.0.2.1:9618", "ticket": "t", "key": bytes(32)}
#: Where another pool may want our machines to connect: none of it is in the agreement.
LIES = (
    *("tcp://169.254.169.254:80", "tcp://127.0.0.1:22", "tcp://[::1]:22", "tcp://0.0.0.0:22", "tcp://192.0.2.9:9618"),
    *("tcp://198.51.100.7:443", "unix:///run/docker.sock", "tcp://metadata.internal:80", "local:"),
)
CLAIM = ClaimRoute("chem", "tcp://192.0.2.1:9618", "secret")


class Far(Service):
    """The other side: the schedd, the startd or the world that is asked."""

    def __init__(self, answer: Any = OFFERED) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    async def _answered(self, params: dict[str, Any]) -> Any:
        self.asked.append(params)
        return self.answer

    @method(None)
    async def pass_back(self, call: Call, params: dict[str, Any]) -> Any:
        return await self._answered(params)

    @method(None)
    async def direct_to_part(self, call: Call, params: dict[str, Any]) -> Any:
        return await self._answered(params)

    @method(None)
    async def direct_from_part(self, call: Call, params: dict[str, Any]) -> Any:
        return await self._answered(params)

    async def call(self, method: str, params: Any, timeout: float) -> Any:
        return await self._answered(params)


def connection(name: str, service: Service) -> LocalConnection:
    dispatcher = Dispatcher()
    dispatcher.add(name, service)
    return LocalConnection(dispatcher, own_identity("home"))


def terms(*networks: str) -> Callable[[str], DirectTerms]:
    own = hosts_of(["tcp://192.0.2.9:9618"])
    return lambda pool: DirectTerms(pool, read_networks(networks), own)


def silent() -> Any:
    return SimpleNamespace(called=lambda *a, **k: None, over=lambda *a, **k: None)


def asks_for_a_part_here(far: Far, agreed: Callable[[str], DirectTerms]) -> Any:
    """A machine of ours, lent to another pool, asks its schedd where a part of its job in a third pool is."""
    credit = cast(Any, SimpleNamespace(measures=silent()))
    back = connection("world_back", far)
    unused = cast(Any, None)
    guest = GuestSchedd(
        "home", "sub", "startd", lambda: back, credit, unused, unused, unused, addresses=frozenset, direct=agreed
    )
    return guest.pass_call(ASKS_DIRECT[0], Call(own_identity("bench"), back), {"claim": "secret", "run": 1})


def asks_for_one_there(far: Far, agreed: Callable[[str], DirectTerms]) -> Any:
    """A schedd of ours asks where its part on a machine of another pool is."""
    credit = cast(Any, SimpleNamespace(measures=silent()))
    given: dict[str, Any] = {"node": "world", "address": str, "spawn": None, "log": logging.getLogger("test")}
    world = MachineBorrower(
        credit, cast(Any, None), cast(Any, None), **given, lender=lambda pool: cast(Any, far), direct=agreed
    )
    link = connection("world", far)
    return cast(Any, world).pass_call(OFFER, Call(own_identity("sub"), link), {"claim": CLAIM.id, "run": 1})


def is_asked_by_another_pool(far: Far, agreed: Callable[[str], DirectTerms]) -> Any:
    """A machine of another pool asks a schedd of ours where the other part of its job is."""
    borrowing = SimpleNamespace(schedd=lambda name: connection("schedd", far), direct=agreed)
    credit = cast(Any, SimpleNamespace(measures=silent()))
    back = ComingBack("chem", cast(Any, borrowing), credit, logging.getLogger("test"))
    params = {"schedd": "sub", "startd": CLAIM.startd, "verb": ASKS_DIRECT[0], "params": {"claim": "secret", "run": 1}}
    return back.pass_back(Call(own_identity("chem"), connection("x", far)), params)


def offers_to_another_pool(far: Far, agreed: Callable[[str], DirectTerms]) -> Any:
    """A schedd of another pool asks a machine of ours, lent to it, for an offer."""

    async def tunnel(call: Call, params: dict[str, Any]) -> LocalConnection:
        return connection("startd", far)

    world = SimpleNamespace(_direct_terms=agreed, _tunnel=tunnel, credit=SimpleNamespace(measures=silent()))
    call = Call(own_identity("chem"), connection("x", far))
    params = {"schedd": "sub", "startd": CLAIM.startd, "verb": OFFER, "params": {"claim": "secret", "run": 1}}
    return World.pass_call(cast(Any, world), call, params)


WAYS = (asks_for_a_part_here, asks_for_one_there, is_asked_by_another_pool, offers_to_another_pool)


@pytest.mark.parametrize("way", WAYS)
async def test_a_pool_that_does_not_consent_asks_and_tells_nothing(way: Any) -> None:
    far = Far()
    with pytest.raises(NotDirect, match="do not connect directly"):
        await way(far, terms())
    assert not far.asked


@pytest.mark.parametrize("way", WAYS)
async def test_with_consent_the_offer_passes(way: Any) -> None:
    assert await way(Far(), terms("192.0.2.0/24")) == OFFERED


@pytest.mark.parametrize("way", WAYS[:2])
@pytest.mark.parametrize("address", LIES)
async def test_an_address_that_the_agreement_does_not_name_does_not_pass(way: Any, address: str) -> None:
    with pytest.raises(NotDirect):
        await way(Far({**OFFERED, "address": address}), terms("192.0.2.0/24"))


@pytest.mark.parametrize("way", WAYS[:2])
@pytest.mark.parametrize("answer", [None, [], {}, {**OFFERED, "key": b""}, {**OFFERED, "ticket": ["t"]}])
async def test_an_offer_of_no_sense_does_not_pass(way: Any, answer: Any) -> None:
    with pytest.raises(NotDirect):
        await way(Far(answer), terms("192.0.2.0/24"))


class Reloading:
    """A world whose flock file changes, and the pools of which it ended direct connections."""

    def __init__(self, before: Sequence[FlockAgreement], after: Sequence[FlockAgreement]) -> None:
        self.ended: list[str] = []
        world = cast(Any, World.__new__(World))
        world._agreements, world._leaving, world._lenders, world._borrowers = _by_pool(before), set(), {}, {}
        world._read = lambda: _by_pool(after)
        world._admitting_pools = list
        world._end_direct = self.ended.append
        world.given = SimpleNamespace(aside=None)
        world.credit = SimpleNamespace(measures=SimpleNamespace(terms_change=lambda: None))
        world.private_lending = SimpleNamespace(guests={})
        world.reload(SimpleNamespace(number=lambda name: 1.0, flag=lambda name: True))


def _by_pool(agreements: Sequence[FlockAgreement]) -> dict[str, FlockAgreement]:
    return {one.pool: one for one in agreements}


def test_a_reload_ends_what_is_agreed_no_more() -> None:
    one, two = read_networks(["192.0.2.0/24"]), read_networks(["192.0.2.0/24", "198.51.100.0/24"])
    before = {"less": two, "none": one, "gone": one, "more": one, "same": one, "never": ()}
    after = {"less": one, "none": (), "more": two, "same": one, "never": one}
    found = [[FlockAgreement(pool, direct=networks) for pool, networks in said.items()] for said in (before, after)]
    assert sorted(Reloading(*found).ended) == ["gone", "less", "none"]


async def test_withdrawn_consent_reaches_each_claim_of_that_pool() -> None:
    """Also when one startd does not answer."""
    asked: list[tuple[str, Any]] = []

    class Startd:
        def __init__(self, name: str) -> None:
            self.name = name

        async def call(self, method: str, params: Any, timeout: float) -> None:
            if self.name == "dead":
                raise TimeoutError
            asked.append((method, params))

    async def tunnel(pool: str, schedd: str, startd: str) -> Startd:
        assert pool == "chem"
        return Startd(startd)

    claims = [("sub", "dead", "1"), ("sub", "one", "2"), ("other", "two", "3")]
    lender = SimpleNamespace(
        claims=SimpleNamespace(of_pool=lambda pool: claims), tunnel=tunnel, _log=logging.getLogger("test")
    )
    await MachineLender.withdraw_direct(cast(Any, lender), "chem")
    assert asked == [("startd.end_direct", {"claim": "2"}), ("startd.end_direct", {"claim": "3"})]

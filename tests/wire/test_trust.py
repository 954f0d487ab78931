"""TLS between nodes, joining and users by token: who gets in, and by what name everybody else is refused."""

from __future__ import annotations

import asyncio
import random
import ssl
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from pool.outside import OutsideWorld
from pool.wire import (
    CannotConnect,
    ConnectionLost,
    Dispatcher,
    RealNetwork,
    RemoteError,
    Right,
    Server,
    own_identity,
)
from pool.wire import join as joining
from pool.wire.authority import Authority, JoinService, NodeNameTaken
from pool.wire.certificates import BadRequest, new_key, new_request
from pool.wire.credentials import Credentials
from pool.wire.join import AnotherPool, CannotJoin, join, user_credentials
from pool.wire.tokens import Token, TokenStore, WrongToken
from pool.wire.trust_files import TrustError
from tests.wire.services import Echo, soon

NOW = 1_800_000_000.0
PORT = "tcp://127.0.0.1:0"


class Clock:
    """A wall clock that tests set."""

    def __init__(self) -> None:
        self.now = time.time()

    def outside(self) -> OutsideWorld:
        return OutsideWorld(wall=lambda: self.now, chance=random.Random(1))


class Head:
    """A pool's first node: authority, tokens, gate, and the methods of `Echo`."""

    def __init__(self, directory: Path, clock: Clock, pool: str = "ours") -> None:
        self.clock = clock
        self.authority = Authority.open(directory / "authority", pool, clock.outside())
        self.tokens = TokenStore(directory / "tokens.json", clock.outside())
        self.credentials = Credentials.create(directory / "trust", self.authority, "head", ["collector"])
        self.echo = Echo()
        self.dispatcher = Dispatcher()
        self.dispatcher.add("echo", self.echo)
        self.dispatcher.add("node", JoinService(self.authority, self.tokens))
        self.network = RealNetwork(self.dispatcher, own_identity("head"), self.credentials, users=self.tokens.user)
        self.server: Server

    async def listen(self) -> None:
        self.server = await self.network.listen(PORT, self.dispatcher)

    @property
    def address(self) -> str:
        return self.server.address

    def token(self, *roles: str, lifetime: float = 600, **how: Any) -> str:
        made = self.tokens.issue_join(self.address, self.authority.fingerprint, roles, lifetime, **how)
        return made.text

    def user(self, name: str, lifetime: float = 600, **how: Any) -> str:
        made = self.tokens.issue_user(self.address, self.authority.fingerprint, name, lifetime, **how)
        return made.text


@pytest.fixture
async def head(tmp_path: Path) -> Any:
    made = Head(tmp_path / "head", Clock())
    await made.listen()
    yield made
    await made.server.close()


async def test_a_machine_joins_and_is_known_by_its_certificate(head: Head, tmp_path: Path) -> None:
    credentials = await join(head.token("schedd", "startd"), "m1", tmp_path / "m1")
    assert (credentials.name, credentials.roles, credentials.address) == (
        "m1",
        ("schedd", "startd"),
        head.address,
    )
    network = RealNetwork(None, own_identity("m1"), credentials)
    link = await network.connect(head.address)
    assert (link.identity.kind, link.identity.name, link.identity.roles) == ("node", "head", frozenset({"collector"}))
    await link.call("echo.say", {})
    caller = head.echo.callers[0]
    assert (caller.kind, caller.node, caller.roles) == ("node", "m1", {"schedd", "startd"})
    assert caller.rights == {Right.READ, Right.SUBMIT, Right.ADVERTISE, Right.EXECUTE}
    with pytest.raises(RemoteError, match="node m1 may not call"):
        await link.call("echo.match")
    stream = await link.stream("echo.count", {"n": 200, "size": 20_000})
    assert len([item async for item in stream]) == 200
    await link.close()
    again = Credentials.load(tmp_path / "m1")
    assert again.name == "m1"


async def test_two_machines_that_joined_trust_each_other(head: Head, tmp_path: Path) -> None:
    one, two = [
        RealNetwork(None, own_identity(n), await join(head.token("startd"), n, tmp_path / n)) for n in ("one", "two")
    ]
    echo, dispatcher = Echo(), Dispatcher()
    dispatcher.add("echo", echo)
    server = await one.listen(PORT, dispatcher)
    link = await two.connect(server.address)
    await link.call("echo.say", {})
    assert (link.identity.name, echo.callers[0].name) == ("one", "two")
    await link.close()
    await server.close()


async def test_a_token_works_once(head: Head, tmp_path: Path) -> None:
    token = head.token("startd")
    await join(token, "m1", tmp_path / "m1")
    with pytest.raises(CannotJoin, match="was used already"):
        await join(token, "m2", tmp_path / "m2")
    assert not (tmp_path / "m2" / "node.crt").exists()


async def test_the_same_machine_may_ask_again_when_the_answer_was_lost(head: Head, tmp_path: Path) -> None:
    token = head.token("startd")
    await join(token, "m1", tmp_path / "m1")
    (tmp_path / "m1" / "node.crt").unlink()
    await join(token, "m1", tmp_path / "m1")


async def test_a_token_for_several_machines(head: Head, tmp_path: Path) -> None:
    token = head.token("startd", uses=2)
    for name in ("m1", "m2"):
        await join(token, name, tmp_path / name)
    with pytest.raises(CannotJoin, match="was used already"):
        await join(token, "m3", tmp_path / "m3")


async def test_use_is_remembered_over_a_restart(head: Head, tmp_path: Path) -> None:
    token = head.token("startd")
    await join(token, "m1", tmp_path / "m1")
    await head.server.close()
    restarted = Head(tmp_path / "head", head.clock)
    assert restarted.authority.fingerprint == head.authority.fingerprint
    restarted.server = await restarted.network.listen(head.address, restarted.dispatcher)
    head.server = restarted.server
    with pytest.raises(CannotJoin, match="was used already"):
        await join(token, "m2", tmp_path / "m2")
    link = await RealNetwork(None, own_identity("m1"), Credentials.load(tmp_path / "m1")).connect(head.address)
    await link.close()


async def test_an_expired_token(head: Head, tmp_path: Path) -> None:
    token = head.token("startd", lifetime=60)
    head.clock.now += 61
    with pytest.raises(CannotJoin, match="has expired"):
        await join(token, "m1", tmp_path / "m1")


async def test_a_revoked_and_an_invented_token(head: Head, tmp_path: Path) -> None:
    token = Token.read(head.token("startd"))
    wrong = Token("join", token.address, token.fingerprint, token.id, "00" * 24, ("negotiator",))
    with pytest.raises(CannotJoin, match="is not known here"):
        await join(wrong.text, "m1", tmp_path / "m1")
    assert head.tokens.revoke(token.id)
    with pytest.raises(CannotJoin, match="is not known here"):
        await join(token.text, "m1", tmp_path / "m1")


async def test_what_a_token_says_of_roles_does_not_count(head: Head, tmp_path: Path) -> None:
    token = Token.read(head.token("startd"))
    forged = Token("join", token.address, token.fingerprint, token.id, token.secret, ("negotiator",))
    assert (await join(forged.text, "m1", tmp_path / "m1")).roles == ("startd",)


async def test_a_name_belongs_to_its_node(head: Head, tmp_path: Path) -> None:
    with pytest.raises(CannotJoin, match="has a node head already"):
        await join(head.token("schedd"), "head", tmp_path / "false-head")
    await join(head.token("schedd"), "m1", tmp_path / "m1")
    with pytest.raises(CannotJoin, match="has a node m1 already"):
        await join(head.token("schedd"), "m1", tmp_path / "other")
    with pytest.raises(CannotJoin, match="is for the node m1, not for m9"):
        await join(head.token("schedd", node="m1"), "m9", tmp_path / "other")
    await join(head.token("schedd", node="m1"), "m1", tmp_path / "other")
    assert head.authority.forget("m1")
    await join(head.token("schedd"), "m1", tmp_path / "third")


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a" * 300, "a b", "ü", "-x", "slot1@a"])
async def test_names_that_cannot_be(head: Head, name: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequest):
        await join(head.token("startd"), name, tmp_path / "m1")
    token = Token.read(head.token("startd"))
    link = await RealNetwork(credentials=Credentials(head.authority.certificate)).connect(head.address)
    request = await asyncio.to_thread(new_request, new_key(), "x")
    with pytest.raises(RemoteError) as refused:
        await link.call("node.join", {"id": token.id, "secret": token.secret, "name": name, "request": request})
    assert refused.value.kind == "BadRequest"
    await link.close()


@pytest.mark.parametrize(
    "request_", ["", "nonsense", None, 7, "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n", "x" * 9000]
)
async def test_requests_that_are_none_use_no_token_up(head: Head, request_: Any, tmp_path: Path) -> None:
    text = head.token("startd")
    token = Token.read(text)
    link = await RealNetwork(credentials=Credentials(head.authority.certificate)).connect(head.address)
    with pytest.raises(RemoteError) as refused:
        await link.call("node.join", {"id": token.id, "secret": token.secret, "name": "m1", "request": request_})
    assert refused.value.kind == "BadRequest"
    with pytest.raises(RemoteError, match="not known here"):
        await link.call("node.join", {"id": 3, "secret": None, "name": "m1", "request": request_})
    await link.close()
    await join(text, "m1", tmp_path / "m1")


async def test_somebody_else_at_the_address(head: Head, tmp_path: Path) -> None:
    stranger = Head(tmp_path / "stranger", Clock(), "theirs")
    await stranger.listen()
    token = Token.read(head.token("startd"))
    redirected = Token("join", stranger.address, token.fingerprint, token.id, token.secret, token.roles)
    with pytest.raises(AnotherPool, match="not of the pool that made the token"):
        await join(redirected.text, "m1", tmp_path / "m1")
    await stranger.server.close()


async def test_who_hands_out_our_certificate_without_its_key_learns_nothing(head: Head, tmp_path: Path) -> None:
    """A man in the middle has our authority's certificate, as everybody has, and shows it."""
    stranger = Head(tmp_path / "stranger", Clock(), "theirs")
    stranger.authority.certificate = head.authority.certificate
    asked: list[Any] = []
    stranger.tokens.peek_grant = lambda *args, **how: asked.append(args)  # type: ignore[method-assign,assignment]
    await stranger.listen()
    token = Token.read(head.token("startd"))
    redirected = Token("join", stranger.address, token.fingerprint, token.id, token.secret, token.roles)
    with pytest.raises(CannotConnect, match="not of this pool"):
        await join(redirected.text, "m1", tmp_path / "m1")
    assert asked == []
    await stranger.server.close()


async def test_a_strangers_certificate_is_refused(head: Head, tmp_path: Path) -> None:
    stranger = Head(tmp_path / "stranger", Clock(), "theirs")
    await stranger.listen()
    with pytest.raises(CannotConnect, match="not of this pool"):
        await stranger.network.connect(head.address)
    careless = RealNetwork(None, own_identity("x"), _Careless(stranger.credentials))
    with pytest.raises(ConnectionLost):
        await careless.connect(head.address)
    assert head.echo.callers == []
    await stranger.server.close()


class _Careless:
    """A stranger who shows his own certificate and believes everybody's."""

    token = None

    def __init__(self, own: Credentials) -> None:
        self._own = own

    def client_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        assert self._own.directory is not None
        context.load_cert_chain(self._own.directory / "node.crt", self._own.directory / "node.key")
        return context

    server_context = client_context

    def identify(self, certificate: Any) -> Any:
        return own_identity("anybody")


@pytest.mark.parametrize("data", [b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x00", b"", b"\xff" * 5000])
async def test_what_is_not_tls_is_turned_away_without_a_word_in_the_log(
    head: Head, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    host, _, port = head.address.removeprefix("tcp://").rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    writer.close()
    await join_and_call(head)
    assert not head.server.connections
    assert caplog.records == []


async def test_a_crowd_that_never_speaks_tls_is_bounded_and_keeps_nobody_out(head: Head) -> None:
    host, _, port = head.address.removeprefix("tcp://").rpartition(":")
    crowd = [await asyncio.open_connection(host, int(port)) for _ in range(150)]
    most = head.server.admission.of_peer
    await soon(lambda: len(head.server.connections) == most)
    network = RealNetwork(credentials=Credentials(head.authority.certificate))
    strangers = [await network.connect(head.address) for _ in range(5)]
    link = await RealNetwork(credentials=head.credentials).connect(head.address)
    assert await link.call("echo.ping") == "pong"
    assert len(head.server.connections) <= most + 1
    for one in [link, *strangers]:
        await one.close()
    for _, writer in crowd:
        writer.close()
    await soon(lambda: not head.server.connections)


async def join_and_call(head: Head) -> None:
    """Whether the door still works."""
    link = await RealNetwork(credentials=Credentials(head.authority.certificate)).connect(head.address)
    assert await link.call("echo.ping") == "pong"
    await link.close()
    await soon(lambda: not head.server.connections)


async def test_strangers_may_only_ask_to_join(head: Head) -> None:
    link = await RealNetwork(credentials=Credentials(head.authority.certificate)).connect(head.address)
    for name in ("echo.say", "node.stop", "nobody.there"):
        with pytest.raises(RemoteError) as refused:
            await link.call(name)
        assert refused.value.kind == "NotPermitted"
    with pytest.raises(Exception, match="0 streams"):
        await link.stream("echo.count", {"n": 1})
    with pytest.raises(Exception, match="at most 65536"):
        await link.call("node.join", {"x": b"x" * 70_000})
    await link.close()


async def test_a_user_comes_in_by_token(head: Head) -> None:
    address, credentials = await user_credentials(head.user("jane"))
    link = await RealNetwork(credentials=credentials).connect(address)
    await link.call("echo.say", {})
    caller = head.echo.callers[0]
    assert (caller.kind, caller.name, caller.node, caller.uid) == ("user", "jane", "", None)
    assert caller.rights == {Right.READ, Right.SUBMIT}
    await link.close()
    address, credentials = await user_credentials(head.user("root", administer=True))
    link = await RealNetwork(credentials=credentials).connect(address)
    await link.call("echo.say", {})
    assert Right.ADMINISTER in head.echo.callers[1].rights
    await link.close()


async def test_users_whose_token_is_wrong_or_old(head: Head) -> None:
    address, credentials = await user_credentials(head.user("jane", lifetime=60))
    wrong = Credentials.for_user(credentials.authority, f"{'0' * 16}.{'0' * 48}")
    with pytest.raises(CannotConnect, match="not known here"):
        await RealNetwork(credentials=wrong).connect(address)
    joiner = Token.read(head.token("startd"))
    with pytest.raises(CannotConnect, match="is for a join, not for a user"):
        await RealNetwork(credentials=Credentials.for_user(credentials.authority, joiner.proof)).connect(address)
    head.clock.now += 61
    with pytest.raises(CannotConnect, match="has expired"):
        await RealNetwork(credentials=credentials).connect(address)


async def test_a_node_that_takes_no_users(head: Head, tmp_path: Path) -> None:
    credentials = await join(head.token("startd"), "m1", tmp_path / "m1")
    server = await RealNetwork(None, own_identity("m1"), credentials).listen(PORT, Dispatcher())
    _, jane = await user_credentials(head.user("jane"))
    with pytest.raises(CannotConnect, match="takes no tokens"):
        await RealNetwork(credentials=jane).connect(server.address)
    await server.close()


async def test_the_wrong_kind_of_token_is_named_without_asking(head: Head, tmp_path: Path) -> None:
    with pytest.raises(WrongToken, match="lets a user in"):
        await join(head.user("jane"), "m1", tmp_path / "m1")
    with pytest.raises(WrongToken, match="lets a machine join"):
        await user_credentials(head.token("startd"))


async def test_a_clock_that_is_wrong_is_named(head: Head, tmp_path: Path) -> None:
    early = Clock()
    early.now += 10 * 86400
    late = Head(tmp_path / "late", early)
    await late.listen()
    with pytest.raises(CannotConnect, match="not yet valid") as wrong:
        await RealNetwork(credentials=Credentials(late.authority.certificate)).connect(late.address)
    assert "clocks" in wrong.value.hint
    await late.server.close()


async def test_without_credentials_there_is_no_tcp(tmp_path: Path) -> None:
    network = RealNetwork()
    with pytest.raises(CannotConnect, match="no credentials"):
        await network.connect("tcp://127.0.0.1:9")
    with pytest.raises(CannotConnect, match="no credentials"):
        await network.listen(PORT, Dispatcher())


def test_the_authority_is_kept_and_private(tmp_path: Path) -> None:
    outside = Clock().outside()
    one = Authority.open(tmp_path / "a", "p", outside)
    assert Authority.open(tmp_path / "a", "p", outside).fingerprint == one.fingerprint
    assert Authority.exists(tmp_path / "a")
    for path in (tmp_path / "a").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_an_authority_that_was_half_made_is_finished(tmp_path: Path) -> None:
    outside = Clock().outside()
    Authority.open(tmp_path, "p", outside)
    (tmp_path / "authority.crt").unlink()
    authority = Authority.open(tmp_path, "p", outside)
    authority.issue_node(new_request(new_key(), "m"), "m", ["startd"])
    (tmp_path / "authority.crt").unlink()
    with pytest.raises(TrustError, match="is missing"):
        Authority.open(tmp_path, "p", outside)


async def test_a_node_that_joined_has_no_authority(head: Head, tmp_path: Path) -> None:
    await join(head.token("startd"), "m1", tmp_path / "m1")
    assert not Authority.exists(tmp_path / "m1")


def test_authority_and_credentials_may_share_a_directory(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path, "p", Clock().outside())
    Credentials.create(tmp_path, authority, "m", ["collector"])
    assert Authority.open(tmp_path, "p", Clock().outside()).fingerprint == authority.fingerprint
    assert Credentials.load(tmp_path).name == "m"


def test_names_are_kept_by_the_authority(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path / "a", "p", Clock().outside())
    key = new_key()
    authority.issue_node(new_request(key, "m"), "m", ["startd"])
    authority.issue_node(new_request(key, "m"), "m", ["startd", "schedd"])
    with pytest.raises(NodeNameTaken):
        authority.issue_node(new_request(new_key(), "m"), "m", ["startd"])
    with pytest.raises(NodeNameTaken, match="has a node m already"):  # jobs could not tell the two apart
        authority.issue_node(new_request(new_key(), "M"), "M", ["startd"], replace=True)
    assert authority.nodes()["m"]["roles"] == ["schedd", "startd"]
    with pytest.raises(BadRequest):
        authority.issue_node(new_request(key, "m"), "m2", ["a,b"])


@pytest.mark.parametrize(
    ("name", "damage"),
    [("authority.key", None), ("authority.crt", b"junk"), ("authority.key", b"\xff")],
)
def test_a_damaged_authority_is_one_line(tmp_path: Path, name: str, damage: bytes | None) -> None:
    outside = Clock().outside()
    Authority.open(tmp_path, "p", outside)
    path = tmp_path / name
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    with pytest.raises(TrustError) as wrong:
        Authority.open(tmp_path, "p", outside)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize("name", ["node.key", "node.crt", "authority.crt", "node.json"])
@pytest.mark.parametrize("damage", [None, b"", b"junk"])
def test_damaged_credentials_are_one_line(tmp_path: Path, name: str, damage: bytes | None) -> None:
    authority = Authority.open(tmp_path / "a", "p", Clock().outside())
    Credentials.create(tmp_path / "t", authority, "m", ["startd"])
    assert Credentials.exist(tmp_path / "t")
    if damage is None:
        (tmp_path / "t" / name).unlink()
    else:
        (tmp_path / "t" / name).write_bytes(damage)
    with pytest.raises(TrustError) as wrong:
        Credentials.load(tmp_path / "t")
    assert "\n" not in str(wrong.value)


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrustError, match="cannot write"):
        Authority.open(tmp_path / "file", "p", Clock().outside())


def test_patience_is_bounded() -> None:
    assert joining.PATIENCE < 60


async def test_a_users_connection_ends_when_his_token_expires_or_is_revoked(head: Head) -> None:
    for how in ("expires", "is revoked"):
        address, credentials = await user_credentials(head.user("jane", lifetime=2 if how == "expires" else 600))
        link = await RealNetwork(credentials=credentials).connect(address)
        await link.call("echo.say", {})
        if how == "is revoked":
            (token,) = [one for one in head.tokens.listed() if one["expires"] > head.clock.now + 100]
            assert head.tokens.revoke(token["id"])
            head.network.part_with_token(token["id"])
        await asyncio.wait_for(asyncio.wait([link.closed]), 10)
        assert link.closed.done()


async def test_a_token_that_a_node_has_used_is_worth_nothing_once_the_node_is_put_out(
    head: Head, tmp_path: Path
) -> None:
    token = head.token("startd", uses=5)
    await join(token, "m1", tmp_path / "m1")
    assert [one["used"] for one in head.tokens.listed()] == [1]
    assert head.tokens.revoke_used_by(head.authority.nodes()["m1"]["key"])
    head.authority.forget("m1")
    for directory in ("m1", "again"):
        with pytest.raises(CannotJoin, match="not known here"):
            await join(token, "m1", tmp_path / directory)
    assert head.tokens.listed() == []

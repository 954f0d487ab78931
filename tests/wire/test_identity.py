"""Identities, and the addresses they are found at."""

from __future__ import annotations

import os
import pwd

import pytest

from pool.wire import ALL_RIGHTS, BadAddress, Right, node_identity, own_identity, parse_address, peer_identity
from pool.wire.addresses import tcp_address
from pool.wire.errors import CannotConnect
from pool.wire.identity import AUTHORITY_ROLE, ROLE_RIGHTS, user_name


def test_rights_follow_from_roles() -> None:
    assert node_identity("n", ["startd"]).rights == {Right.READ, Right.ADVERTISE, Right.EXECUTE}
    assert Right.NEGOTIATE in node_identity("n", ["startd", "negotiator"]).rights
    assert node_identity("n", ["what-is-to-come"]).rights == {Right.READ}
    assert not any(Right.ADMINISTER in node_identity("n", [role]).rights for role in ("collector", "schedd"))
    commands = {role for role in ROLE_RIGHTS if Right.MAINTAIN in node_identity("n", [role]).rights}
    assert commands == {AUTHORITY_ROLE}  # a member orders nothing from another one


def test_peers_by_the_kernels_word() -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    other = peer_identity(nobody, 4242, "pretended-node")
    assert (other.kind, other.name, other.node, other.uid) == ("user", "nobody", "", nobody)
    assert other.rights == {Right.READ, Right.SUBMIT}
    assert peer_identity(os.getuid(), os.getuid()).rights == ALL_RIGHTS
    assert peer_identity(0, 4242).rights == ALL_RIGHTS
    assert peer_identity(4242, 4242, "n").node == "n"
    assert user_name(os.getuid()) != ""
    with pytest.raises(CannotConnect, match="4242"):
        peer_identity(4242, 1)  # nobody is let in under a number
    assert own_identity("n").rights == ALL_RIGHTS


def test_rights_are_words() -> None:
    assert f"{Right.SUBMIT}" == "submit"
    assert str(node_identity("n", [])) == "node n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("tcp://host:1", ("tcp", "host", 1)),
        ("tcp://[::1]:9618", ("tcp", "::1", 9618)),
        ("unix:///run/x/s", ("unix", "/run/x/s", 0)),
        ("local:", ("local", "", 0)),
        ("mem://a", ("mem", "a", 0)),
    ],
)
def test_addresses(text: str, parts: tuple[str, str, int]) -> None:
    assert parse_address(text) == parts
    if parts[0] == "tcp":
        assert tcp_address(*parts[1:]) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "tcp://host",
        "tcp://:1",
        "tcp://h:x",
        "tcp://h:65536",
        "unix://s",
        "local:x",
        "mem://",
        "ftp://h:1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadAddress):
        parse_address(text)

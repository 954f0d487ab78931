"""Where the tools look for a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.client.addresses import NoPool, find_address, normal, state_directory

HOME = {"HOME": "/home/a"}


def nothing(_: Path) -> bool:
    return False


def test_what_is_given_comes_first_then_the_environment() -> None:
    environ = HOME | {"POOLNODE_ADDRESS": "host:9"}
    assert find_address("tcp://other:1", environ=environ, uid=5, exists=nothing) == "tcp://other:1"
    assert find_address(environ=environ, uid=5, exists=nothing) == "tcp://host:9"


def test_the_users_own_socket_comes_before_the_machines() -> None:
    assert find_address(environ=HOME, uid=5, exists=lambda _: True) == "unix:///home/a/.local/state/poolnode/node.sock"
    only_system = Path("/run/poolnode/node.sock").__eq__
    assert find_address(environ=HOME, uid=5, exists=only_system) == "unix:///run/poolnode/node.sock"


def test_no_node_says_where_it_looked_and_what_to_do() -> None:
    with pytest.raises(NoPool, match=r"no socket /home/a/\.local/state/poolnode/node\.sock.*poolnode --roles"):
        find_address(environ=HOME, uid=5, exists=nothing)


def test_state_directories() -> None:
    assert state_directory(HOME | {"POOLNODE_STATE": "/s"}, 5) == Path("/s")
    assert state_directory(HOME | {"XDG_STATE_HOME": "/x"}, 5, nothing) == Path("/x/poolnode")
    assert state_directory(HOME | {"XDG_STATE_HOME": "/x"}, 0, lambda _: True) == Path("/var/lib/poolnode")
    assert state_directory(HOME, 0, nothing) == Path("/home/a/.local/state/poolnode")


def test_addresses_get_their_scheme() -> None:
    assert normal("/a/node.sock") == "unix:///a/node.sock"
    assert normal("host:99") == "tcp://host:99"
    assert normal("mem://x") == "mem://x"
    with pytest.raises(NoPool, match="'host' is not an address"):
        normal("host")

"""The credentials that a user's tool shows to another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.client import NoPool, Pool
from pool.client.network import UserNetwork, token_file, user_token
from pool.errors import PoolError


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "POOLNODE_STATE": str(tmp_path / "state"), **more}


def test_a_token_comes_from_the_environment_or_the_users_file(tmp_path: Path) -> None:
    here = environ(tmp_path)
    assert user_token(here) is None
    file = token_file(here)
    assert file == tmp_path / ".config/poolnode/token"
    file.parent.mkdir(parents=True)
    file.write_text("from-file\n")
    assert user_token(here) == "from-file"
    assert user_token({**here, "POOLNODE_TOKEN": "from-environment"}) == "from-environment"
    file.write_bytes(b"\xff")
    with pytest.raises(NoPool, match="cannot read the token in"):
        user_token(here)


async def test_without_anything_to_show_it_says_where_to_put_a_token(tmp_path: Path) -> None:
    with pytest.raises(NoPool, match=r"cannot use tcp://far:1: .*\$POOLNODE_TOKEN or .*/poolnode/token"):
        await UserNetwork(environ(tmp_path)).connect("tcp://far:1")


async def test_a_token_that_is_none_is_a_plain_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PoolError, match="not a token"):
        await UserNetwork(environ(tmp_path, POOLNODE_TOKEN="nonsense")).connect("tcp://far:1")
    for name, value in environ(tmp_path, POOLNODE_TOKEN="nonsense").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("POOLNODE_ADDRESS", raising=False)
    monkeypatch.setattr("pool.client.addresses.SYSTEM_RUN", tmp_path)
    with pytest.raises(PoolError, match="not a token"):
        await Pool.connect()

"""Executables kept on the execute side: only under the digest of what they are."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from pool.jobs.activation import Activation, FileMode
from pool.starter.job_start import SubmitSide
from pool.starter.keeper import Keepers
from pool.starter.place import ExecutionSite, StartRefused, UnixAccount
from pool.starter.spec import Abilities
from pool.starter.starter import Starter

GENUINE = b"#!/bin/sh\necho genuine\n"
START = Activation(
    job=(1, 0),
    run=1,
    owner="me",
    mode=FileMode.TRANSFER,
    executable="/home/me/prog",
    digest=hashlib.sha256(GENUINE).hexdigest(),
    argv=("prog",),
    env={},
    iwd="/home/me",
    carries_executable=True,
)


class Home:
    """A submit side that sends some program."""

    def __init__(self, program: bytes) -> None:
        self.program = program
        self.asked = 0

    async def fetch(self, activation: Activation, executable_wanted: bool) -> Any:
        items: list[Any] = [["done"]]
        if executable_wanted:
            self.asked += 1
            items = [["file", "prog", 0o755, len(self.program)], self.program, *items]

        async def sent() -> AsyncIterator[Any]:
            for item in items:
                yield item

        @asynccontextmanager
        async def stream() -> AsyncIterator[Any]:
            yield sent()

        return stream()

    async def store(self, activation: Activation) -> Any:
        raise AssertionError("nothing goes home here")


def content(path: str) -> bytes:
    return Path(path).read_bytes()


class NoKeepers:
    """Takes what it is to start, and says what program it was."""

    def __init__(self) -> None:
        self.started: list[bytes] = []
        self.abilities = Abilities(full=False)

    async def start(self, spec: Any, *, image: Any = None, ends: Any = None, asked: Any = None) -> Any:
        self.started.append(content(spec.argv[0]))


async def run(place: Path, home: Home, start: Activation = START) -> bytes:
    account = UnixAccount(os.getuid(), os.getgid(), None, "me", "/", False)
    keepers = NoKeepers()
    execute = place / "execute"
    execute.mkdir(exist_ok=True)
    slot = ExecutionSite("slot1", execute, place / "kept", 1, None)
    starter = Starter(start, account, slot, cast(Keepers, keepers), cast(SubmitSide, home))
    try:
        await starter.start(lambda: 60.0, {})
        return keepers.started[0]
    finally:
        starter.clean()


async def test_a_program_is_sent_once(tmp_path: Path) -> None:
    home = Home(GENUINE)
    assert [await run(tmp_path, home), await run(tmp_path, home)] == [GENUINE, GENUINE]
    assert home.asked == 1


async def test_what_is_kept_is_for_this_node_only(tmp_path: Path) -> None:
    """Everybody on the machine could read everybody's programs, for good."""
    before = os.umask(0o022)
    try:
        await run(tmp_path, Home(GENUINE))
    finally:
        os.umask(before)
    (kept,) = (tmp_path / "kept").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (kept.parent, kept)] == [0, 0]


async def test_nothing_is_kept_under_the_name_of_another(tmp_path: Path) -> None:
    assert await run(tmp_path, Home(b"#!/bin/sh\necho planted\n")) != GENUINE
    assert os.listdir(tmp_path / "kept") == []
    assert await run(tmp_path, Home(GENUINE)) == GENUINE


@pytest.mark.parametrize("digest", ["../../etc/passwd", "/etc/passwd", "abc", "A" * 64])
async def test_a_digest_is_a_digest(tmp_path: Path, digest: str) -> None:
    with pytest.raises(StartRefused, match="no digest"):
        await run(tmp_path, Home(GENUINE), replace(START, digest=digest))

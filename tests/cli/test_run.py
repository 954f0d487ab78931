"""`run` from start to end, with a personal pool that only remembers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import types
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pool.cli import main
from tests.client.fakes import Fakes
from tests.client.serving import serving


class Personal:
    """Stands in for `pool.node`."""

    def __init__(self) -> None:
        self.fakes = Fakes()
        self.states: list[Path] = []
        self.slots: list[int | None] = []
        self.submitted: Callable[[], None] = lambda: None
        self.ended = False

    @contextlib.asynccontextmanager
    async def personal(self, state_dir: Path, slots: int | None = None) -> AsyncIterator[str]:
        self.states.append(state_dir)
        self.slots.append(slots)
        asyncio.get_running_loop().call_soon(self.watch)
        async with serving(self.fakes, state_dir) as address:
            try:
                yield address
            finally:
                self.ended = True

    def watch(self) -> None:
        """Does what the test wants once jobs are there."""
        if self.fakes.schedd.submitted:
            self.submitted()
        else:
            asyncio.get_running_loop().call_later(0.01, self.watch)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Personal:
    one = Personal()
    module: Any = types.ModuleType("pool.node")
    module.personal = one.personal
    monkeypatch.setitem(sys.modules, "pool.node", module)
    monkeypatch.chdir(tmp_path)
    Path("a.sub").write_text("executable = /bin/true\noutput = out.$(Process)\nqueue 3\n")
    return one


def test_all_well(pool: Personal, capsys: pytest.CaptureFixture[str]) -> None:
    pool.fakes.schedd.runs = 0
    assert main.status(["run", "a.sub", "--slots", "2"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].split() == ["ID", "STATE", "EXIT", "WALL", "CPU", "WHERE", "OUTPUT"]
    assert lines[1].split()[-1] == "out.0"
    assert lines[-1].startswith("3 jobs: 3 succeeded; ")
    assert "3 done" in captured.err
    assert pool.slots == [2]
    assert pool.ended
    assert not pool.states[0].exists(), "nothing is left behind"


def test_one_failure_is_a_failure(pool: Personal, capsys: pytest.CaptureFixture[str]) -> None:
    def submitted() -> None:
        for proc in range(3):
            pool.fakes.schedd.start((1, proc))
            pool.fakes.schedd.finish((1, proc), int(proc == 1))

    pool.submitted = submitted
    assert main.status(["run", "a.sub", "--json"]) == 1
    captured = capsys.readouterr()
    assert [json.loads(line)["ok"] for line in captured.out.splitlines()] == [True, False, True]
    assert captured.err == ""


def test_the_state_can_be_kept(pool: Personal, tmp_path: Path) -> None:
    pool.fakes.schedd.runs = 0
    assert main.status(["run", "a.sub", "-q", "--keep", "state"]) == 0
    assert pool.states == [tmp_path / "state"]
    assert (tmp_path / "state" / "node.log").exists()


def test_jobs_that_nobody_will_release_end_it_and_say_why(pool: Personal, capsys: pytest.CaptureFixture[str]) -> None:
    def submitted() -> None:
        pool.fakes.schedd.finish((1, 0))
        for proc in (1, 2):
            pool.fakes.schedd.hold((1, proc), "cannot open input file data.txt: no such file")

    pool.submitted = submitted
    assert main.status(["run", "a.sub"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "1.1 is held: cannot open input file data.txt: no such file" in lines
    assert lines[-1].startswith("3 jobs: 1 succeeded, 2 held; ")


def test_jobs_held_from_the_start_end_it_too(pool: Personal, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.sub").write_text("executable = /bin/true\nhold = true\nqueue 2\n")
    assert main.status(["run", "a.sub"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("2 jobs: 2 held; ")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_removes_the_jobs_and_ends_in_order(
    pool: Personal, capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    def submitted() -> None:
        pool.fakes.schedd.start((1, 0))
        pool.fakes.schedd.finish((1, 0))
        asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), number)

    pool.submitted = submitted
    assert main.status(["run", "a.sub"]) == code
    captured = capsys.readouterr()
    assert "removing the jobs" in captured.err
    assert captured.out.splitlines()[-1].startswith("3 jobs: 1 succeeded, 2 removed; ")
    assert pool.ended
    assert not pool.states[0].exists()


def test_a_second_interruption_does_not_wait(pool: Personal, capsys: pytest.CaptureFixture[str]) -> None:
    async def never(call: Any, params: Any) -> Any:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    pool.fakes.schedd.acting = never
    pool.submitted = lambda: os.kill(os.getpid(), signal.SIGINT)
    assert main.status(["run", "a.sub"]) == 130
    assert pool.ended
    assert not pool.states[0].exists()


def test_a_pool_that_cannot_start_is_one_line(pool: Personal, capsys: pytest.CaptureFixture[str]) -> None:
    from pool.errors import PoolError

    @contextlib.asynccontextmanager
    async def broken(state_dir: Path, slots: int | None = None) -> AsyncIterator[str]:
        raise PoolError("the startd cannot start: no keeper", hint="install gcc")
        yield ""

    sys.modules["pool.node"].personal = broken  # type: ignore[attr-defined]
    assert main.status(["run", "a.sub"]) == 1
    assert capsys.readouterr().err == "poolnode: the startd cannot start: no keeper (install gcc)\n"

"""The supervisor under sanitizers of memory and arithmetic: names, calls, logs, misuse, ends of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoint.mapping.conftest import Program
from tests.checkpoint.mapping.support import job, program, sh
from tests.checkpoint.mapping.test_moves import Shape, circle, ends_well, short, to_stdin
from tests.starter.support import opened, soon, to_end


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    log = tmp_path / "sanitizer"
    monkeypatch.setenv("ASAN_OPTIONS", f"detect_leaks=0:log_path={log}")
    monkeypatch.setenv("UBSAN_OPTIONS", f"print_stacktrace=1:log_path={log}")
    yield
    assert [path.read_text() for path in tmp_path.glob("sanitizer*")] == []


async def test_names_calls_logs_and_ends(
    tmp_path: Path, sanitized_keeper: Path, scratch: Path, programs: Program
) -> None:
    names, calls = programs("names.c"), programs("calls.c")
    feed = "head -c 2000000 /dev/zero > data"
    async with opened(tmp_path, sanitized_keeper) as keepers:
        for way in ("chain", "stream", "looked_first", "duplicated"):
            members = tuple(program(scratch, name, names, way, "x", how) for name, how in (("a", "w"), ("b", "r")))
            assert (await to_end(keepers, job(scratch, members, (0, "x", 1, "x")))).code == 0
        for case, cause in (
            ("whole_reads", "exit"),
            ("harmless", "exit"),
            ("back_and_forth", "exit"),
            ("looks_and_opens_again", "exit"),
            ("read_back", "misuse"),
            ("renames", "misuse"),
        ):
            members = (
                sh(scratch, "a", feed),
                program(scratch, "b", calls, case),
                sh(scratch, "c", "cat data > /dev/null"),
            )
            pipes = ((0, "data", 1, "in"), (1, "out", 2, "data"))
            end = await to_end(keepers, job(scratch, members, *pipes))
            assert (end.cause, case) == (cause, case)
        fan = (sh(scratch, "a", "seq 1 300000 > x"), *(sh(scratch, f"b{n}", "sleep 0.1; wc x") for n in (1, 2)))
        assert (await to_end(keepers, job(scratch, fan, (0, "x", 1, "x"), (0, "x", 2, "x")))).code == 0
        circle = (sh(scratch, "a", "seq 1 800000 > o; wc i; seq 1 9 > p"), sh(scratch, "b", "cat i > o; cat p"))
        round_trip = ((0, "o", 1, "i"), (1, "o", 0, "i"))
        assert (await to_end(keepers, job(scratch, circle, *round_trip, (0, "p", 1, "p")))).code == 0
        short = (sh(scratch, "a", "seq 1 300000 > x"), sh(scratch, "b", "stat x; tail -n 1 x"))
        assert (await to_end(keepers, job(scratch, short, (0, "x", 1, "x", True)))).code == 0
        twice = (short[0], sh(scratch, "b", "exec 5< x 6< x"))
        assert (await to_end(keepers, job(scratch, twice, (0, "x", 1, "x", True)))).cause == "misuse"
        still = (sh(scratch, "a", "cat i > o"), sh(scratch, "b", "cat i > o"))
        assert (await to_end(keepers, job(scratch, still, *round_trip))).error.startswith("deadlock: ")


@pytest.mark.parametrize("shape", [circle, short, to_stdin])
async def test_moves(tmp_path: Path, sanitized_keeper: Path, scratch: Path, programs: Program, shape: Shape) -> None:
    wanted = shape(scratch, programs("stages.c"), 1000)
    async with opened(tmp_path, sanitized_keeper) as keepers:
        keeper = await soon(keepers.start(wanted), 20)
        for number in range(2):
            await asyncio.sleep(0.05)
            report = await soon(keeper.checkpoint(tmp_path / f"image{number}", stop=True), 30)
            assert report.refused == ()
            await soon(keeper.ended, 20)
            await keeper.forget()
            keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"), 30)
        await ends_well(keeper, scratch)

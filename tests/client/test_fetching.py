"""Outputs that a schedd sends: they are written where the description says, whatever the schedd says."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pool.client import Pool
from pool.client.receipts import Receipt
from pool.errors import PoolError
from pool.wire import Call, Dispatcher, RealNetwork, Right, Service, Stream, streaming


class Schedd(Service):
    """Sends what the test sets, and notes what the client says."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__()
        self.items, self.heard = items, list[Any]()

    @streaming(Right.SUBMIT)
    async def fetch_outputs(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """All of it, at once."""
        for item in self.items:
            await stream.send(item)
        if self.items[-1] != OVER:
            return
        async for item in stream:
            self.heard.append(item)
        await stream.send(["left", 0])
        await stream.finish()

    @streaming(Right.READ)
    async def query(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The job as this schedd would have it: it belongs into a directory that the user never named."""
        await stream.send([{"ClusterId": 7, "ProcId": 0, "Iwd": "/etc", "Out": "../root/.profile", "Cmd": "/bin/true"}])
        await stream.finish()

    @streaming(Right.READ)
    async def history(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Nothing."""
        await stream.finish()


def seen(home: Path) -> dict[str, int]:
    """The files in a directory, and their times."""
    return {path.name: path.lstat().st_mtime_ns for path in home.iterdir()}


async def fetched(items: list[Any], ad: dict[str, Any] | None, into: Path | None = None) -> list[Any]:
    """Fetch job 7.0 from a schedd that sends these; what it heard of the client."""
    schedd, dispatcher = Schedd(items), Dispatcher()
    dispatcher.add("schedd", schedd)
    place = tempfile.TemporaryDirectory(prefix="s-")  # a socket's name has to be short
    address = f"unix://{place.name}/s"
    server = await RealNetwork().listen(address, dispatcher)
    try:
        async with await Pool.connect(address) as pool:
            if ad is not None:
                Receipt.from_submit(7, 1, ad, None).save(address, os.environ)
            await pool.fetch([(7, 0)], into)
    finally:
        await server.close()
        place.cleanup()
    return schedd.heard


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = tmp_path / "home"
    made.mkdir()
    return made


def ad(home: Path, **more: Any) -> dict[str, Any]:
    return {"Cmd": f"{home}/prog", "Iwd": str(home), "Out": "out", **more}


JOB, OVER = ["job", 7, 0], ["over", []]


async def test_what_the_description_names_is_written_and_told(home: Path) -> None:
    items = [JOB, ["stdout", 3], b"out", ["file", "new", 0o644, 1], b"n", ["done"], ["log", 8], b"event...", OVER]
    (home / "log").write_text("older\n...\n")
    assert await fetched(items, ad(home, UserLog="log")) == [["kept", 7, 0]]
    assert ((home / "out").read_text(), (home / "new").read_text()) == ("out", "n")
    assert (home / "log").read_text() == "older\n...\nevent......\n"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ([["file", "../escaped", 0o644, 1], b"x"], "outside the job's directory"),
        ([["file", "/tmp/escaped", 0o644, 1], b"x"], "outside the job's directory"),
        ([["dir", "../escaped", 0o755]], "outside the job's directory"),
        ([["file", ".profile", 0o644, 1], b"x"], "was not asked for"),
        ([["file", "deep/name", 0o644, 1], b"x"], "was not asked for"),
        ([["file", "script", 0o755, 1], b"x"], "no job's output"),
        ([["file", "link", 0o644, 1], b"x"], "no job's output"),
        ([["file", "prog", 0o755, 1], b"x"], "in the place of the job's own prog"),
        ([["stream", "x", 1], b"x"], "no process of the job has"),
        ([["device", "x", 1], b"x"], "a stream said 'device'"),
        ([["stdout", -1]], "something else than"),
        ([["stdout", 1], b"xx"], "more of an output"),
        ([["stdout", "many"]], "something else than"),
        ([["stdout"]], "something else than"),
        ([["done"], ["log", 1], b"x"], "a log that the job does not have"),
        ([["done"], ["job", 7, 1]], "not asked for"),
        ([["done"], ["job", 8, 0]], "not asked for"),
        ([["done"], 5], "makes no sense"),
    ],
)
async def test_what_a_hostile_schedd_sends_is_refused(home: Path, sent: list[Any], said: str) -> None:
    (home / "script").write_text("#!/bin/sh\n")
    (home / "script").chmod(0o755)
    (home / "target").write_text("mine")
    (home / "link").symlink_to("target")
    before = seen(home)
    with pytest.raises(PoolError, match=said):
        await fetched([JOB, *sent, ["done"], OVER], ad(home))
    assert seen(home) == before
    assert not (home.parent / "escaped").exists()


async def test_without_a_receipt_all_comes_into_one_new_directory(home: Path) -> None:
    items = [JOB, ["stdout", 1], b"o", ["file", "new", 0o644, 1], b"n", ["done"], OVER]
    with pytest.raises(PoolError, match="from another account, machine or address, or was not spooled"):
        await fetched(items, None)
    with pytest.raises(PoolError, match="is not empty"):
        await fetched(items, None, into=home.parent)
    assert await fetched(items, None, into=home / "new") == [["kept", 7, 0]]
    assert sorted(path.name for path in (home / "new").iterdir()) == [".profile", "new"]


async def test_a_schedd_that_breaks_off_is_told_of_whole_jobs_only(home: Path) -> None:
    with pytest.raises(PoolError):
        await fetched([JOB, ["stdout", 3], b"ou"], ad(home))
    assert seen(home) == {}


def test_only_jobs_that_need_other_files_are_looked_at_when_files_are_sent() -> None:
    deltas = [{"Out": f"out.{proc}", "Args": str(proc)} for proc in range(1000)]
    deltas += [{"Out": "elsewhere/out"}, {"TransferInput": "other"}]
    receipt = Receipt.from_submit(1, 1002, {"Cmd": "/x", "Iwd": "/y"}, deltas)
    assert list(receipt.unlike()) == [0, 1000, 1001]
    assert receipt.output_places(999).target(["stdout", 1]) == ("/y/out.999", 0o644, 1)

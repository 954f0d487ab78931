"""Notices: their content is in the event of every end, and nothing a mail system does reaches the queue."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pool.client import Pool
from pool.errors import PoolError
from pool.jobs.events import EventKind, JobEvent
from pool.policy.queue import QueuedCluster, QueuedJob
from pool.roles.base import RoleContext
from pool.roles.schedd.core.ledger import AlikeListener, Ledger, Listener
from pool.roles.schedd.notices.event_log import LOGGED
from pool.roles.schedd.notices.reporting import Reporting
from pool.shadow.files import UserFiles
from pool.store import SetMeta
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking

#: Jobs that are enough to be changed together.
JOBS = 25


@pytest.mark.parametrize("trouble", [BrokenPipeError(32, "Broken pipe"), PoolError("it ended with status 75")])
async def test_a_mail_system_that_fails_does_not_fail_the_schedd(
    trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    async def tell(*event: Any) -> None:
        told.append(event)

    async def mail(to: str, subject: str, text: str) -> bool:
        raise trouble

    ledger = cast(Ledger, SimpleNamespace(record_event=tell))
    given = cast(RoleContext, SimpleNamespace(mail=mail))
    reporting = Reporting(ledger, given, logging.getLogger("test"), tell)
    reporting.finished({"ClusterId": 1, "ProcId": 0, "Owner": "me", "JobStatus": 4, "JobNotification": 2})
    await reporting.flush()
    assert len(told) == 1, "the notice is in the event log in any case"
    assert "a notice could not be mailed" in caplog.text


def test_every_end_has_the_notices_content_whether_it_is_wished_or_not() -> None:
    """A10, VS 6.3.3: cause, times, use, leverage, image size, in the event log."""

    async def work() -> None:
        async with SimPool(1, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(20.0, 3, rss=4096))
            await pool.submit("head")
            await pool.run_until(lambda: pool.queued("head") == 0, within=60)
            held = await pool.submit("head", ad={"JobStatus": 5})
            await pool.act("head", "alice", action="remove", ids=[[held]])
            async with asking(pool) as user:
                ends = []
                async for batch in user.events():
                    ends += [event["data"] for event in batch if event["kind"] in ("TERMINATED", "ABORTED")]
                    if len(ends) == 2:
                        break
            (ad, _) = sorted(await pool.ended("head"), key=lambda ad: ad["ClusterId"])
            by_itself, removed = ends
            assert by_itself["cause"] == "exited with status 3."
            assert by_itself["total_user_cpu"] == ad["RemoteUserCpu"] == 20.0
            assert by_itself["image_size"] == ad["ImageSize"] == 4096
            assert by_itself["real"] == pytest.approx(by_itself["ended"] - ad["QDate"])
            assert by_itself["real"] >= 20.0
            assert "leverage" in by_itself
            assert removed["cause"] == "was removed: by alice"
            pool.assert_sound()

    run_virtual(work())


def test_a_log_tells_each_event_once_whenever_the_schedd_dies(tmp_path: Path) -> None:
    """Killed before what is durable has been written into the log, and after: nothing is missing, nothing twice."""

    async def work() -> None:
        log = tmp_path / "job.log"
        async with SimPool(3, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(2.0))
            reporting = pool.role("head", "schedd").reporting
            await pool.submit("head", count=2, ad={"UserLog": str(log)})
            await pool.run_until(lambda: log.exists() and log.read_text().count("\n001 (") == 1, within=60)
            reporting._wake.set = lambda: None  # from here on it dies before it writes anything
            await pool.run_until(lambda: pool.queued("head") == 0, within=60)
            before = log.read_text()
            assert "\n005 (" not in before
            await pool.kill("head")
            await pool.restart("head")
            await pool.run_until(lambda: log.read_text().count("\n005 (") == 2, within=60)
            assert log.read_text().startswith(before)
            for _ in range(2):
                await pool.kill("head")
                await pool.restart("head")
                await asyncio.sleep(20)
            text = log.read_text()
            assert [text.count(f"{code} (001.00{proc}") for code in ("000", "001", "005") for proc in (0, 1)] == [1] * 6
            pool.assert_sound()

    run_virtual(work())


def test_logs_and_watchers_are_told_of_each_of_the_jobs_that_are_changed_together(tmp_path: Path) -> None:
    """A log of all, a log of each, and none; also where the schedd dies before it has written them."""

    async def work() -> None:
        one_log = tmp_path / "all.log"
        async with SimPool(3, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.submit("head", count=JOBS, ad={"UserLog": str(one_log)})
            async with asking(pool) as user:
                own = [{"UserLog": str(tmp_path / f"{proc}.log")} for proc in range(JOBS)]
                await user.call("schedd.submit", {"ad": {"Cmd": "/bin/true"}, "count": JOBS, "deltas": own})
            await pool.submit("head", count=JOBS)

            def lines(code: str) -> list[str]:
                """The jobs with such a line, by log."""
                texts = [one_log.read_text(), *((tmp_path / f"{proc}.log").read_text() for proc in range(JOBS))]
                return [line.split(")")[0] for text in texts for line in text.splitlines() if line.startswith(code)]

            def named(code: str) -> list[str]:
                return [f"{code} ({cluster:03}.{proc:03}.000" for cluster in (1, 2) for proc in range(JOBS)]

            await pool.act("head", "alice", action="hold", all=True)
            await pool.run_until(lambda: lines("012") == named("012"), within=60)
            pool.role("head", "schedd").reporting._wake.set = lambda: None
            await pool.act("head", "alice", action="release", all=True)
            assert lines("013") == []
            await pool.kill("head")
            await pool.restart("head")
            await pool.run_until(lambda: lines("013") == named("013"), within=60)
            async with asking(pool) as user:
                seen: list[tuple[int, int, int]] = []

                async def watch() -> None:
                    async for batch in user.events(after=0):
                        seen.extend((one["number"], one["cluster"], one["proc"]) for one in batch)

                watching = asyncio.get_running_loop().create_task(watch())
                await pool.act("head", "alice", action="remove", all=True)
                jobs = [(cluster, proc) for cluster in (1, 2, 3) for proc in range(JOBS)]
                everything = [(1, -1), (2, -1), (3, -1), *jobs, *jobs, *jobs]
                expected = [(number, *job) for number, job in enumerate(everything, 1)]
                await pool.run_until(lambda: seen == expected, within=60)
                watching.cancel()
            assert lines("009") == named("009")
            assert {(ad["ClusterId"], ad["ProcId"]) for ad in await pool.ended("head")} == set(jobs)
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_restart_reads_no_events_again_of_jobs_without_a_log(end: str, tmp_path: Path) -> None:
    """A restart read every event since a job with a log had one: all of them, where no job has a log."""

    async def work() -> None:
        async with SimPool(3, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(2.0))
            await pool.submit("head", count=20)
            await pool.run_until(lambda: pool.queued("head") == 0, within=120)
            last = pool.role("head", "schedd").ledger.last_event
            if end == "stopped":
                await pool.role("head", "schedd").stop(handover=True)
            await pool.kill("head")
            await pool.restart("head")
            noted = int(pool.role("head", "schedd").ledger.meta.get(LOGGED, b"0"))
            assert noted == last if end == "stopped" else last / 2 < noted <= last
            pool.assert_sound()

    run_virtual(work())


async def test_no_line_waits_until_progress_is_noted() -> None:
    """That may wait for another write for seconds; the line is the end of a job whose user looks for it."""
    written: asyncio.Queue[bytes] = asyncio.Queue()

    class Files:
        async def append(self, path: str, data: bytes) -> None:
            written.put_nowait(data)

    async def write(change: SetMeta, *, within: float) -> None:
        await asyncio.get_running_loop().create_future()

    async def act(params: dict[str, Any], only_owner: str | None, asker: str) -> None:
        raise AssertionError("nothing is held")

    cluster = QueuedCluster(1, "me", {"UserLog": "/log"})
    queue = SimpleNamespace(find=lambda cluster_id, proc: QueuedJob(cluster, 0, 1, None, None))
    heard: list[tuple[Listener, AlikeListener]] = []
    ledger = SimpleNamespace(
        last_event=0,
        meta={},
        listen=lambda *listeners: heard.append(listeners),
        queue=queue,
        store=SimpleNamespace(write=write),
    )
    given = SimpleNamespace(files=lambda owner: Files(), node="here")
    reporting = Reporting(cast(Ledger, ledger), cast(RoleContext, given), logging.getLogger("test"), act)
    reporting.begin()
    running = asyncio.get_running_loop().create_task(reporting.run())
    await asyncio.sleep(0)
    for number in range(3):
        heard[0][0]([JobEvent(number + 1, 1, 0, EventKind.HELD, 0.0, {"why": "so"})])
        assert b"Job was held" in await asyncio.wait_for(written.get(), 5)
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])


async def test_progress_is_not_noted_while_a_line_is_being_written(tmp_path: Path) -> None:
    """A schedd that is killed then has to look for that line at its next start."""
    noted: list[Any] = []
    begun, go, stored = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Files:
        async def append(self, path: str, data: bytes) -> None:
            begun.set()
            await go.wait()

    async def write(change: SetMeta, *, within: float) -> None:
        noted.append(change)
        stored.set()

    async def act(params: dict[str, Any], only_owner: str | None, asker: str) -> None:
        raise AssertionError("nothing is held")

    cluster = QueuedCluster(1, "me", {"UserLog": "/log"})
    queue = SimpleNamespace(find=lambda cluster_id, proc: QueuedJob(cluster, 0, 1, None, None))
    heard: list[tuple[Listener, AlikeListener]] = []
    store = SimpleNamespace(write=write)
    ledger = SimpleNamespace(
        last_event=0, meta={}, listen=lambda *listeners: heard.append(listeners), queue=queue, store=store
    )
    given = SimpleNamespace(files=lambda owner: Files(), node="here")
    reporting = Reporting(cast(Ledger, ledger), cast(RoleContext, given), logging.getLogger("test"), act)
    reporting.begin()
    running = asyncio.get_running_loop().create_task(reporting.run())
    await asyncio.sleep(0)
    heard[0][0]([JobEvent(1, 1, 0, EventKind.HELD, 0.0, {"why": "so"})])
    await asyncio.wait_for(begun.wait(), 5)
    await reporting.close()
    assert not noted
    go.set()
    await asyncio.wait_for(stored.wait(), 5)
    assert noted == [SetMeta(LOGGED, b"1")]
    running.cancel()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_jobs_end_is_shown_once_its_log_has_it(hangs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who waits for a job and then reads its log found no end there on a busy machine; a hung log costs 1 s."""

    async def work() -> None:
        go, append = asyncio.Event(), UserFiles.append

        async def late(files: UserFiles, path: str, data: bytes, *, sync: bool = False) -> None:
            if b"005 (" in data:
                await go.wait()
            await append(files, path, data, sync=sync)

        monkeypatch.setattr(UserFiles, "append", late)
        log = tmp_path / "job.log"
        async with SimPool(3, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(2.0))
            await pool.submit("head", ad={"UserLog": str(log)})
            async with asking(pool) as user:
                seen = asyncio.get_running_loop().create_task(_end_of(user))
                await pool.run_until(lambda: pool.queued("head") == 0, within=60)
                await asyncio.sleep(0.5)
                assert not seen.done()
                if hangs:
                    await asyncio.wait_for(seen, 1.0)
                    go.set()
                else:
                    go.set()
                    await asyncio.wait_for(seen, 0.1)
                    assert "\n005 (" in log.read_text()
            pool.assert_sound()

    run_virtual(work())


async def _end_of(user: Pool) -> None:
    async for batch in user.events():
        if any(event["kind"] == "TERMINATED" for event in batch):
            return


def test_a_log_that_is_a_pipe_without_a_reader_holds_its_jobs(tmp_path: Path) -> None:
    """The file server hung in the open, the slots stayed claimed, and the node could not be stopped."""

    async def work() -> None:
        pipe = tmp_path / "log"
        os.mkfifo(pipe)
        async with SimPool(3, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(200.0))
            await pool.submit("head", count=2, ad={"UserLog": str(pipe)})
            other = await pool.submit("head", ad={"UserLog": str(tmp_path / "file")})
            jobs = list(pool.role("head", "schedd").queue.jobs())
            await pool.run_until(lambda: [job.status for job in jobs].count(5) == 2, within=60)
            for job in jobs:
                if job.cluster.id != other:
                    assert job.get("HoldReasonCode") == 22
                    assert "its log: cannot append to" in job.get("HoldReason")
                    assert "a named pipe needs a reader" in job.get("HoldReason")
            await pool.run_until(lambda: pool.queued("head") == 2, within=400)  # the other one runs and ends
            pool.assert_sound()

    run_virtual(work())


def test_a_job_is_always_in_the_queue_or_in_the_history() -> None:
    """While its end is being made durable it is still listed."""

    async def work() -> None:
        async with SimPool(4, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            cluster = await pool.submit("head", count=3)
            ledger = pool.role("head", "schedd").ledger
            go, real = asyncio.Event(), ledger.store.begin

            async def later(*changes: Any, **how: Any) -> Any:
                await go.wait()
                return await real(*changes, **how)

            ledger.store.begin = lambda *changes, **how: asyncio.ensure_future(later(*changes, **how))
            removing = asyncio.create_task(pool.act("head", "alice", action="remove", ids=[[cluster, 1]]))
            await pool.run_until(lambda: pool.queued("head") == 2, within=10)
            async with asking(pool) as user:
                for chosen in ({}, {"ids": [(cluster,)]}, {"owner": "alice"}):
                    assert sorted(ad.value("ProcId") for ad in await user.jobs(**chosen)) == [0, 1, 2]
                go.set()
                await removing
                assert sorted(ad.value("ProcId") for ad in await user.jobs()) == [0, 2]

    run_virtual(work())

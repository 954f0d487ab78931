"""While a lease stands the job's machine answers by itself; a change on the submit side is seen once it is reported."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pool.starter.keeper import NativeKeeper
from tests.checkpoint.remote.conftest import PROGRAMS, Site
from tests.checkpoint.remote.test_connection import Relay
from tests.remoteio.support import JobEnd
from tests.starter.support import PYTHON, hard_kill, helpers, soon, until

KERNEL = tuple(map(int, os.uname().release.split(".")[:2]))
pytestmark = pytest.mark.parametrize("way", ["fuse"])


class Asked:
    """A job that is asked for one thing after the other."""

    def __init__(self, site: Site) -> None:
        self._site = site
        shutil.copy(PROGRAMS / "asked.py", site.scratch)
        for name in ("ask", "answer"):
            os.mkfifo(site.scratch / name)
        self.keeper: NativeKeeper | None = None

    async def start(self, **more: Any) -> NativeKeeper:
        self.keeper = await self._site.start(PYTHON, "/job/asked.py", **more)
        self._questions = await soon(asyncio.to_thread(open, self._site.scratch / "ask", "w"))
        self._answers = await soon(asyncio.to_thread(open, self._site.scratch / "answer"))
        return self.keeper

    async def __call__(self, question: str) -> Any:
        print(question, file=self._questions, flush=True)
        return ast.literal_eval(await soon(asyncio.to_thread(self._answers.readline)))

    async def until(self, question: str, answer: Any) -> None:
        """Ask until that is said: the submit side's word of it is on its way."""
        async with asyncio.timeout(30):
            while (said := await self(question)) != answer:
                assert said is not None

    async def end(self) -> None:
        assert self.keeper is not None
        self._questions.close()
        await soon(self.keeper.ended)
        self._answers.close()
        assert self._site.error() == ""
        await self.keeper.forget()


@pytest.fixture
async def job(site: Site) -> Asked:
    for name in ("f", "g", "d/e/h"):
        (site.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (site.tree / name).write_text("before")
    return Asked(site)


async def leased(site: Site, job: Asked, name: str) -> None:
    """Look at a file until a lease is on its directory: it is read for a while though home does not answer."""
    async with asyncio.timeout(60):
        while not await read_alone(site, job, name):
            pass  # a mount of another test ended the lease in between


async def read_alone(site: Site, job: Asked, name: str) -> bool:
    await job(f"[listed({str(Path(name).parent)!r}) for _ in range(2)]")
    assert await job(f"read({name!r})") == "before"
    if "/" in name:  # the way there was believed before there was a lease: it has to be asked for again
        assert await job(f"reads({name!r}, 1.2)") is True
    site.home.process.send_signal(signal.SIGSTOP)
    try:
        asked = asyncio.ensure_future(job(f"reads({name!r}, 1.2)"))
        done, _ = await asyncio.wait([asked], timeout=10)
    finally:
        site.home.process.send_signal(signal.SIGCONT)
    assert await asked is True
    return bool(done)


def replace(tree: Path) -> None:
    (tree / "new").write_text("after")
    (tree / "new").rename(tree / "f")


def forbid(tree: Path) -> None:
    (tree / "f").chmod(0)


CHANGES: dict[str, tuple[Callable[[Path], object], str, Any]] = {
    "written": (lambda tree: (tree / "f").write_text("after"), "read('f')", "after"),
    "replaced": (replace, "read('f')", "after"),
    "removed": (lambda tree: (tree / "f").unlink(), "read('f')", "No such file or directory"),
    "made": (lambda tree: (tree / "k").touch(), "sorted(os.listdir('.'))", ["d", "f", "g", "k"]),
    "unreadable": (forbid, "read('f')", "Permission denied" if os.getuid() else "before"),
    "with other rights": (forbid, "os.stat('f').st_mode & 0o777", 0),
}


async def test_changes_at_home_are_seen(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    await leased(site, job, "f")
    for change, question, answer in CHANGES.values():
        (site.tree / "f").unlink(missing_ok=True)
        (site.tree / "k").unlink(missing_ok=True)
        (site.tree / "f").write_text("before")
        await job.until("read('f')", "before")
        change(site.tree)
        await job.until(question, answer)
    await job.end()


async def test_the_kernel_asks_for_nothing_while_a_lease_stands(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    if KERNEL < (6, 2):
        pytest.skip("needs a kernel that can be told to ask again (Linux 6.2)")
    keeper = await job.start()
    (server,) = helpers(keeper)
    async with asyncio.timeout(60):
        while True:
            await leased(site, job, "f")
            await job("os.stat('f').st_size")
            before = server.io_counters().read_count
            assert await job("stats('f', 1.2)") > 100
            if server.io_counters().read_count < before + 20:
                break  # a mount of another test may have ended the lease in between
    await job.end()


async def test_attributes_of_an_open_file_are_seen_once_they_are_reported(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "f").chmod(0o644)
    await job.start()
    await job("kept.append(open('f'))")
    await leased(site, job, "f")
    await job("os.fstat(kept[0].fileno()).st_size")
    (site.tree / "f").chmod(0o604)
    async with asyncio.timeout(10):  # what is believed as long as the lease would take a minute
        await job.until("os.fstat(kept[0].fileno()).st_mode & 0o777", 0o604)
    await job.end()


async def test_a_directory_of_which_many_names_are_asked_for_is_listed(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "many").mkdir()
    for number in range(0, 200, 2):
        (site.tree / "many" / str(number)).touch()
    await job.start()
    async with asyncio.timeout(60):
        while not await answered_alone(site, job):
            pass  # a mount of another test ended the lease in between
    for number in (150, 151, 152):
        assert await job(f"there('many', {number}, {number + 1})") == [number][number % 2 :]
    (site.tree / "many" / "151").touch()
    (site.tree / "many" / "152").unlink()
    await job.until("there('many', 151, 153)", [151])
    await job("open('many/153', 'w').close()")
    await job("os.rename('many/154', 'many/155')")
    await job("os.unlink('many/156')")
    assert await job("there('many', 153, 160)") == [153, 155, 158]
    await job.end()


async def answered_alone(site: Site, job: Asked) -> bool:
    """Whether the job's machine answers about names that were not asked for, when others were."""
    assert await job("there('many', 0, 80)") == list(range(0, 80, 2))
    return await answers_alone(site, job, "there('many', 80, 140)", list(range(80, 140, 2)))


async def answers_alone(site: Site, job: Asked, question: str, answer: Any) -> bool:
    """Whether the job's machine gives an answer, which is checked, though the submit side does not answer."""
    site.home.process.send_signal(signal.SIGSTOP)
    try:
        asked = asyncio.ensure_future(job(question))
        done, _ = await asyncio.wait([asked], timeout=10)
    finally:
        site.home.process.send_signal(signal.SIGCONT)
    assert await asked == answer
    return bool(done)


async def test_a_listing_outlives_the_changes_of_some_of_its_names(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    for directory in range(100):  # a mount of another test may have ended the lease in between
        many = site.tree / str(directory)
        many.mkdir()
        for number in range(0, 300, 2):
            (many / str(number)).touch()
        await job(f"there('{directory}', 0, 80)")
        await job(f"exchanged('{directory}', [100, 101, 102])")
        (many / "104").unlink()
        (many / "105").touch()
        await job.until(f"there('{directory}', 100, 107)", [101, 105, 106])
        if await answers_alone(site, job, f"there('{directory}', 200, 240)", list(range(200, 240, 2))):
            break
    await job.end()


async def test_a_directory_that_the_job_makes_is_known_soon(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    for directory in range(100):  # a mount of another test may have ended the lease in between
        await job(f"os.mkdir('{directory}')")
        await job(f"exchanged('{directory}', range(8))")
        if await answers_alone(site, job, f"there('{directory}', 10, 40)", []):
            break
    assert await job(f"there('{directory}', 0, 40)") == list(range(8))
    await job.end()


async def test_a_listing_tells_no_untruth_after_changes_from_both_sides_at_once(site: Site, job: Asked) -> None:
    """Both change names of their own at random, while the listing is fetched and asked; in the end all are right."""
    if not site.able:
        pytest.skip("needs remote files in this way")
    chance = random.Random(17)
    (site.tree / "many").mkdir()
    for number in range(1500):  # a listing of two parts
        (site.tree / "many" / str(number)).touch()
    await job.start()
    for turn in range(12):
        own = [chance.randrange(500, 1000) for _ in range(8)]
        first = chance.randrange(1400)
        asked = asyncio.ensure_future(
            job(f"[exchanged('many', {own}), there('many', {first}, {first + 70}), exchanged('many', {own[:4]})]")
        )
        while not asked.done():
            path = site.tree / "many" / str(chance.choice((chance.randrange(500), chance.randrange(1000, 2000))))
            if path.exists():
                path.unlink()
            else:
                path.write_text("text")
            await asyncio.sleep(0)
        assert (await asked)[0] is None, turn
    left = sorted(int(name) for name in os.listdir(site.tree / "many") if not name.startswith("."))
    await job.until("there('many', 0, 2000)", left)
    await job.end()


async def test_a_lease_ends_with_the_way_to_its_directory(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    await leased(site, job, "d/e/h")
    (site.tree / "d").rename(site.tree / "moved")
    await job.until("read('d/e/h')", "No such file or directory")
    (site.tree / "other" / "e").mkdir(parents=True)
    (site.tree / "other" / "e" / "h").write_text("after")
    (site.tree / "other").rename(site.tree / "d")
    await job.until("read('d/e/h')", "after")
    await job.end()


async def test_leases_end_with_the_connection(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    relay = Relay(site)
    keeper = await job.start(end=JobEnd(await relay.connect(), site.tree))
    await leased(site, job, "f")
    relay.cut()
    (site.tree / "f").write_text("after")
    (await relay.connect(keeper)).close()
    await job.until("read('f')", "after")
    await leased_again(site, job)
    relay.cut()
    await job.end()


def waits_for_kernel(server: psutil.Process) -> bool:
    """Whether one of its threads cannot be interrupted."""
    threads = Path("/proc", str(server.pid), "task").glob("*/stat")
    return any(thread.read_text().rpartition(")")[2].split()[0] == "D" for thread in threads)


@pytest.mark.parametrize("killed", ["the job", "keeper", "server"])
async def test_a_job_ends_though_it_waits_where_the_kernel_is_told_of_a_change(
    site: Site, job: Asked, killed: str
) -> None:
    """Its request is not answered any more, and the kernel hears of the change only after that."""
    if not site.able:
        pytest.skip("needs remote files in this way")
    if KERNEL < (6, 2):
        pytest.skip("needs a kernel that can be told to ask again (Linux 6.2)")
    relay = Relay(site)
    keeper = await job.start(end=JobEnd(await relay.connect(), site.tree))
    (server,) = helpers(keeper)
    await leased(site, job, "f")
    relay.hold_requests()
    asked = asyncio.ensure_future(job("open('new', 'x')"))
    await soon(relay.holds_something.wait())
    (site.tree / "f").chmod(0o604)
    await until(lambda: waits_for_kernel(server))
    if killed == "the job":
        await keeper.kill()
    else:
        hard_kill(keeper.pid if killed == "keeper" else server.pid)
    assert (await soon(keeper.ended)).cause == "killed"
    with contextlib.suppress(SyntaxError):
        await asked
    relay.cut()
    await keeper.forget()
    await until(lambda: not server.is_running())


async def leased_again(site: Site, job: Asked) -> None:
    (site.tree / "f").write_text("before")
    await job.until("read('f')", "before")
    await leased(site, job, "f")


async def test_the_server_follows_one_thread_for_a_while_only(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    keeper = await job.start()
    (server,) = helpers(keeper)
    await leased(site, job, "f")
    assert await job("os.system('cat f > /dev/null')") == 0
    await until(lambda: server.cpu_affinity() == sorted(os.sched_getaffinity(0)))
    await job.end()


async def test_the_job_sees_what_it_changes_itself(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    await leased(site, job, "g")
    for number in range(20):
        assert await job(f"open('g', 'w').write('{number}')") > 0
        assert await job("read('g')") == str(number)
        assert ("g", len(str(number))) in await job("listed('.')")
        assert (site.tree / "g").read_text() == str(number)
    for number in range(20):
        await job(f"os.mkdir('new{number}')" if number % 2 else f"open('new{number}', 'x').close()")
        assert f"new{number}" in await job("os.listdir('.')")
        await job(f"os.rename('new{number}', 'moved')")
        assert {f"new{number}", "moved"} & set(await job("os.listdir('.')")) == {"moved"}
        await job("os.rmdir('moved')" if number % 2 else "os.unlink('moved')")
        assert "moved" not in await job("os.listdir('.')")
    await job.end()

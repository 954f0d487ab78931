"""Files that a job removes one after the other: not waited for, and gone before anybody learns of what came later."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import pytest

from pool.remoteio.frames import Op
from tests.checkpoint.remote.conftest import Site
from tests.checkpoint.remote.test_connection import Relay, outlive_a_cut
from tests.checkpoint.remote.test_late_settings import OlderHome, immutable
from tests.checkpoint.remote.test_leases import Asked, leased
from tests.remoteio.support import JobEnd
from tests.starter.support import until

pytestmark = pytest.mark.parametrize("way", ["fuse"])
FILES = 200
#: Looks at all and removes them: the first is asked for alone, and shows that the others may be removed.
LOOK = "listed('.')"
REMOVE = "[os.unlink(name) for name in os.listdir('.') if name != 'f']"


def fill(site: Site, prefix: str = "") -> list[str]:
    names = [f"{prefix}{number}" for number in range(FILES)]
    for name in names:
        (site.tree / name).write_text(name)
    return names


def shown(site: Site) -> list[str]:
    """The names in the tree that are not hidden ones."""
    return sorted(name for name in os.listdir(site.tree) if not name.startswith("."))


@pytest.fixture
async def job(site: Site) -> Asked:
    (site.tree / "f").write_text("before")
    return Asked(site)


async def removable(site: Site, job: Asked) -> None:
    """There is a lease on the directory, and the job has removed a file under it."""
    await leased(site, job, "f")
    await job("open('first', 'w').close()")
    await job("os.unlink('first')")
    await job(LOOK)


async def removed_alone(site: Site, job: Asked) -> bool:
    """Whether all are removed, for the job, while the submit side does not answer."""
    await removable(site, job)
    site.home.process.send_signal(signal.SIGSTOP)
    try:
        asked = asyncio.ensure_future(job(f"len({REMOVE})"))
        done, _ = await asyncio.wait([asked], timeout=10)
    finally:
        site.home.process.send_signal(signal.SIGCONT)
    assert await asked == FILES
    return bool(done)


async def test_removals_are_not_waited_for_and_come_before_all_that_is_later(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    names = ["f", *fill(site)]
    async with asyncio.timeout(60):
        while not await removed_alone(site, job):
            names += fill(site, f"{len(names)}-")  # a mount of another test ended the lease in between
    await job("open('later', 'w').close()")
    assert shown(site) == ["f", "later"]
    assert sorted(await job("os.listdir('.')")) == ["f", "later"]
    names += fill(site, "again")
    await job.until("len(os.listdir('.'))", FILES + 2)
    await job("os.unlink('later')")
    await job(REMOVE)  # and nothing that is asked for behind them
    await until(lambda: shown(site) == ["f"])
    await job.end()
    site.connect(run=2, back_to=-1).close()
    assert shown(site) == sorted(names)
    assert (site.tree / "0").read_text() == "0"


async def test_a_removal_that_is_refused_is_an_error_of_the_next(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    names = fill(site)
    async with asyncio.timeout(60):
        while True:
            await removable(site, job)
            with immutable(site.tree / "7"):
                said = await job("os.unlink('7')")
                told = await job("os.fsync(os.open('.', os.O_RDONLY))")
            if said is None:
                break
            assert said == "Operation not permitted"  # a mount of another test ended the lease in between
    assert told == "Operation not permitted"
    assert await job("read('7')") == "7"
    assert (site.tree / "7").read_text() == "7"
    await job(REMOVE)
    await job("os.fsync(os.open('.', os.O_RDONLY))")
    assert not {*names} & {*os.listdir(site.tree)}
    await job.end()
    site.home.ask("leave", job="1.0", run=0)
    assert [event["why"] for event in site.home.events] == [
        f"what it removed, {site.tree}/7, is still there: operation not permitted"
    ]


@pytest.mark.parametrize("killed", [False, True])
async def test_removals_under_way_outlive_the_connection(site: Site, job: Asked, killed: bool) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    relay = Relay(site)
    keeper = await job.start(end=JobEnd(await relay.connect(), site.tree))
    names = fill(site)
    await removable(site, job)
    again = await outlive_a_cut(relay, site, keeper, job(REMOVE), killed)
    await job("os.fsync(os.open('.', os.O_RDONLY))")
    assert not {*names} & {*os.listdir(site.tree)}
    await job.end()
    again.cut()


async def test_an_older_submit_side_removes_one_after_the_other(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    relay = OlderHome(site, Op.UNLINK_NAMES)
    theirs: socket.socket = await relay.connect()
    await job.start(end=JobEnd(theirs, site.tree))
    refused = []
    for prefix in ("one", "two"):
        names = fill(site, prefix)
        await job.until("len(os.listdir('.'))", FILES + 1)
        await removable(site, job)
        await job(REMOVE)
        await job("os.fsync(os.open('.', os.O_RDONLY))")
        assert not {*names} & {*os.listdir(site.tree)}
        refused.append(relay.refused)
    assert refused[0] == refused[1] > 0
    await job.end()
    relay.cut()

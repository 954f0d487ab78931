"""The spool of a schedd under trouble: broken connections, removals, restarts, hostile clients; in virtual time."""

from __future__ import annotations

import asyncio
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from pool.client.receipts import Receipt
from pool.client.spooling import InputsOnTheWay
from pool.errors import PoolError
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from pool.wire import Connection, RemoteError
from pool.wire.errors import WireError
from tests.roles.support import QUICK, asking, lasting

#: The users whose files this process may make.
ME = pwd.getpwuid(os.geteuid()).pw_name
AD = {"Cmd": "/home/x/prog", "Iwd": "/home/x", "Out": "out", "UserLog": "logs/log", "TransferInput": "in"}
DONE = ["done"]


async def head(pool: SimPool) -> None:
    await pool.add("head", "collector,negotiator,schedd")


async def submit(link: Connection, count: int = 2) -> int:
    ad = AD | {"RequestCpus": 1, "RequestMemory": 1, "RequestDisk": 1, "Requirements": ["true"]}
    answer = await link.call("schedd.submit", {"ad": ad, "count": count, "spool": True})
    return int(answer["cluster"])


async def send(link: Connection, cluster: int, *items: Any) -> list[Any]:
    """Send inputs; all that the schedd answers."""
    stream = await link.stream("schedd.spool_inputs", {"cluster": cluster})
    for item in items:
        await stream.send(item)
    return [item async for item in stream]


def jobs(pool: SimPool) -> list[Any]:
    return list(pool.role("head", "schedd").queue.jobs())


def held(pool: SimPool) -> list[tuple[int, Any]]:
    return [(int(job.status), job.get("HoldReasonCode")) for job in jobs(pool)]


def root(pool: SimPool, cluster: int) -> Path:
    return Path(pool.role("head", "schedd").spool._root(cluster))


def content(pool: SimPool, cluster: int, path: Path) -> bytes:
    return Path(f"{root(pool, cluster)}/files{path}").read_bytes()


def in_pool(work: Any, tmp_path: Path, **settings: str) -> None:
    async def whole() -> None:
        async with SimPool(7, settings=QUICK | settings, directory=tmp_path, stateful=True) as pool:
            await head(pool)
            await work(pool)
            pool.assert_sound()

    run_virtual(whole())


FILES = (["dir", "/home/x", 0o755], ["file", "/home/x/prog", 0o755, 4], b"prog", ["file", "/home/x/in", 0o644, 6])


def test_jobs_are_held_until_all_has_come_over_two_connections_and_a_restart(tmp_path: Path) -> None:
    async def work(pool: SimPool) -> None:
        link = await pool.network.user(ME, "head")
        cluster = await submit(link)
        assert held(pool) == [(5, 16), (5, 16)]
        assert jobs(pool)[0].get("HoldReason") == "Spooling input data files"
        done = await pool.act("head", ME, action="release", ids=[[cluster]])
        assert (done["done"], done["refused"][0]["why"]) == (0, "its input files have not all come")
        stream = await link.stream("schedd.spool_inputs", {"cluster": cluster})
        for item in (*FILES, b"inp"):
            await stream.send(item)
        assert await stream.receive() == ["go"]
        await pool.run_until(lambda: (root(pool, cluster) / "files/home/x/prog").exists(), within=10)
        await link.close()
        link = await pool.network.user(ME, "head")
        with pytest.raises(RemoteError, match="belongs to"):
            await send(await pool.network.user("mallory", "head"), cluster, DONE)
        stream = await link.stream("schedd.spool_inputs", {"cluster": cluster})
        assert await stream.receive() == ["there", ["/home/x", "/home/x/prog"]]
        await link.close()
        assert held(pool) == [(5, 16), (5, 16)]
        await pool.kill("head")
        await pool.restart("head")
        assert held(pool) == [(5, 16), (5, 16)]
        link = await pool.network.user(ME, "head")
        answers = await send(link, cluster, *FILES, ["hole", 3], b"put", DONE)
        assert answers[0] == ["go"]
        assert answers[-1][0] == "ok"
        assert content(pool, cluster, Path("/home/x/in")) == b"\0\0\0put"
        assert held(pool) == [(1, None), (1, None)]
        assert await send(link, cluster) == [["complete"]]
        await pool.kill("head")
        await pool.restart("head")
        await pool.add("m1", "startd", behave=lambda spec: lasting(5.0))
        await pool.run_until(lambda: [int(job.status) for job in jobs(pool)] == [4, 4], within=300)
        log = (root(pool, cluster) / "files/home/x/logs/log").read_text()
        assert (log.count("000 ("), log.count("005 (")) == (2, 2)
        await pool.act("head", ME, action="remove", ids=[[cluster]])
        await pool.run_until(lambda: not root(pool, cluster).exists(), within=100)

    in_pool(work, tmp_path)


def test_a_cluster_that_is_removed_while_it_is_sent_leaves_nothing(tmp_path: Path) -> None:
    async def work(pool: SimPool) -> None:
        link = await pool.network.user(ME, "head")
        cluster = await submit(link)
        stream = await link.stream("schedd.spool_inputs", {"cluster": cluster})
        await stream.send(["file", "/home/x/in", 0o644, 100])
        assert await stream.receive() == ["go"]
        await pool.act("head", ME, action="remove", ids=[[cluster]])
        await stream.send(b"x" * 100)
        with pytest.raises(WireError, match="removed while its files were sent"):
            await stream.receive()
        await pool.run_until(lambda: not root(pool, cluster).exists(), within=100)
        assert list(pool.role("head", "schedd").spool._records) == []

    in_pool(work, tmp_path)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([["file", "relative", 0o644, 1]], "absolute path"),
        ([["file", "/a\0b", 0o644, 1]], "absolute path"),
        ([["dir", "/" + "d/" * 300, 0o755]], "directories deep"),
        ([["file", "/f", 0o644, -1]], "makes no sense"),
        ([["file", "/f", 0o644]], "makes no sense"),
        ([["link", "/f", "/etc/passwd"]], "makes no sense"),
        ([5], "makes no sense"),
        ([b"x"], "longer or shorter"),
        ([["file", "/f", 0o644, 1], b"xx"], "longer or shorter"),
        ([["file", "/f", 0o644, 3], ["hole", 4]], "longer or shorter"),
        ([["file", "/f", 0o644, 3], DONE], "longer or shorter"),
    ],
)
def test_what_a_hostile_client_sends_is_refused(tmp_path: Path, items: list[Any], said: str) -> None:
    async def work(pool: SimPool) -> None:
        link = await pool.network.user(ME, "head")
        cluster = await submit(link)
        with pytest.raises(RemoteError, match=said):
            await send(link, cluster, *items, DONE)
        assert held(pool) == [(5, 16), (5, 16)]

    in_pool(work, tmp_path)


def test_a_hostile_client_writes_nowhere_but_in_its_spool(tmp_path: Path) -> None:
    async def work(pool: SimPool) -> None:
        link = await pool.network.user(ME, "head")
        cluster = await submit(link)
        away = f"/../../../../../../../..{tmp_path}/escaped"
        answers = await send(link, cluster, ["file", away, 0o4777, 1], b"x", DONE)
        assert answers[-1][0] == "ok"
        assert not (tmp_path / "escaped").exists()
        assert content(pool, cluster, tmp_path / "escaped") == b"x"
        assert not os.stat(f"{root(pool, cluster)}/files{tmp_path}/escaped").st_mode & 0o7000

    in_pool(work, tmp_path)


def test_a_submit_that_was_broken_off_is_removed_in_the_end(tmp_path: Path) -> None:
    async def work(pool: SimPool) -> None:
        link = await pool.network.user(ME, "head")
        cluster = await submit(link)
        await pool.run_until(lambda: not jobs(pool), within=3 * 3600)
        ads = await pool.ended("head")
        assert {ad["RemoveReason"] for ad in ads} == {"its input files did not come within SPOOL_KEPT"}
        await pool.run_until(lambda: not root(pool, cluster).exists(), within=100)

    in_pool(work, tmp_path, SPOOL_KEPT="600")


def test_completed_jobs_wait_so_long_to_be_fetched(tmp_path: Path) -> None:
    async def work(pool: SimPool) -> None:
        link = await pool.network.user(ME, "head")
        cluster = await submit(link, 1)
        await send(link, cluster, *FILES, b"inputs", DONE)
        await pool.add("m1", "startd", behave=lambda spec: lasting(5.0))
        await pool.run_until(lambda: jobs(pool)[0].status == 4, within=300)
        ended = pool.wall()
        await pool.run_until(lambda: not jobs(pool), within=3600)
        assert 600 <= pool.wall() - ended < 700
        await pool.run_until(lambda: not root(pool, cluster).exists(), within=100)
        stream = await link.stream("schedd.fetch_outputs", {"ids": [[cluster]]})
        with pytest.raises(RemoteError, match="no outputs of it are kept"):
            await stream.receive()

    in_pool(work, tmp_path, SPOOL_KEPT="600")


def test_outputs_are_given_with_the_end_in_the_log(tmp_path: Path) -> None:
    """A job is complete in the queue a moment before its log says so, which is fetched once only."""

    async def work(pool: SimPool) -> None:
        link = await pool.network.user(ME, "head")
        cluster = await submit(link, 1)
        await send(link, cluster, *FILES, b"inputs", DONE)
        reporting = pool.role("head", "schedd").reporting
        append, go = reporting._append, asyncio.Event()

        async def late(*parameters: Any) -> None:
            await go.wait()
            await append(*parameters)

        reporting._append = late
        await pool.add("m1", "startd", behave=lambda spec: lasting(5.0))
        await pool.run_until(lambda: jobs(pool)[0].status == 4, within=300)
        asyncio.get_running_loop().call_later(0.5, go.set)
        stream = await link.stream("schedd.fetch_outputs", {"ids": [[cluster]], "keep": True})
        given = b""
        while (item := await stream.receive()) != ["over", []]:
            given += item if isinstance(item, bytes) else b""
        assert given.count(b"005 (") == 1
        await stream.finish()

    in_pool(work, tmp_path)


def test_a_client_goes_on_where_its_connection_broke(tmp_path: Path) -> None:
    """A cut after the first file: it is made again, and only what is missing is sent."""
    home = tmp_path / "home"
    home.mkdir()
    names = ["one", "two", "three"]
    for name in names:
        (home / name).write_bytes(os.urandom(700_000))

    async def work(pool: SimPool) -> None:
        async with asking(pool, ME) as client:
            ad = AD | {"Cmd": f"{home}/one", "Iwd": str(home), "TransferInput": "two,three", "UserLog": ""}
            params = {"ad": ad, "count": 1, "spool": True}
            cluster = int((await client.call("schedd.submit", params))["cluster"])
            cuts = 0

            class Cutting(InputsOnTheWay):
                def count_sent(self, size: int) -> None:
                    nonlocal cuts
                    super().count_sent(size)
                    if self.size > 1_000_000 and not cuts:
                        cuts += 1
                        client._links[client.address]._transport.abort()  # type: ignore[attr-defined]

            sending = Cutting(client, Receipt.from_submit(cluster, 1, ad, None), None)
            with pytest.raises(PoolError) as caught:
                await sending.run()
            assert (cuts, caught.value.retry) == (1, True)
            before = sending.size
            await sending.run()
            assert sending.size - before < 2_100_000 - 600_000
            assert held(pool) == [(1, None)]
            for name in names:
                assert content(pool, cluster, home / name) == (home / name).read_bytes()

    in_pool(work, tmp_path)

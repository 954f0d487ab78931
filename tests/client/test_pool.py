"""The client over the real wire, against a node that only remembers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pool.client import DescriptionWarning, NoPool, Pool
from pool.client.tally import Tally
from pool.errors import PoolError
from pool.jobs.description import Description, read_description
from pool.outside import OutsideWorld
from tests.client.fakes import Fakes
from tests.client.serving import serving

DEADLINE = 5.0


@pytest.fixture
def fakes() -> Fakes:
    return Fakes()


async def test_a_dict_is_submitted_as_a_cluster(fakes: Fakes, tmp_path: Path) -> None:
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        cluster = await pool.submit({"executable": "/bin/true", "arguments": "$(Process)", "queue": 3})
        assert (cluster.cluster, cluster.count) == (1, 3)
        assert [repr(job) for job in cluster.jobs] == ["<Job 1.0>", "<Job 1.1>", "<Job 1.2>"]
        sent = fakes.schedd.submitted[0]
        assert sent["ad"]["Cmd"] == "/bin/true"
        assert len(sent["deltas"]) == 3
        ads = await cluster.ads(["Args", "Arguments", "ClusterId", "ProcId"])
        assert [ad.value("Args", ad.value("Arguments")) for ad in ads] == ["0", "1", "2"]


async def test_an_equal_description_is_read_once_and_submitted_each_time(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def reading(text: str, **how: Any) -> Description:
        read.append(text)
        return read_description(text, **how)

    monkeypatch.setattr("pool.jobs.description.read_description", reading)
    outside = OutsideWorld(wall=lambda: 1000.0)
    async with serving(fakes, tmp_path) as address, await Pool.connect(address, outside=outside) as pool:
        for _ in range(3):
            await pool.submit({"executable": "/bin/true", "output": "$(ClusterId)", "queue": 2})
        assert len(read) == 1
        assert [sent["ad"]["Out"] for sent in fakes.schedd.submitted] == ["1", "2", "3"]
        await pool.describe({"executable": "/bin/true", "output": "$(ClusterId)", "queue": 2})
        assert len(read) == 2, "the caller of describe may change what it gets"


async def test_what_is_said_about_a_description_reaches_python(fakes: Fakes, tmp_path: Path) -> None:
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        with pytest.warns(DescriptionWarning) as caught:
            await pool.submit({"executable": "/bin/true", "ouput": "out", "request_memry": 5, "skip_if_dataflow": True})
        said = sorted(str(one.message).partition("warning: ")[2] for one in caught)
        assert [one.split("'")[1] for one in said] == ["ouput", "request_memry", "skip_if_dataflow"]
        assert "did you mean output?" in said[0]
        assert "did you mean request_memory?" in said[1]
        with pytest.raises(PoolError, match="cannot be the name of a command"):
            await pool.submit({"executable": "/bin/true", "out-put": "out"})
        with pytest.raises(PoolError, match="universe = grid belongs to the grid universe"):
            await pool.submit_all({"executable": "/bin/true", "universe": "grid", "grid_resource": "batch slurm"})
        assert len(fakes.schedd.submitted) == 1


async def test_equal_jobs_are_sent_once(fakes: Fakes, tmp_path: Path) -> None:
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        await pool.submit("executable = /bin/true\nqueue 1000\n")
        assert fakes.schedd.submitted[0]["deltas"] is None
        assert fakes.schedd.submitted[0]["count"] == 1000


async def test_a_path_is_read_in_its_place(fakes: Fakes, tmp_path: Path) -> None:
    (tmp_path / "a.sub").write_text("executable = /bin/true\noutput = out\nqueue\n")
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        await pool.submit(Path("a.sub"), iwd=tmp_path)
        assert fakes.schedd.submitted[0]["ad"]["Iwd"] == str(tmp_path)


async def test_a_file_that_names_its_cluster_gets_the_number_it_has(fakes: Fakes, tmp_path: Path) -> None:
    fakes.schedd.clusters = 41
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        cluster = await pool.submit("executable = /bin/true\noutput = out.$(Cluster).$(Process)\nqueue 2\n")
        assert cluster.cluster == 42
        outs = sorted(ad["Out"] for ad in fakes.schedd.jobs.values())
        assert [Path(out).name for out in outs] == ["out.42.0", "out.42.1"]


async def test_waiting_follows_events_and_brings_results(fakes: Fakes, tmp_path: Path) -> None:
    seen: list[int] = []
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        cluster = await pool.submit({"executable": "/bin/true", "queue": 2})

        def progress(tally: Tally) -> None:
            seen.append(tally.ended)

        waiting = asyncio.ensure_future(cluster.wait(DEADLINE, progress=progress))
        fakes.schedd.start((1, 0))
        fakes.schedd.start((1, 1))
        fakes.schedd.finish((1, 1), 3)
        fakes.schedd.finish((1, 0))
        results = await waiting
        assert [(r.job, r.exit_code, r.ok, r.wall, r.cpu) for r in results] == [
            ("1.0", 0, True, 2.0, 1.5),
            ("1.1", 3, False, 2.0, 1.5),
        ]
        assert seen[0] == 0
        assert seen[-1] == 2


async def test_waiting_for_what_has_ended_long_ago_returns_at_once(fakes: Fakes, tmp_path: Path) -> None:
    fakes.schedd.add(7, 0)
    fakes.schedd.finish((7, 0))
    fakes.schedd.told.clear()  # its events were trimmed
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        assert (await pool.job(7).wait(DEADLINE)).ok is True
        assert [r.job for r in await pool.cluster(7).wait(DEADLINE)] == ["7.0"]


async def test_a_job_put_back_after_its_exit_is_waited_for_again(fakes: Fakes, tmp_path: Path) -> None:
    fakes.schedd.add(7, 0)
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        waiting = asyncio.ensure_future(pool.job(7).wait(DEADLINE))
        fakes.schedd.start((7, 0))
        fakes.schedd.event((7, 0), "TERMINATED")  # but the ad stays in the queue, running
        fakes.schedd.event((7, 0), "EVICTED")
        fakes.schedd.start((7, 0))
        fakes.schedd.finish((7, 0), 0)
        assert (await waiting).ok


async def test_waiting_can_end_when_only_held_jobs_are_left(fakes: Fakes, tmp_path: Path) -> None:
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        cluster = await pool.submit({"executable": "/bin/true", "queue": 2})
        fakes.schedd.finish((1, 0))
        fakes.schedd.hold((1, 1), "no such file")
        results = await cluster.wait(DEADLINE, until_stuck=True)
        assert [(r.state, r.reason) for r in results] == [("completed", ""), ("held", "no such file")]
        with pytest.raises(TimeoutError):
            await cluster.wait(0.05)


async def test_waiting_for_what_never_was_is_an_error(fakes: Fakes, tmp_path: Path) -> None:
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        with pytest.raises(PoolError, match=r"there is no job 99"):
            await pool.cluster(99).wait(DEADLINE)
        with pytest.raises(PoolError, match=r"there is no job 99\.0"):
            await pool.job(99).result()


async def test_waiting_survives_a_restart_of_the_node(fakes: Fakes, tmp_path: Path) -> None:
    async with serving(fakes, tmp_path) as address:
        pool = await Pool.connect(address)
        cluster = await pool.submit({"executable": "/bin/true", "queue": 2})
        began = asyncio.Event()
        waiting = asyncio.ensure_future(cluster.wait(DEADLINE, progress=lambda tally: began.set()))
        await began.wait()
    fakes.schedd.finish((1, 0))
    async with serving(fakes, tmp_path):
        fakes.schedd.finish((1, 1))
        assert [r.ok for r in await waiting] == [True, True]
        await pool.close()


async def test_actions_reach_the_schedd_and_refusals_come_back(fakes: Fakes, tmp_path: Path) -> None:
    fakes.schedd.add(1, 0)
    fakes.schedd.add(1, 1, Owner="bob")
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        acted = await pool.cluster(1).hold("wait a moment")
        assert (acted.done, acted.refused) == (1, (("1.1", "it belongs to bob"),))
        await pool.job(1, 0).prio(5)
        await pool.job(1, 0).vacate(fast=True)
        await pool.cluster(1).release()
        await pool.act("remove", everything=True, force=True)
    assert [(a["action"], a.get("ids"), a["value"], a["force"]) for a in fakes.schedd.acted] == [
        ("hold", [[1]], None, False),
        ("prio", [[1, 0]], 5, False),
        ("vacate", [[1, 0]], None, True),
        ("release", [[1]], None, False),
        ("remove", None, None, True),
    ]


async def test_output_is_followed_to_its_end(fakes: Fakes, tmp_path: Path) -> None:
    fakes.schedd.add(1, 0)
    fakes.schedd.output[1, 0] = b"one\n"
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        pieces: list[bytes] = []
        async for piece in pool.job(1).tail():
            pieces.append(piece)
            if len(pieces) == 1:
                fakes.schedd.output[1, 0] += b"two\n"
                fakes.schedd.finish((1, 0))
        assert b"".join(pieces) == b"one\ntwo\n"


async def test_events_can_be_left_in_the_middle(fakes: Fakes, tmp_path: Path) -> None:
    fakes.schedd.add(1, 0)
    fakes.schedd.start((1, 0))
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        async for event in pool.job(1).events():
            assert event.cluster == 1
            break
        assert len(await pool.jobs()) == 1, "the connection is still good"


async def test_what_is_refused_says_why_in_the_others_words(fakes: Fakes, tmp_path: Path) -> None:
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        with pytest.raises(PoolError, match=r"alice has too many jobs \(remove some\)"):
            await pool.submit({"executable": "/bin/refused", "transfer_executable": "false"})


async def test_listings_and_machines(fakes: Fakes, tmp_path: Path) -> None:
    for n in range(1200):
        fakes.schedd.add(1, n)
    fakes.collector.ads["Machine"] = [{"Name": "slot1@ijs", "Cpus": 2}]
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        assert len(await pool.jobs(attributes=["ProcId"])) == 1200
        assert len(await pool.jobs(ids=[(1, 7)])) == 1
        assert [ad.value("Cpus") for ad in await pool.machines()] == [2]
        assert await pool.history() == []
        assert await pool.summary() == []


async def test_no_node_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(NoPool, match="no node"):
        await Pool.connect(str(tmp_path / "node.sock"))


async def test_descriptions_that_cannot_be_sent(fakes: Fakes, tmp_path: Path) -> None:
    two = "executable = /bin/true\nqueue\nexecutable = /bin/false\nqueue\n"
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        with pytest.raises(PoolError, match="spans several lines"):
            await pool.submit({"executable": "/bin/true\nqueue 5"})
        with pytest.raises(PoolError, match="cannot read job file"):
            await pool.submit(Path("absent.sub"))
        description = await pool.describe(two)
        if len(description.clusters) == 2:
            with pytest.raises(PoolError, match="2 clusters"):
                await pool.submit(description)
            assert len(await pool.submit_all(description)) == 2

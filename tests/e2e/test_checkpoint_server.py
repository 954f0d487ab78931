"""Checkpoints that are kept on another node, while the schedd that they are of dies and comes back (C5, A3)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e import support
from tests.e2e.support import client, slots, token, until
from tests.e2e.test_moving_files import COUNT, enough, reaches, submit, whole
from tests.images.s3 import served


def logged(home: Path) -> str:
    """The job's log; it is written beside the work."""
    path = home / "log"
    return path.read_text() if path.exists() else ""


async def test_a_node_keeps_the_checkpoints_of_another() -> None:
    with support.nodes() as nodes:
        head = nodes.start("head", "collector,negotiator").ready()
        kept = nodes.directory("kept")
        join = await token(head, "startd")
        keeper = nodes.start("keep", "startd", join=join, CHECKPOINT_DIR=str(kept), START="false").ready()
        address = keeper.said("ready")["address"]
        join = await token(head, "schedd")
        submitter = nodes.start("submit", "schedd", join=join, CHECKPOINT_SERVER=address).ready()
        join = await token(head, "startd")
        nodes.start("one", "startd", join=join, FILESYSTEM_DOMAIN="one", CHECKPOINT_WORTH="0").ready()
        home = nodes.directory("home")
        (home / "count.py").write_text(COUNT)
        (home / "input.txt").write_text("hello\n")

        def blobs() -> list[Path]:
            return [path for path in kept.rglob("*") if path.is_file() and path.parent.name != "spare"]

        async with client(head) as pool:
            await slots(pool, 2)
        async with client(submitter) as pool:
            cluster = await submit(pool, home)
            await until(lambda: "Job executing" in logged(home), "the job to run")
            await reaches(cluster, b"\n30\n")
            assert (await cluster.checkpoint()).done == 1
            assert any(path.suffix == ".manifest" for path in blobs())
            (home / "input.txt").write_text("bye\n")
        submitter.crash()
        keeper.crash()
        again = nodes.start("submit", "schedd", CHECKPOINT_SERVER=address).ready()
        async with client(again) as pool:
            cluster = pool.cluster(cluster.cluster)
            await until(lambda: "reconnected" in again.text or "taking up" in again.text, "the schedd to know its jobs")
            await cluster.vacate(fast=True)
            job = f"{cluster.cluster}.0"

            async def said() -> str:
                return "\n".join((await pool.why(job)).lines())

            await until(lambda: "Job was evicted" in logged(home), "the job to lose its machine")
            assert f"{job} waits" in (text := await said()), text
            assert f"its checkpoint lies at {address}, which cannot be reached" in text
            other = await submit(pool, home, output="other", log="other.log", arguments="--version")
            (result,) = await other.wait(support.PATIENCE)  # who has no checkpoint waits for none
            assert result.state == "completed", result
            listen = {"LISTEN": address.removeprefix("tcp://")}
            nodes.start("keep", "startd", CHECKPOINT_DIR=str(kept), START="false", **listen).ready()
            await enough(nodes, cluster, home)
            (result,) = await cluster.wait(support.PATIENCE)
            assert (result.state, result.exit_code) == ("completed", 0), result
        whole(home)
        assert logged(home).count("Job executing on host") == 2
        await until(lambda: not blobs(), "the images to go with the job")
        assert again.text.count("the checkpoint server is away") == 1
        for node in nodes.all:
            assert "Traceback" not in node.text, node.text


async def test_an_object_store_keeps_them(tmp_path: Path) -> None:
    """S3, by s3fs: a job that loses its machine goes on from what is there, and nothing of it stays."""
    pytest.importorskip("s3fs", reason="needs s3fs, of the package's extra 'test'")
    with support.nodes() as nodes, served(tmp_path) as settings:
        head = nodes.start("head", "collector,negotiator").ready()
        environ = {"FSSPEC_S3": json.dumps(settings)}
        server = "s3://bucket/checkpoints"
        join = await token(head, "schedd")
        submitter = nodes.start("submit", "schedd", join=join, environ=environ, CHECKPOINT_SERVER=server).ready()
        join = await token(head, "startd")
        nodes.start("one", "startd", join=join, FILESYSTEM_DOMAIN="one", CHECKPOINT_WORTH="0").ready()
        home = nodes.directory("home")
        (home / "count.py").write_text(COUNT)
        (home / "input.txt").write_text("hello\n")

        def blobs() -> list[str]:
            return [path.name for path in (tmp_path / "bucket").iterdir()]

        async with client(submitter) as pool:
            cluster = await submit(pool, home)
            await reaches(cluster, b"\n30\n")
            assert (await cluster.checkpoint()).done == 1
            await until(lambda: any(name.endswith(".manifest") for name in blobs()), "the checkpoint to arrive")
            await cluster.vacate(fast=True)
            await until(lambda: logged(home).count("Job executing") == 2, "the job to go on")
            await enough(nodes, cluster, home)
            (result,) = await cluster.wait(support.PATIENCE)
            assert (result.state, result.exit_code) == ("completed", 0), result
        whole(home)
        await until(lambda: not blobs(), "the images to go with the job")
        for node in nodes.all:
            assert "Traceback" not in node.text, node.text

"""Jobs whose root is an unpacked image, on a real node."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from pool.client import Pool
from tests.e2e.support import ALL, Node, Nodes, client, outcome, program, until
from tests.starter.images import make_image
from tests.starter.test_unpacking import archive


async def able(pool: Pool) -> None:
    """Skip the test where the machine cannot give a job another root."""
    machines = await pool.machines(attributes=("HasContainer",))
    if not any(ad.value("HasContainer", False) is True for ad in machines):
        pytest.skip("needs a file tree of a job's own")


def image_of(nodes: Nodes) -> tuple[Path, Path]:
    home = nodes.directory("home")
    return home, make_image(home / "tree")


async def test_a_directory_is_the_root_of_a_job(nodes: Nodes) -> None:
    home, image = image_of(nodes)
    (home / "in").write_text("an input\n")
    whole: Node = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        await able(pool)
        result = await outcome(
            pool,
            home,
            universe="container",
            container_image="tree",
            executable=program(home, "cat /etc/image in; ls /home; pwd; echo made > made"),
            transfer_input_files="in",
            output="out",
            error="err",
        )
        assert result.ok, result
        assert (home / "out").read_text() == "the image's own\nan input\n/job\n"
        assert "/home" in (home / "err").read_text()
        assert (home / "made").read_text() == "made\n"
        result = await outcome(
            pool,
            home,
            container_image=str(image),
            executable="cat",
            transfer_executable="false",
            arguments="/etc/image",
            output="out",
        )
        assert result.ok, result
        assert (home / "out").read_text() == "the image's own\n"
        result = await outcome(pool, home, container_image="none", executable="sh", transfer_executable="false")
        assert result.state == "held"
        assert "none" in result.reason


async def test_an_image_that_no_machine_can_unpack_is_explained(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        commands = {"container_image": "image.sif", "executable": "true", "transfer_executable": "false"}
        (home / "image.sif").touch()
        cluster = await pool.submit(commands, iwd=str(home))
        said = "\n".join((await pool.why((cluster.ids[0][0], 0))).lines())
        assert "HasSIF" in said or "HasContainer" in said, said
        await cluster.remove()


async def test_a_checkpoint_of_it_is_refused_by_name(nodes: Nodes) -> None:
    home, image = image_of(nodes)
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        await able(pool)
        commands = {
            "container_image": str(image),
            "executable": program(home, "echo begun; sleep 1000"),
            "output": "out",
            "stream_output": "true",
        }
        cluster = await pool.submit(commands, iwd=str(home))
        await until(lambda: (home / "out").exists() and "begun" in (home / "out").read_text(), "its first line")
        done = await cluster.checkpoint()
        assert "the root of the job is an image" in str(done.refused)
        await cluster.remove()


async def test_an_archive_of_an_image_is_unpacked(nodes: Nodes) -> None:
    home, image = image_of(nodes)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(image, ".")
    archive(home / "image.tar", "docker", data.getvalue())
    (home / "wrong.tar").write_text("no archive")
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        await able(pool)
        commands = {"executable": "sh", "transfer_executable": "false", "arguments": "\"-c 'cat /etc/image; env'\""}
        result = await outcome(pool, home, container_image="image.tar", output="out", **commands)
        assert result.ok, result
        said = (home / "out").read_text().splitlines()
        assert said[0] == "the image's own"
        assert "COLOUR=green" in said
        result = await outcome(pool, home, container_image="image.tar", output="out", **commands)
        assert result.ok, result
        kept = list(whole.state.glob("cached-images/*/*/etc/image"))
        assert len(kept) == 1
        result = await outcome(pool, home, container_image="wrong.tar", **commands)
        assert result.state == "held"
        assert "cannot unpack the image" in result.reason


@pytest.mark.parametrize("form", ["docker", "layout"])
async def test_the_image_says_which_program_runs(nodes: Nodes, form: str) -> None:
    """Its own words, or the job's arguments in the place of its command; it begins in the job's directory."""
    home, image = image_of(nodes)
    (image / "work").mkdir()
    (image / "work" / "own").write_text("echo own $COLOUR $@ in $PWD > made; cat made; exit 0\n")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(image, ".")
    config: dict[str, object] = {"Env": ["PATH=/bin", "COLOUR=green"], "WorkingDir": "/work"}
    config |= {"Entrypoint": ["sh", "own"], "Cmd": ["alone"]}
    archive(home / "image.tar", form, data.getvalue(), config=config)
    (home / "in").write_text("")
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        await able(pool)
        job = {"container_image": "image.tar", "output": "out", "transfer_input_files": "in"}
        result = await outcome(pool, home, **job)
        assert result.ok, result
        assert (home / "out").read_text() == (home / "made").read_text() == "own green alone in /job\n"
        result = await outcome(pool, home, arguments="given words", environment="COLOUR=blue", **job)
        assert result.ok, result
        assert (home / "out").read_text() == "own blue given words in /job\n"
        result = await outcome(pool, home, container_image=str(image), output="out")
        assert result.state == "held"
        assert "names no program, and the job has no executable" in result.reason

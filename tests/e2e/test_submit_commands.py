"""The effect of submit commands on jobs whose files are copied, on a real node."""

from __future__ import annotations

import re

from tests.e2e.support import ALL, Nodes, client, outcome, program, until


async def test_output_comes_home_as_it_is_written_and_a_removal_asks_by_its_own_signal(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    text = "trap 'echo asked' USR2; echo one; echo wrong >&2; while :; do sleep 0.1; done"
    async with client(whole) as pool:
        commands = {
            "executable": program(home, text),
            "should_transfer_files": "YES",
            "output": "out",
            "error": "err",
            "stream_output": "true",
            "stream_error": "true",
            "remove_kill_sig": "SIGUSR2",
        }
        cluster = await pool.submit(commands, iwd=str(home))
        await until(lambda: (home / "out").exists() and (home / "out").read_text() == "one\n", "its first line")
        await until(lambda: (home / "err").exists() and (home / "err").read_text() == "wrong\n", "its first error")
        await cluster.remove()
        await until(lambda: (home / "out").read_text() == "one\nasked\n", "what the signal made it say")
        await cluster.remove(force=True)


async def test_a_streamed_output_is_whole_at_the_end(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    lines = "".join(f"line {number}\n" for number in range(1, 151))
    async with client(whole) as pool:
        result = await outcome(
            pool,
            home,
            executable=program(home, 'n=0; while [ $n -lt 150 ]; do n=$((n+1)); echo "line $n"; sleep 0.01; done'),
            should_transfer_files="YES",
            output="out",
            stream_output="true",
        )
    assert result.ok, result
    assert (home / "out").read_text() == lines


async def test_paths_stacks_and_manifests(nodes: Nodes) -> None:
    home = nodes.directory("home")
    (home / "sub" / "below").mkdir(parents=True)
    (home / "sub" / "below" / "in").write_text("deep\n")
    (home / "flat").write_text("flat\n")
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        result = await outcome(
            pool,
            home,
            executable=program(home, "ulimit -s; cat sub/below/in flat; mkdir -p res/deep; echo made > res/deep/out"),
            should_transfer_files="YES",
            transfer_input_files=f"sub/below/in, {home}/flat",
            transfer_output_files="res/deep/out",
            preserve_relative_paths="true",
            stack_size=str(3 << 20),
            manifest="true",
            environment="COLOUR=green",
            output="out",
        )
    assert result.ok, result
    assert (home / "out").read_text() == "3072\ndeep\nflat\n"
    assert (home / "res" / "deep" / "out").read_text() == "made\n"
    (manifest,) = home.glob("*_0_manifest")
    assert (manifest / "environment").read_text() == "COLOUR=green\n"
    before, after = (manifest / "in").read_text(), (manifest / "out").read_text()
    assert re.findall(r" (\S+)$", before, re.MULTILINE) == ["flat", "job.sh", "sub", "sub/below", "sub/below/in"]
    assert re.findall(r" (\S+)$", after, re.MULTILINE)[2:6] == ["res", "sub", "res/deep", "res/deep/out"]


async def test_a_program_begins_in_another_directory_of_its_machine(nodes: Nodes) -> None:
    """Its outputs lie where they lie without that. Where it cannot go, the job is held and says why."""
    home = nodes.directory("home")
    (home / "there").mkdir()
    (home / "there" / "in").write_text("found\n")
    (home / "there").chmod(0o755)
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        begins = {"executable": program(home, "pwd; cat in; echo made > here"), "output": "out"}
        result = await outcome(pool, home, **begins, remote_initialdir=str(home / "there"))
        assert result.ok, result
        cluster = await pool.submit(begins | {"remote_initialdir": str(home / "nowhere")}, iwd=str(home))
        (held,) = await cluster.wait(60, until_stuck=True)
        await cluster.remove()
    assert (home / "out").read_text() == f"{home}/there\nfound\n"
    assert (home / "there" / "here").read_text() == "made\n"
    assert held.state == "held"
    assert f"{home}/nowhere" in held.reason
    assert "no such file or directory" in held.reason.lower()

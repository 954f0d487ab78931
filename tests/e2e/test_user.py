"""The things that a user gets without asking: results, the job's log, a notice by mail (A10)."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.support import ALL, PATIENCE, Nodes, client, environ_with_sources, outcome, poolnode, program, until


def sendmail(directory: Path) -> Path:
    """A mail system that keeps each message in a file, its recipient in the first line."""
    path = directory / "sendmail"
    path.write_text(
        "#!/bin/sh\n"
        f"mkdir -p {directory}/mails && file=$(mktemp {directory}/mails/.XXXXXX)\n"
        '{ echo "$@"; cat; } > $file && mv $file ${file%/*}/mail.${file##*.}\n'
    )
    path.chmod(0o755)
    return path


async def mails(directory: Path, number: int) -> list[str]:
    box = directory / "mails"
    await until(lambda: len(list(box.glob("mail.*"))) >= number, f"{number} mails")
    return [path.read_text() for path in sorted(box.glob("mail.*"))]


def test_hello_runs_as_its_readme_says(nodes: Nodes, tmp_path: Path) -> None:
    directory = tmp_path / "hello"
    shutil.copytree(REPOSITORY / "examples" / "hello", directory)
    done = poolnode("run", "hello.sub", cwd=directory)
    assert done.returncode == 0, done.stderr
    assert (directory / "hello.out").read_text().startswith("Hello from the pool")
    assert "Traceback" not in done.stderr


async def test_a_run_that_nothing_matches_says_so_and_why(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "gpu.sub").write_text("executable = /bin/true\nrequest_gpus = 1000\nqueue\n")
    command = [sys.executable, "-m", "pool", "run", "gpu.sub"]
    environ = environ_with_sources()
    running = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert running.stderr is not None
    said = ""
    async with asyncio.timeout(PATIENCE):
        while "outlook: not as things are" not in said:
            said += (await running.stderr.readline()).decode()
    assert "1.0 waits" in said
    assert "no machine meets its conditions" in said
    assert "request_gpus 1000" in said
    running.send_signal(signal.SIGINT)
    await running.communicate()
    assert running.returncode == 130


async def test_the_users_log_tells_the_story_in_order(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    script = program(home, "test -e second && exit 0; touch second; sleep 0.3; exit 5")
    async with client(whole) as pool:
        result = await outcome(pool, home, executable=script, log="job.log", on_exit_hold="ExitCode == 5", output="out")
        assert result.state == "held", result
        await pool.act("release", ids=[(result.cluster, 0)], reason="try again")
        (result,) = await pool.cluster(result.cluster, 1).wait(20, until_stuck=True)
        assert result.ok, result
        log = home / "job.log"
        await until(lambda: log.read_text().count("005 (") >= 1 and log.read_text().endswith("...\n"), "the log")
    text = log.read_text()
    job = f"({result.cluster:03d}.000.000)"
    events = re.findall(rf"^(\d\d\d) {re.escape(job)} \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d (.*)$", text, re.MULTILINE)
    assert [number for number, _ in events if number != "006"] == ["000", "001", "005", "012", "013", "001", "005"]
    assert "whole" in events[0][1]
    assert "slot1" in text
    assert "(1) Normal termination (return value 5)" in text
    assert "(1) Normal termination (return value 0)" in text
    assert "try again" in text
    assert text.count("\n...\n") == len(events)


async def test_a_log_that_cannot_be_written_stops_no_job(nodes: Nodes) -> None:
    """Its directory was there when the job was queued."""
    home = nodes.directory("home")
    (home / "none").mkdir()
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        commands = {"executable": "/bin/true", "log": f"{home}/none/job.log", "hold": "true"}
        cluster = await pool.submit(commands, iwd=str(home))
        await until(lambda: (home / "none" / "job.log").exists(), "the log's first line")
        shutil.rmtree(home / "none")
        await cluster.release()
        (result,) = await cluster.wait(PATIENCE)
        assert result.ok, result
    whole.said("a job log cannot be written", path=f"{home}/none/job.log")


@pytest.mark.parametrize(
    ("wish", "command", "said"),
    [
        ("complete", "exit 3", "exited with status 3"),
        ("always", "kill -9 $$", "died because of signal 9"),
        ("error", "kill -11 $$", "died because of signal 11"),
    ],
)
async def test_a_notice_is_mailed_when_it_was_asked_for(nodes: Nodes, wish: str, command: str, said: str) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL, MAIL=str(sendmail(home))).ready()
    async with client(whole) as pool:
        await outcome(pool, home, executable=program(home, "exit 0", "quiet.sh"), notification="never")
        result = await outcome(
            pool, home, executable=program(home, command), notification=wish, notify_user="ann@example.org"
        )
        (mail,) = await mails(home, 1)
        kinds = []
        async for batch in pool.events(cluster=result.cluster):
            kinds += [event["kind"] for event in batch]
            if "NOTICE" in kinds:
                break
    head, _, body = mail.partition("\n\n")
    assert head.splitlines()[0] == "-i -- ann@example.org"
    assert "To: ann@example.org" in head
    assert f"Subject: poolnode job {result.cluster}.0" in head
    assert said in body
    assert "job.sh" in body
    assert "Leveraging Factor" in body
    assert "Total Local Time" in body


async def test_a_mail_system_that_fails_stops_nothing(nodes: Nodes) -> None:
    home = nodes.directory("home")
    broken = home / "sendmail"
    broken.write_text("#!/bin/sh\nexit 75\n")
    broken.chmod(0o755)
    whole = nodes.start("whole", ALL, MAIL=str(broken)).ready()
    async with client(whole) as pool:
        assert (await outcome(pool, home, executable="/bin/true", notification="complete")).ok
        whole.said("a notice could not be mailed")
        assert (await outcome(pool, home, executable="/bin/true")).ok

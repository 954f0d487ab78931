"""Jobs that write their own checkpoints (`checkpoint_exit_code`): kept on the submit side as a whole, gone on from
elsewhere.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.client import Pool
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, program, slots, token, until

#: Counts to four, a checkpoint after each step; at two it waits, as long as its input says so.
STEPS = """
n=$(cat state 2>/dev/null || echo 0)
n=$((n+1))
if [ "$(cat go.txt)" = wait ] && [ $n = 2 ]; then
    echo waiting
    while :; do sleep 0.05; done
fi
echo $n > state
cp state .hidden
mkdir -p deep && echo step $n >> deep/trace
[ $n = 4 ] || exit 85
echo done $n > result
"""
SAYS = "echo run; echo error >&2\n" + STEPS


@pytest.fixture(scope="module")
def pool3(whose_pool: object) -> Iterator[Nodes]:
    """A head, and two machines that files are carried to."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two"):
            nodes.start(name, "startd", join=await token(head, "startd"), FILESYSTEM_DOMAIN=name).ready()
        async with client(head) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(pool3: Nodes, request: pytest.FixtureRequest) -> Path:
    directory = pool3.directory(support.directory_name(request))
    (directory / "go.txt").write_text("go")
    return directory


async def submit(pool: Pool, home: Path, text: str = STEPS, **more: Any) -> Any:
    commands = {
        "executable": program(home, text),
        "output": "out",
        "error": "err",
        "log": "log",
        "should_transfer_files": "YES",
        "when_to_transfer_output": "ON_EXIT",
        "transfer_input_files": "go.txt",
        "transfer_output_files": "result, deep",
        "transfer_checkpoint_files": "state, deep",
        "checkpoint_exit_code": "85",
        **more,
    }
    return await pool.submit(commands, iwd=str(home))


def nothing_is_left(nodes: Nodes) -> bool:
    stores = [nodes.state("head") / "spool" / "checkpoints", *(nodes.state(name) / "images" for name in ("one", "two"))]
    files = [path for store in stores if store.exists() for path in store.rglob("*") if path.is_file()]
    return all(path.parent.name == "spare" for path in files)


async def test_each_checkpoint_is_kept_and_the_job_goes_on(pool3: Nodes, home: Path) -> None:
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home)
        (result,) = await cluster.wait()
        assert (result.state, result.exit_code) == ("completed", 0), result
        (ad,) = await cluster.ads()
    assert (home / "result").read_text() == "done 4\n"
    assert (home / "deep" / "trace").read_text() == "step 1\nstep 2\nstep 3\nstep 4\n"
    assert (ad.value("NumCkpts"), ad.value("NumJobStarts")) == (3, 1)
    assert ad.value("LastCkptTime") >= ad.value("QDate")
    assert (home / "log").read_text().count("Job was checkpointed.") == 3
    await until(lambda: nothing_is_left(pool3), "the checkpoints to go with the job")


async def test_a_job_that_loses_its_machine_goes_on_from_its_checkpoint(pool3: Nodes, home: Path) -> None:
    (home / "go.txt").write_text("wait")
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home)
        await says(cluster, b"waiting")
        (home / "go.txt").write_text("go")
        await cluster.vacate()
        (result,) = await cluster.wait()
    assert (result.state, result.exit_code) == ("completed", 0), result
    # The step that was not saved was done again, and no other.
    assert (home / "deep" / "trace").read_text() == "step 1\nstep 2\nstep 3\nstep 4\n"
    assert _log(home).count("Job executing on host") == 2


async def test_bytes_of_checkpoints_count_with_those_of_files(pool3: Nodes, home: Path) -> None:
    """The inputs that came after a checkpoint, and the outputs that followed one, counted alone."""
    (home / "go.txt").write_text("wait")
    text = "[ -e big ] || head -c 300000 /dev/urandom > big\n" + STEPS
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home, text, transfer_checkpoint_files="state, deep, big")
        await says(cluster, b"waiting")
        (home / "go.txt").write_text("go")
        await cluster.vacate()
        (result,) = await cluster.wait()
        assert result.ok, result
        (ad,) = await cluster.ads()
    assert ad.value("BytesRecvd") > 300_000
    assert ad.value("BytesSent") > 300_000


async def test_a_job_that_is_asked_to_leave_may_save_itself_first(pool3: Nodes, home: Path) -> None:
    (home / "go.txt").write_text("wait")
    text = "trap 'echo 2 > state; echo step 2 >> deep/trace; exit 85' TERM\n" + STEPS
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home, text)
        # It has its trap by the time that it waits; its output of that start is not on the submit side yet.
        await says(cluster, b"waiting")
        (home / "go.txt").write_text("go")
        await cluster.vacate()
        (result,) = await cluster.wait()
    assert result.state == "completed", result
    assert (home / "deep" / "trace").read_text() == "step 1\nstep 2\nstep 3\nstep 4\n"
    assert re.search(r"Job was evicted\.\n\t\(1\) Job was checkpointed\.", _log(home))


@pytest.mark.parametrize("moves", [False, True], ids=["stays", "moves"])
async def test_standard_output_holds_all_runs(pool3: Nodes, home: Path, moves: bool) -> None:
    """It held the last run only, and named as a part of the checkpoint it held the job."""
    if moves:
        (home / "go.txt").write_text("wait")
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home, SAYS, transfer_checkpoint_files="state, deep, .hidden, out, err")
        if moves:
            await says(cluster, b"waiting")
            (home / "go.txt").write_text("go")
            await cluster.vacate()
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
    assert (result.state, result.exit_code) == ("completed", 0), result
    # Output after the last checkpoint is written again, as the work is done again.
    assert (home / "out").read_text() == "run\n" * 4
    assert (home / "err").read_text() == "error\n" * 4


async def test_a_checkpoint_that_is_not_there_holds_the_job_in_words(pool3: Nodes, home: Path) -> None:
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home, "exit 85")
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.state == "held"
        (ad,) = await cluster.ads()
        said = "its checkpoint could not be kept: the job did not leave its checkpoint file state"
        assert str(ad.value("HoldReason")).startswith(said)
        await cluster.remove()


async def says(cluster: Any, text: bytes) -> None:
    """Wait until the job has written that."""
    said = b""
    async with asyncio.timeout(support.PATIENCE):
        async for piece in cluster[0].tail():
            said += piece
            if text in said:
                return


def _log(home: Path) -> str:
    path = home / "log"
    return path.read_text() if path.exists() else ""


#: Counts without end, and writes its state and ends with 85 only when it is asked to.
ASKED = """
n=$(cat state 2>/dev/null || echo 0)
trap 'echo $n > state; exit 85' USR2
[ "$n" = 0 ] || { echo went on from $n > result; exit 0; }
while :; do n=$((n+1)); echo $n; sleep 0.02; done
"""


async def test_a_job_is_asked_to_write_its_checkpoint(pool3: Nodes, home: Path) -> None:
    async with client(pool3.all[0]) as pool:
        cluster = await submit(
            pool,
            home,
            ASKED,
            checkpoint_signal="SIGUSR2",
            transfer_checkpoint_files="state",
            transfer_output_files="result",
        )
        await says(cluster, b"3\n")
        acted = await cluster.checkpoint()
        assert (acted.done, acted.refused) == (1, ())
        (result,) = await cluster.wait()
        assert result.state == "completed", result
        (ad,) = await cluster.ads()
    assert int((home / "result").read_text().split()[-1]) >= 3
    assert (ad.value("NumCkpts"), ad.value("NumJobStarts")) == (1, 1)


async def test_a_job_is_asked_at_its_interval(pool3: Nodes, home: Path) -> None:
    async with client(pool3.all[0]) as pool:
        cluster = await submit(
            pool,
            home,
            ASKED,
            checkpoint_signal="SIGUSR2",
            checkpoint_interval="1",
            transfer_checkpoint_files="state",
            transfer_output_files="result",
        )
        (result,) = await cluster.wait()
        assert result.state == "completed", result
    assert int((home / "result").read_text().split()[-1]) >= 3

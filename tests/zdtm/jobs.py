"""The suite's programs as jobs: each undisturbed first, and those that pass once more, moved between two nodes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pool.client import Cluster, Pool
from tests.e2e.support import HEAD, Nodes, client, nodes, slots, token

SLOTS = 8
#: Seconds that one job may take, from its submit to its end.
PATIENCE = 60.0
RUN = Path(__file__).parent / "run.sh"
#: On which machine the first start is, and on which each later one.
TURNS = 'regexp(isUndefined(MY.LastRemoteHost) ? "@{first}$" : "@{later}$", TARGET.Name)'
#: They compare inode and device numbers, which are the same only where the files are: CRIU restores on one file
#: system. So they are jobs in shared mode, on two nodes that see the files of the submit side.
SAME_FILES = frozenset({"file_locks01", "unlink_fstat03"})
#: They use TCP or UDP: jobs with a network of their own.
NETWORKED = ("socket", "sock_", "unbound_sock", "sk-freebind")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a test went: `moved` (and passed), `refused` by name, `wrong`, or `unfit`: it does not pass inside a job."""

    name: str
    kind: str
    text: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


async def run_suite(static: Path, programs: Mapping[str, str], say: Callable[[Outcome], None]) -> list[Outcome]:
    """Runs all of them; `say` is called with each outcome as it is known."""
    with nodes() as made:
        head = made.start("head", HEAD, NEGOTIATION_INTERVAL="2").ready()
        for name in "ab":
            join = await token(head, "startd")
            sets = {"SLOTS": str(SLOTS), "FILESYSTEM_DOMAIN": name, "CHECKPOINT_WORTH": "0", "CHECKPOINT_EXAMINE": "1"}
            made.start(name, "startd", join=join, config=None, environ=None, **sets).ready()
        for name in "cd" if SAME_FILES & programs.keys() else "":
            join = await token(head, "startd")
            made.start(name, "startd", join=join, SLOTS="2", CHECKPOINT_WORTH="0", CHECKPOINT_EXAMINE="1").ready()
        async with client(head) as pool:
            await slots(pool, 4 if SAME_FILES & programs.keys() else 2)
            suite = _Suite(made, pool, static)
            turn = asyncio.Semaphore(SLOTS)

            async def run(name: str, words: str) -> Outcome:
                async with turn:
                    outcome = await suite.run(name, words)
                say(outcome)
                return outcome

            return await asyncio.gather(*(run(name, words) for name, words in programs.items()))


class _Suite:
    def __init__(self, made: Nodes, pool: Pool, static: Path) -> None:
        self.nodes = made
        self.pool = pool
        self.static = static
        self.run_script = shutil.copy(RUN, made.place)

    async def run(self, name: str, words: str) -> Outcome:
        home = self.nodes.directory(name)
        shutil.copy(self.static / name, home / name)
        async with self.job(home, words, moves=0) as cluster:
            if await self.end(cluster) != "completed" or "PASS" not in said(home):
                return Outcome(name, "unfit", said(home))
        async with self.job(home, words, moves=1) as cluster:
            await self.move(cluster, name)
            state = await self.end(cluster)
            ads = await cluster.ads()
            return judge(name, state, said(home), ads[0] if ads else None)

    @contextlib.asynccontextmanager
    async def job(self, home: Path, words: str, *, moves: int) -> AsyncIterator[Cluster]:
        for left in os.listdir(home):
            if left != home.name:
                (home / left).unlink(missing_ok=True)
        commands = {
            "executable": str(self.run_script),
            "arguments": f"{home.name} {moves} {words}",
            "transfer_input_files": home.name,
            "should_transfer_files": "YES",
            "transfer_output_files": "",
            "output": "out",
            "log": "log",
            "request_memory": "64MB",
            "request_disk": "8MB",
        }
        if home.name.startswith(NETWORKED):
            commands["job_network"] = "private"
        if home.name in SAME_FILES:
            for name in ("transfer_input_files", "transfer_output_files"):
                del commands[name]
            commands["should_transfer_files"] = "NO"
        if moves:
            first, later = "cd" if home.name in SAME_FILES else "ab"
            commands |= {"requirements": TURNS.format(first=first, later=later), "checkpoint": "required"}
        cluster = await self.pool.submit(commands, iwd=str(home))
        try:
            yield cluster
        finally:
            with contextlib.suppress(Exception):
                await cluster.remove(force=True)

    async def move(self, cluster: Cluster, name: str) -> None:
        """Vacates it once its program is ready; not where it ends or is held before."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not self.is_ready(name):
            if any(ad.value("JobStatus") not in (1, 2) for ad in await cluster.ads()):
                return
            await asyncio.sleep(0.2)
        await cluster.vacate()
        deadline = time.monotonic() + PATIENCE
        while name in SAME_FILES and time.monotonic() < deadline:
            (ad,) = await cluster.ads()
            if ad.value("JobStatus") == 2 and ad.value("NumJobStarts") == 2:
                (self.nodes.directory(name) / f"{name}.moved").touch()
                return
            if ad.value("JobStatus") not in (1, 2):
                return
            await asyncio.sleep(0.2)

    def is_ready(self, name: str) -> bool:
        """Whether its program has started, on the first machine."""
        if name in SAME_FILES:
            return (self.nodes.directory(name) / f"{name}.ready").exists()
        execute = self.nodes.state("a") / "execute"
        return any((execute / slot / f"{name}.ready").exists() for slot in os.listdir(execute))

    async def end(self, cluster: Cluster) -> str:
        try:
            (result,) = await cluster.wait(PATIENCE, until_stuck=True)
        except TimeoutError:
            return "not ended"
        return str(result.state)


def said(home: Path) -> str:
    """The job's output, in one line."""
    out = home / "out"
    return " | ".join(out.read_text(errors="replace").split("\n")).strip(" |") if out.exists() else ""


def judge(name: str, state: str, output: str, ad: Any) -> Outcome:
    """The outcome of a test that was to be moved."""
    values = (
        {key: ad.value(key) for key in ("NumJobStarts", "HoldReason", "CheckpointTrouble", "NumCkpts")} if ad else {}
    )
    if state == "held":
        return Outcome(name, "refused", str(values.get("HoldReason")))
    if state == "completed" and "PASS" in output and "moved" in output and values.get("NumJobStarts") == 2:
        return Outcome(name, "moved")
    known = " ".join(f"{key}={value}" for key, value in values.items() if value not in (None, ""))
    return Outcome(name, "wrong", f"{state}; {output[-300:]}; {known}")

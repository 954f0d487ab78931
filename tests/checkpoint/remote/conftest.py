"""A job that sees a directory of the submit side's under its own name: real keepers, a real home, the file server
between.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.checkpoint.messages_table import Ability as Able
from pool.starter.keeper import KeeperSpec, NativeKeeper, NativeKeepers
from pool.starter.spec import EndReport
from tests.remoteio.support import HomeProcess, JobEnd
from tests.starter.support import PYTHON, opened, soon, spec

PROGRAMS = Path(__file__).parent / "programs"


class Site:
    """Home's tree, and the machine that runs jobs on it.

    Attributes:
        tree: on the submit side; the job sees it under the same name.
        scratch: the job's own directory, /job to it.
    """

    def __init__(self, keepers: NativeKeepers, top: Path, home: HomeProcess) -> None:
        self.keepers = keepers
        self.top = top
        self.home = home
        self.tree = top / "tree"
        self.scratch = top / "scratch"
        self.journal = top / "journal"
        for directory in (self.tree, self.scratch, self.journal):
            directory.mkdir(mode=0o755)

    @property
    def able(self) -> bool:
        """Whether this machine can do it in the way that is tried."""
        return self.keepers.abilities.remote != ""

    @property
    def static(self) -> list[str]:
        """The trees that the submit side serves as static."""
        return list(self.home.answer["static"])

    def connect(self, **more: Any) -> JobEnd:
        return self.home.open(self.tree, self.journal, **more)

    def spec(self, *argv: str, **more: Any) -> KeeperSpec:
        given = {
            "cwd": str(self.tree),
            "fixed": True,
            "isolation": "full",
            "stdout": "/job/out",
            "stderr": "/job/err",
            "remote": tuple(path for path, _ in self.home.answer["trees"]),
            "static_remotes": sum(
                1 << number for number, (path, _) in enumerate(self.home.answer["trees"]) if path in self.static
            ),
            **more,
        }
        return spec(self.scratch, *argv, **given)

    async def start(
        self, *argv: str, end: JobEnd | None = None, image: Path | None = None, **more: Any
    ) -> NativeKeeper:
        end = end or self.connect()
        wanted = self.spec(*argv, **more)
        try:
            return await soon(self.keepers.start(wanted, image=image, remote=end.end.fileno()))
        finally:
            end.close()

    async def run(self, *argv: str, code: int = 0, **more: Any) -> str:
        """The job's output."""
        keeper = await self.start(*argv, **more)
        end: EndReport = await soon(keeper.ended)
        await keeper.forget()
        errors = self.error()
        assert (end.code, errors) == (code, ""), (end, errors)
        return self.output()

    async def python(self, program: str, *arguments: str, **more: Any) -> str:
        shutil.copy(PROGRAMS / program, self.scratch)
        return await self.run(PYTHON, f"/job/{program}", *arguments, **more)

    async def shell(self, script: str, **more: Any) -> str:
        return await self.run("/bin/sh", "-c", script, **more)

    def output(self) -> str:
        return (self.scratch / "out").read_text()

    def error(self) -> str:
        return (self.scratch / "err").read_text()


@pytest.fixture
def top() -> Iterator[Path]:
    """A short way to it: home shows what lies below /tmp by its first directory."""
    path = Path(tempfile.mkdtemp(prefix="remote"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


#: The ways in which a job is shown the submit side's files, by what the keeper is to do without.
WAYS = {"fuse": Able.NOTIFY, "notification": Able.FUSE}


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def site(top: Path, keeper_program: Path, way: str) -> AsyncIterator[Site]:
    async with opened(top, keeper_program, without=int(WAYS[way])) as keepers:
        found = Site(keepers, top, HomeProcess())
        yield found
        found.home.close()


async def wait_for_output(site: Site, text: str) -> None:
    for _ in range(1000):
        if text in site.output():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"no {text!r} in {site.output()!r}; {site.error()!r}")

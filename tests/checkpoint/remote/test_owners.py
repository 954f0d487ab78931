"""The owner of the files: the job's own user here is their owner on the submit side, which decides on rights."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.checkpoint.remote.conftest import WAYS, Site
from tests.remoteio.support import HomeProcess
from tests.starter.support import opened

HERE, HOME = 12345, 23456


async def test_the_jobs_user_owns_what_its_owner_owns_at_home(top: Path, keeper_program: Path, way: str) -> None:
    """Only root can be two users."""
    if os.getuid() != 0:
        pytest.skip("needs root")
    async with opened(top, keeper_program, without=int(WAYS[way])) as keepers:
        home = HomeProcess(HOME, HOME)
        site = Site(keepers, top, home)
        if site.able:
            os.chown(site.tree, HOME, HOME)
            os.chown(site.journal, HOME, HOME)
            os.chown(site.scratch, HERE, HERE)
            for name, mode in (("mine", 0o600), ("read", 0o444), ("write", 0o200)):
                (site.tree / name).write_text("x\n")
                (site.tree / name).chmod(mode)
                os.chown(site.tree / name, HOME, HOME)
            (site.tree / "roots").write_text("x\n")
            (site.tree / "roots").chmod(0o600)
            script = """
                stat -c %u:%g . mine roots
                cat mine read
                cat roots 2>&1; cat write 2>&1; echo y 2>&1 >>read
                echo y >>mine; echo y >>write; echo y >new; chmod 640 new; stat -c %a new
                mkdir in && cd in && pwd && ls -a | wc -l
            """
            end = site.connect()
            wanted = ("/bin/sh", "-c", script)
            keeper = await site.start(*wanted, end=end, uid=HERE, gid=HERE, groups=())
            await asyncio.wait_for(keeper.ended, 20)
            assert site.output().splitlines()[:5] == [f"{HERE}:{HERE}"] * 2 + ["0:0", "x", "x"]
            assert site.output().count("Permission denied") + site.error().count("Permission denied") == 3
            assert site.output().splitlines()[-2:] == [str(site.tree / "in"), "2"]
            assert (site.tree / "mine").read_text() == "x\ny\n"
            assert (site.tree / "write").read_text() == "x\ny\n"
            status = (site.tree / "new").stat()
            assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (HOME, HOME, 0o640)
        home.close()


async def test_a_machine_without_the_device_says_so(top: Path, keeper_program: Path) -> None:
    async with opened(top, keeper_program, without=8192) as keepers:
        assert not keepers.abilities.fuse
        assert any("/dev/fuse" in line for line in keepers.abilities.reduced)
        assert keepers.abilities.remote in ("notification", "")
        assert "/dev/fuse (switched off)" in keepers.abilities.remote_why


async def test_a_machine_with_neither_says_both(top: Path, keeper_program: Path) -> None:
    async with opened(top, keeper_program, without=8192 | 16384) as keepers:
        assert keepers.abilities.remote == ""
        assert keepers.abilities.remote_why.count("(switched off)") == 2
        assert any("carried to jobs" in line for line in keepers.abilities.reduced)


async def test_under_sanitizers(top: Path, sanitized_keeper: Path) -> None:
    """Random operations again, with servers that stop at the first error in memory or arithmetic."""
    os.environ["ASAN_OPTIONS"] = f"detect_leaks=0:log_path={top}/sanitizer"
    os.environ["UBSAN_OPTIONS"] = f"print_stacktrace=1:log_path={top}/sanitizer"
    try:
        for way, without in WAYS.items():
            (top / way).mkdir(mode=0o755)
            async with opened(top / way, sanitized_keeper, without=int(without)) as keepers:
                home = HomeProcess()
                site = Site(keepers, top / way, home)
                if site.able:
                    await site.python("operations.py", str(site.tree), "77", "1000")
                home.close()
    finally:
        del os.environ["ASAN_OPTIONS"], os.environ["UBSAN_OPTIONS"]
    assert [name for name in os.listdir(top) if name.startswith("sanitizer")] == []

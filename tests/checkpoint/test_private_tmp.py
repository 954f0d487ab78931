"""A /tmp of its own of a job in `shared` mode: it is saved and moved with the job, or its checkpoint is refused."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path

import pytest

from pool.checkpoint.messages_table import Ability as Able
from pool.starter.keeper import KeeperSpec, NativeKeepers, StartFailed
from tests.checkpoint.test_checkpoints import lines, saved
from tests.starter.support import PYTHON, opened, shell, soon, spec, until

#: Two of its files are open, one of them mapped; the third is only there.
WRITES = """
import mmap, os, sys, time
name = sys.argv[1]
tmp, shm = open(f"/tmp/{name}", "w+"), open(f"/dev/shm/{name}-shm", "w+b")
open(f"/var/tmp/{name}-var", "w").write("third")
os.mkdir(f"/tmp/{name}-deep")
open(f"/tmp/{name}-deep/file", "w").write("fourth")
shm.write(b"x" * 4096)
shm.flush()
mapped = mmap.mmap(shm.fileno(), 4096)
mapped[:6] = b"second"
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
tmp.write("first")
tmp.flush()
mapped[6:7] = b"!"
print(open(f"/tmp/{name}").read(), open(f"/dev/shm/{name}-shm").read(7), open(f"/var/tmp/{name}-var").read(),
      open(f"/tmp/{name}-deep/file").read())
"""


def names() -> tuple[str, list[Path]]:
    name = f"poolnode-test-{os.getpid()}"
    return name, [Path("/tmp", name), Path("/dev/shm", f"{name}-shm"), Path("/var/tmp", f"{name}-var")]


def wanted(scratch: Path) -> KeeperSpec:
    return spec(scratch, PYTHON, "-c", WRITES, names()[0], isolation="shared", private_tmp=True)


async def test_it_moves_with_its_files(
    keepers: NativeKeepers, keeper_program: Path, tmp_path: Path, scratch: Path
) -> None:
    if not keepers.abilities.checkpoint or not all(path.parent.is_dir() for path in names()[1]):
        pytest.skip("needs the ability checkpoint, /var/tmp and /dev/shm")
    keeper = await soon(keepers.start(wanted(scratch)))
    await until(lambda: lines(scratch) == 1)
    await saved(keepers, keeper, tmp_path / "first", stop=True)
    async with opened(tmp_path / "other", keeper_program) as others:
        keeper = await soon(others.start(wanted(scratch), image=tmp_path / "first"))
        await saved(others, keeper, tmp_path / "second")
    keeper = await soon(keepers.start(wanted(scratch), image=tmp_path / "second"))
    assert not any(path.exists() for path in names()[1])
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0, (scratch / "err").read_text()
    await keeper.forget()
    assert (scratch / "out").read_text() == "ready\nfirst second! third fourth\n"


async def test_where_it_would_have_none_it_is_refused_by_name(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path
) -> None:
    if not keepers.abilities.checkpoint:
        pytest.skip("needs the ability checkpoint")
    keeper = await soon(keepers.start(wanted(scratch)))
    await until(lambda: lines(scratch) == 1)
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    without = dataclasses.replace(wanted(scratch), private_tmp=False)
    with pytest.raises(StartFailed, match=r"a /tmp of its own.*PRIVATE_TMP.*/tmp/poolnode-test") as refused:
        await soon(keepers.start(without, image=tmp_path / "image"))
    assert refused.value.path == "machine", "another machine may take it"
    assert not any(path.exists() for path in names()[1])


async def test_the_machines_files_are_not_taken_along(tmp_path: Path, keeper_program: Path, scratch: Path) -> None:
    """Where a machine cannot give `full` its file tree, the job sees the machine's /tmp: that is not the job's."""
    async with opened(tmp_path, keeper_program, without=int(Able.ROOT)) as keepers:
        if not keepers.abilities.checkpoint:
            pytest.skip("needs the ability checkpoint")
        with tempfile.NamedTemporaryFile(dir="/tmp", prefix="poolnode-test-machine-"):
            keeper = await soon(keepers.start(shell(scratch, "ls /tmp; while :; do sleep 0.1; done")))
            await until(lambda: "poolnode-test-machine-" in (scratch / "out").read_text())
            await saved(keepers, keeper, tmp_path / "image", stop=True)
        assert b"poolnode-test-machine-" not in (tmp_path / "image" / "meta").read_bytes()

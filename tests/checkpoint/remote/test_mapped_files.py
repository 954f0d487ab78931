"""Names of files that are ends of pipes, in a directory of the submit machine's (VS 4.4, B1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.starter.keeper import KeeperSpec
from pool.starter.spec import Member, Pipe, StartFailed
from tests.checkpoint.remote.conftest import Site
from tests.starter.support import soon, until

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def pipeline(site: Site) -> KeeperSpec:
    """Two programs in a directory on the submit side: one writes numbers to `numbers`, the other adds those of `in`
    up.
    """

    def member(name: str, script: str) -> Member:
        out, err = f"/job/{name}.out", f"/job/{name}.err"
        return Member(name, ("/bin/sh", "-c", script), PATH, str(site.tree / name), stdout=out, stderr=err)

    write = "seq 1 1000 > numbers; until [ -e ../go ]; do sleep 0.02; done; seq 1001 2000 > more"
    members = (
        member("writer", write),
        member("reader", "cat in | awk '{ s += $1 } END { print s }' > sum; cat more | wc -l > lines"),
    )
    for one in members:
        (site.tree / one.name).mkdir()
    pipes = (Pipe(0, 1, "numbers", "in", 0, 1 << 20), Pipe(0, 1, "more", "more", 0, 1 << 20))
    return site.spec("x", members=members, pipes=pipes)


async def test_they_are_mapped(site: Site, way: str) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    end = site.connect()
    wanted = pipeline(site)
    starting = site.keepers.start(wanted, remote=end.end.fileno())
    if way == "notification":
        with pytest.raises(StartFailed, match="mapped"):
            await soon(starting)
        return
    keeper = await soon(starting)
    await until(lambda: (site.tree / "reader/sum").exists() and (site.tree / "reader/sum").read_text() != "")
    (site.tree / "go").touch()
    report = await soon(keeper.ended)
    await keeper.forget()
    errors = [(site.scratch / f"{name}.err").read_text() for name in ("writer", "reader")]
    assert (report.code, errors) == (0, ["", ""]), report
    assert (site.tree / "reader/sum").read_text() == f"{sum(range(1001))}\n"
    assert (site.tree / "reader/lines").read_text().strip() == "1000"
    assert not (site.tree / "writer/numbers").exists()


async def test_they_are_mapped_again_where_the_job_goes_on(site: Site, way: str, tmp_path: Path) -> None:
    if not site.able or way != "fuse":
        pytest.skip("needs remote files in this way and /dev/fuse")
    end = site.connect()
    wanted = pipeline(site)
    keeper = await soon(site.keepers.start(wanted, remote=end.end.fileno()))
    await until(lambda: (site.tree / "reader/sum").exists() and (site.tree / "reader/sum").read_text() != "")
    report = await soon(keeper.checkpoint(tmp_path / "image", stop=True, mark=1))
    assert report.refused == ()
    await soon(keeper.ended)
    await keeper.forget()
    end = site.connect(run=2, back_to=1)
    keeper = await soon(site.keepers.start(wanted, image=tmp_path / "image", remote=end.end.fileno()))
    (site.tree / "go").touch()
    ended = await soon(keeper.ended)
    await keeper.forget()
    errors = [(site.scratch / f"{name}.err").read_text() for name in ("writer", "reader")]
    assert (ended.code, errors) == (0, ["", ""]), ended
    assert (site.tree / "reader/lines").read_text().strip() == "1000"

"""A job with the submit side's files open is saved and goes on, in another keeper, as if nothing had been."""

from __future__ import annotations

import pytest

from tests.checkpoint.remote.conftest import Site, wait_for_output
from tests.starter.support import PYTHON, soon, until

JOB = """
import mmap, os, sys, time
log = open("log", "ab", buffering=0)
data = open("data", "w+b", buffering=0)
data.truncate(8192)
shared = mmap.mmap(data.fileno(), 8192)
source = open("source", "rb", buffering=0)
gone = open("gone", "w+b", buffering=0)
gone.write(b"kept without a name")
os.unlink("gone")
for number in range(40):
    log.write(b"%d\\n" % number)
    shared[number * 10:number * 10 + 4] = b"%4d" % number
    assert source.read(5000) == bytes([number]) * 5000, number
    if number == 20:
        print("half", flush=True)
    if number >= 20:
        time.sleep(0.02)
gone.seek(0)
assert gone.read() == b"kept without a name"
print("done", flush=True)
"""


def expected(number: int) -> str:
    return "".join(f"{each}\n" for each in range(number))


@pytest.mark.parametrize("way", ["fuse"])
@pytest.mark.parametrize("undone", [False, True])
async def test_open_files_go_on_where_they_were(site: Site, undone: bool) -> None:
    """Also when the job has run on after the image, and the submit side has undone that."""
    if not site.able or not site.keepers.abilities.checkpoint:
        pytest.skip("needs remote files in this way and the ability checkpoint")
    (site.tree / "source").write_bytes(b"".join(bytes([number]) * 5000 for number in range(40)))
    keeper = await site.start(PYTHON, "-c", JOB)
    await wait_for_output(site, "half")
    image = site.top / "image"
    report = await soon(keeper.checkpoint(image, stop=not undone, mark=7))
    assert report.refused == ()
    if undone:
        await until(lambda: (site.tree / "log").read_bytes().count(b"\n") > 30)
        await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    assert (site.tree / "log").read_text().startswith(expected(21))
    end = site.connect(run=2, back_to=7)
    keeper = await site.start(PYTHON, "-c", JOB, end=end, image=image, append_output=True)
    ended = await soon(keeper.ended)
    assert (ended.code, site.error()) == (0, ""), site.output()
    assert site.output() == "half\ndone\n"
    assert (site.tree / "log").read_text() == expected(40)
    data = (site.tree / "data").read_bytes()
    assert [data[number * 10 : number * 10 + 4] for number in range(40)] == [b"%4d" % number for number in range(40)]


@pytest.mark.parametrize("way", ["notification"])
async def test_without_fuse_it_is_refused_by_name(site: Site) -> None:
    if not site.able or not site.keepers.abilities.checkpoint:
        pytest.skip("needs remote files in this way and the ability checkpoint")
    keeper = await site.start("/bin/sh", "-c", "echo half; until [ -e go ]; do sleep 0.02; done; echo done >out")
    await wait_for_output(site, "half")
    report = await soon(keeper.checkpoint(site.top / "image", stop=False, mark=7), 20)
    assert ["/dev/fuse" in line for line in report.refused] == [True], report
    (site.tree / "go").touch()
    assert (await soon(keeper.ended, 20)).code == 0
    assert (site.tree / "out").read_text() == "done\n"

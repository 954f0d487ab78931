"""Jobs of several processes from the description to the notice, on real nodes (G1, G6, G7, G9)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.client import Cluster, Pool, Result
from pool.starter.native import NativeKeepers
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, one_line, poolnode, program, slots, token, until

#: Of three unmodified programs; it takes about three seconds, and as long as it has not been moved.
SLOW = """
import os, time
for i in range(60):
    while i == 50 and not os.path.exists(".enough"):
        time.sleep(0.01)
    print(*range(i * 997, i * 997 + 997), sep="\\n", flush=True)
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def pool3(whose_pool: object) -> Iterator[Nodes]:
    """A head, two machines that share its files, and one that files are carried to."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two"):
            nodes.start(name, "startd", join=await token(head, "startd"), CHECKPOINT_WORTH="0").ready()
        far = await token(head, "startd")
        nodes.start("far", "startd", join=far, CHECKPOINT_WORTH="0", FILESYSTEM_DOMAIN="far").ready()
        async with client(head) as pool:
            await slots(pool, 3)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
async def able(tmp_path: Path) -> bool:
    """Whether this machine allows what checkpoints need."""
    keepers = NativeKeepers(tmp_path / "keepers")
    await keepers.open()
    await keepers.close(kill=True)
    return bool(keepers.abilities.checkpoint)


@pytest.fixture
def home(pool3: Nodes, request: pytest.FixtureRequest) -> Path:
    return pool3.directory(support.directory_name(request))


async def submit(pool: Pool, home: Path, text: str) -> object:
    return await pool.submit(text, iwd=str(home))


async def test_a_shells_pipeline_and_all_that_is_told_of_it(pool3: Nodes, home: Path) -> None:
    text = """
    executable = seq 1 20000 | grep 7 | tee >(gzip > all.gz) | wc -l > count
    log = log
    notification = always
    queue
    """
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, result
        assert [(end["name"], end["code"]) for end in result.processes] == [
            ("seq", 0),
            ("grep", 0),
            ("gzip", 0),
            ("tee", 0),
            ("wc", 0),
        ]
        assert (home / "count").read_text().strip() == str(sum("7" in str(n) for n in range(20001)))
        (ad,) = await cluster.ads()
        assert ad.value("FailedProcess", None) is None
        assert ad.value("ImageSize") >= sum(end["max_rss"] for end in result.processes) > 0
        address = pool3.all[0].address
        kept = json.loads(poolnode("history", "--json", str(cluster.cluster), "--address", address).stdout)
        assert "ProcessEnds" in json.dumps(kept)
    await until(lambda: "Process 4 wc: exited with 0" in (home / "log").read_text(), "the log to say how each ended")


async def test_directories_of_their_own_where_files_are_carried(pool3: Nodes, home: Path) -> None:
    for name in ("one", "two"):
        (home / name).mkdir()
    (home / "one/inp").write_text("input\n")
    (home / "one/fort.1").write_text("table\n")
    (home / "two/res").write_text("before\n")
    foo = program(home, "echo foo $A; cat; cat fort.1; echo side > side; echo foo >&2", "foo")
    bar = program(home, "cat; echo side > side; mkdir d; echo bar >&2; exit 3", "bar")
    text = f"""
    executable = {foo} {bar}
    pipe = foo | bar
    foo.initialdir = one
    foo.input = inp
    foo.transfer_input_files = fort.1
    foo.environment = "A=hello"
    bar.initialdir = two
    bar.output = res
    bar.append_output = true
    error = {home}/err
    should_transfer_files = YES
    requirements = FileSystemDomain == "far"
    queue
    """
    async with client(pool3.all[0]) as pool:
        (result,) = await (await pool.submit(text, iwd=str(home))).wait(support.PATIENCE)
    assert (result.state, result.exit_code) == ("completed", 3), result
    assert result.output == f"{home}/two/res"
    assert (home / "two/res").read_text() == "before\nfoo hello\ninput\ntable\n"
    assert sorted((home / "err").read_text().split()) == ["bar", "foo"]
    assert (home / "one/side").exists()
    assert (home / "two/side").exists()
    assert not (home / "side").exists()
    assert not (home / ".poolnode").exists()


async def test_programs_are_sent_to_a_machine_once(pool3: Nodes, home: Path) -> None:
    """By what they are, whatever they are called (A12)."""
    padding = f"# {home.name}\n# {'x' * 200_000}\n"
    first = program(home, f"echo hello\nexit 0\n{padding}", "first")
    second = program(home, f"cat\nexit 0\n{padding}", "second")
    text = f"""
    executable = a='{first}' | b='{second}' | c='{second}' > out
    should_transfer_files = YES
    requirements = FileSystemDomain == "far"
    queue
    """
    received = []
    async with client(pool3.all[0]) as pool:
        for _ in range(2):
            cluster = await pool.submit(text, iwd=str(home))
            (result,) = await cluster.wait(support.PATIENCE)
            assert result.ok, result
            assert (home / "out").read_text() == "hello\n"
            (home / "out").unlink()
            (ad,) = await cluster.ads()
            received.append(ad.value("BytesRecvd", 0))
    assert received[0] > 600_000
    assert received[1] == 0


#: The shape of VS 7.1's second kind of job: names that the programs have in them; one file is read by two.
MAPPED = """
executable = phnx=/usr/bin/python3 geom=/usr/bin/python3 snomux=/usr/bin/python3
pipe = phnx > fort.10 fort.11 > geom, phnx > fort.10 fort.11 > snomux
phnx.arguments = phnx.py
geom.arguments = geom.py
snomux.arguments = snomux.py
geom.output = geom
snomux.output = snomux
transfer_input_files = phnx.py, geom.py, snomux.py
log = log
queue
"""


async def mapped(pool: Pool, home: Path, geom: str, more: str = "", then: str = "") -> Result:
    (home / "phnx.py").write_text(
        f"with open('fort.10', 'w') as f:\n    for i in range(30000):\n        print(i, file=f)\n{then}"
    )
    (home / "geom.py").write_text(geom)
    (home / "snomux.py").write_text("print(sum(map(int, open('fort.11'))))\n")
    (result,) = await (await pool.submit(f"{more}{MAPPED}", iwd=str(home))).wait(support.PATIENCE)
    return result


@pytest.mark.parametrize("where", ["shared", "far"])
async def test_files_that_are_pipes(pool3: Nodes, home: Path, where: str) -> None:
    more = 'should_transfer_files = YES\nrequirements = FileSystemDomain == "far"\n' if where == "far" else ""
    async with client(pool3.all[0]) as pool:
        result = await mapped(pool, home, "print(len(open('fort.11').read()))\n", more)
    assert result.ok, result
    assert (home / "geom").read_text() == f"{sum(len(str(i)) + 1 for i in range(30000))}\n"
    assert (home / "snomux").read_text() == f"{sum(range(30000))}\n"
    assert not (home / "fort.10").exists()


#: The same programs, whose last reads a pipe: what it reads first is shorter than what it asked for.
SHORT = """
executable = a=/usr/bin/python3 b=/usr/bin/python3
pipe = a > fort.10 fort.11 > b
a.arguments = a.py
b.arguments = b.py
b.short_reads = true
b.output = b
transfer_input_files = a.py, b.py
log = log
queue
"""
IN_TWO = """
import os, time
to = os.open('fort.10', os.O_WRONLY | os.O_CREAT)
os.write(to, bytes(100))
while not os.path.exists('had'): time.sleep(0.01)
os.write(to, bytes(50))
"""
TAKES = """
import os
source = os.open('fort.11', os.O_RDONLY)
had = len(os.read(source, 4096))
open('had', 'w').close()
print(had, len(os.read(source, 4096)), len(os.read(source, 4096)))
"""


async def test_short_reads_of_a_file_that_is_a_pipe(pool3: Nodes, home: Path) -> None:
    (home / "a.py").write_text(IN_TWO)
    (home / "b.py").write_text(TAKES)
    async with client(pool3.all[0]) as pool:
        (result,) = await (await pool.submit(SHORT, iwd=str(home))).wait(support.PATIENCE)
    assert result.ok, result
    assert (home / "b").read_text() == "100 50 0\n"


async def test_what_cannot_be_done_to_a_pipe_ends_the_job_and_is_named(pool3: Nodes, home: Path) -> None:
    async with client(pool3.all[0]) as pool:
        still = "    f.flush()\n    import time\n    time.sleep(600)\n"  # the file is not whole yet
        geom = "f = open('fort.11')\nf.read(99999)\nf.seek(5)\nf.read(3)\n"
        result = await mapped(pool, home, geom, then=still)
    assert result.state == "completed"
    assert not result.ok
    assert result.reason.startswith("process geom: fort.11 (pipe from phnx): lseek"), result.reason
    await until(lambda: "End: was ended: process geom: fort.11" in (home / "log").read_text(), "the log to say why")


@pytest.mark.parametrize("where", ["shared", "far"])
async def test_one_that_fails_ends_the_job_and_is_named(pool3: Nodes, home: Path, where: str) -> None:
    crash = program(home, "kill -SEGV $$", "crash")
    carried = 'should_transfer_files = YES\nrequirements = FileSystemDomain == "far"\n' if where == "far" else ""
    text = f"executable = sleep 60 | '{crash}' | cat > out\nlog = log\nnotification = error\n{carried}queue\n"
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE)
        assert (result.state, result.signal) == ("completed", 11), result
        assert result.reason == "process crash was killed by signal 11; the others were ended with it"
        assert [end["failed"] for end in result.processes] == [False, True, False]
        assert result.processes[0]["with_job"]
        (ad,) = await cluster.ads()
        assert ad.value("FailedProcess") == 1
    await until(lambda: "process 1 died because of signal 11" in (home / "log").read_text(), "the notice's cause")


async def test_what_cannot_be_started_is_named(pool3: Nodes, home: Path) -> None:
    (home / "broken").write_text("#!/no/such/interpreter\n")
    (home / "broken").chmod(0o755)
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit("executable = seq 3 | ./broken > out\nqueue\n", iwd=str(home))
        result = await support.asked(lambda: _held(cluster), "the job to be held")
        assert "process broken: exec" in result.reason
        assert "its interpreter is missing: /no/such/interpreter" in result.reason
        await cluster.remove()


async def _held(cluster: object) -> object:
    (result,) = await cluster.results()  # type: ignore[attr-defined]
    return result if result.state == "held" else None


@pytest.mark.parametrize("where", ["shared", "far"])
async def test_a_pipeline_is_moved_and_its_output_is_byte_exact(
    pool3: Nodes, home: Path, able: bool, where: str
) -> None:
    source = home / "source.py"
    source.write_text(SLOW)
    carried = (
        "should_transfer_files = YES\ntransfer_input_files = source.py\npython3.transfer_executable = false\n"
        if where == "far"
        else ""
    )
    carried += 'requirements = FileSystemDomain == "far"\n' if where == "far" else ""
    text = f"""
    executable = /usr/bin/python3 source.py | grep --line-buffered -v 13 | awk '{{s+=$1; print NR,$1,s; fflush()}}' >out
    {carried}
    log = log
    queue
    """
    wanted: list[str] = []
    total = 0
    for number in (n for n in range(60 * 997) if "13" not in str(n)):
        total += number
        wanted.append(f"{len(wanted) + 1} {number} {total}\n")
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        await _moved(pool3, cluster, home)
        (result,) = await cluster.wait(support.PATIENCE)
        (ad,) = await cluster.ads()
    assert result.ok, result
    assert (home / "out").read_text() == "".join(wanted)
    if able:
        assert ad.value("NumCkpts") >= 2


#: The paper's job again; the first is slow, and what they hold and what is between them is most of it.
MOVING = {
    "phnx": "import os, time\nwith open('fort.10', 'w') as f:\n    for i in range(80):\n"
    "        while i == 70 and not os.path.exists('.enough'):\n            time.sleep(0.01)\n"
    "        print(*range(i * 997, i * 997 + 997), sep='\\n', file=f)\n        time.sleep(0.04)\n",
    "geom": "with open('fort.11') as f, open('fort.10', 'w') as g:\n    for n in f:\n"
    "        print(int(n) * 3, file=g)\n",
    "snomux": "total = count = 0\nfor n in open('fort.11'):\n"
    "    total, count = total + int(n), count + 1\nprint(count, total)\n",
}


@pytest.mark.parametrize("where", ["shared", "far"])
async def test_files_that_are_pipes_move_with_their_job(pool3: Nodes, home: Path, able: bool, where: str) -> None:
    for name, script in MOVING.items():
        (home / f"{name}.py").write_text(script)
    more = 'should_transfer_files = YES\nrequirements = FileSystemDomain == "far"\n' if where == "far" else ""
    names = " ".join(f"{name}=/usr/bin/python3" for name in MOVING)
    text = f"""
    {more}executable = {names}
    pipe = phnx > fort.10 fort.11 > geom, geom > fort.10 fort.11 > snomux
    phnx.arguments = phnx.py
    geom.arguments = geom.py
    snomux.arguments = snomux.py
    snomux.output = out
    transfer_input_files = phnx.py, geom.py, snomux.py
    log = log
    queue
    """
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        await _moved(pool3, cluster, home)
        (result,) = await cluster.wait(support.PATIENCE)
        (ad,) = await cluster.ads()
    assert result.ok, result
    assert (home / "out").read_text() == f"{80 * 997} {3 * sum(range(80 * 997))}\n"
    assert ad.value("CheckpointTrouble", None) is None
    if able:
        assert ad.value("NumCkpts") >= 2


async def _moved(nodes: Nodes, cluster: Cluster, home: Path) -> None:
    """Take it off its machine three times, and let it come to its end then."""
    for move in range(1, 4):
        await until(lambda move=move: _starts(home) >= move, "the job to run")  # type: ignore[misc]
        await asyncio.sleep(0.2)
        await cluster.vacate()
    await until(lambda: _starts(home) >= 4, "the job to run")
    (ad,) = await cluster.ads()
    slot, _, name = str(ad.value("RemoteHost")).rpartition("@")
    (home / ".enough").touch()
    carried = nodes.state(name) / "execute" / slot  # where it works if its files are carried, as since its first start
    if carried.is_dir():
        (carried / ".enough").touch()


def _starts(home: Path) -> int:
    log = home / "log"
    return log.read_text().count("Job executing on host") if log.exists() else 0


def test_the_check_draws_it(home: Path) -> None:
    (home / "job.sub").write_text("executable = seq 9 | tee >(cat > a) | wc > b\nqueue\n")
    done = poolnode("submit", "--check", str(home / "job.sub"), cwd=home)
    assert done.returncode == 0, one_line(done)
    assert "seq --> tee +--[/dev/fd/3 > -]--> cat --> a" in done.stdout

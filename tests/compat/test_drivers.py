"""The programs that drive HTCondor read the drop-ins' output: each one's own commands, expressions and rules.

Those of Nextflow, Galaxy (`runners/util/external.py`, `util/condor`), Cromwell (`HtCondor.conf`) and Pegasus
are as their sources have them; the others as excerpts of their sources have them. The output is ours.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pool.compat.entry import status
from pool.compat.settings import platform_text, version_text
from pool.compat.submit import _outcome_lines, with_appended
from pool.jobs.events import EventKind, JobEvent
from pool.jobs.userlog import render
from tests.compat.cases import CORPUS

SUBMITTED = _outcome_lines([(12, 3)], "Submitting", "submitted", terse=False)
TERSE = _outcome_lines([(12, 1)], "Submitting", "submitted", terse=True)


@pytest.mark.parametrize(
    ("program", "expression", "found"),
    [
        ("dask-jobqueue", r"submitted to cluster (?P<job_id>\d+)", "12"),
        ("ipyparallel", r"(\d+)\.$", "12"),
        ("law", r"^(\d+) job\(s\) submitted to cluster (\d+)\.$", "3"),
        ("Galaxy", r"submitted to cluster (\d+)\.", "12"),
        ("Cromwell", r"(?sm).*cluster (\d+)..*", "12"),
        ("batchspawner", r".*submitted to cluster ([0-9]+)", "12"),
        ("TauFW", r"submitted to cluster (\d+).", "12"),
    ],
)
def test_the_cluster_is_found_where_they_look_for_it(program: str, expression: str, found: str) -> None:
    match = re.search(expression, SUBMITTED, re.MULTILINE)
    assert match is not None, program
    assert match[1] == found


def test_parsl_takes_the_sixth_word_and_a_full_stop() -> None:
    (line,) = [one for one in SUBMITTED.splitlines() if "submitted to cluster" in one]
    assert line.split(" ")[5] + "0" == "12.0"


def test_nextflow_takes_the_first_word_of_a_terse_submit_and_the_sixth_of_a_listing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert re.split("[ -]+", TERSE)[0] == "12.0"
    monkeypatch.chdir(CORPUS)
    assert status("condor_q", ["-jobads", "jobs.ads", "-nobatch", "12"]) == 0
    states: dict[str, str] = {}
    started = False
    for line in capfd.readouterr().out.splitlines():
        if not started:
            started = line.startswith(" ID ")
        elif not line.strip():
            break
        else:
            columns = line.split()
            states[columns[0]] = columns[5]
    assert states == {"12.0": "R", "12.1": "H"}


def test_galaxy_and_cromwell_find_the_events_of_a_job_in_its_log() -> None:
    text = "".join(
        render(JobEvent(None, 7, 0, kind, 1.7e9, {"exit_code": 0}))
        for kind in (EventKind.SUBMIT, EventKind.EXECUTE, EventKind.TERMINATED)
    )
    for number in ("000", "001", "005"):
        assert f"{number} ({'7'.zfill(3)}." in text
    assert "009 (007." not in text


@pytest.mark.parametrize(
    "expression",
    [
        r"^\$CondorVersion: (\d+)\.(\d+)\.(\d+) .+$",  # law
        r"\$CondorVersion: (\d+).(\d+).(\d+)",  # lsst-ctrl-bps-htcondor
        r"\$CondorVersion:\s*([0-9]+\.[0-9]+\.[0-9]+)[\w\W\s]*\$",  # Pegasus
    ],
)
def test_the_release_is_found(expression: str) -> None:
    assert re.match(expression, version_text())
    assert platform_text().startswith("$CondorPlatform: ")


def test_pegasus_reads_an_array_or_nothing(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CORPUS)
    assert status("condor_q", ["-jobads", "jobs.ads", "-constraint", "ClusterId == 12", "-json"]) == 0
    assert [ad["ProcId"] for ad in json.loads(capfd.readouterr().out)] == [0, 1]
    assert status("condor_q", ["-jobads", "jobs.ads", "-constraint", "ClusterId == 99", "-json"]) == 0
    assert capfd.readouterr().out == ""


def test_batchspawner_and_parsl_ask_for_states_in_their_own_formats(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CORPUS)
    asked = ["-jobads", "jobs.ads", "12.0", "-format", "%s, ", "JobStatus", "-format", "%s", "RemoteHost"]
    assert status("condor_q", [*asked, "-format", "\\n", "True"]) == 0
    assert capfd.readouterr().out == "2, slot1@host\n"
    assert status("condor_q", ["-jobads", "jobs.ads", "12.0", "12.1", "-af:jr", "JobStatus"]) == 0
    assert capfd.readouterr().out == "12.0 2\n12.1 5\n"


@pytest.mark.parametrize(
    ("text", "lines", "statement", "result"),
    [
        ("executable = a\nqueue\n", ["b = 1"], None, "executable = a\nb = 1\nqueue\n"),
        ("executable = a\n", ["queue 3"], None, "executable = a\nqueue 3\n"),
        ("executable = a\n", [], "queue 2 x in (a)", "executable = a\nqueue 2 x in (a)\n"),
    ],
)
def test_appended_lines_stand_before_the_queue_statement(
    text: str, lines: list[str], statement: str | None, result: str
) -> None:
    assert with_appended(text, lines, statement) == result


def test_the_directory_is_made_once_and_left_alone_where_it_is_not_ours(tmp_path: Path) -> None:
    from pool.compat.install import MODULES, exports, install
    from pool.compat.tools import TOOLS
    from pool.errors import PoolError

    assert install(tmp_path / "here") == len(TOOLS) + len(MODULES) + 1
    assert install(tmp_path / "here") == 0
    assert (tmp_path / "here" / "bin" / "condor_q").stat().st_mode & 0o111
    assert str(tmp_path / "here" / "bin") in exports(tmp_path / "here")
    (tmp_path / "here" / "bin" / "condor_q").write_text("#!/bin/sh\n# the real one\n")
    with pytest.raises(PoolError, match="is there already, and is not ours"):
        install(tmp_path / "here")

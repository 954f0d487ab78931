"""Checking and the dry run, which need no pool (VS 6.3.2)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pool.classad import ClassAd
from pool.cli import main, saving
from pool.cli.saving import checkpoint_machines

SWEEP = """\
executable = /bin/echo
arguments = --seed $(Process)
output = out.$(Cluster).$(Process)
request_memory = 64
queue 3
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POOLNODE_STATE", str(tmp_path / "no-pool-here"))
    monkeypatch.setenv("POOLNODE_ADDRESS", "unix:///no/pool/here")
    monkeypatch.chdir(tmp_path)


def description(text: str) -> str:
    Path("a.sub").write_text(text)
    return "a.sub"


def test_a_dry_run_prints_each_job_as_json_of_expressions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.status(["submit", "--dry-run", "--json", description(SWEEP)]) == 0
    jobs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [job["ProcId"] for job in jobs] == ["0", "1", "2"]
    assert [job.get("Arguments") or job["Args"] for job in jobs] == [f'"--seed {n}"' for n in range(3)]
    assert [job["Out"].rpartition("out")[2] for job in jobs] == [f'.1.{n}"' for n in range(3)]
    assert {job["ClusterId"] for job in jobs} == {"1"}
    assert jobs[0]["RequestMemory"] == "64"
    assert jobs[0]["Cmd"] == '"/bin/echo"'
    assert "TARGET.Memory" in jobs[0]["Requirements"]
    assert list(jobs[0]) == sorted(jobs[0], key=str.lower)


def test_a_dry_run_in_the_long_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.status(["submit", "--dry-run", description(SWEEP)]) == 0
    jobs = capsys.readouterr().out.split("\n\n")
    assert [job for job in jobs if 'rgs = "--seed 1"' in job or 'Arguments = "--seed 1"' in job]


def test_a_check_says_what_was_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.status(["submit", "--check", description(SWEEP)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 jobs"
    facts = dict(line.strip().split("  ", 1) for line in lines[1:] if line.startswith("  "))
    assert facts["executable"].strip() == "/bin/echo"
    assert facts["arguments"].strip() == "--seed 0   ... 3 different"
    assert facts["output"].strip().endswith("out.$(Cluster).0   ... 3 different")
    assert "rank" not in facts, "what says nothing is left out"
    assert lines[-1] == "a.sub: understood, 3 jobs; nothing was queued"


def test_a_check_draws_the_processes_and_says_which_run_together(capsys: pytest.CaptureFixture[str]) -> None:
    text = "executable = cat | sort | uniq\nspread = cat, sort uniq\nqueue\n"
    assert main.status(["submit", "--check", description(text)]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1].endswith("cat --> sort --> uniq")
    assert lines[2] == "runs in parts: cat, sort uniq"


def test_a_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.status(["submit", "--check", "--json", description(SWEEP)]) == 0
    (only,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (only["cluster"], only["jobs"], only["memory, MB"]) == (1, 3, "64")


def test_every_mistake_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = "executable = /no/such/program\nrequest_memory = lots of\nqueue\n"
    for command in (["submit", "--check"], ["submit", "--dry-run"], ["submit"], ["run"]):
        assert main.status([*command, description(text)]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        errors = captured.err.splitlines()
        assert all(line.startswith("poolnode: a.sub") for line in errors)
        assert any("/no/such/program" in line for line in errors)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("mpi = lam", "expected one of auto, mpich, openmpi, pmix, mpirun, none for 'mpi', not 'lam'"),
        ("mpi = mpich\nranks_per_machine = many", "from 1 to 4096 for 'ranks_per_machine', not 'many'"),
        ("", "/bin/true names no MPI library that this pool knows"),
    ],
)
def test_a_wrong_mpi_job_is_refused_in_one_line(command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"universe = mpi\nexecutable = /bin/true\n{command}\nqueue\n"
    assert main.status(["submit", "--check", description(text)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("poolnode: a.sub:")
    assert said in line


def test_an_unknown_command_is_a_warning_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    text = "executable = /bin/true\nargumnets = 5\nqueue\n"
    assert main.status(["submit", "--check", description(text)]) == 0
    captured = capsys.readouterr()
    assert "arguments" in captured.err.replace("argumnets", "")
    assert "a.sub:2" in captured.err
    assert captured.out.splitlines()[-1] == "a.sub: understood, 1 job, 1 warning; nothing was queued"


def test_commands_can_be_added_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = "executable = /bin/true\nqueue\n"
    assert main.status(["submit", "--dry-run", "--json", description(text), "priority=7"]) == 0
    assert json.loads(capsys.readouterr().out)["JobPrio"] == "7"


def test_a_description_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(SWEEP))
    assert main.status(["submit", "--check", "-"]) == 0
    assert "standard input: understood, 3 jobs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "nothing in its file speaks against it; what it opens is looked at when it runs"),
        ("checkpoint = off\n", "off: what it has done is lost with its machine"),
        ("checkpoint_exit_code = 85\n", "its own"),
        ("request_gpus = 1\n", "cannot be made: what it keeps on a GPU cannot be saved: it runs"),
        ("checkpoint = required\nrequest_gpus = 1\n", "cannot be made: what it keeps on a GPU cannot be saved: it"),
    ],
)
def test_a_check_says_whether_the_job_can_be_saved(
    more: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/usr/bin/env sh\nsleep 10\n")
    script.chmod(0o755)
    assert main.status(["submit", "--check", description(f"executable = {script}\n{more}queue\n")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["checkpoints"]]
    assert line.split(maxsplit=1)[1].startswith(said)


def test_a_check_names_what_is_wrong_with_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "old"
    program.write_bytes(b"\x7fELF\x01\x01" + bytes(100))
    program.chmod(0o755)
    assert main.status(["submit", "--check", description(f"executable = {program}\nqueue\n")]) == 0
    assert "cannot be made: it is a 32-bit program: it runs, and" in capsys.readouterr().out


def machine(name: str, step: str, kernel: str, able: bool = True, memory: int = 100) -> ClassAd:
    ad = {"Machine": name, "Microarch": step, "KernelVersion": kernel, "HasCheckpoint": able, "Memory": memory}
    return ClassAd.from_wire(ad)


def test_a_check_says_on_which_machines_a_job_could_be_put_back() -> None:
    job = ClassAd.from_wire({"Requirements": ["TARGET.Memory >= 50"]})
    one, other = machine("one", "x86_64-v3", "6.1.0"), machine("two", "x86_64-v3", "5.10.4")
    old, small = machine("old", "x86_64-v2", "6.1.0"), machine("small", "x86_64-v3", "6.1.0", memory=10)
    without = machine("none", "x86_64-v3", "4.4.0", able=False)
    all_of_them = "it could be saved and restored on"
    assert checkpoint_machines(job, [small], 0.0) == "no machine of the pool would take it now"
    assert (
        checkpoint_machines(job, [one, small], 0.0) == f"{all_of_them} the one machine that would take it; kernel 6.1.0"
    )
    two = checkpoint_machines(job, [one, other], 0.0)
    assert two == f"{all_of_them} each of the 2 machines that would take it; kernel 5.10.4 to 6.1.0"
    assert checkpoint_machines(job, [one, other, old, without], 0.0) == (
        f"{all_of_them} 3 of the 4 machines that would take it (not on none); what x86_64-v2 began on 3; "
        "what x86_64-v3 began on 2; kernel 5.10.4 to 6.1.0"
    )
    nowhere = checkpoint_machines(job, [without], 0.0)
    assert nowhere == "on no machine that would take it could it be saved: their kernels do not allow that"
    lacking = [ClassAd.from_wire({**ad.to_wire(), "CheckpointLacks": "no time namespaces"}) for ad in (one, without)]
    assert checkpoint_machines(job, [lacking[0], other], 0.0) == f"{two}; one: no time namespaces"
    assert checkpoint_machines(job, lacking[1:], 0.0) == f"{nowhere}; none: no time namespaces"


def test_a_check_says_what_may_be_refused_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By what a script imports, and by what the pool says of earlier runs."""
    script = tmp_path / "serve.py"
    script.write_text("import http.server\n")
    text = f"executable = /usr/bin/env\ntransfer_executable = false\narguments = {script}\nqueue\n"
    python = text.replace("/usr/bin/env", sys.executable)
    assert main.status(["submit", "--check", description(python)]) == 0
    assert "it imports http.server: what it has open on the network cannot be saved" in capsys.readouterr().out
    folded = {"cmd": sys.executable, "iwd": str(tmp_path), "arguments": "quiet.py"}
    name = saving.known_program(folded)
    said = saving.checkpoints({**folded, "jobcheckpoint": "required"}, {name: "descriptor 3 is a TCP connection"})
    assert said.startswith(f"{name} could not be checkpointed when it ran last: descriptor 3")
    assert said.endswith("it is held where it cannot be")

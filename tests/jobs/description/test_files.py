"""File checks: what must be there when a job is submitted, and the real file system behind them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from pool.jobs.description import DescriptionError, RealFiles, SubmitFacts, read_description
from tests.ordinary_user import PYTHON, OrdinaryUser

FACTS = SubmitFacts(filesystem_domain="example.org", uid_domain="example.org")
ELF_FOR_ARM = b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x02\x00\xb7\x00" + b"\0" * 44


def complaint(folder: Path, text: str) -> str:
    try:
        read_description(text, iwd=str(folder), environ={}, user="alice", facts=FACTS)
    except DescriptionError as error:
        return str(error)
    return ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\necho hello\n")
    script.chmod(0o755)
    return tmp_path


def test_what_is_there_passes(folder: Path) -> None:
    (folder / "data").write_text("1")
    assert complaint(folder, "executable = job.sh\ninput = data\noutput = out\nlog = log\nqueue\n") == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("executable = nosuch.sh", "does not exist"),
        ("executable = .", "is a directory"),
        ("executable = job.sh\ninput = nosuch", "'input' names"),
        ("executable = job.sh\noutput = nosuch/out", "the directory"),
        ("executable = job.sh\noutput = .", "which is a directory"),
        ("executable = job.sh\ntransfer_input_files = a, b", "'transfer_input_files' names"),
        ("executable = job.sh\ninitialdir = nosuch", "there is no directory"),
        ("executable = job.sh\nrootdir = /nosuch", "for 'rootdir'"),
    ],
)
def test_what_is_missing_is_named(folder: Path, line: str, said: str) -> None:
    assert said in complaint(folder, f"{line}\nqueue\n")


def test_executables_that_cannot_run_are_refused(folder: Path) -> None:
    text = "executable = other\nqueue\n"
    other = folder / "other"
    other.write_bytes(b"")
    other.chmod(0o755)
    assert "is empty" in complaint(folder, text)
    other.write_bytes(b"#!/bin/sh\r\n")
    assert "line ends of DOS" in complaint(folder, text)
    other.write_bytes(ELF_FOR_ARM)
    assert "is a program for AARCH64" in complaint(folder, text)
    assert complaint(folder, 'requirements = Arch == "AARCH64"\n' + text) == ""
    other.write_text("#!/bin/sh\n")
    other.chmod(0o644)
    assert "is not executable" in complaint(folder, text)


@pytest.mark.parametrize(
    "line",
    [
        "executable = closed/job.sh",
        "executable = link",
        "executable = job.sh\ninput = closed/in",
        "executable = job.sh\ntransfer_input_files = closed/deep/in",
        "executable = job.sh\noutput = closed/deep/out",
        "executable = job.sh\ninitialdir = closed/deep",
        "executable = job.sh\nremote_io = on\nremote_io_trees = closed/deep",
        "executable = job.sh\nx509userproxy = closed/in",
    ],
)
def test_a_closed_directory_on_the_way_is_named(line: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        _closed_directory_is_named(Path(place).resolve(), line)


def _closed_directory_is_named(folder: Path, line: str) -> None:
    (folder / "job.sh").write_text("#!/bin/sh\n")
    (folder / "job.sh").chmod(0o755)
    (folder / "closed/deep").mkdir(parents=True)
    for name in ("closed/job.sh", "closed/in", "closed/deep/in"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    (folder / "link").symlink_to("nothing/../closed/../closed/job.sh")
    (folder / "nothing").mkdir()
    (folder / "closed").chmod(0)
    said = complaint_of_ordinary_user(folder, f"{line}\nqueue\n")
    assert f"alice may not enter the directory {folder}/closed" in said
    assert f"chmod a+x {folder}/closed" in said


def complaint_of_ordinary_user(folder: Path, text: str) -> str:
    """The message to a user whom a file's mode binds: where root runs the tests, to another one."""
    if os.geteuid() != 0:
        try:
            return complaint(folder, text)
        finally:
            (folder / "closed").chmod(0o700)
    folder.chmod(0o755)
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        user = OrdinaryUser(Path(place))
        code = (
            "import os, sys; from tests.jobs.description.test_files import complaint;"
            " print(complaint(os.getcwd(), sys.argv[1]))"
        )
        command = [*user.command, PYTHON, "-c", code, text]
        done = subprocess.run(command, cwd=folder, env=user.environ, capture_output=True, text=True, check=True)
    return done.stdout


def test_urls_and_later_names_are_not_looked_at(folder: Path) -> None:
    text = "executable = job.sh\ntransfer_input_files = http://host/x, $$(File)\nqueue\n"
    assert complaint(folder, text) == ""


def test_a_log_that_cannot_be_written_is_refused(folder: Path) -> None:
    """The job was queued, and its log was lost."""
    (folder / "d").mkdir()
    assert complaint(folder, "executable = job.sh\nlog = good.log\nqueue\n") == ""
    missing = complaint(folder, "executable = job.sh\nlog = nosuch/job.log\nqueue\n")
    assert f"the directory {folder}/nosuch for 'log' does not exist (make it first)" in missing
    assert "is a directory (name a file in it)" in complaint(folder, "executable = job.sh\nlog = d\nqueue\n")


def test_checks_can_be_switched_off(folder: Path) -> None:
    text = "executable = nosuch\ninput = nosuch\nqueue\n"
    assert complaint(folder, "skip_filechecks = true\n" + text) == ""
    read_description(text, iwd=str(folder), environ={}, user="alice", facts=FACTS, check_files=False)


def test_real_files(folder: Path) -> None:
    files = RealFiles()
    (folder / "d").mkdir()
    assert files.kind(str(folder / "d")) == "directory"
    assert files.kind(str(folder / "job.sh")) == "file"
    assert files.kind("/dev/null") == "other"
    assert files.kind(str(folder / "nosuch")) == "missing"
    assert files.size(str(folder / "job.sh")) == 21
    assert files.allowed(str(folder / "job.sh"), os.X_OK)
    assert files.matching(f"{folder}/*") == [f"{folder}/d/", f"{folder}/job.sh"]
    assert files.run("echo $((1+1))", str(folder)) == "2\n"
    with pytest.raises(OSError, match="status 3"):
        files.run("exit 3", str(folder))


def test_items_come_from_real_files(folder: Path) -> None:
    (folder / "items.txt").write_text("a\nb\n")
    text = "executable = job.sh\narguments = $(x)\nqueue x from items.txt\n"
    found = read_description(text, iwd=str(folder), environ={}, user="alice", facts=FACTS)
    assert [draft.count for draft in found.clusters] == [2]

"""A user's input, made text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pool.client import descriptions
from pool.client.commands import from_commands
from pool.errors import PoolError
from pool.outside import OutsideWorld


def test_a_dict_of_commands_becomes_lines_with_queue_last() -> None:
    text = from_commands({"queue": 3, "executable": "/bin/true", "transfer_executable": False})
    assert text == "executable = /bin/true\ntransfer_executable = false\nqueue 3\n"
    assert from_commands({"executable": "x"}).endswith("\nqueue\n")
    assert from_commands({"Queue": "x in (a, b)"}) == "queue x in (a, b)\n"


@pytest.mark.parametrize("commands", [{"arguments": "a\nqueue 9"}, {"queue": "1\nqueue 9"}, {"a\nb": 1}])
def test_a_value_cannot_smuggle_in_a_line(commands: dict[str, str]) -> None:
    with pytest.raises(PoolError, match="several lines"):
        from_commands(commands)


def test_files_that_are_no_descriptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "job"
    with pytest.raises(PoolError, match="no such file or directory"):
        descriptions.read_file(path)
    path.write_bytes(b"\x7fELF\0")
    with pytest.raises(PoolError, match="is it the executable instead"):
        descriptions.read_file(path)
    monkeypatch.setattr(descriptions, "BIGGEST", 3)
    path.write_bytes(b"abcd")
    with pytest.raises(PoolError, match="longer than"):
        descriptions.read_file(path)


def test_bytes_that_are_not_utf8_survive(tmp_path: Path) -> None:
    path = tmp_path / "job"
    path.write_bytes(b"arguments = \xff\n")
    assert os.fsencode(descriptions.read_file(path)) == b"arguments = \xff\n"


def test_this_machine_is_described() -> None:
    facts = descriptions.local_facts(OutsideWorld())
    assert facts.opsys == "LINUX"
    assert facts.arch
    assert facts.filesystem_domain == descriptions.domain_here()
    assert facts.opsys_and_version.startswith(descriptions.distribution()[0])


def test_a_distribution_that_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent() -> dict[str, str]:
        raise OSError("no os-release")

    monkeypatch.setattr("platform.freedesktop_os_release", silent)
    assert descriptions.distribution() == ("Linux", "")
    assert descriptions.local_facts(OutsideWorld()).opsys_and_version == "Linux"

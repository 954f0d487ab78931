"""A description that is submitted again is read again only where that could give something else."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pool.client.descriptions import describe
from pool.client.known_descriptions import MOST, KnownDescriptions, NotedChance
from pool.errors import PoolError
from pool.jobs.description import Description
from pool.outside import OutsideWorld

TEXT = "executable = /bin/true\narguments = a b\nqueue 2\n"


class Reader:
    """Reads in one directory, at a time that it is told."""

    def __init__(self, directory: Path) -> None:
        self.now = 1000.25
        self.environ = {"MODE": "fast"}
        self.known = KnownDescriptions()
        self.outside = OutsideWorld(wall=lambda: self.now, chance=random.Random(3))
        self._directory = directory

    def read(self, what: str | Mapping[str, Any] = TEXT, known: bool = True, **how: Any) -> Description:
        outside, memory = self.outside, self.known if known else None
        return describe(what, iwd=self._directory, environ=self.environ, outside=outside, known=memory, **how)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def test_an_equal_description_is_read_once_and_is_what_reading_gives(reader: Reader) -> None:
    first = reader.read()
    reader.now += 0.5
    assert reader.read() is first
    assert reader.read(known=False).clusters[0].attributes == first.clusters[0].attributes


@pytest.mark.parametrize(
    "changed", [{"what": TEXT + "\n"}, {"name": "other"}, {"extra": ("priority = 3",)}, {"iwd": "/"}], ids=str
)
def test_another_text_name_command_or_directory_is_read(changed: dict[str, Any], reader: Reader) -> None:
    first = reader.read()
    what: dict[str, Any] = {
        "iwd": reader._directory,
        "environ": reader.environ,
        "outside": reader.outside,
        "known": reader.known,
    }
    assert describe(**({"what": TEXT} | what | changed)) is not first
    assert reader.read() is first


def test_it_is_read_again_in_another_second_which_its_ads_name(reader: Reader) -> None:
    assert reader.read().clusters[0].attributes["QDate"] == 1000
    reader.now = 1001.0
    assert reader.read().clusters[0].attributes["QDate"] == 1001


def test_it_is_read_again_in_another_environment(reader: Reader) -> None:
    text = TEXT.replace("a b", "$ENV(MODE)")
    assert reader.read(text).clusters[0].attributes["Args"] == "fast"
    reader.environ["MODE"] = "slow"
    assert reader.read(text).clusters[0].attributes["Args"] == "slow"


def test_it_is_read_again_where_a_file_answers_otherwise(reader: Reader, tmp_path: Path) -> None:
    """Names that match, texts that are included, and an executable that is there no more."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "in.dat").write_bytes(b"x")
    (tmp_path / "common").write_text("priority = 1\n")
    text = "executable = program\ninclude : common\narguments = $(f)\nqueue f matching *.dat\n"
    first = reader.read(text)
    assert reader.read(text) is first
    (tmp_path / "more.dat").write_bytes(b"y")
    second = reader.read(text)
    assert (first.clusters[0].count, second.clusters[0].count) == (1, 2)
    (tmp_path / "common").write_text("priority = 2\n")
    assert reader.read(text).clusters[0].attributes["JobPrio"] == 2
    assert reader.read(text) is reader.read(text)
    program.unlink()
    with pytest.raises(PoolError, match="program"):
        reader.read(text)


def test_what_is_left_to_chance_or_to_a_program_is_read_each_time(reader: Reader) -> None:
    by_chance = TEXT.replace("a b", "$RANDOM_INTEGER(1, 1000000)")
    drawn = [reader.read(by_chance).clusters[0].attributes["Args"] for _ in range(3)]
    assert len(set(drawn)) == 3
    by_program = "executable = /bin/true\nqueue x from date +%N |\n"
    assert reader.read(by_program) is not reader.read(by_program)


def test_chance_that_is_noted_draws_as_the_one_behind_it() -> None:
    noted, plain = NotedChance(random.Random(5)), random.Random(5)
    assert not noted.was_asked
    for _ in range(20):
        assert noted.randrange(1000) == plain.randrange(1000)
        assert noted.choice("abcdefg") == plain.choice("abcdefg")
    assert noted.was_asked


def test_few_are_remembered(reader: Reader) -> None:
    first = reader.read()
    for number in range(MOST):
        reader.read(TEXT.replace("a b", str(number)))
    assert reader.read() is not first


def test_the_environment_of_this_process_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, outside = KnownDescriptions(), OutsideWorld(wall=lambda: 5.0)
    text = TEXT.replace("a b", "$ENV(SOME_MODE)")
    for value in ("one", "two"):
        monkeypatch.setitem(os.environ, "SOME_MODE", value)
        read = describe(text, iwd=tmp_path, outside=outside, known=known)
        assert read.clusters[0].attributes["Args"] == value

"""Reading configuration text: the papers' two sorts of definitions, comments, lines that go on, includes, mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.config.reading import ConfigError, Include, SettingDefinition, joined, open_file, parse


def one(text: str) -> SettingDefinition | Include:
    [item] = parse(text, "pool.conf")
    return item


@pytest.mark.parametrize(
    ("text", "name", "value", "control"),
    [
        ("BackgroundLoad = 0.3", "BackgroundLoad", "0.3", False),
        ("START : $(CPUIdle) && KeyboardIdle > $(StartIdleTime)", "START", None, True),
        ("  A=b=c:d  ", "A", "b=c:d", False),
        ("START : A == 1 || B : C", "START", "A == 1 || B : C", True),
        ("EMPTY =", "EMPTY", "", False),
        ("NAME = a\x0cb\u2028c", "NAME", "a\x0cb\u2028c", False),
        ("STARTD.NAME = v", "STARTD.NAME", "v", False),
    ],
)
def test_definitions(text: str, name: str, value: str | None, control: bool) -> None:
    item = one(text)
    assert isinstance(item, SettingDefinition)
    assert (item.name, item.control) == (name, control)
    assert value is None or item.text == value


def test_comments_empty_lines_and_lines_that_go_on() -> None:
    text = "# c \\\n\nA = 1 + \\\n   2 \\\n  # not this\n  + 3\n   # end\nB = 4 \\\n"
    assert list(joined(text)) == [(3, "A = 1 + 2 + 3"), (8, "B = 4")]
    assert [item.where for item in parse(text, "f")] == ["f:3", "f:8"]


def test_windows_line_ends() -> None:
    assert [item.text for item in parse("A = 1\r\nB = 2\r\n", "f")] == ["1", "2"]  # type: ignore[union-attr]


def test_includes() -> None:
    assert one("include : /etc/x.conf") == Include("/etc/x.conf", "pool.conf:1", True)
    assert one("INCLUDE ifexist: $(HOSTNAME).conf") == Include("$(HOSTNAME).conf", "pool.conf:1", False)
    assert isinstance(one("include = 3"), SettingDefinition)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A = 1\nSTART KeyboardIdle > 3", r"pool.conf:2: expected NAME = value or NAME : expression, found `START Key"),
        ("= 3", "found `= 3`"),
        ("9LIVES = 3", "found `9LIVES = 3`"),
        ("include command : ls", "pool.conf:1: expected `include : FILE` or `include ifexist : FILE`"),
        ("include :", "pool.conf:1: include names no file"),
        ("x" * 500, r"found `x{37}\.\.\.`"),
    ],
)
def test_mistakes_are_named_with_file_and_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        list(parse(text, "pool.conf"))


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    refused = ""
    try:
        assert all(item.where.startswith("f:") for item in parse(text, "f"))
    except ConfigError as error:
        refused = str(error)
    assert refused[:2] in ("", "f:")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none.conf: No such file .*\(give another with --config\)"):
        open_file(tmp_path / "none.conf")
    with pytest.raises(ConfigError, match="Is a directory"):
        open_file(tmp_path)
    (tmp_path / "binary").write_bytes(b"A = \xff\xfe")
    with pytest.raises(ConfigError, match="byte 4 is not UTF-8 text"):
        open_file(tmp_path / "binary")
    (tmp_path / "long").write_text("#" * 1_000_001)
    with pytest.raises(ConfigError, match="too long for a configuration file"):
        open_file(tmp_path / "long")
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbfA = 1")
    assert open_file(tmp_path / "bom") == "A = 1"

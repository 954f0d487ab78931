"""Columns: alignment, cutting on a terminal, never into a pipe."""

from __future__ import annotations

import io

from pool.cli import tables
from pool.cli.tables import Column

COLUMNS = (
    Column("ID", lambda ad: str(ad["id"]), ("id",), right=True),
    Column("HOST", lambda ad: str(ad.get("host", "-")), ("host",), wide=True),
    Column("COMMAND", lambda ad: str(ad["cmd"]), ("cmd", "id")),
)


def test_columns_line_up_and_rows_have_no_trailing_blanks() -> None:
    lines = tables.render(COLUMNS, [{"id": 1, "host": "a", "cmd": "x"}, {"id": 100, "cmd": ""}])
    assert lines == [" ID HOST COMMAND", "  1 a    x", "100 -"]


def test_only_a_terminal_cuts_and_it_says_so() -> None:
    ads = [{"id": 1, "cmd": "a" * 50}]
    assert tables.render(COLUMNS, ads)[1].endswith("a" * 50)
    cut = tables.render(COLUMNS, ads, width=20)[1]
    assert len(cut) == 20
    assert cut.endswith("a…")


def test_a_narrow_terminal_leaves_out_what_is_wide() -> None:
    assert [column.title for column in tables.choose(COLUMNS, 80)] == ["ID", "COMMAND"]
    assert [column.title for column in tables.choose(COLUMNS, 200)] == ["ID", "HOST", "COMMAND"]
    assert [column.title for column in tables.choose(COLUMNS, None)] == ["ID", "HOST", "COMMAND"]


def test_a_narrow_terminal_gets_short_forms() -> None:
    name = Column("NAME", lambda ad: str(ad["name"]), short=lambda ad: str(ad["name"])[:2])
    assert tables.render(tables.choose([name], 80), [{"name": "abc"}]) == ["NAME", "ab"]
    assert tables.render(tables.choose([name], None), [{"name": "abc"}]) == ["NAME", "abc"]


def test_each_attribute_is_asked_for_once() -> None:
    assert tables.attributes_of(COLUMNS) == ["id", "host", "cmd"]


def test_an_empty_table_still_has_its_heading() -> None:
    assert tables.render(COLUMNS, []) == ["ID HOST COMMAND"]
    assert tables.layout([], [], right=[]) == []


def test_a_stream_that_is_no_terminal_has_no_width() -> None:
    assert tables.terminal_width(io.StringIO()) is None


def test_a_row_cannot_steer_a_terminal() -> None:
    """Text of other pools, and of users, stands in it."""
    _, line = tables.render(COLUMNS, [{"id": 1, "host": "\x1b[2J\x9b2J", "cmd": "a\nb\x7f"}])
    assert line == " 1  [2J 2J a b"

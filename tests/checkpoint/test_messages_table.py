"""Both sides of the keeper's messages come from one table."""

from __future__ import annotations

import pytest

from pool.checkpoint.messages_table import HEADER, LAYOUTS, START, Layout, c_header
from pool.starter.messages import pack_start, unpack_start
from pool.starter.spec import KeeperSpec


def test_the_header_is_the_tables() -> None:
    assert HEADER.read_text() == c_header(), "run python -m pool.checkpoint.messages_table"


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_both_sides_have_one_size(layout: Layout) -> None:
    """The C side asserts the same size of its struct."""
    assert layout.packing().size == layout.size
    assert f"sizeof(struct {layout.name}) == {layout.size}" in c_header()


def test_every_limit_comes_through() -> None:
    """Each field of a start that is an attribute of the spec, with a value of its own."""
    fields = [field for field in START.fields if field.limit or field.same or field.duration]
    assert len(fields) == 15
    numbers = {field.limit or field.same or field.duration: 3 + at for at, field in enumerate(fields)}
    spec = KeeperSpec(id="1.0.0", argv=("/bin/true",), env={}, cwd="/", **numbers)  # type: ignore[arg-type]
    found = unpack_start(pack_start(spec, 7, 2))
    assert {name: getattr(found, name) for name in numbers} == numbers
    assert (
        unpack_start(pack_start(KeeperSpec(id="1.0.0", argv=("/x",), env={}, cwd="/", uid=1, gid=1), 7, 2)).memory
        is None
    )

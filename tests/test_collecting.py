"""Workers share the work of their collections, and nobody looks for garbage among what stays."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path

import pytest

from tests.collecting import from_own_place, import_tests, made_to_stay


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_each_worker_begins_at_a_place_of_its_own(workers: int) -> None:
    items = list(range(100))
    orders = [from_own_place(items, worker, workers) for worker in range(workers)]
    assert all(sorted(order) == items for order in orders)
    share = [order[: len(items) // workers] for order in orders]
    assert len({item for part in share for item in part}) == sum(map(len, share))


def test_what_cannot_be_imported_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "made_for_collecting"
    place.mkdir()
    texts = ("raise ValueError", "import pytest\npytest.skip('no', allow_module_level=True)", "x = 1")
    for number, text in enumerate(("", *texts)):
        (place / (f"test_{number}.py" if number else "__init__.py")).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import_tests(tmp_path, sorted(place.glob("test_*.py")), 1, 3)
    names = [f"{place.name}.test_{number}" for number in (1, 2, 3)]
    assert [name in sys.modules for name in names] == [False, False, True]
    for name in (place.name, names[2]):
        del sys.modules[name]


class Circle:
    """An object that only a search for garbage frees."""

    def __init__(self) -> None:
        self.own = self


def test_what_stays_is_not_looked_at_and_garbage_is_not_kept() -> None:
    before = gc.get_freeze_count()
    with made_to_stay():
        assert not gc.isenabled()
        stays = [[number] for number in range(1000)]
        ends = weakref.ref(Circle())
    assert gc.isenabled()
    assert ends() is None
    assert gc.get_freeze_count() > before + 1000
    del stays

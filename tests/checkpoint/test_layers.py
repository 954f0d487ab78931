"""The keeper's folders use each other in one direction: read from the object files' symbols and from the includes.

The floors are the table in docs/checkpoint.md. A folder may use folders of lower floors only. So there is no circle
between folders, either.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from pool.checkpoint import HERE
from pool.checkpoint.build import CannotBuild, compile_all

#: Sources that include another folder's private header, parts.h: the rows of an image are made from the
#: supervisor's own tables, and back.
INSIDERS = {
    ("state/mapped_files_restore.c", "mapped_files/parts.h"),
    ("state/mapped_files_save.c", "mapped_files/parts.h"),
}


def read_floors(page: str) -> dict[str, int]:
    """The floor of each folder, from the rows `| floor | folders | ...` below the heading Folders."""
    section = page.partition("\n## Folders\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.+?) \|", section, re.MULTILINE)
    return {folder: int(floor) for floor, folders in rows for folder in re.findall(r"`(\w+)/`", folders)}


def arrows_up(uses: Iterable[tuple[str, str]], floors: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Those pairs of folders, user and used, that do not lead to a lower floor."""
    for user, used in uses:
        if user != used and floors[used] >= floors[user]:
            yield user, used


def symbols(listing: str) -> tuple[set[str], set[str]]:
    """The global names that an object defines, and those that it needs: from what nm says of it."""
    rows = [line.split() for line in listing.splitlines()]
    defined = {row[-1] for row in rows if row[-2] in "TDBRVWC"}
    return defined, {row[-1] for row in rows if row[-2] == "U"}


@pytest.fixture(scope="module")
def floors(repository: Path) -> dict[str, int]:
    return read_floors((repository / "docs" / "checkpoint.md").read_text())


def test_every_folder_has_a_floor(floors: dict[str, int]) -> None:
    folders = {source.parent for source in HERE.rglob("*.[ch]")}
    assert {str(folder.relative_to(HERE)) for folder in folders} == set(floors)


def test_symbols_lead_down(floors: dict[str, int], tmp_path: Path) -> None:
    try:
        objects = compile_all(tmp_path)
    except CannotBuild as error:
        pytest.skip(str(error))
    owners: dict[str, str] = {}
    needs: list[tuple[str, str]] = []
    listed = subprocess.run(["nm", "-P", "-g", *objects.values()], capture_output=True, text=True, check=True).stdout
    listings = dict(zip(objects, re.split(r"^.+\.o:\n", listed, flags=re.MULTILINE)[1:], strict=True))
    for source, listing in listings.items():
        defined, needed = symbols("\n".join(" ".join(line.split()[:2][::-1]) for line in listing.splitlines()))
        owners |= dict.fromkeys(defined, source.parent.name)
        needs += [(source.parent.name, name) for name in needed]
    assert len(owners) > 300
    uses = {(folder, owners[name]): name for folder, name in needs if name in owners}
    assert {arrow: uses[arrow] for arrow in arrows_up(uses, floors)} == {}


def test_includes_lead_down(floors: dict[str, int]) -> None:
    wrong = []
    for source in sorted(HERE.rglob("*.[ch]")):
        name, folder = str(source.relative_to(HERE)), source.parent.name
        for header in re.findall(r'^#include "(.+)"$', source.read_text(), re.MULTILINE):
            used = header.partition("/")[0]
            private = header.endswith("/parts.h") and used != folder and (name, header) not in INSIDERS
            if private or list(arrows_up([(folder, used)], floors)):
                wrong.append(f"{name} includes {header}")
    assert wrong == []


def test_an_arrow_up_is_found() -> None:
    floors = read_floors(
        "# T\n\n## Folders\n\n| 2 | `top/` | |\n| 1 | `left/`, `right/` | |\n| 0 | `low/` | |\n\n## More\n| 9 | `x/` |"
    )
    assert floors == {"top": 2, "left": 1, "right": 1, "low": 0}
    assert list(arrows_up([("top", "low"), ("left", "low"), ("left", "left")], floors)) == []
    assert list(arrows_up([("low", "top"), ("left", "right")], floors)) == [("low", "top"), ("left", "right")]
    assert symbols("T one\nU two\nb three\nD four") == ({"one", "four"}, {"two"})

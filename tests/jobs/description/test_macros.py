"""Macros: what is compiled once, what stays open for each process, and what never ends."""

from __future__ import annotations

import random

import pytest

from pool.jobs.description.diagnostics import SourcePosition
from pool.jobs.description.functions import Functions
from pool.jobs.description.macros import MacroError, Macros, Template

HERE = SourcePosition("job.sub", 1)


def macros(**texts: str) -> Macros:
    found = Macros(Functions({"HOME": "/home/alice"}, random.Random(1), "/iwd"))
    for name, text in texts.items():
        found.set(name, text, HERE)
    found.live = {"process": 0, "x": 1}
    found.opaque = frozenset({"process"})
    return found


def test_what_is_the_same_for_all_is_a_constant() -> None:
    assert macros(a="1$(b)", b="2").compile("<$(a)$ENV(HOME)$(DOLLAR)>") == Template(constant="<12/home/alice$>")


def test_live_macros_become_holes() -> None:
    found = macros(a="$(Process).$(b)", b="z").compile("out.$(a)-$(process)")
    assert found == Template(parts=("out.", 0, ".z-", 0))
    assert found.fill(["7", ""]) == "out.7.z-7"


@pytest.mark.parametrize("text", ["$(x:d)", "$INT(Process,%03d)", "$(a$(Process))", "$RANDOM_CHOICE(1,2)"])
def test_what_cannot_be_a_hole_is_expanded_for_each_process(text: str) -> None:
    assert macros().compile(text) == Template(varying=text)


def test_live_values_override_texts() -> None:
    found = macros(x="no", y="[$(x:none)]")
    assert found.expand("$(y)", {"x": "3"}) == "[3]"
    assert found.expand("$(y)", {"x": ""}) == "[none]"


def test_a_reference_to_itself_takes_the_earlier_text() -> None:
    found = macros(a="1")
    found.set("A", "$(a) 2", HERE)
    assert found.expand("$(A)") == "1 2"


def test_a_circle_is_an_error_in_words() -> None:
    with pytest.raises(MacroError, match=r"circle: \$\(a\) -> \$\(b\) -> \$\(a\)"):
        macros(a="x$(b)", b="$(a)").expand("$(a)")
    with pytest.raises(MacroError, match="circle"):
        macros(a="x$(b)", b="$(a)").compile("$(b)")


def test_use_is_noted() -> None:
    found = macros(a="$(b)", b="1", c="2")
    found.expand("$(a)")
    assert [macro.name for macro in found.table.values() if macro.used] == ["a", "b"]


def test_undefined_names_are_told() -> None:
    told: list[str] = []
    found = macros(empty="")
    found.undefined = told.append
    assert found.expand("$(nosuch)$(empty)$(other:1)") == "1"
    assert told == ["nosuch"]

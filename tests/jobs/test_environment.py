"""Both ways of writing an environment, what getenv lets through, and what a job ad keeps."""

from __future__ import annotations

import pytest

from pool.jobs.arguments import QuotingError
from pool.jobs.environment import environment_of, imported, read_environment


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1;B=2", {"A": "1", "B": "2"}),
        ("A=1; B=2;", {"A": "1", "B": "2"}),
        ("|A=1;2|B=3", {"A": "1;2", "B": "3"}),
        ("A=1 B=2", {"A": "1 B=2"}),
        ("\"A='x y' B=2\"", {"A": "x y", "B": "2"}),
        ('"A=""q"""', {"A": '"q"'}),
        ("A=", {"A": ""}),
        ('"$$(Later)"', {"$$(Later)": None}),
    ],
)
def test_both_forms(text: str, found: dict[str, str | None]) -> None:
    assert read_environment(text) == found


@pytest.mark.parametrize("text", ["A", "=1", '"A', '"=1"'])
def test_entries_that_are_none(text: str) -> None:
    with pytest.raises(QuotingError):
        read_environment(text)


def test_texts_of_the_job_ad() -> None:
    found = read_environment("\"B=2 A='x y'\"")
    assert found.to_new() == "A=x' 'y B=2"
    assert found.to_old() == "A=x y;B=2"
    with pytest.raises(QuotingError):
        read_environment('"A=1;2"').to_old()


def test_getenv_patterns() -> None:
    environ = {"HOME": "/h", "LANG": "C", "LC_ALL": "C", "BAD": "a\nb", "SEMI": "a;b"}
    assert set(imported(environ)) == {"HOME", "LANG", "LC_ALL", "SEMI"}
    assert set(imported(environ, ["l*", "!lc_*"])) == {"LANG"}
    assert set(imported(environ, ["!L*"], old=True)) == {"HOME"}


def test_attributes_stand_for_variables() -> None:
    assert environment_of({"Environment": "A=x' 'y B=2"}) == {"A": "x y", "B": "2"}
    assert environment_of({"Env": "A=1|B=2", "EnvDelim": "|"}) == {"A": "1", "B": "2"}
    assert environment_of({}) == {}

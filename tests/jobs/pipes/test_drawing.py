"""Drawings of the processes of a job and what flows between them."""

from __future__ import annotations

from pool.jobs.description.pipes.shell_syntax import read_pipes
from pool.jobs.pipes.drawing import draw
from pool.jobs.pipes.model import PipelineProcess


def process(name: str, stdin: str = "", stdout: str = "") -> PipelineProcess:
    return PipelineProcess(name, name, stdin=stdin, stdout=stdout)


def test_a_line() -> None:
    drawn = draw([process("foo", "inp"), process("bar", "", "results")], read_pipes("foo | bar"))
    assert drawn == ["inp --> foo --> bar --> results"]


def test_a_mapping_beside_standard_files() -> None:
    ends = [process("foo", "inp", "data"), process("bar", "samples", "results")]
    assert draw(ends, read_pipes("foo > fort.11 fort.10 > bar")) == [
        "inp --> foo +--[fort.11 > fort.10]--> bar < samples --> results",
        "            +--> data",
    ]


def test_branches_and_what_comes_together_again() -> None:
    four = [process("a"), process("b"), process("c", stdout="x"), process("d", stdout="y")]
    assert draw(four, read_pipes("a | b, b > f g > c, a > h - > d, d > z q > b")) == [
        "a +--> b --[f > g]--> c --> x",
        "  +--[h > -]--> d +--[z > q]--> ^b",
        "                  +--> y",
    ]


def test_a_circle_begins_with_the_first() -> None:
    three = [process("a"), process("b"), process("c")]
    assert draw(three, read_pipes("a | b | c, c > back in > a")) == ["a --> b --> c --[back > in]--> ^a"]


def test_what_is_too_wide_goes_on_below() -> None:
    names = ["alpha" * 3, "beta" * 4, "gamma" * 3]
    assert draw([process(name) for name in names], read_pipes(" | ".join(names)), 40) == [
        "alphaalphaalpha --> betabetabetabeta -->",
        "                        gammagammagamma",
    ]


def test_processes_without_pipes_stand_alone() -> None:
    assert draw([process("a", "i", "o"), process("b")], []) == ["i --> a --> o", "b"]

"""Options and commands of other systems: understood where they mean the same, refused where they do not."""

from __future__ import annotations

import pytest

from pool.cli import app, main
from pool.cli.commands import COMMAND_MODULES
from pool.cli.other_words import COMMANDS, OPTIONS, instead_of, translate
from pool.cli.selection import UsageProblem

FLAGS = ("-l", "--long", "-q", "--quiet")
VALUES = ("-c", "--constraint", "-n", "--limit")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["-constraint", "true"], ["--constraint", "true"]),
        (["-cons", "true"], ["--constraint", "true"]),
        (["-hold"], ["--held"]),
        (["-run", "alice"], ["--constraint", "JobStatus == 2", "alice"]),
        (["-submitter", "alice"], ["alice"]),
        (["-ql", "12"], ["-ql", "12"]),
        (["-n20"], ["-n20"]),
        (["-qn", "20"], ["-qn", "20"]),
        (["-c", "-JobPrio"], ["-c", "-JobPrio"]),
        (["--constraint=-x"], ["--constraint=-x"]),
        (["--", "-bogus"], ["--", "-bogus"]),
        (["12.3", "-"], ["12.3", "-"]),
    ],
)
def test_words_are_spelled_as_ours(words: list[str], meant: list[str]) -> None:
    assert translate("q", words, FLAGS, VALUES) == meant


@pytest.mark.parametrize("word", ["-bogus", "-af:jh", "-pool", "-analyze", "-cx"])
def test_everything_else_is_refused_by_name(word: str) -> None:
    with pytest.raises(UsageProblem, match=f"q has no option {word}"):
        translate("q", [word], FLAGS, VALUES)


def test_each_translation_is_a_command_line_of_ours() -> None:
    commands = app._Lazy()
    for command, meanings in OPTIONS.items():
        ours = {word for parameter in commands[command].params for word in (*parameter.opts, *parameter.secondary_opts)}
        for option, (words, hint) in meanings.items():
            assert (words is None) == bool(hint), option
            assert {word for word in words or () if word.startswith("--")} <= ours, (command, option)


def test_commands_of_other_systems_lead_to_ours() -> None:
    assert set(COMMANDS.values()) <= set(COMMAND_MODULES)
    assert not set(COMMANDS) & set(COMMAND_MODULES)
    assert instead_of("submti", COMMAND_MODULES) == "submit"
    assert instead_of("condor_rm", COMMAND_MODULES) == "rm"
    assert instead_of("xyzzy", COMMAND_MODULES) is None


def test_pages_of_help_use_the_terminals_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = {}
    for columns in ("80", "130"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main.status(["q", "--help"]) == 0
        widths[columns] = max(map(len, capsys.readouterr().out.splitlines()))
    assert widths["80"] <= 80 < widths["130"] <= 130

"""HTCondor's options: abbreviations, values, letters after a colon, and what is refused."""

from __future__ import annotations

from importlib import import_module

import pytest

from pool.compat import actions, history, machines, outputs, queue, shell, status, submit, userprio, waiting
from pool.compat.entry import status as run
from pool.compat.options import ALL, Option, parse, usage
from pool.compat.tools import TOOLS
from pool.errors import PoolError

TABLES = (
    actions._REMOVE,
    actions._HOLD,
    actions._WHICH,
    actions._VACATE,
    actions._QEDIT,
    actions._PRIO,
    history.OPTIONS,
    machines.DRAIN,
    machines.WHO,
    outputs.TAIL,
    outputs.TRANSFER,
    queue.OPTIONS,
    shell.OPTIONS,
    status.OPTIONS,
    submit.OPTIONS,
    userprio.OPTIONS,
    waiting.OPTIONS,
)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("-const x", "constraint"),
        ("-c x", "constraint"),
        ("--constraint x", "constraint"),
        ("-nob", "nobatch"),
        ("-nobatch", "nobatch"),
        ("-js", "json"),
        ("-json", "json"),
        ("-xml", "xml"),
        ("-l", "long"),
        ("-lim 3", "limit"),
        ("-g", "global"),
        ("-all", "allusers"),
        ("-an", "analyze"),
        ("-better", "analyze"),
        ("-held", "hold"),
        ("-af:jr A", "autoformat"),
        ("-autof A", "autoformat"),
        ("-f %d A", "format"),
        ("-tot", "totals"),
        ("-r", "run"),
    ],
)
def test_an_abbreviation_is_what_it_is_in_htcondor(words: str, key: str) -> None:
    (given,) = parse(queue.OPTIONS, words.split()).options
    assert given.key == key


@pytest.mark.parametrize(
    "words", ["-nope", "-jsonn", "--const x", "-j", "-json:x", "-constraint", "-af", "-format %d", "-9"]
)
def test_what_is_unknown_or_has_no_value_is_refused(words: str) -> None:
    with pytest.raises(PoolError):
        parse(queue.OPTIONS, words.split())


def test_words_and_options_may_be_mixed() -> None:
    given = parse(queue.OPTIONS, ["12", "-af:j", "A", "B", "-limit", "3", "alice"])
    assert given.words == ["12", "alice"]
    assert [(one.key, one.letters, one.values) for one in given.options] == [
        ("autoformat", "j", ("A", "B")),
        ("limit", None, ("3",)),
    ]


def test_each_refused_option_names_the_way_out() -> None:
    for table in TABLES:
        for option in table:
            if option.refused:
                with pytest.raises(PoolError) as caught:
                    parse(table, [f"-{option.name}", *["x"] * max(option.values, 1)])
                assert caught.value.hint


def test_the_help_lists_what_is_possible() -> None:
    table = (Option("name", 1, 1), Option("af", 2, ALL, colon=True), Option("dag", 2, refused="no"))
    assert usage("condor_x", table, "[job]") == (
        "Usage: condor_x [options] [job]\n    -name <value>\n    -af[:letters] <attr> ...\n"
    )


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_each_tool_is_there_and_refuses_what_it_does_not_know(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, function = TOOLS[tool]
    assert callable(getattr(import_module(module), function))
    assert run(tool, ["-no-such-option"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"ERROR: {tool}: unrecognized argument -no-such-option")
    assert said.err.count("\n") == 1


def test_a_name_that_is_no_tool_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("condor_reboot", []) == 1
    assert "there is no drop-in 'condor_reboot'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "place"),
    [("12.0", 0), ("-auto 12.0 ls -l", 1), ("-pool head -name s 12.0", 4), ("-help", 1), ("12.0 -pool x", 0)],
)
def test_options_of_condor_ssh_to_job_end_at_the_job(words: str, place: int) -> None:
    assert shell._place_of_job(words.split()) == place


def test_the_job_of_condor_ssh_to_job() -> None:
    assert [shell._job(text) for text in ("12", "12.3", "12.3.4")] == [(12, 0, 0), (12, 3, 0), (12, 3, 4)]
    for text in ("alice", "1.2.3.4", "12.", "1\u0662"):
        with pytest.raises(PoolError, match="is not the id of a job"):
            shell._job(text)

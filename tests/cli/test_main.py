"""The program's manners: help, one-line errors, exit statuses, and what it does not import."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pool import __version__
from pool.cli import app, common, main
from pool.cli.commands import COMMAND_MODULES
from pool.errors import PoolError

EVERY = sorted(COMMAND_MODULES)


def poolnode(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pool.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "HOME": "/nonexistent", "POOLNODE_STATE": "/nonexistent", **environ},
    )


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.status(["--help"]) == 0
    shown = capsys.readouterr().out
    for name in EVERY:
        assert f"\n  {name} " in shown
    assert "poolnode run sweep.sub" in shown


@pytest.mark.parametrize("command", EVERY)
def test_each_command_teaches_by_example_in_eighty_columns(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.status([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"poolnode {command}" in shown.partition("Usage")[2].partition("\n")[2], "no example"
    assert max(map(len, shown.splitlines())) <= 80


def test_without_anything_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.status([]) == 0
    assert "Usage: poolnode" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["statsu"], "did you mean `poolnode status`?"),
        (["top"], "did you mean `poolnode status`?"),
        (["condor_q"], "did you mean `poolnode q`?"),
        (["xyzzy"], "`poolnode --help` lists the commands"),
        (["q", "-bogus"], "q has no option -bogus"),
        (["q", "-af", "Owner"], "-a ClusterId,ProcId,Cmd"),
        (["--bogus"], "No such option: --bogus"),
        (["q", "--bogus"], "see `poolnode q --help`"),
        (["submit"], "Missing argument 'FILE'"),
        (["--roles", "collector,boss"], "there is no role 'boss'"),
        (["--roles", "schedd", "--set", "X"], "write --set NAME=VALUE"),
        (["--roles", "schedd", "q"], "does not go with `q`"),
        (["--state", "x", "q"], "/x/node.sock"),
        (["--set", "A=1", "q"], "its own --address"),
        (["prio", "-p", "99999999999", "12"], "less than or equal to 2147483647"),
        (["rm"], "rm: which jobs"),
        (["rm", "--all", "12"], "--all and something else"),
        (["hold", "12.x"], "'12.x' is not a job"),
        (["prio", "12"], "poolnode prio -p 10 12.3"),
        (["vacate", "12", "--slot", "a"], "jobs or a slot, not both"),
        (["tail", "alice"], "an id looks like 12.3"),
        (["wait", "12", "--timeout", "soon"], "'soon' is not a time"),
        (["token", "--roles", "king"], "there is no role 'king'"),
        (["status", "--type", "cats"], "the types are machines"),
        (["submit", "x.sub", "y.sub"], "'y.sub' is not NAME=VALUE"),
        (["q", "--limit", "0"], "--limit"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.sub").write_text("executable = /bin/true\nqueue\n")
    assert main.status(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("poolnode: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err


@pytest.mark.parametrize("command", ["q", "status", "history", "summary", "globalq", "config", "token"])
def test_where_no_node_runs_each_command_says_how_to_start_one(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POOLNODE_STATE", str(tmp_path))
    monkeypatch.delenv("POOLNODE_ADDRESS", raising=False)
    if Path("/run/poolnode/node.sock").exists():
        monkeypatch.setenv("POOLNODE_ADDRESS", str(tmp_path / "node.sock"))
    assert main.status([command]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "no node" in captured.err


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "no such file or directory"),
        (lambda path: path.mkdir(), "it is a directory"),
        (lambda path: path.write_bytes(b"\x7fELF\0\0"), "it is not text"),
    ],
)
def test_a_description_that_cannot_be_read(
    make: object, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "job.sub"
    make(path)  # type: ignore[operator]
    for command in ("submit", "run"):
        assert main.status([command, str(path)]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"poolnode: cannot read job file {path}: ")
        assert said in error
        assert error.count("\n") == 1


def test_a_defect_is_one_line_too_unless_debug_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    for words, place in ((["q"], "pool.cli.queue.q"), (["q", "--help"], "pool.cli.app.app")):
        monkeypatch.setattr(place, broken)
        assert main.status(words) == 1
        assert "a defect of the program: ZeroDivisionError: oh (--debug shows where)" in capsys.readouterr().err
        with pytest.raises(ZeroDivisionError):
            main.status([*words, "--debug"])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (PoolError("no such thing x", hint="make one"), 1, "poolnode: no such thing x (make one)\n"),
        (PoolError("two\nlines"), 1, "poolnode: two lines\n"),
        (PermissionError(13, "Permission denied", "/etc/x"), 1, "poolnode: Permission denied: /etc/x\n"),
        (TimeoutError(), 1, "poolnode: no answer in time\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_and_their_statuses(
    error: BaseException,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(app, "app", failing)
    assert main.status(["q", "--help"]) == code
    assert capsys.readouterr().err == said
    monkeypatch.setattr("pool.cli.queue.q", failing)
    assert main.status(["q"]) == code
    assert capsys.readouterr().err == said


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    command = f"set -o pipefail; {sys.executable} -m pool.cli.main --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    assert done.returncode in (0, 141)


INTERRUPTED_IMPORT = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, *rest):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
from pool.cli.entry import main
main()
"""


@pytest.mark.parametrize("python", [[sys.executable], [sys.executable, "-u"]], ids=["buffered", "unbuffered"])
def test_an_output_that_cannot_be_written_is_named(python: list[str]) -> None:
    program = (
        "import sys; from pool.cli import app, common, main; "
        "app.app = lambda *a, **k: common.print_lines(['a line']); main.main()"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [*python, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    assert run.returncode == 1
    assert run.stderr == "poolnode: cannot write the output: No space left on device\n"


def test_ctrl_c_says_nothing_of_pythons(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")

    async def never() -> None:
        raise AssertionError("it had not begun")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run", interrupted)
    work = never()
    with pytest.raises(KeyboardInterrupt):
        common.run(work)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED, "or Python warns that it was never awaited"


def test_the_version_needs_no_module() -> None:
    program = (
        "import sys; sys.argv = ['poolnode', '--version']; before = set(sys.modules); "
        "from pool.cli.entry import main; main(); print(sorted(set(sys.modules) - before))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    version, modules = shown.splitlines()
    assert version == f"poolnode {__version__}"
    assert modules == "['__future__', 'pool', 'pool.cli', 'pool.cli.entry']"


def test_a_version_that_cannot_be_written_is_a_failure_in_one_line() -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "pool", "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert run.returncode == 1
    assert run.stderr == "poolnode: cannot write the output: No space left on device\n"


def test_help_and_short_commands_import_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from pool.cli import main\n"
        "main.status(['{}', '--help'])\n"
        "main.status(['--version'])\n"
        "main.status(['hold', '--reason', 'x'])\n"
        "heavy = {{'asyncio', 'cryptography', 'rich', 'uvloop', 'psutil', 'sqlite3', 'ssl', 'msgpack',"
        " 'pydantic', 'pool.classad', 'pool.wire', 'pool.jobs'}}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    for command in ("q", "status", "run", "submit"):
        done = subprocess.run(
            [sys.executable, "-c", program.format(command)], capture_output=True, text=True, timeout=30
        )
        assert done.stderr.splitlines()[-1] == "[]", command


@pytest.mark.parametrize("form", ["{} {}", "{}={}"], ids=["plain", "for typer"])
def test_a_node_and_a_file_or_number_of_a_command_need_no_pydantic(form: str) -> None:
    """5 MB of a node's memory, and a tenth of a second of a command's time; with typer 3 MB, and 40 ms."""
    node = (("--roles", "none"), ("--state", "/nowhere"), ("--config", "/no/file"), ("--set", "SLOTS=1"))
    plan = (("--svg", "/no/file"), ("--address", "/no/socket"))
    queue = (("--limit", "20"), ("--address", "/no/socket"))
    lines = [
        [*name, *(word for option in options for word in form.format(*option).split())]
        for name, options in (((), node), (("plan",), plan), (("q",), queue))
    ]
    heavy = {"pydantic", "typer"} if form == "{} {}" else {"pydantic"}
    program = (
        "import sys\n"
        "from pool.cli import main\n"
        f"for line in {lines!r}:\n"
        "    main.status(line)\n"
        f"print(bool({heavy!r} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "False\n"
    assert "there is no role 'none'" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_commands(shell: str) -> None:
    words = {"bash": "COMP_WORDS", "zsh": "_TYPER_COMPLETE_ARGS", "fish": "_TYPER_COMPLETE_ARGS"}[shell]
    environ = {"_POOLNODE_COMPLETE": f"complete_{shell}", words: "poolnode st", "COMP_CWORD": "1"}
    if shell == "fish":
        environ["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    done = poolnode(**environ)
    assert "status" in done.stdout
    assert "submit" not in done.stdout


def test_debug_is_heard_anywhere_but_after_two_dashes() -> None:
    assert main._split_debug(["q", "--debug"]) == (["q"], True)
    assert main._split_debug(["q", "--", "--debug"]) == (["q", "--", "--debug"], False)


def test_the_help_of_tokens_shows_a_command_that_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.status(["token", "--help"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "POOLNODE_TOKEN=" in line]
    words = line.split("poolnode ", 1)[1].replace("HOST:PORT", "nowhere").split()
    assert main.status(words) == 1  # understood, and the file is not there
    assert "sweep.sub" in capsys.readouterr().err

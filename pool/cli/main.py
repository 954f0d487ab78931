"""The entry of the program `poolnode`: finds the subcommand, runs it, and turns every failure into one line.

Subcommands are listed here by name, module and one line of help; a module is imported when its command is
called, so that `poolnode q` does not pay for what `poolnode run` needs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from pool.cli.common import print_lines, writing_output
from pool.cli.lazy_imports import use_light_parameters
from pool.errors import PoolError

# Section -> command -> (module, function, one line of help).
COMMANDS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Run jobs": {
        "run": ("pool.cli.run", "run", "Run a job description on this machine and show its results"),
        "submit": ("pool.cli.submit", "submit", "Queue the jobs of a description file, or check it"),
        "dag": ("pool.cli.dag", "dag", "Run jobs that wait for each other, from a file in DAGMan's language"),
        "wait": ("pool.cli.follow", "wait", "Wait until jobs have ended"),
        "fetch": ("pool.cli.fetching", "fetch", "Fetch the outputs of jobs that were submitted from another machine"),
        "tail": ("pool.cli.follow", "tail", "Show a job's output as it grows"),
        "compat": ("pool.cli.compat", "compat", "Put HTCondor's commands and Python modules in front"),
        "forward": ("pool.cli.forward", "forward", "Bring a port of a running job to this machine"),
        "ssh": ("pool.cli.ssh", "ssh", "Open a shell inside a running job"),
        "attach": ("pool.cli.ssh", "attach", "Show a running job's output and errors until it has ended"),
    },
    "Look": {
        "q": ("pool.cli.queue", "q", "List queued jobs"),
        "globalq": ("pool.cli.queue", "globalq", "List the queued jobs of every machine of the pool"),
        "status": ("pool.cli.status", "status", "List the pool's machines"),
        "why": ("pool.cli.why", "why", "Say why a job waits, or why a machine runs nothing"),
        "inspect": ("pool.cli.inspect", "inspect", "Say what a running job does now, and what it waits for"),
        "plan": ("pool.cli.dedicated", "plan", "Show dedicated machines over time: what runs, is planned, reserved"),
        "history": ("pool.cli.queue", "history", "List jobs that have left the queue"),
        "summary": ("pool.cli.queue", "summary", "What each user got out of the pool"),
        "checkpoints": ("pool.cli.checkpoints", "checkpoints", "List kept checkpoints of removed jobs, or delete them"),
    },
    "Change jobs": {
        "rm": ("pool.cli.act", "rm", "Remove jobs"),
        "hold": ("pool.cli.act", "hold", "Keep jobs in the queue without running them"),
        "release": ("pool.cli.act", "release", "Let held jobs run again"),
        "qedit": ("pool.cli.act", "qedit", "Change attributes of queued jobs"),
        "prio": ("pool.cli.act", "prio", "Change the priority of jobs"),
        "checkpoint": ("pool.cli.act", "checkpoint", "Save running jobs now, to go on from there"),
        "vacate": ("pool.cli.act", "vacate", "Take running jobs off their machines"),
    },
    "Manage a pool": {
        "token": ("pool.cli.admin", "token", "Make a token with which a machine or a user joins the pool"),
        "userprio": ("pool.cli.userprio", "userprio", "Show users' priorities and quotas, or change them"),
        "reserve": ("pool.cli.dedicated", "reserve", "Reserve dedicated machines, list reservations, cancel one"),
        "flock": ("pool.cli.flock", "flock", "Lend machines to other pools, and borrow theirs"),
        "drain": ("pool.cli.startds", "drain", "Take a machine out of use"),
        "undrain": ("pool.cli.startds", "undrain", "Take a machine into use again"),
        "config": ("pool.cli.admin", "config", "Show settings, their values, and where each was set"),
        "revoke": ("pool.cli.admin", "revoke", "Remove a node from the pool"),
        "reload": ("pool.cli.admin", "reload", "Have the node read its configuration again"),
        "stop": ("pool.cli.admin", "stop", "End the node; its jobs run on until it is there again"),
    },
}

#: Columns that a page of help takes at most; otherwise the terminal's width.
WIDEST = 140

COMMAND_MODULES = {name: home for section in COMMANDS.values() for name, home in section.items()}


class _Lazy(MutableMapping[str, Any]):
    """Commands by name; a command's module is imported when it is looked up."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            if name not in COMMAND_MODULES:
                raise KeyError(name)
            self._made[name] = _load(name)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMAND_MODULES)

    def __len__(self) -> int:
        return len(COMMAND_MODULES)


def _load(name: str) -> Any:
    from importlib import import_module

    module, function, help_line = COMMAND_MODULES[name]
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    register = one.command(name, short_help=help_line, cls=Subcommand, context_settings={"max_content_width": WIDEST})
    register(getattr(import_module(module), function))
    return typer.main.get_command(one)


class Subcommand(TyperCommand):
    """One subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        parameters = self.get_params(ctx)
        if any(word[:1] == "-" and word[1:2] not in ("", "-") and len(word) > 2 for word in args):
            from pool.cli.other_words import translate

            options = [one for one in parameters if isinstance(one, TyperOption)]
            flags = {word for one in options if one.is_flag for word in (*one.opts, *one.secondary_opts)}
            values = {word for one in options if not one.is_flag for word in one.opts}
            args = translate(str(self.name), args, flags, values)
        use_light_parameters(parameters)
        return super().parse_args(ctx, args)


class CommandGroup(TyperGroup):
    """The group of all subcommands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Lazy()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        use_light_parameters(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from pool.cli.other_words import instead_of
            from pool.cli.selection import UsageProblem

            ours = instead_of(args[0], self.commands)
            hint = f"did you mean `poolnode {ours}`?" if ours else "`poolnode --help` lists the commands"
            raise UsageProblem(f"there is no command '{args[0]}'", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, home[2]) for name, home in section.items()])


app = typer.Typer(
    cls=CommandGroup,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": WIDEST},
)


@app.callback(invoke_without_command=True, subcommand_metavar="[COMMAND ...]")
def program(
    context: typer.Context,
    roles: Annotated[
        str | None,
        typer.Option(
            "--roles",
            "-r",
            metavar="R,R,..",
            help="Run a node with these roles: collector, negotiator, schedd, startd, world.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The node's configuration file.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="DIR", help="Where the node keeps what must survive.")
    ] = None,
    join: Annotated[
        str | None, typer.Option("--join", metavar="FILE", help="Join the pool with the token in FILE; - reads it.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set one setting; may be repeated."),
    ] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log one JSON object a line.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where in the program an error came from.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> int:
    """A pool of machines that runs whatever jobs people queue.

    \b
    Run jobs on this machine, nothing to set up:
      poolnode run sweep.sub
    \b
    Run a node in the foreground: a whole pool on one machine, or one more machine
      poolnode --roles collector,negotiator,schedd,startd
      poolnode --roles startd --join FILE       (with what `poolnode token` on the first printed)
    \b
    Then, as the user's tool:
      poolnode submit sweep.sub && poolnode q

    Each command explains itself: poolnode COMMAND --help
    """
    if version:
        from pool import __version__

        print_lines([f"poolnode {__version__}"])
        raise typer.Exit
    starting = (("--roles", roles), ("--config", config), ("--join", join))
    given = [name for name, value in starting if value]
    if context.invoked_subcommand is not None:
        given += [name for name, value in (("--state", state), ("--set", settings)) if value]
        if given:
            from pool.cli.selection import UsageProblem

            command = context.invoked_subcommand
            where = str((state / "node.sock").absolute()) if state else "ADDRESS"
            raise UsageProblem(
                f"{given[0]} starts a node and does not go with `{command}`",
                hint=f"each command takes its own --address: poolnode {command} --address {where}",
            )
        return 0
    if not given:
        print(context.get_help())
        return 0
    return start_node(roles, config, state, join, settings or [], log_json)


def start_node(
    roles: str | None,
    config: Path | None,
    state: Path | None,
    join: str | None,
    settings: Sequence[str],
    log_json: bool,
) -> int:
    """Runs a node until it is stopped; returns its exit status.

    Raises:
        UsageProblem: an unknown role, or a setting that is not NAME=VALUE.
    """
    from pool.cli.selection import UsageProblem

    known = ("collector", "negotiator", "schedd", "startd", "world")
    wanted = tuple(dict.fromkeys(part.strip() for part in (roles or "").split(",") if part.strip()))
    for role in wanted:
        if role not in known:
            raise UsageProblem(f"there is no role '{role}'", hint=f"the roles are {', '.join(known)}")
    pairs: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise UsageProblem(f"--set {setting}: no value", hint="write --set NAME=VALUE")
        pairs[name.strip()] = value.strip()

    from pool.cli.common import run_loop
    from pool.cli.join_token import read_join
    from pool.node import NodeOptions, run_node

    join = read_join(join, os.environ)

    options = NodeOptions(roles=wanted, config=config, state_dir=state, join=join, sets=pairs, log_json=log_json)
    return run_loop(run_node(options))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program and exits with its status: 0 well, 1 failed, 2 wrongly called, 130 interrupted."""
    sys.exit(status(list(sys.argv[1:] if arguments is None else arguments)))


def status(arguments: list[str]) -> int:
    """Runs one command line and returns its exit status."""
    arguments, debug = _split_debug(arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    output = sys.stdout
    try:
        result = app(arguments, prog_name="poolnode", standalone_mode=False)
        with writing_output():
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has closed it. End as a program in C would, without a message.
        _discard_output()
        return 128 + signal.SIGPIPE
    except SystemExit as end:  # typer's: after completion, or when its own output found no reader any more
        return int(end.code or 0) if sys.stdout is output else 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        if debug:
            raise
        try:
            sys.stdout.flush()
        except OSError:  # what could not be written cannot be written at the end either
            _discard_output()
        return _explain(error)
    return result if isinstance(result, int) else 0


def _discard_output() -> None:
    """Let Python write what is left of the output nowhere when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _split_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """`--debug` is heard wherever it stands before `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    rest = [word for word in arguments[:end] if word != "--debug"] + arguments[end:]
    return rest, len(rest) < len(arguments) or bool(os.environ.get("POOLNODE_DEBUG"))


def _explain(error: Exception) -> int:
    """Prints an error as one line and returns the exit status that goes with it."""
    from pool.cli.selection import UsageProblem

    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, typer.Abort):
        return 128 + signal.SIGINT
    code = 1
    if diagnostics := getattr(error, "diagnostics", ()):  # a description: every mistake in it, a line each
        for diagnostic in diagnostics:
            print("poolnode:", " ".join(str(diagnostic).split()), file=sys.stderr)
        return code
    if isinstance(error, PoolError):
        text, code = str(error), 2 if isinstance(error, UsageProblem) else 1
        if getattr(error, "kind", "") == "ParseError":  # the other side could not read what we passed on
            text = f"the expression cannot be read: {text}"
    elif hasattr(error, "format_message"):  # typer's own, whose class moved between its versions
        context = getattr(error, "ctx", None)
        command = getattr(context, "command_path", "poolnode")
        text, code = f"{error.format_message().rstrip('.')} (see `{command} --help`)", 2
    elif isinstance(error, TimeoutError):
        text = "no answer in time"
    elif isinstance(error, OSError):
        text = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    else:
        text = f"a defect of the program: {type(error).__name__}: {error} (--debug shows where)"
    print("poolnode:", " ".join(text.split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    main()

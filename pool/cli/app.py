"""The program for typer, which reads the command lines that are not plain, and writes help and completion."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, MutableMapping
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from pool.cli.commands import COMMAND_MODULES, COMMANDS
from pool.cli.common import print_lines
from pool.cli.lazy_imports import use_light_parameters
from pool.cli.options import CommandArgument, CommandOption
from pool.cli.selection import UsageProblem
from pool.cli.starting import Config, Join, LogJson, Roles, Sets, State, start_node

#: Columns that a page of help takes at most; otherwise the terminal's width.
WIDEST = 140


def run_app(arguments: list[str]) -> Any:
    """Run a command line; returns what its command returns, or the exit status of a page of help.

    Raises:
        UsageProblem: it is wrong. Errors of the command itself go through, too.
    """
    try:
        return app(arguments, prog_name="poolnode", standalone_mode=False)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's own have it; their class moved between its versions
            raise
        context = getattr(error, "ctx", None)
        command = getattr(context, "command_path", "poolnode")
        raise UsageProblem(error.format_message().rstrip("."), hint=f"see `{command} --help`") from error


def for_typer(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command with its options and arguments declared in typer's way."""

    @functools.wraps(function)
    def command(**given: Any) -> Any:
        return function(**given)

    hints = {name: _typer_hint(hint) for name, hint in get_type_hints(function, include_extras=True).items()}
    parameters = inspect.signature(function).parameters.values()
    command.__annotations__ = hints
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(annotation=hints[one.name]) for one in parameters]
    )
    return command


def _typer_hint(hint: Any) -> Any:
    if get_origin(hint) is not Annotated:
        return hint
    base, declared = get_args(hint)[:2]
    if isinstance(declared, CommandOption):
        said: Any = typer.Option(*declared.names, **_shared(declared))
    else:
        said = typer.Argument(**_shared(declared))
    return Annotated[base, said]


def _shared(declared: CommandOption | CommandArgument) -> dict[str, Any]:
    return {
        "help": declared.help,
        "metavar": declared.metavar,
        "min": declared.min,
        "max": declared.max,
        "show_default": declared.show_default,
    }


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
    module, function, help_line = COMMAND_MODULES[name]
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    register = one.command(name, short_help=help_line, cls=Subcommand, context_settings={"max_content_width": WIDEST})
    register(for_typer(getattr(import_module(module), function)))
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
@for_typer
def program(
    context: typer.Context,
    roles: Roles = None,
    config: Config = None,
    state: State = None,
    join: Join = None,
    settings: Sets = None,
    log_json: LogJson = False,
    debug: Annotated[bool, CommandOption("--debug", help="Show where in the program an error came from.")] = False,
    version: Annotated[bool, CommandOption("--version", help="Show the version and exit.")] = False,
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
    return start_node(roles, config, state, join, settings, log_json)

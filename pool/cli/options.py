"""How a subcommand declares its options and arguments, and those that many share.

    def drain(machine: Machine, fast: Annotated[bool, CommandOption("--fast", help="Kill what runs.")] = False) -> int:

A declaration is plain data. `plain_lines` reads most command lines by it; `app` hands it to typer for all others, for
help and for completion. So typer, whose import takes as long as the rows of ten thousand jobs, is loaded only then.
"""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict, Unpack


class Facts(TypedDict):
    """The facts that options and arguments have in common; see `Declaration`."""

    help: str
    metavar: NotRequired[str | None]
    min: NotRequired[float | None]
    max: NotRequired[float | None]
    show_default: NotRequired[bool]


class Declaration:
    """An option or an argument of a command.

    Attributes:
        help: one line for people.
        metavar: what its value is called there.
        min, max: the bounds of a number.
        show_default: whether the help says what it is where it is not given.
    """

    def __init__(self, **facts: Unpack[Facts]) -> None:
        self.help = facts["help"]
        self.metavar = facts.get("metavar")
        self.min = facts.get("min")
        self.max = facts.get("max")
        self.show_default = facts.get("show_default", True)


class CommandOption(Declaration):
    """An option of a command.

    Attributes:
        names: how it is written; a pair `--this/--not-this` sets a parameter to true or false.
    """

    def __init__(self, *names: str, **facts: Unpack[Facts]) -> None:
        super().__init__(**facts)
        self.names = names


class CommandArgument(Declaration):
    """A word of a command that is no option."""


Address = Annotated[
    str | None,
    CommandOption(
        "--address",
        "-A",
        metavar="ADDRESS",
        help="The node to ask: tcp://HOST:PORT or a socket's path. Default: $POOLNODE_ADDRESS, then your own "
        "node, then this machine's.",
    ),
]
Json = Annotated[bool, CommandOption("--json", help="One JSON object a line.")]
Long = Annotated[bool, CommandOption("--long", "-l", help="Whole ads, one `Name = value` a line.")]
Constraint = Annotated[
    str | None,
    CommandOption("--constraint", "-c", metavar="EXPR", help="Only those whose ad makes this expression true."),
]
Attributes = Annotated[
    str | None,
    CommandOption("--attributes", "-a", metavar="A,B,..", help="These attributes of the ads instead of the columns."),
]
Limit = Annotated[int | None, CommandOption("--limit", "-n", min=1, metavar="N", help="At most N.")]
Jobs = Annotated[
    list[str] | None,
    CommandArgument(metavar="JOB", help="Clusters (12), jobs (12.3) and users.", show_default=False),
]

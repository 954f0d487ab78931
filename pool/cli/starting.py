"""The start of a node from the command line: `poolnode --roles ...`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pool.cli.common import run_loop
from pool.cli.options import CommandOption
from pool.cli.selection import UsageProblem

Roles = Annotated[
    str | None,
    CommandOption(
        "--roles",
        "-r",
        metavar="R,R,..",
        help="Run a node with these roles: collector, negotiator, schedd, startd, world.",
    ),
]
Config = Annotated[Path | None, CommandOption("--config", metavar="FILE", help="The node's configuration file.")]
State = Annotated[Path | None, CommandOption("--state", metavar="DIR", help="Where the node keeps what must survive.")]
Join = Annotated[
    str | None, CommandOption("--join", metavar="FILE", help="Join the pool with the token in FILE; - reads it.")
]
Sets = Annotated[
    list[str] | None, CommandOption("--set", metavar="NAME=VALUE", help="Set one setting; may be repeated.")
]
LogJson = Annotated[bool, CommandOption("--log-json", help="Log one JSON object a line.")]


def start_node(
    roles: Roles = None,
    config: Config = None,
    state: State = None,
    join: Join = None,
    settings: Sets = None,
    log_json: LogJson = False,
) -> int:
    """Runs a node until it is stopped; returns its exit status.

    Raises:
        UsageProblem: an unknown role, or a setting that is not NAME=VALUE.
    """
    known = ("collector", "negotiator", "schedd", "startd", "world")
    wanted = tuple(dict.fromkeys(part.strip() for part in (roles or "").split(",") if part.strip()))
    for role in wanted:
        if role not in known:
            raise UsageProblem(f"there is no role '{role}'", hint=f"the roles are {', '.join(known)}")
    pairs: dict[str, str] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise UsageProblem(f"--set {setting}: no value", hint="write --set NAME=VALUE")
        pairs[name.strip()] = value.strip()

    from pool.cli.join_token import read_join
    from pool.node import NodeOptions, run_node

    join = read_join(join, os.environ)

    options = NodeOptions(roles=wanted, config=config, state_dir=state, join=join, sets=pairs, log_json=log_json)
    return run_loop(run_node(options))

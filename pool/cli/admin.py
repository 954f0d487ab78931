"""`token`, `config`, `reload` and `stop`: what somebody who keeps a pool asks of its node."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pool.cli import formats, tables
from pool.cli.common import print_error, print_json, print_lines, query_pool
from pool.cli.options import Address, CommandArgument, CommandOption, Json
from pool.cli.selection import UsageProblem, seconds
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool

ROLES = ("collector", "negotiator", "schedd", "startd", "world", "user")


def token(
    roles: Annotated[
        str,
        CommandOption("--roles", "-r", metavar="R,R,..", help="What the bearer may be: startd, schedd, ..., user."),
    ] = "startd",
    user: Annotated[
        str | None,
        CommandOption("--user", "-u", metavar="NAME", help="Let this user submit from another machine instead."),
    ] = None,
    administrator: Annotated[
        bool, CommandOption("--administrator", help="With --user: this user may also administer the pool.")
    ] = False,
    lifetime: Annotated[
        str, CommandOption("--lifetime", "-t", metavar="TIME", help="How long it is good for: 15m, 2h, 7d.")
    ] = "1h",
    uses: Annotated[int, CommandOption("--uses", min=1, metavar="N", help="How many may join with it.")] = 1,
    show: Annotated[bool, CommandOption("--list", help="Show the tokens that were made, used or not.")] = False,
    revoke: Annotated[
        str | None, CommandOption("--revoke", metavar="ID", help="Make a token worthless; --list shows the ids.")
    ] = None,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Make a token with which a machine joins this pool, or a user comes in from another machine.

    The holder of the token may join, or is that user: pass it on safely.

    \b
    Examples:
      poolnode token             one machine that runs jobs, within the hour
      poolnode token --roles startd,schedd --uses 20 --lifetime 1d
      poolnode token --user alice --lifetime 30d
      poolnode token --user carol --administrator
    \b
    On the other machine:
      poolnode --roles startd --join FILE   or --join - < FILE, POOLNODE_JOIN=...
      POOLNODE_TOKEN=TOKEN poolnode submit --address HOST:PORT sweep.sub
    """
    if revoke is not None:
        query_pool(address, lambda pool: pool.call("node.revoke_token", {"id": revoke}))
        print_lines([f"the token {revoke} is worth nothing any more"])
        return 0
    if show:
        return _list_tokens(query_pool(address, lambda pool: pool.call("node.tokens")), as_json)
    if user is not None:
        if roles not in ("startd", "user"):
            raise UsageProblem("token: roles or a user, not both", hint="a user's token has no roles")
        roles = "user"
    elif administrator:
        raise UsageProblem("token: --administrator is for a user", hint="add --user NAME")
    wanted = list(dict.fromkeys(part.strip() for part in roles.split(",") if part.strip()))
    for role in wanted:
        if role not in ROLES:
            raise UsageProblem(f"there is no role '{role}'", hint=f"the roles are {', '.join(ROLES)}")
    if not wanted:
        raise UsageProblem("token: no role", hint="for example --roles startd")
    life = seconds(lifetime)
    asked: dict[str, Any] = {"roles": wanted, "lifetime": life, "uses": uses}
    if user is not None:
        asked["user"] = user
    if administrator:
        asked["administer"] = True
    answer = query_pool(address, lambda pool: pool.call("node.token", asked))
    made = answer["token"]
    if as_json:
        print_json([{"token": made, **asked}])
        return 0
    print_lines([made])
    if wanted == ["user"]:
        if sys.stdout.isatty():
            print_error(f"good for {lifetime}; on the other machine, in $POOLNODE_TOKEN or ~/.config/poolnode/token:")
            print_error(f"  poolnode submit --address {answer.get('address', 'HOST:PORT')} FILE")
    elif sys.stdout.isatty():
        machines = [role for role in wanted if role != "user"]
        print_error(f"good for {formats.amount(uses, 'use')} within {lifetime}; on the other machine:")
        print_error(f"  poolnode --roles {','.join(machines) or 'schedd'} --join FILE      (a file with the token)")
    return 0


def config(
    names: Annotated[
        list[str] | None,
        CommandArgument(metavar="NAME", help="Settings; all of them by default.", show_default=False),
    ] = None,
    changed: Annotated[bool, CommandOption("--changed", help="Only what somebody set, not the defaults.")] = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Show the node's settings: name, value, and the file and line where each was set.

    With one NAME only its value is printed, for scripts.

    \b
    Examples:
      poolnode config
      poolnode config --changed
      poolnode config START
    """

    async def question(pool: Pool) -> Any:
        return await pool.call("node.settings")

    found = rows(query_pool(address, question))
    if names:
        chosen = {name.lower() for name in names}
        missing = [name for name in names if name.lower() not in {row["name"].lower() for row in found}]
        if missing:
            raise PoolError(f"there is no setting {missing[0]}", hint=_nearest(missing[0], found))
        found = [row for row in found if row["name"].lower() in chosen]
    if changed:
        found = [row for row in found if row["where"] not in ("", "default")]
    if as_json:
        print_json(found)
    elif names and len(names) == 1 and not sys.stdout.isatty():
        print_lines([row["value"] for row in found])
    else:
        columns = [
            tables.Column("NAME", lambda row: row["name"]),
            tables.Column("VALUE", lambda row: formats.one_line(row["value"]) or '""'),
            tables.Column("SET IN", lambda row: row["where"] or "default"),
        ]
        print_lines(tables.render(columns, found))
    return 0


def reload(as_json: Json = False, address: Address = None) -> int:
    """Have the node read its configuration again, and show what changed.

    A configuration with a mistake is refused, and the old one stays in force. SIGHUP does the same.

    \b
    Examples:
      poolnode reload
      poolnode reload --json
    """
    changed = query_pool(address, lambda pool: pool.call("node.reload"))["changed"]
    if as_json:
        print_json(changed)
        return 0
    if not changed:
        print_lines(["nothing has changed"])
        return 0
    columns = [
        tables.Column("NAME", lambda row: row["name"]),
        tables.Column("BEFORE", lambda row: formats.one_line(row["before"]) or '""'),
        tables.Column("NOW", lambda row: formats.one_line(row["after"]) or '""'),
        tables.Column("IN FORCE", lambda row: "now" if row["live"] else "after a restart"),
        tables.Column("SET IN", lambda row: row["source"]),
    ]
    print_lines(tables.render(columns, changed))
    waiting = [row["name"] for row in changed if not row["live"]]
    if waiting:
        print_error(
            f"poolnode: start the node again for {', '.join(waiting)}: `poolnode stop`, and as it was started before"
        )
    return 0


def _bearer(token: Mapping[str, Any]) -> str:
    """The user, the roles of a machine, or the pool or machine that a token lets in."""
    roles = ",".join(token.get("roles", ()))
    return str(token.get("name") or (f"{roles} {token['node']}" if token.get("node") else roles))


def _list_tokens(found: list[dict[str, Any]], as_json: bool) -> int:
    if as_json:
        print_json(found)
        return 0
    columns = [
        tables.Column("ID", lambda row: row["id"]),
        tables.Column("FOR", _bearer),
        tables.Column("USED", lambda row: f"{row['used']} of {row['uses']}" if "uses" in row else "any number"),
        tables.Column("EXPIRES", lambda row: formats.moment(row["expires"])),
    ]
    print_lines(tables.render(columns, found))
    return 0


def revoke(
    node: Annotated[str, CommandArgument(metavar="NODE", help="The node's name, as `poolnode status` shows it.")],
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Remove a node from the pool: every other node refuses it from now on. It may join again with a new token.

    Ask the node that has the collector. The jobs on the revoked node end with their leases and run again elsewhere.

    \b
    Examples:
      poolnode revoke donder
    """
    done = query_pool(address, lambda pool: pool.call("node.revoke", {"node": node}))
    if as_json:
        print_json([{"node": done["node"], "revoked": True}])
    else:
        print_lines([f"{done['node']} has been removed from the pool"])
    return 0


def stop(as_json: Json = False, address: Address = None) -> int:
    """Stop the node. Its jobs run on; a node that starts again before their leases end manages them as before.

    Returns when the node has ended. SIGTERM does the same.

    \b
    Examples:
      poolnode stop
      poolnode stop --address /var/lib/poolnode/node.sock
    """

    async def question(pool: Pool) -> dict[str, Any]:
        info = dict(await pool.info())
        link = await pool.link()
        await pool.call("node.stop")
        await link.closed
        return info

    info = query_pool(address, question, working="waiting for the node to end")
    if as_json:
        print_json([{"node": info["node"], "stopped": True}])
    else:
        print_lines([f"{info['node']} has ended; its jobs run on until it is back, or their leases end"])
    return 0


def rows(settings: Any) -> list[dict[str, str]]:
    """`{name, value, where}` of each setting as the node tells it, in the order of the names."""
    found = [
        {
            "name": str(item["name"]),
            "value": "" if item["value"] is None else str(item["value"]),
            "where": str(item.get("source") or "default"),
        }
        for item in settings
    ]
    return sorted(found, key=lambda row: row["name"].lower())


def _nearest(name: str, found: list[dict[str, str]]) -> str:
    import difflib

    spelled = {row["name"].lower(): row["name"] for row in found}
    close = difflib.get_close_matches(name.lower(), spelled, n=1)
    return f"did you mean {spelled[close[0]]}?" if close else "`poolnode config` lists them"

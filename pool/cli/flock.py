"""`flock`: agreements with other pools, and what comes of them (EV 4.2, 5.3)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pool.cli import formats, tables
from pool.cli.common import print_error, print_json, print_lines, query_pool
from pool.cli.join_token import read_join
from pool.cli.options import Address, CommandArgument, CommandOption, Json
from pool.cli.selection import UsageProblem, seconds
from pool.cli.tables import Column
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool


async def world_call(node: Pool, verb: str, params: dict[str, Any]) -> Any:
    """Call the pool's world, wherever it is."""
    from pool.client.submitting import world_call as call

    return await call(node, verb, params)


#: The actions, and the words that each takes.
ACTIONS = {
    **{"status": (), "invite": ("POOL",), "accept": ("POOL", "FILE"), "leave": ("POOL",), "settle": ("POOL",)},
    **{"join": ("POOL", "FILE"), "quit": ("POOL",)},
}

COLUMNS = (
    Column("POOL", lambda one: str(one["pool"])),
    Column("ITS JOBS HERE", lambda one: _guests(one)),
    Column("OURS THERE", lambda one: _right(one["out"], not one["trouble"])),
    Column("IDLE THERE", lambda one: str(one["offered"]), right=True),
    Column("BORROWED", lambda one: str(one["borrowed"]), right=True),
    Column("LENT", lambda one: str(one["lent"]), right=True),
    Column("ASKS FOR", lambda one: str(one["waiting"]), right=True),
)
#: Server values: VALUE is the product of the four after it.
VALUES = (
    Column("POOL", lambda one: str(one["pool"])),
    Column("IDLE", lambda one: str(one["count"]), right=True),
    Column("VALUE", lambda one: f"{one['value']:.3g}", right=True),
    Column("CPUS", lambda one: f"{one['cpus']:g}", right=True),
    Column("SPEED", lambda one: f"{one['speed']:.3g}", right=True),
    Column("DISTANCE", lambda one: f"{one['distance']:.3g}", right=True),
    Column("STAYS IDLE", lambda one: f"{one['idle']:.3g}", right=True),
    Column("MS AWAY", lambda one: f"{one['ms']:.1f}", right=True),
)
USERS = (
    Column("POOL", lambda one: str(one["pool"])),
    Column("USER", lambda one: str(one["user"])),
    Column("SLOTS", lambda one: str(one["slots"]), right=True),
    Column("RUN", lambda one: str(one["where"])),
)
#: Users with accounts in several pools.
PRIVATE = (
    Column("USER", lambda one: str(one["user"])),
    Column("PRIVATE FLOCK", lambda one: f"{'jobs here run at' if one['side'] == 'there' else 'jobs of'} {one['pool']}"),
    Column("WAITING", lambda one: str(one["waiting"]), right=True),
    Column("RUNNING", lambda one: str(one["running"]), right=True),
    Column("", lambda one: str(one["trouble"] or one.get("why", ""))),
)
#: Of pools with which there is credit, beside those.
BALANCE = Column("IT OWES US", lambda one: _balance(one), right=True)
HISTORY = (
    Column("POOL", lambda one: str(one["pool"])),
    Column("", lambda one: str(one["what"])),
    Column("MACHINE TIME", lambda one: _hours(one["seconds"]), right=True),
    Column("VALUE", lambda one: f"{one['value']:g}", right=True),
    Column("AT", lambda one: formats.moment(one["time"])),
)


def flock(
    action: Annotated[
        str, CommandArgument(metavar="ACTION", help="status, invite, accept, leave, settle; join, quit.")
    ] = "status",
    pool: Annotated[
        str | None, CommandArgument(metavar="POOL", help="The other pool's name.", show_default=False)
    ] = None,
    file: Annotated[
        str | None,
        CommandArgument(
            metavar="FILE",
            help="accept, join: the file with the token; - reads it from standard input.",
            show_default=False,
        ),
    ] = None,
    lifetime: Annotated[
        str | None,
        CommandOption(
            "--lifetime", "-t", metavar="TIME", help="invite: how long the token is good for; 1d.", show_default=False
        ),
    ] = None,
    credit: Annotated[
        float | None,
        CommandOption(
            "--credit",
            metavar="HOURS",
            help="invite, accept: machine time is counted and paid back; how much one may owe the other.",
            show_default=False,
        ),
    ] = None,
    half_life: Annotated[
        float | None,
        CommandOption(
            "--half-life",
            metavar="DAYS",
            help="With --credit: half of a debt is forgotten; 0, none, if it is left out.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Lend machines to other pools and borrow theirs; without an action, show the pools of the flock.

    invite lets the jobs of another pool run here: it prints a token for that pool's administrator, who takes
    it with accept. For both directions each invites the other. FLOCK_FILE can limit what the other pool may
    use, and whose jobs go there. leave ends both directions. With --credit on both sides, what a pool has lent
    is counted, and it may claim as much back, ahead of the other pool's own jobs. settle forgives a pool what
    it owes.

    join is for users: with a user's token that you have from another pool, jobs that you submit here with
    `--also POOL` stand in line there, too, in your own name. They run once, and their files stay here. No
    agreement of the administrators is needed. quit ends it.

    \b
    Examples:
      poolnode flock                          the pools, what is lent and borrowed
      poolnode flock invite physics > token   here, for the pool named physics
      poolnode flock accept chem token        there: we are chem to them
      poolnode flock invite physics --credit 100 > token
      poolnode flock leave chem
      poolnode flock join bio token && poolnode submit --also bio sweep.sub
    """
    if action not in ACTIONS:
        raise UsageProblem(f"flock: there is no action '{action}'", hint=f"one of {', '.join(ACTIONS)}")
    given = [word for word in (pool, file) if word is not None]
    if len(given) != len(ACTIONS[action]):
        wanted = " ".join(ACTIONS[action]) or "nothing more"
        raise UsageProblem(f"flock {action} takes {wanted}", hint="`poolnode flock --help` has examples")
    if credit is not None and action not in ("invite", "accept"):
        raise UsageProblem(f"flock {action} takes no --credit", hint="invite and accept do")
    if half_life is not None and credit is None:
        raise UsageProblem("--half-life says how a debt is forgotten", hint="it goes with --credit HOURS")
    from pool.policy.flock.agreements import MOST

    for option, number, unit in (("--credit", credit, "hours"), ("--half-life", half_life, "days")):
        if number is not None and not 0 <= number < MOST:
            raise UsageProblem(f"{option} {number:g} is no number of {unit}", hint=f"from 0 to {MOST:g}")
    if lifetime is not None and action != "invite":
        raise UsageProblem(f"flock {action} takes no --lifetime", hint="invite does")
    terms = {} if credit is None else {"agreement": "credit", "bound": credit, "half_life": half_life}
    if action == "status":
        return _status(query_pool(address, lambda node: world_call(node, "status", {})), as_json)
    if action == "invite":
        return _invite(str(pool), terms, lifetime or "1d", as_json, address)
    if action == "accept":
        token = read_join(file, os.environ, f"flock {action}")
        done = query_pool(address, lambda node: node.call("world.accept", {"pool": pool, "token": token, **terms}))
        words = f"our jobs may run on machines of {done['pool']}, where we are known as {done['name']}"
    elif action == "join":
        token = read_join(file, os.environ, f"flock {action}")
        done = query_pool(address, lambda node: world_call(node, "join", {"pool": pool, "token": token}))
        words = f"jobs of {done['user']} may run at {done['pool']}, too, as {done['as']}: poolnode submit --also {pool}"
    elif action == "quit":
        done = {"pool": pool, **query_pool(address, lambda node: world_call(node, "quit", {"pool": pool}))}
        if not done["left"]:
            raise PoolError(f"you have not joined a pool {pool}", hint="`poolnode flock` shows those that you have")
        words = f"your jobs run at {pool} no more"
    elif action == "settle":
        done = {"pool": pool, **query_pool(address, lambda node: node.call("world.settle", {"pool": pool}))}
        unsigned = f", and {_hours(done['unsigned'])} that it has not signed" if done["unsigned"] else ""
        later = "" if done["answered"] else "; it has not answered yet, and is asked again until it does"
        words = f"{pool} is forgiven {_hours(done['forgiven'])} of machine time{unsigned}{later}"
    else:
        done = query_pool(address, lambda node: _end_agreement(node, str(pool)))
        words = f"the agreement with {pool} has ended"
    if as_json:
        print_json([done])
    else:
        print_lines([words])
    return 0


def _invite(pool: str, terms: dict[str, Any], lifetime: str, as_json: bool, address: str | None) -> int:
    asked: dict[str, Any] = {"pool": pool, "lifetime": seconds(lifetime), **terms}
    made = query_pool(address, lambda node: node.call("world.invite", asked))
    if as_json:
        print_json([{"pool": pool, "token": made["token"], "expires": made["expires"]}])
        return 0
    print_lines([made["token"]])
    if sys.stdout.isatty():
        print_error(f"good for {lifetime}, once; the administrator of {pool} puts it into a file, and there:")
        print_error("  poolnode flock accept OUR-NAME FILE")
    return 0


async def _end_agreement(node: Pool, pool: str) -> dict[str, Any]:
    done: dict[str, Any] = await node.call("world.leave", {"pool": pool})
    if not done["left"]:
        raise PoolError(f"there is no agreement with a pool {pool}", hint="`poolnode flock` shows all")
    return {"pool": pool, "left": True}


def _status(found: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json([*found["pools"], *({"private": True, **one} for one in found["private"])])
        return 0
    if not found["pools"] and not found["private"]:
        print_lines([f"this pool ({found['name']}) has no agreement with another"])
        print_error("`poolnode flock invite POOL` makes a token for another pool's administrator")
        return 0
    if found["private"]:
        print_lines([*tables.render(list(PRIVATE), found["private"]), ""])
    if not found["pools"]:
        return 0
    with_credit = [one for one in found["pools"] if one["agreement"] == "credit"]
    print_lines(tables.render([*COLUMNS, *([BALANCE] if with_credit else [])], found["pools"]))
    borrowed, lent = (sum(one[name] for one in found["pools"]) for name in ("borrowed", "lent"))
    print_lines([f"this pool is {found['name']}; {formats.amount(borrowed, 'slot')} borrowed, {lent} lent"])
    _print_values(found["pools"])
    for one in found["pools"]:
        for line in _remarks(one):
            print_lines([f"{one['pool']}: {line}"])
    if history := [
        {**entry, "pool": one["pool"], "what": _entry(entry)} for one in with_credit for entry in one["history"][:5]
    ]:
        print_lines(["", *tables.render(list(HISTORY), history)])
    return 0


def _print_values(pools: list[dict[str, Any]]) -> None:
    """The server values of the machines that are idle elsewhere, and whose jobs run where."""
    rows = [{**value, "pool": one["pool"], "ms": 1000 * one["round_trip"]} for one in pools for value in one["values"]]
    if rows:
        print_lines(["", *tables.render(list(VALUES), rows)])
    users = [
        {"pool": one["pool"], "user": user, "slots": slots, "where": where}
        for one in pools
        for name, where in (("guests", "here"), ("users_there", "there"))
        for user, slots in sorted(one[name].items())
    ]
    if users:
        print_lines(["", *tables.render(list(USERS), users)])


def _entry(entry: Mapping[str, Any]) -> str:
    side = "we" if entry["lent"] else "it"
    return f"{side} lent" if entry["kind"] == "use" else f"{side} forgave"


def _balance(one: Mapping[str, Any]) -> str:
    """The debt by the ledger and with all that runs; negative where we owe."""
    owed = max(-one["bound"], min(one["bound"], one["balance"] + one["running"]))
    return "" if one["agreement"] != "credit" else f"{_hours(owed)} of {_hours(one['bound'])}"


def _hours(amount: float) -> str:
    """Machine time: hours, and seconds where it is less than a tenth of one."""
    if abs(amount) < 0.5:
        return "0"
    return f"{amount / 3600:.1f} h" if abs(amount) >= 360 else f"{amount:.0f} s"


def _limits(one: Mapping[str, Any]) -> list[str]:
    """The limits of a pool's use of our machines, for people."""
    users = one.get("users")
    found = [f"at most {formats.amount(one['machines'], 'slot')}"] if one.get("machines") is not None else []
    found += [f"only of {', '.join(users) or 'nobody'}"] if users is not None else []
    found += [f"only {', '.join(one['hours'])}"] if one.get("hours") else []
    found += [f"only on machines with {one['kinds']}"] if one.get("kinds") else []
    return [f"its jobs here: {'; '.join(found)}"] if found and one["in"] else []


def _remarks(one: Mapping[str, Any]) -> list[str]:
    """The limits of an agreement, where machines connect directly, and the trouble of a ledger, for people."""
    found = [one["trouble"]] if one["trouble"] else []
    found += _limits(one)
    if not one.get("invited", True) and not one["address"] and not one["trouble"] and one["agreement"] != "credit":
        found.append("there is no agreement with it, but FLOCK_FILE names it")
    if one.get("direct"):
        found.append(f"machines connect directly in {', '.join(one['direct'])}, if it lets them, too")
    if one["we_want"] == "credit" and one["they_want"] == "idle-only":
        found.append("we want credit, and it wants none: nothing is counted")
    elif one["they_want"] == "credit" and one["we_want"] == "idle-only":
        found.append("it wants credit, and we want none: nothing is counted")
    if one["disputed"] >= 1.0:
        found.append(f"it has not signed {_hours(one['disputed'])} that were measured here")
    if one["agreement"] == "credit" and one["ledger_trouble"]:
        found.append(f"the ledgers were not exchanged: {one['ledger_trouble']}")
    if one["not_lent"]:
        found.append(f"it gets no machine of ours: {one['not_lent']}; `settle` forgives it")
    return found


def _guests(one: Mapping[str, Any]) -> str:
    """Whether jobs of the other pool come here."""
    if not one["in"]:
        return "no"
    if not one.get("invited", True):
        return "not invited"
    return "yes" if one["connected_in"] else "not connected"


def _right(granted: bool, works: bool) -> str:
    if not granted:
        return "no"
    return "yes" if works else "not reached"

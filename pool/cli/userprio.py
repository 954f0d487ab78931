"""`userprio`: who comes first, who has used how much, and an administrator's word on it (A6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pool.cli import formats, tables
from pool.cli.common import print_error, print_json, print_lines, query_pool
from pool.cli.formats import WireAd
from pool.cli.options import Address, CommandArgument, CommandOption, Json
from pool.cli.selection import UsageProblem
from pool.cli.tables import Column
from pool.jobs.nice import NICE
from pool.policy.account_names import is_foreign, without_domain, written_accounts

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.client.priorities import Priorities


def _figure(name: str, form: str) -> Callable[[WireAd], str]:
    def cell(account: WireAd) -> str:
        value = account.get(name)
        return format(value, form) if isinstance(value, (int, float)) else formats.NOTHING

    return cell


def _hours(account: WireAd) -> str:
    return f"{float(account.get('used') or 0.0) / 3600:.1f}"


def _quota(group: WireAd) -> str:
    return f"{group['share']:.0%}" if group["share"] <= 1 else f"{group['share']:g}"


def _branch(group: WireAd) -> str:
    above, _, name = str(group["name"]).rpartition(".")
    return "  " * (above.count(".") + 1 if above else 0) + name


def _user(account: WireAd) -> str:
    return str(account.get("written"))


def _short_user(account: WireAd) -> str:
    name = _user(account)
    return name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"


def _priority(account: WireAd) -> str:
    value = float(account.get("effective") or 0.0)
    return f"{value:.2f}" if value < BIG else f"{value:.1e}"


#: Characters of a user's name on a narrow terminal.
MOST_NAME = 28
#: Priorities from here on are shown by their order.
BIG = 1e7

USER = Column("User", _user, short=_short_user)
INDEX = Column("Index", _figure("index", ".0f"), right=True)
SHARE = (
    Column("Priority", _priority, right=True),
    Column("Real", _figure("real", ".2f"), right=True),
    Column("Factor", _figure("factor", "g"), right=True),
)
COMMON = (
    Column("In use", _figure("running", "g"), right=True),
    Column("Hours", _hours, right=True),
    Column("Last use", lambda account: formats.moment(account.get("last"))),
    Column("Waits", lambda account: "yes" if account.get("wants") else "no"),
)
COLUMNS = {
    "updown": (USER, INDEX, *COMMON),
    "fairshare": (USER, *SHARE, *COMMON),
    "equal": (USER, *COMMON),
}
GROUPS = (
    Column("Group", _branch),
    Column("Quota", _quota, right=True),
    Column("Entitled", _figure("entitled", ".1f"), right=True),
    Column("In use", _figure("held", "g"), right=True),
    Column("Surplus", lambda group: "no" if group["alone"] else "yes"),
)
SAID = {
    "updown": "up-down: the highest index goes first",
    "fairshare": "fair share: the lowest priority goes first",
    "equal": "equal: whoever holds least goes first",
}


def whole_name(user: str, known: Sequence[str], domain: str = "") -> str:
    """The name of a user's account: alice, as the queue names her, means alice@lab.example where there is no other.

    Args:
        domain: of the pool's own users; an account of another one has to be named whole.

    Raises:
        UsageProblem: there are accounts of several domains, or of another one.
    """
    if user in known:
        return user
    found = [name for name in known if without_domain(name) == user]
    if len(found) > 1 or any(domain and is_foreign(name, domain) for name in found):
        raise UsageProblem(f"userprio: '{user}' may be {' or '.join(found)}", hint="give the whole name")
    return found[0] if found else user


def userprio(
    users: Annotated[
        list[str] | None, CommandArgument(metavar="USER", help="Only these; whom to change.", show_default=False)
    ] = None,
    factor: Annotated[
        float | None, CommandOption("--factor", metavar="N", help="What the user's usage is multiplied by.")
    ] = None,
    priority: Annotated[
        float | None, CommandOption("--priority", metavar="N", help="The real priority to have from now on.")
    ] = None,
    reset: Annotated[bool, CommandOption("--reset", help="Forget what the user has used.")] = False,
    forget: Annotated[bool, CommandOption("--forget", help="Forget the user altogether.")] = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Show users' priorities, or change them.

    Which columns there are depends on the pool's PRIORITY_POLICY. Under up-down (the papers' algorithm) everybody
    begins at 0, rises while waiting and sinks while running. Under fair share the real priority follows the number
    of slots in use with a half-life, and is multiplied by the factor. Groups are shown where the pool has quotas.
    Jobs with nice_user = true have accounts of their own, nice-user/..., and come after everybody else's. Changing
    needs an administrator's rights. A user is written as in `q`, without the domain, unless
    there are accounts of that name in several; both are understood. Users of other pools (alice@physics)
    are written and named whole.

    \b
    Examples:
      poolnode userprio
      poolnode userprio alice@lab.example
      poolnode userprio alice@lab.example --factor 10      (the default is 1000)
      poolnode userprio alice@lab.example --reset
    """
    changes = factor is not None or priority is not None or reset or forget
    if changes and not users:
        raise UsageProblem("userprio: change whom", hint="name a user: poolnode userprio alice@lab.example --reset")

    async def question(pool: Pool) -> Priorities:
        from pool.client.priorities import priorities, set_priority

        if users:
            before = await priorities(pool)
            known = [str(account["name"]) for account in before.accounts]
            chosen.update(whole_name(user, known, before.domain) for user in users)
        for user in sorted(chosen) if changes else ():
            await set_priority(pool, user, factor=factor, priority=priority, reset=reset, forget=forget)
        return await priorities(pool)

    chosen: set[str] = set()
    found = query_pool(address, question)
    accounts = [account for account in found.accounts if not users or account["name"] in chosen]
    missing = [] if forget else sorted(chosen - {account["name"] for account in accounts})
    if as_json:
        print_json(accounts)
    elif accounts or not missing:
        print_lines(_lines(found, accounts, tables.terminal_width()))
    if missing:
        print_error(f"poolnode: there is no account {', '.join(missing)} (`poolnode userprio` lists them)")
    elif found.policy != "fairshare" and (factor is not None or priority is not None):
        print_error(f"poolnode: kept, but without effect while PRIORITY_POLICY is {found.policy}")
    return 1 if missing else 0


def _first(found: Priorities) -> str:
    said = SAID.get(found.policy, found.policy)
    return f"{said}, nice last" if any(NICE in account["name"] for account in found.accounts) else said


def _lines(found: Priorities, accounts: Sequence[dict[str, Any]], width: int | None) -> list[str]:
    written = written_accounts((str(account["name"]) for account in found.accounts), found.domain)
    rows = [{**account, "written": written[str(account["name"])]} for account in accounts]
    lines = tables.render(tables.choose(COLUMNS.get(found.policy, COLUMNS["equal"]), width), rows, width)
    waiting = sum(bool(account.get("wants")) for account in accounts)
    lines += ["", f"{formats.amount(len(accounts), 'user')}, {waiting} with jobs; {_first(found)}"]
    if found.groups:
        lines += ["", *tables.render(GROUPS, list(found.groups), width), "", f"of {found.weight:g} in the pool"]
    return lines

"""`condor_userprio`: who comes first, and an administrator's word on it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pool.compat.actions import help_or_version
from pool.compat.asking import ask_pool
from pool.compat.options import Option, parse
from pool.outside import OutsideWorld

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.client.priorities import Priorities

_LIMITS = "quotas of groups are settings of the negotiator: poolnode userprio shows them"
OPTIONS = (
    Option("pool", 1, 1),
    Option("name", 1, 1, refused="a pool has one negotiator: -pool HOST:PORT"),
    Option("allusers", 1),
    Option("usage", 1),
    Option("priority", 4),
    Option("most", 1),
    Option("all", 3, key="most"),
    Option("activefrom", 1, 3, refused="poolnode userprio shows when each user was served last"),
    Option("setfactor", 4, 2),
    Option("setprio", 4, 2),
    Option("resetusage", 6, 1),
    Option("resetall", 6, refused="condor_userprio -resetusage USER, for each user"),
    Option("delete", 2, 1),
    Option("long", 1),
    Option("quotas", 1, refused=_LIMITS),
    Option("surplus", 2, refused=_LIMITS),
    Option("help", 1),
    Option("version", 1),
)


def userprio(words: Sequence[str]) -> int:
    """Run `condor_userprio`; returns its exit status."""
    given = parse(OPTIONS, words)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_userprio", OPTIONS, given, "[user] ...")
    changes = [one for one in given.options if one.key in ("setfactor", "setprio", "resetusage", "delete")]

    async def question(pool: Pool) -> Priorities:
        from pool.client.priorities import priorities, set_priority

        for one in changes:
            value = float(one.values[1]) if len(one.values) > 1 else None
            await set_priority(
                pool,
                one.values[0],
                factor=value if one.key == "setfactor" else None,
                priority=value if one.key == "setprio" else None,
                reset=one.key == "resetusage",
                forget=one.key == "delete",
            )
        return await priorities(pool)

    found = ask_pool(given.value("pool"), question)
    if changes:
        told = {"setfactor": "factor", "setprio": "priority"}
        for one in changes:
            what = told.get(one.key)
            print(
                f"The {what} of {one.values[0]} was set to {float(one.values[1]):f}"
                if what
                else f"{one.values[0]}: done"
            )
        return 0
    accounts = [one for one in found.accounts if not given.words or str(one["name"]) in given.words]
    if given.has("long"):
        for account in accounts:
            print("".join(f"{name} = {value!r}\n" for name, value in sorted(account_ad(account).items())))
        return 0
    print("\n".join(_lines(accounts, OutsideWorld().wall(), used=given.has("usage") or given.has("most"))))
    return 0


def account_ad(account: Mapping[str, Any]) -> dict[str, Any]:
    """An account by the names that HTCondor gives its parts."""
    return {
        "Name": str(account["name"]),
        "Priority": float(account.get("effective") or account.get("real") or 0.0),
        "PriorityFactor": float(account.get("factor") or 0.0),
        "WeightedAccumulatedUsage": float(account.get("used") or 0.0),
        "WeightedResourcesUsed": float(account.get("running") or 0.0),
        "ResourcesUsed": int(account.get("slots") or 0),
        "LastUsageTime": int(account.get("last") or 0),
    }


def _lines(accounts: Sequence[Mapping[str, Any]], now: float, *, used: bool) -> list[str]:
    width = max([9, *(len(str(account["name"])) for account in accounts)])
    when = time.strftime("%m/%d %H:%M", time.localtime(now))
    columns = ["Effective", "Priority", "Res", *(["Total Usage"] if used else []), "Time Since"]
    under = ["Priority", "Factor", "In Use", *(["(wghted-hrs)"] if used else []), "Last Usage"]
    wide = [12, 10, 6, *([12] if used else []), 10]
    rule = "-" * width + " " + " ".join("-" * one for one in wide)
    lines = [
        f"Last Priority Update: {when}",
        " " * width + " " + " ".join(f"{one:>{size}}" for one, size in zip(columns, wide, strict=True)),
        f"{'User Name':<{width}} " + " ".join(f"{one:>{size}}" for one, size in zip(under, wide, strict=True)),
        rule,
    ]
    for account in accounts:
        last = account.get("last")
        since = (
            f"{int((now - last) // 86400)}+{time.strftime('%H:%M', time.gmtime(max(0, now - last)))}"
            if last
            else "<never>"
        )
        cells = [
            f"{float(account.get('effective') or account.get('real') or 0.0):12.2f}",
            f"{float(account.get('factor') or 0.0):10.2f}",
            f"{int(account.get('slots') or 0):6d}",
            *([f"{float(account.get('used') or 0.0) / 3600:12.2f}"] if used else []),
            f"{since:>10}",
        ]
        lines.append(f"{account['name']!s:<{width}} " + " ".join(cells))
    held = sum(int(account.get("slots") or 0) for account in accounts)
    return [*lines, rule, f"{'Number of users: ' + str(len(accounts)):<{width}} {'':12} {'':10} {held:6d}"]

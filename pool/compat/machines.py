"""`condor_drain` and `condor_who`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pool.compat.actions import help_or_version
from pool.compat.asking import ask_pool
from pool.compat.c_printf import format_span
from pool.compat.options import ALL, Option, parse
from pool.compat.queue import masked
from pool.compat.shown_ad import ShownAd
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool

DRAIN = (
    Option("help", 1),
    Option("version", 1),
    Option("pool", 1, 1),
    Option("cancel", 1),
    Option("fast", 1),
    Option("quick", 1),
    Option("graceful", 1),
    Option("resume-on-completion", 1, refused="a drained machine waits for `condor_drain -cancel`"),
    Option("exit-on-completion", 2, refused="condor_drain, then `poolnode stop` on that machine"),
    Option("reason", 3, 1),
    Option("check", 2, 1, refused="poolnode why MACHINE shows what runs there"),
    Option("start", 5, 1, refused="change START in the machine's configuration"),
)


def drain(words: Sequence[str]) -> int:
    """Run `condor_drain`; returns its exit status."""
    given = parse(DRAIN, words)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_drain", DRAIN, given, "MACHINE")
    if len(given.words) != 1:
        raise PoolError("one machine at a time", hint="condor_drain MACHINE")
    machine = given.words[0]
    how = "fast" if given.has("fast") else "vacate" if given.has("quick") else "finish"
    verb, params = (
        ("undrain", {}) if given.has("cancel") else ("drain", {"how": how, "reason": given.value("reason") or ""})
    )

    async def question(pool: Pool) -> None:
        await order_startd(pool, machine, verb, params)

    ask_pool(given.value("pool"), question)
    print(f"Sent request to {'cancel draining of' if given.has('cancel') else 'drain'} {machine}")
    return 0


async def order_startd(pool: Pool, name: str, verb: str, params: dict[str, Any]) -> None:
    """Have the startd of a machine or slot do something.

    Raises:
        PoolError: the caller may not, or the pool has no such machine.
    """
    found = await pool.advertised("Machine", attributes=["Name", "Machine", "StartdAddress"])
    for ad in found:
        machine = str(ad.get("Machine") or str(ad.get("Name")).rpartition("@")[2])
        if name in (ad.get("Name"), machine, machine.partition(".")[0]):
            break
    else:
        raise PoolError(f"Can't find address of startd {name}", hint="`condor_status` lists the machines")
    at = ad.get("StartdAddress")
    if at == (await pool.info()).get("address"):
        await pool.call(f"startd.{verb}", params)
    else:
        await pool.call("node.order", {"at": at, "method": f"startd.{verb}", "params": params})


WHO = (
    Option("help", 1),
    Option("daemons", 2, refused="poolnode config shows the node's roles"),
    Option("long", 1),
    Option("format", 1, 2),
    Option("autoformat", 5, ALL, colon=True),
    Option("af", 2, ALL, colon=True, key="autoformat"),
    Option("address", 1, 1, key="pool"),
    Option("version", 1),
)
_OWNER, _CLIENT, _SLOT = 30, 20, 5


def who(words: Sequence[str]) -> int:
    """Run `condor_who`: the jobs that run on this machine; returns its exit status."""
    given = parse(WHO, words)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_who", WHO, given)
    mask = masked(given)

    async def question(pool: Pool) -> list[dict[str, Any]]:
        name = str((await pool.info()).get("node") or os.uname().nodename)
        constraint = f'State == "Claimed" && (Machine == "{name}" || Machine == "{os.uname().nodename}")'
        return await pool.advertised("Machine", constraint=constraint)

    ads = ask_pool(given.value("pool"), question)
    if given.has("long"):
        from pool.compat.ad_forms import long_form

        print("".join(long_form(ads)), end="")
    elif mask is not None:
        rows = [mask.cells(ShownAd(ad)) for ad in ads]
        print(mask.header() + "".join(mask.row(cells) for cells in rows), end="")
    elif ads:
        print(f"{'OWNER':<{_OWNER}} {'CLIENT':<{_CLIENT}} {'SLOT':<{_SLOT}} {'JOB':<10} {'RUNTIME':>12}")
        for wire in ads:
            ad = ShownAd(wire)
            slot = (ad.text("Name") or "").partition("@")[0].removeprefix("slot")
            spent = ad.integer("MyCurrentTime") - ad.integer("EnteredCurrentActivity")
            job = ad.text("JobId") or "-"
            owner, client = ad.text("RemoteUser") or "-", ad.text("ClientMachine") or "-"
            print(f"{owner:<{_OWNER}} {client:<{_CLIENT}} {slot:<{_SLOT}} {job:<10} {format_span(max(0, spent)):>12}")
    return 0

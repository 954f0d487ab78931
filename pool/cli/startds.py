"""`drain` and `undrain`, and how a command finds the startd of a machine or slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pool.cli.common import Address, Json, ask, say, say_json
from pool.cli.formats import amount

if TYPE_CHECKING:
    from pool.client.pool import Pool

Machine = Annotated[str, typer.Argument(metavar="MACHINE", help="As `poolnode status` names it.")]


async def startd_at(pool: Pool, name: str) -> str | None:
    """The address of the startd of a machine or slot; None for that of the node that is asked anyway.

    Raises:
        PoolError: the pool has none of that name.
    """
    from pool.cli.machines import machine_of
    from pool.errors import PoolError

    found = await pool.advertised("Machine", attributes=["Name", "Machine", "StartdAddress"])
    mine = [ad for ad in found if name in (ad.get("Name"), machine_of(ad), machine_of(ad).partition(".")[0])]
    if not mine:
        raise PoolError(f"the pool has no machine or slot {name}", hint="`poolnode status` lists them")
    at = mine[0].get("StartdAddress")
    return None if at == (await pool.info()).get("address") else at


def drain(
    machine: Machine,
    vacate: Annotated[
        bool, typer.Option("--vacate", help="Ask what runs to leave now, instead of letting it finish.")
    ] = False,
    fast: Annotated[bool, typer.Option("--fast", help="Kill what runs.")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="For whoever wonders.")] = "",
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Take a machine out of use: what runs on it finishes, nothing new starts. Administrators only.

    It stays so over a restart of its node, until `undrain`.

    \b
    Examples:
      poolnode drain donder
      poolnode drain donder --vacate --reason "more memory"
    """
    how = "fast" if fast else "vacate" if vacate else "finish"
    wish = {"how": how, "reason": reason}
    running = ask(address, lambda pool: _tell(pool, machine, "drain", wish)).get("running", [])
    if as_json:
        say_json([{"action": "drain", "machine": machine, "running": running}])
    elif running:
        say([f"{machine}: takes nothing new; {amount(len(running), 'slot')} not empty yet"])
    else:
        say([f"{machine}: out of use"])
    return 0


def undrain(machine: Machine, as_json: Json = False, address: Address = None) -> int:
    """Take a machine into use again that was drained. Administrators only.

    \b
    Examples:
      poolnode undrain donder
    """
    ask(address, lambda pool: _tell(pool, machine, "undrain", {}))
    if as_json:
        say_json([{"action": "undrain", "machine": machine}])
    else:
        say([f"{machine}: in use"])
    return 0


async def _tell(pool: Pool, machine: str, verb: str, params: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = await pool.call(f"startd.{verb}", params, at=await startd_at(pool, machine))
    return answer

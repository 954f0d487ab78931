"""`drain` and `undrain`, and how a command finds the startd of a machine or slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pool.cli.common import print_json, print_lines, query_pool
from pool.cli.formats import amount
from pool.cli.options import Address, CommandArgument, CommandOption, Json

if TYPE_CHECKING:
    from pool.client.pool import Pool

Machine = Annotated[str, CommandArgument(metavar="MACHINE", help="As `poolnode status` names it.")]


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
        bool, CommandOption("--vacate", help="Ask what runs to leave now, instead of letting it finish.")
    ] = False,
    fast: Annotated[bool, CommandOption("--fast", help="Kill what runs.")] = False,
    reason: Annotated[str, CommandOption("--reason", metavar="TEXT", help="Shown to users who ask why.")] = "",
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Take a machine out of use: what runs on it finishes, nothing new starts. Administrators only.

    A restart of the node does not change that; `undrain` does. Run it on that machine or at the node with the pool's
    authority, as root or as the user whose node it is; or anywhere with an administrator's token (`token --user
    NAME --administrator`) and the address of that node.

    \b
    Examples:
      poolnode drain donder
      poolnode drain donder --vacate --reason "more memory"
      POOLNODE_TOKEN=TOKEN poolnode drain donder --address HEAD:9618
    """
    how = "fast" if fast else "vacate" if vacate else "finish"
    wish = {"how": how, "reason": reason}
    running = query_pool(address, lambda pool: send_order(pool, machine, "drain", wish)).get("running", [])
    if as_json:
        print_json([{"action": "drain", "machine": machine, "running": running}])
    elif running:
        print_lines([f"{machine}: takes nothing new; {amount(len(running), 'slot')} not empty yet"])
    else:
        print_lines([f"{machine}: out of use"])
    return 0


def undrain(machine: Machine, as_json: Json = False, address: Address = None) -> int:
    """Take a machine into use again that was drained. Administrators only.

    \b
    Examples:
      poolnode undrain donder
    """
    query_pool(address, lambda pool: send_order(pool, machine, "undrain", {}))
    if as_json:
        print_json([{"action": "undrain", "machine": machine}])
    else:
        print_lines([f"{machine}: in use"])
    return 0


async def send_order(pool: Pool, name: str, verb: str, params: dict[str, Any]) -> dict[str, Any]:
    """Have the startd of a machine or slot do something, from any node where the caller is an administrator.

    Raises:
        PoolError: the caller may not, or the pool has no such machine.
    """
    at = await startd_at(pool, name)
    method = f"startd.{verb}"
    if at is None:
        answer: dict[str, Any] = await pool.call(method, params)
    else:
        answer = await pool.call("node.order", {"at": at, "method": method, "params": params})
    return answer

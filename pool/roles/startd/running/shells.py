"""Shells in the jobs of this machine (`poolnode ssh`)."""

from __future__ import annotations

from typing import Any

from pool.roles.startd.slots.records import Slot, SlotClaim, SlotRefused
from pool.starter.shells import carry_shell, open_shell
from pool.wire import Stream


async def shell_in(slot: Slot, claim: SlotClaim, params: dict[str, Any], stream: Stream) -> None:
    """Carry a shell in the job that runs on a slot: {run, shell}.

    Raises:
        SlotRefused: no such job runs there.
        ShellRefused: no shell can be opened in it.
    """
    running = claim.running
    keeper = running.starter.keeper if running is not None and running.starter is not None else None
    if running is None or keeper is None or keeper.ended.done() or running.start.run != params["run"]:
        raise SlotRefused(f"no such job runs on slot {slot.name}", retry=True)
    await carry_shell(stream, await open_shell(keeper, params["shell"]))

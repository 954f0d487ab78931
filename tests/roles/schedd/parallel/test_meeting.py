"""A part that comes to the meeting of all parts when its schedd was restarted meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pool.roles.schedd.parallel.gangs import Gangs
from pool.wire.errors import CallRefused


async def test_a_part_whose_others_met_before_a_restart_begins_no_more() -> None:
    """It has a pipe to a part whose card is lost: it would wait for bytes that never come."""
    met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    met.set_result(None)  # as `Gangs.adopt` has it
    gang: Any = SimpleNamespace(met=met, root=None, cards={}, claims={}, parts=(0, 1), reports=[])
    for part, slot in enumerate(("slot1@one", "slot1@lab@chem@head")):
        start = SimpleNamespace(crossings=((0, 0, 1 - part),))
        gang.claims[part] = SimpleNamespace(gang=gang, run=1, part=part, slot=slot, start=start)
    context = SimpleNamespace(claims={"b": gang.claims[1]}, spawn=lambda work, *_, **__: work.close())
    gangs = SimpleNamespace(_context=context)
    gangs._limit_meeting = lambda gang: Gangs._limit_meeting(cast(Any, gangs), gang)
    with pytest.raises(CallRefused, match="do not come any more"):
        await Gangs.wait_for_parts(cast(Any, gangs), "b", 1, {"node": "lab"})
    del gang.claims[0]  # it has ended: nothing comes from it
    assert await Gangs.wait_for_parts(cast(Any, gangs), "b", 1, {"node": "lab"}) == {"cards": [None]}

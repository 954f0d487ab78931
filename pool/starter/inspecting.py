"""Describes what a job does now: its stage, its processes, the waiting ranks. See `pool.policy.inspection`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from pool.machine.job_processes import inspect_keeper
from pool.network.traffic import by_third_in_words, direct_in_words, down_in_words, in_words, outside_in_words
from pool.policy.inspection import InspectedPart
from pool.policy.starter import StartState
from pool.starter.ranks import read_status
from pool.starter.starter import Starter

_Seen = TypeVar("_Seen")
#: States in which files of the job travel.
TRANSFERS = frozenset({StartState.GET_EXEC, StartState.SEND_OUTPUT})
#: Seconds for which a job is looked at, where nothing else is asked for, and the most that may be.
USUAL, LONGEST = 0.5, 10.0


def bounded(seconds: float | None) -> float:
    """For how long to look, when somebody asked for so many seconds."""
    return seconds if seconds is not None and 0.0 <= seconds <= LONGEST else USUAL


async def inspect_start(starter: Starter, slot: str, seconds: float, still: float | None = None) -> InspectedPart:
    """One start of a job.

    Args:
        seconds: for which its processes are looked at, to know their rates.
        still: seconds since it was last known to have done anything.
    """
    keeper = starter.keeper
    part = InspectedPart(slot)
    if keeper is not None and keeper.pid and not keeper.ended.done():
        room = starter.room
        before = await _answer(room.traffic) if room is not None else None
        part, moved = await inspect_keeper(keeper.pid, seconds)
        after = await _answer(room.traffic) if room is not None else None
        if before is not None and after is not None:
            part = replace(part, network=in_words(starter.activation.part, before, after, seconds))
        if room is not None and (outside := await _answer(room.outside)) is not None:
            part = replace(part, network=_joined(part.network, outside_in_words(outside)))
        if room is not None:
            links = _joined(down_in_words(room.down), by_third_in_words(room.by_third), direct_in_words(room.direct))
            part = replace(part, network=_joined(part.network, links))
        if starter.is_direct:
            part = replace(part, network=_joined(part.network, "files go to the job's pool directly"))
        if starter.remote_pipes is not None:
            part = replace(part, network=_joined(part.network, ways_in_words(starter.remote_pipes.ways)))
        still = 0.0 if moved else still
        if starter.activation.mpi:
            status = await asyncio.to_thread(read_status, starter.scratch, starter.account.owner)
            part = replace(part, ranks=status.waits_for() if status is not None else "")
    state, transfer = starter.machine.state, starter.transfer
    return replace(
        part,
        slot=slot,
        stage=str(state),
        received=starter.received,
        sent=starter.sent,
        transferred=transfer.bytes if state in TRANSFERS and transfer is not None else None,
        still=still,
    )


def ways_in_words(ways: Mapping[str, bool]) -> str:
    """The ways of pipes from and to machines in other pools: by machine, whether it is direct; empty for none."""
    directly = ", ".join(sorted(name for name, direct in ways.items() if direct))
    by_worlds = ", ".join(sorted(name for name, direct in ways.items() if not direct))
    return _joined(
        f"pipes with {directly} go directly" if directly else "",
        f"pipes with {by_worlds} go by the pools' worlds" if by_worlds else "",
    )


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))


async def _answer(question: Callable[[], Awaitable[_Seen]]) -> _Seen | None:
    """The answer of a job's relay or way out; None if it gives none."""
    try:
        return await question()
    except (OSError, ValueError, TimeoutError):
        return None

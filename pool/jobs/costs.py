"""The costs of a job's runs: work done, work lost, what its checkpoints cost, and its leverage.

*Work* is the time that its program ran, in seconds, without suspensions. Work is *done* once the submit side has it: as
a checkpoint, or as the end of the program. Work that a machine took away before that is *lost* and is done again. So is
work after the checkpoint that a start goes on from, where later checkpoints were of no use. Work that the job's user
removed is not lost. *Leverage* is the papers': remote processor time over the local processor time for placement,
checkpoints and system calls (EV 2.8). Receiving checkpoints counts as local time.

Attributes, HTCondor's where it has them:

    CommittedTime             work done
    WorkLost                  work lost
    CumulativeSuspensionTime  seconds for which the job stood still
    NumCkpts                  checkpoints that reached the submit side
    CheckpointSeconds         from the request for each to its being on the submit side, all together
    CheckpointStandstill      seconds for which the job stood still for them
    CheckpointBytes           what travelled for them

An execute machine tells the *costs* of one run, as {checkpoints, seconds, standstill, bytes, committed}, counted from
the run's start, so that a message that is lost or comes twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Get = Callable[[str], Any]
#: The job's own note of the costs of its present run, as last reported.
COSTS = "_costs"
#: The job's own note of the work in its checkpoints: [generation, seconds] each, and of so many.
HELD, MOST_HELD = "_held_work", 4
_ATTRIBUTES = (
    ("CheckpointSeconds", "seconds"),
    ("CheckpointStandstill", "standstill"),
    ("CheckpointBytes", "bytes"),
)
#: No run is longer, and no image larger: what a machine says is bounded.
MOST = 1e15


def cost_changes(get: Get, run: int, before: Any, costs: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of a job's ad that follow from the costs of its present run.

    Args:
        get: the job's attributes.
        before: the note of the costs reported before, of any run.
    """
    old = before if isinstance(before, dict) and before.get("run") == run else {}
    changes: dict[str, Any] = {}
    for name, key in _ATTRIBUTES:
        more = _number(costs.get(key)) - _number(old.get(key))
        if more > 0:
            changes[name] = round(_number(get(name)) + more, 3)
    return changes | {COSTS: {"run": run, **{key: _number(value) for key, value in costs.items()}}}


def committed(run: int, note: Any) -> float:
    """Seconds of work of a run that are known to be on the submit side."""
    return _number(note.get("committed")) if isinstance(note, dict) and note.get("run") == run else 0.0


def reached(note: Any, generation: int | None, work: float) -> dict[str, Any]:
    """Changes that remember what a checkpoint holds.

    Args:
        note: the job's own note of that, of the checkpoints before.
        generation: of the checkpoint; None where it has no number.
        work: seconds of the job's work that are in it.
    """
    if generation is None:
        return {}
    others = [[number, known] for number, known in _held(note) if number != generation]
    return {HELD: [*others, [generation, work]][-MOST_HELD:]}


def goes_on(get: Get, note: Any, generation: int | None) -> dict[str, Any]:
    """Changes that follow from the checkpoint that a start goes on from: what is not in it was done in vain.

    Args:
        note: as `reached` keeps it; of checkpoints that are not known there nothing is said.
        generation: of that checkpoint; None for the job's beginning.
    """
    known = dict(_held(note))
    if not known or (generation is not None and generation not in known):
        return {}
    work, done = known.get(generation, 0.0) if generation is not None else 0.0, _number(get("CommittedTime"))
    lost = done - work
    if abs(lost) < 0.001:
        return {}
    return {"CommittedTime": round(work, 3), "WorkLost": round(max(_number(get("WorkLost")) + lost, 0.0), 3)}


def restarts(get: Get, generation: int | None) -> dict[str, Any]:
    """NumRestarts, where a start goes on from a checkpoint."""
    return {"NumRestarts": int(_number(get("NumRestarts"))) + 1} if generation is not None else {}


def _held(note: Any) -> list[tuple[int, float]]:
    return [(int(number), _number(work)) for number, work in note] if isinstance(note, (list, tuple)) else []


def ran(get: Get, wall: float, suspended: float, committed: float | None) -> dict[str, Any]:
    """Changes of a job's ad that follow from the end of a run.

    Args:
        wall: seconds from the program's start to its end; suspended: of those it stood still.
        at_home: seconds of its work that are kept; None for all of it.
    """
    suspended = min(max(suspended, 0.0), wall)
    work = wall - suspended
    kept = work if committed is None else min(max(committed, 0.0), work)
    more = {"CommittedTime": kept, "WorkLost": work - kept, "CumulativeSuspensionTime": suspended}
    return {name: round(_number(get(name)) + amount, 3) for name, amount in more.items() if amount > 0}


def lines(get: Get, span: Callable[[float], str]) -> list[str]:
    """The accounts in words, for a notice; of a job that lost nothing and was never saved there is nothing to say."""
    found: list[str] = []
    if get("WorkLost") or get("NumCkpts"):
        found.append(f"Work Done:          {span(_number(get('CommittedTime')))}")
        found.append(f"Work Lost:          {span(_number(get('WorkLost')))}")
    if number := int(_number(get("NumCkpts"))):
        megabytes = _number(get("CheckpointBytes")) / 1e6
        found.append(
            f"Checkpoints:        {number}: {_number(get('CheckpointSeconds')):.1f} s, {megabytes:.1f} MB sent, "
            f"job stood still {_number(get('CheckpointStandstill')):.3f} s"
        )
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return 0.0
    return min(max(float(value), 0.0), MOST)

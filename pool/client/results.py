"""The outcome of a job: the few facts people ask for, read from its final ad.

Pure: an ad in wire form goes in, a `Result` comes out. Callers that need more ask for the ad itself.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# The attributes that a result is made of, so that a query asks for nothing else.
NEEDS = (
    "ClusterId", "ProcId", "JobStatus", "ExitCode", "ExitBySignal", "ExitSignal", "RemoteWallClockTime",
    "RemoteUserCpu", "RemoteSysCpu", "LastRemoteHost", "RemoteHost", "Out", "Iwd", "HoldReason",
    "RemoveReason", "JobSuccessExitCode", "ExitReason", "ProcessEnds",
)  # fmt: skip

STATES = {
    1: "idle", 2: "running", 3: "removed", 4: "completed", 5: "held", 6: "transferring", 7: "suspended",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """How a job stands or ended.

    Attributes:
        cluster, proc: the job's id.
        state: idle, running, removed, completed, held, transferring, suspended.
        exit_code: its exit status, None if it did not exit by itself.
        signal: the signal that ended it, None if none did.
        wall: seconds it ran, over all its runs. cpu: processor seconds, user and system.
        host: the slot it last ran on. output: the path of its standard output, None when it was thrown away.
        reason: why it is held or was removed, or which of its processes failed; empty otherwise.
        success: the exit code that counts as success.
        processes: how each process of a job of several ended, as `pool.jobs.pipes.model.ENDS` lists it.
    """

    cluster: int
    proc: int
    state: str
    exit_code: int | None
    signal: int | None
    wall: float
    cpu: float
    host: str | None
    output: str | None
    reason: str
    success: int = 0
    processes: tuple[dict[str, Any], ...] = ()

    @property
    def job(self) -> str:
        return f"{self.cluster}.{self.proc}"

    @property
    def ok(self) -> bool:
        """It completed, and with the exit code that means success."""
        return self.state == "completed" and self.exit_code == self.success

    @property
    def is_over(self) -> bool:
        return self.state in ("completed", "removed")

    def as_json(self) -> dict[str, Any]:
        return {"id": self.job, **asdict(self), "ok": self.ok}


def read_result(ad: Mapping[str, Any]) -> Result:
    """A result from a job's ad in wire form."""
    signalled = ad.get("ExitBySignal") is True
    state = STATES.get(ad.get("JobStatus", 0), "unknown")
    out = ad.get("Out")
    output = None
    if isinstance(out, str) and out and out != "/dev/null":
        output = os.path.join(str(ad.get("Iwd") or ""), out)
    return Result(
        cluster=int(ad.get("ClusterId", 0)),
        proc=int(ad.get("ProcId", 0)),
        state=state,
        exit_code=None if signalled else _integer(ad.get("ExitCode")),
        signal=_integer(ad.get("ExitSignal")) if signalled else None,
        wall=_real(ad.get("RemoteWallClockTime")),
        cpu=_real(ad.get("RemoteUserCpu")) + _real(ad.get("RemoteSysCpu")),
        host=_text(ad.get("LastRemoteHost")) or _text(ad.get("RemoteHost")),
        output=output,
        reason=_text(ad.get(_REASONS.get(state, ""))) or "",
        success=_integer(ad.get("JobSuccessExitCode")) or 0,
        processes=_processes(ad),
    )


_REASONS = {"held": "HoldReason", "removed": "RemoveReason", "completed": "ExitReason"}


def _processes(ad: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    if not ad.get("ProcessEnds"):
        return ()
    from pool.classad import ClassAd
    from pool.jobs.pipes.model import ends_of

    return tuple(ends_of(ClassAd.from_wire({"ProcessEnds": ad["ProcessEnds"]})))


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _real(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None

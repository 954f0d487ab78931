"""Why a job waits, why a machine rests: asked of those who know, and put together.

Nothing is worked out here. For a job the schedd is asked first, then the negotiator with the request that the schedd
answered; for a machine, its startd and the negotiator. A node that cannot be asked is named among the findings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pool.errors import PoolError
from pool.policy.why.findings import (
    Finding,
    NetworkFinding,
    RanksFinding,
    Running,
    Silent,
    SlotFinding,
    from_wire,
    to_wire,
)
from pool.policy.why.standing import Standing, standing

if TYPE_CHECKING:
    from pool.client.pool import Pool

WireAd = dict[str, Any]
#: Slots of one machine that are looked at.
MOST = 16
#: Seconds that the negotiator and a startd are waited for.
PATIENCE = 15.0


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one job or one slot.

    Attributes:
        subject: its id or name.
        findings: `pool.policy.why.findings`, in no particular order.
        time: wall seconds of whoever answered first.
    """

    subject: str
    findings: tuple[Finding, ...]
    time: float

    @property
    def standing(self) -> Standing:
        """How a job stands, in one word."""
        return standing(self.findings)

    def lines(self, width: int | None = None) -> list[str]:
        """For people; with `width` no line is longer than that."""
        from pool.policy.why.words import lines

        return lines(self.findings, self.time, width)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        whole: dict[str, Any] = {"subject": self.subject, "time": self.time}
        if not any(isinstance(finding, SlotFinding) for finding in self.findings):
            whole["standing"] = str(self.standing)
        return whole | {"findings": to_wire(self.findings)}


async def why_job(pool: Pool, cluster: int, proc: int) -> Explanation:
    """Why a job does not run.

    Raises:
        PoolError: there is no such job, or the schedd does not answer.
    """
    answer = await pool.call("schedd.why", {"id": [cluster, proc]})
    findings = from_wire(answer["findings"])
    if answer.get("request"):
        try:
            at = await pool.negotiator()
            more = await pool.call("negotiator.why", {"request": answer["request"]}, at=at, timeout=PATIENCE)
            findings += from_wire(more["findings"])
        except PoolError as error:
            findings.append(Silent("the negotiator", error.message))
        findings += await _other_pools(pool, answer["request"])
    running = next((found for found in findings if isinstance(found, Running)), None)
    if running is not None and (running.mpi or running.network):
        findings += await _of_machines(pool, cluster, proc, 0.3 if running.network else 0.0)
    return Explanation(f"{cluster}.{proc}", tuple(findings), float(answer["time"]))


async def _other_pools(pool: Pool, request: WireAd) -> list[Finding]:
    """Other pools for a job that waits: nothing where this pool has no world."""
    from pool.client.submitting import world_call

    try:
        return from_wire((await world_call(pool, "why", {"request": request}))["findings"])
    except PoolError:
        return []  # there is none, or it has no time; the job's own pool has answered


async def _of_machines(pool: Pool, cluster: int, proc: int, seconds: float) -> list[Finding]:
    """Which ranks of a running MPI job wait, and what its network carries: its machines say so to its owner and to
    administrators.

    Args:
        seconds: for which they look at it, to know its rates.
    """
    try:
        inspected = await pool.inspect((cluster, proc), seconds)
    except PoolError:
        return []  # another user's, or it has just ended
    ranks: list[Finding] = [RanksFinding(part.slot, part.ranks) for part in inspected.parts if part.ranks]
    return [*ranks, *(NetworkFinding(part.slot, part.network) for part in inspected.parts if part.network)]


async def why_machine(pool: Pool, name: str, most: int = MOST) -> list[Explanation]:
    """Why slots run what they run: one slot by its name, or the slots of a machine, at most so many.

    Raises:
        PoolError: no machine of that name is known, or several are.
    """
    ads = await _slots_of(pool, name)
    chosen = ads[:most]
    asked = {"slots": [str(ad.get("Name")) for ad in chosen]}
    address = str(chosen[0].get("StartdAddress", ""))
    owner, negotiator = await asyncio.gather(
        _query(pool, "startd.why", asked, _same_address(address)),
        _query(pool, "negotiator.why_machine", asked, pool.negotiator()),
    )
    time = max((float(answer["time"]) for answer in (owner, negotiator) if not isinstance(answer, str)), default=0.0)
    return [_slot(ad, owner, negotiator, time) for ad in chosen]


def _slot(ad: WireAd, owner: Any, negotiator: Any, time: float) -> Explanation:
    name = str(ad.get("Name"))
    findings: list[Finding] = []
    if not isinstance(owner, str):
        findings = from_wire(owner["slots"].get(name, ()))
    if not findings:
        from pool.classad import ClassAd
        from pool.policy.why.machine import from_the_ad

        findings = from_the_ad(ClassAd.from_wire(ad), time)
        findings.append(Silent("the machine", owner if isinstance(owner, str) else "it has no such slot any more"))
    if isinstance(negotiator, str):
        findings.append(Silent("the negotiator", negotiator))
    else:
        findings += from_wire(negotiator["slots"].get(name, ()))
    return Explanation(name, tuple(findings), time)


async def _slots_of(pool: Pool, name: str) -> list[WireAd]:
    """The ads of a slot, or of the slots of a machine whose name may be given without its domain."""
    from pool.classad import literal

    wanted, short = literal(name).text, literal(f"{name}.").text
    same = f"Name == {wanted} || Machine == {wanted} || substr(Machine, 0, {len(name) + 1}) == {short}"
    ads = await pool.advertised("Machine", constraint=same)
    for key in ("Name", "Machine"):
        exact = [ad for ad in ads if str(ad.get(key, "")).lower() == name.lower()]
        if exact:
            ads = exact
            break
    if not ads:
        raise PoolError(f"there is no machine {name}", hint="`poolnode status` lists them")
    machines = sorted({str(ad.get("Machine")) for ad in ads})
    if len(machines) > 1:
        raise PoolError(f"{name} may be any of {', '.join(machines[:5])}", hint="give the whole name")
    return sorted(ads, key=lambda ad: (len(str(ad.get("Name"))), str(ad.get("Name"))))


async def _same_address(address: str) -> str:
    return address


async def _query(pool: Pool, method: str, params: dict[str, Any], at: Awaitable[str]) -> Any:
    """The answer, or in words why there is none."""
    try:
        return await pool.call(method, params, at=await at, timeout=PATIENCE)
    except PoolError as error:
        return error.message

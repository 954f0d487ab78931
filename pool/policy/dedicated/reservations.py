"""Reservations: N machines for a user or a group at a time (WR 6.9, W53).

A reservation that is accepted is kept, and nobody's work is lost for it. Three rules see to that:

1. When it is asked for (`refusal`): at every moment of it, all reservations of that moment must fit on the configured
   machines together, beside running gangs that cannot be saved and are not expected to be over. A user has a quota; an
   administrator has none.
2. Before it begins (`Reserved.allows`): a gang that cannot be saved starts only if the reservation would still fit
   beside it: it is expected to end before, or enough other machines are left. A gang that can be saved starts always.
3. As long before it begins as saving takes: its machines are chosen by name, idle ones first, then those
   that somebody's job can leave; gangs there are saved.

From then to its end its machines run only jobs that name it. No duration is needed for any of this where gangs can be
saved (WR 6.10). A gang that runs in a reservation and is not over at its end runs on like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pool.policy.dedicated.decisions import KeepClaims, KeepReason, RequestMachines, SaveGang
from pool.policy.dedicated.expectations import expected_end
from pool.policy.dedicated.flow import ClassMatching, Demand, fits_together
from pool.policy.dedicated.model import (
    DedicatedJob,
    DedicatedRun,
    DedicatedSettings,
    Kind,
    MachineClass,
    MachineState,
    Reservation,
    Share,
)
from pool.policy.dedicated.supply import Dealer, MachineNode, Supply, Tier
from pool.policy.dedicated.timeline import Counts, Profile, enough, taken_by


@dataclass(frozen=True, slots=True)
class ReservationQuota:
    """The most that a user may reserve, in all of the user's reservations together.

    Attributes:
        machines: at any one time.
        machine_seconds: machines times seconds that are still to come.
        ahead: how far in the future a reservation may begin, seconds.
    """

    machines: int
    machine_seconds: float
    ahead: float


def refusal(
    asked: Reservation,
    existing: Iterable[Reservation],
    running: Iterable[DedicatedRun],
    configured: Mapping[Kind, int],
    quota: ReservationQuota | None,
    now: float,
) -> str | None:
    """Why a reservation cannot be accepted, as a clause with the way out; None if it can.

    Args:
        existing: the reservations that are not over.
        running: the dedicated jobs that hold machines.
        configured: machines of each kind, busy ones included.
        quota: of the user who asks; None for an administrator.
    """
    if asked.size < 1 or asked.duration <= 0 or any(part.count < 1 for part in asked.parts):
        return "a reservation needs at least one machine and a duration of more than 0 seconds"
    if asked.end <= now:
        return "its end has passed; give a later time"
    if bool(asked.user) == bool(asked.group):
        return "a reservation is for a user or for a group; name one of them"
    others = [reservation for reservation in existing if reservation.end > now and reservation.id != asked.id]
    if quota is not None and (why := _over_quota(asked, others, quota, now)):
        return why
    if not enough(configured, asked.parts):
        return f"it needs {asked.size} machines, and the configured ones that fit are {_fitting(asked, configured)}"
    gangs = list(running)
    for moment in sorted({max(now, asked.start), *(r.start for r in others if asked.start < r.start < asked.end)}):
        at_once = [r for r in others if r.start <= moment < r.end]
        demands = [(part.fits, part.count) for r in (*at_once, asked) for part in r.parts]
        if not fits_together(configured, demands):
            names = ", ".join(r.id for r in at_once)
            return f"reservation {names} has too many of these machines at that time; ask for fewer or another time"
        free = dict(configured)
        for gang in gangs:
            if not gang.job.saveable and expected_end(gang, now) > moment:
                for share in gang.shares:
                    free[share.kind] = free.get(share.kind, 0) - len(share.machines)
        if not fits_together(free, demands):
            return "jobs that cannot be saved and are not expected to be over by then run on too many of the machines"
    return None


def _over_quota(asked: Reservation, others: Sequence[Reservation], quota: ReservationQuota, now: float) -> str | None:
    if asked.start - now > quota.ahead:
        return f"it begins in {asked.start - now:.0f} seconds, and users may reserve {quota.ahead:.0f} seconds ahead"
    own = [reservation for reservation in others if reservation.asked_by == asked.asked_by]
    most = 0
    for moment in (asked.start, *(r.start for r in own if asked.start < r.start < asked.end)):
        most = max(most, sum(r.size for r in (*own, asked) if r.start <= moment < r.end))
    if most > quota.machines:
        return f"it makes {most} machines reserved by you at once, and a user may reserve {quota.machines}"
    total = sum(r.size * (r.end - max(now, r.start)) for r in (*own, asked))
    if total > quota.machine_seconds:
        return (
            f"it makes {total / 3600:.1f} machine-hours reserved by you, and a user may reserve "
            f"{quota.machine_seconds / 3600:.1f}"
        )
    return None


def _fitting(asked: Reservation, configured: Mapping[Kind, int]) -> int:
    return sum(configured.get(kind, 0) for kind in {kind for part in asked.parts for kind in part.fits})


class Reserved:
    """The reservations' part of one cycle.

    Attributes:
        saves, requests, keeps: what reservations that begin ask for.
        begun: the machines of reservations that begin in this cycle.
        next_start: when machines of the next reservation are chosen; inf when there is none.
        wake: when to decide again for a reservation's sake.
    """

    def __init__(
        self,
        supply: Supply,
        machines: Sequence[MachineClass],
        running: Sequence[DedicatedRun],
        reservations: Sequence[Reservation],
        settings: DedicatedSettings,
        now: float,
    ) -> None:
        self._now, self._running, self._settings, self._supply = now, running, settings, supply
        self.saves: list[SaveGang] = []
        self.requests: list[RequestMachines] = []
        self.keeps: list[KeepClaims] = []
        self.begun: dict[str, tuple[str, ...]] = {}
        self.next_start = self.wake = math.inf
        self._all = {reservation.id: reservation for reservation in reservations}
        self._guards: list[tuple[Reservation, float, ClassMatching[Kind]]] = []
        self._supplies: dict[str, Supply] = {}
        if not reservations:
            return
        current = [r for r in reservations if r.machines and now < r.end]
        self._active = {r.id: r for r in current}
        for reservation in current:
            self._supply_machines(reservation, machines)
        longest = max((gang.job.save_seconds for gang in running if gang.job.saveable), default=0.0)
        self._ahead = settings.reservation_lead + max(settings.reclaim_seconds, longest)
        coming = sorted((r for r in reservations if not r.machines and now < r.end), key=lambda r: (r.start, r.id))
        waiting = [r for r in coming if not (r.start - self._ahead <= now and self._begin(r))]
        self.next_start = min((r.start - self._ahead for r in waiting if r.start - self._ahead > now), default=math.inf)
        self.wake = min([self.next_start, *(r.end for r in current)])
        self._guards = [(r, r.start - settings.reservation_lead, self._guard(r, waiting)) for r in waiting]

    _active: Mapping[str, Reservation] = {}
    _ahead: float = 0.0

    @property
    def has_begun(self) -> bool:
        """Whether any reservation has its machines now."""
        return bool(self._supplies)

    def allows(self, job: DedicatedJob) -> bool:
        """Whether every reservation could still be kept if this job started now."""
        return self._hindered(job) is None

    def free_again(self, job: DedicatedJob) -> float:
        """When the reservation is over that keeps the job from starting."""
        hindering = self._hindered(job)
        return self._now if hindering is None else hindering.end

    def started(self, job: DedicatedJob) -> None:
        """A job was given machines."""
        for _, guard in self._concerned(job):
            guard.offer(_demands(job))

    def supply_for(self, job: DedicatedJob) -> tuple[Supply | None, str]:
        """The machines of the reservation that a job names; or None and why it has none, as a clause."""
        reservation = self._all.get(job.reservation)
        if reservation is None:
            return None, f"reservation {job.reservation} is over, or was removed, or never was"
        if not reservation.serves(job):
            of = f"user {reservation.user}" if reservation.user else f"group {reservation.group}"
            return None, f"reservation {reservation.id} is for {of}"
        if job.size > reservation.size:
            return None, f"reservation {reservation.id} has {reservation.size} machines, and the job needs {job.size}"
        supply = self._supplies.get(reservation.id)
        if supply is None:
            return None, f"reservation {reservation.id} has not begun"
        return supply, ""

    def held_until(self, gang: DedicatedRun) -> float:
        """When machines of a running gang are free for others, because of the reservation that it runs in."""
        reservation = self._active.get(gang.job.reservation)
        return -math.inf if reservation is None else reservation.end

    def occupy(self, profile: Profile) -> None:
        """Take the machines of coming reservations out of a profile."""
        for reservation, _, _ in self._guards:
            counts = taken_by(self._supply.usable, reservation.parts)
            if counts is not None:
                profile.allocate(max(self._now, reservation.start), reservation.duration, counts)
        for reservation in self._active.values():
            supply = self._supplies[reservation.id]
            free: Counts = {}
            for node, names in supply.names.items():
                free[node.kind] = free.get(node.kind, 0) + len(names)
            profile.release([(reservation.end, free)])

    def keep_idle(self, dealers: Mapping[int, Dealer]) -> list[KeepClaims]:
        """The idle claims of reservations that no job of theirs got."""
        kept = []
        for name, supply in self._supplies.items():
            dealer = dealers.get(id(supply)) or Dealer(supply)
            names = tuple(machine for _, rest in dealer.rest(Tier.IDLE) for machine in rest)
            if names:
                kept.append(KeepClaims(names, name, KeepReason.RESERVED))
        return kept

    def _supply_machines(self, reservation: Reservation, machines: Sequence[MachineClass]) -> None:
        """The machines of a reservation that has begun, as a supply of their own."""
        own = frozenset(reservation.machines)
        classes = []
        for machine in machines:
            names = tuple(name for name in machine.names if name in own)
            if names:
                classes.append(MachineClass(machine.kind, machine.state, names))
        self._supplies[reservation.id] = supply = Supply(classes, (), frozenset())
        shares, reclaim = [], []
        for node, found in supply.names.items():
            if node.tier in (Tier.UNCLAIMED, Tier.OCCUPIED) and found:
                shares.append(Share(0, node.kind, tuple(found)))
                reclaim += found if node.tier is Tier.OCCUPIED else []
        if shares:
            self.requests.append(RequestMachines(reservation.id, tuple(shares), tuple(reclaim)))

    def _begin(self, reservation: Reservation) -> bool:
        """Choose the machines of a reservation by name: idle ones, then others' that can leave."""
        supply, fits = self._supply, [part.fits for part in reservation.parts]
        wanted = {kind for kinds in fits for kind in kinds}
        options: dict[MachineNode, list[str]] = {
            node: list(names)
            for node, names in supply.names.items()
            if node.kind in wanted and node.until >= reservation.end
        }
        gangs = [g for g in self._running if g.job.saveable and not g.leaving and not g.job.reservation]
        gangs.sort(key=lambda gang: (gang.job.size, -gang.started, gang.job.id))
        matching = ClassMatching({node: len(names) for node, names in options.items()})
        leaving: dict[str, DedicatedRun] = {}
        position = 0
        while True:
            order = sorted(options, key=lambda node: (node.tier, -node.until, node.kind))
            demands = [
                (tuple(node for node in order if node.kind in part.fits), part.count) for part in reservation.parts
            ]
            if matching.offer(demands):
                break
            if position == len(gangs):
                return False
            for share in gangs[position].shares:
                if share.kind in wanted:
                    node = MachineNode(Tier.LEAVING, share.kind, math.inf)
                    options.setdefault(node, []).extend(share.machines)
                    matching.add(node, len(share.machines))
                    leaving.update((name, gangs[position]) for name in share.machines)
            position += 1
        chosen: list[str] = []
        for choices in dict.fromkeys(choices for choices, _ in demands):
            for node, amount in matching.flow(choices).items():
                names = options[node][:amount]
                del options[node][:amount]
                chosen += names
                self._claim_machines(reservation, node, names)
        for gang in {leaving[name].job.id: leaving[name] for name in chosen if name in leaving}.values():
            self.saves.append(SaveGang(gang.job.id, f"reservation {reservation.id} begins", reservation.id))
        self.begun[reservation.id] = tuple(chosen)
        return True

    def _claim_machines(self, reservation: Reservation, node: MachineNode, names: Sequence[str]) -> None:
        taken = set(names)
        there = self._supply.names.get(node, [])
        before = len(there)
        there[:] = [name for name in there if name not in taken]
        if before != len(there):
            self._supply.matching.add(node, len(there) - before)
        if node.tier is Tier.IDLE:
            self.keeps.append(KeepClaims(tuple(names), reservation.id, KeepReason.RESERVED))
        elif node.tier is not Tier.LEAVING:
            reclaim = tuple(names) if node.tier is Tier.OCCUPIED else ()
            self.requests.append(RequestMachines(reservation.id, (Share(0, node.kind, tuple(names)),), reclaim))

    def _guard(self, reservation: Reservation, coming: Sequence[Reservation]) -> ClassMatching[Kind]:
        """The machines that a job may use which still runs when this reservation begins."""
        counts = dict(self._supply.usable)
        for gang in self._running:
            soft = gang.job.saveable or gang.leaving
            if not soft and expected_end(gang, self._now) > reservation.start - self._settings.reservation_lead:
                for share in gang.shares:
                    counts[share.kind] = counts.get(share.kind, 0) - len(share.machines)
        for name, (kind, state) in self._supply.reserved.items():
            holder = next((r for r in self._active.values() if name in r.machines), None)
            if state is not MachineState.AWAY and holder is not None and holder.end > reservation.start:
                counts[kind] -= 1
        guard = ClassMatching(counts)
        for other in coming:
            if other.start < reservation.end and reservation.start < other.end:
                guard.offer([(part.fits, part.count) for part in other.parts])
        return guard

    def _concerned(self, job: DedicatedJob) -> Iterable[tuple[Reservation, ClassMatching[Kind]]]:
        for reservation, start, guard in self._guards:
            late = start - self._ahead <= self._now
            if job.saveable and not late:
                continue
            if job.remaining is None or self._now + job.remaining > start:
                yield reservation, guard

    def _hindered(self, job: DedicatedJob) -> Reservation | None:
        for reservation, guard in self._concerned(job):
            if not guard.fits(_demands(job)):
                return reservation
        return None


def _demands(job: DedicatedJob) -> list[Demand[Kind]]:
    return [(part.fits, part.count) for part in job.parts]

"""Jobs that run on several machines at once: from a claim for each part to one end of all.

    claims (gathering.py) -> all there -> one durable start -> each part sent -> parts meet -> ends -> one end

The start is one step of the job, written before any part is sent. Parts that are ready to begin *meet*: each
waits here until all have come, and learns the addresses of the others. A part's end is written with the
job before it is acknowledged; the job's own comes with the last. When one part loses its machine, or fails, the others
are stopped: the gang runs as a whole or not at all (start contract, rule 2: the job is idle again only when no part of
it can be running).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs import costs
from pool.jobs.activation import OF_SLOT, Activation, CannotStart, FileMode, activation, mode_for
from pool.jobs.events import EventKind
from pool.jobs.gangs import name_of, node_of, part_of, with_ranks
from pool.jobs.network import HAS_OUT, HAS_PRIVATE, JOB_NETWORK, OUT_WHY, WHY
from pool.jobs.pipes.model import processes_of
from pool.jobs.reasons import Evict, Hold
from pool.jobs.states import Happening
from pool.jobs.substitution import CannotFill, fill, needs_filling
from pool.policy import nodes
from pool.policy.charges import charge
from pool.policy.flock.cards import Card, PartCard, seen_from
from pool.policy.flock.shown import AS_STARTD
from pool.policy.gang_networks import GIVEN, GIVEN_WHY, GangNetwork, NetworkMissing, gang_network
from pool.policy.gangs import BY_ITSELF, Gathering, costs_of, merged, taken_over
from pool.policy.queue import IDLE, QueuedJob, Wire
from pool.policy.slot_names import machine_of_slot, pool_of_slot
from pool.roles.schedd.checkpoints.images import StoredCheckpoints
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim, patience
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.ended_jobs import EndedJobs
from pool.roles.schedd.core.gang import RunningGang
from pool.roles.schedd.core.job_ends import BEGAN, After, end_steps, hold_step, not_begun
from pool.roles.schedd.core.ledger import JobChange
from pool.roles.schedd.core.submit_side_costs import SubmitSideCosts
from pool.roles.schedd.parallel.gathering import Gatherings, Obtain
from pool.roles.schedd.parallel.parallel_checkpoints import ParallelCheckpoints
from pool.roles.schedd.parallel.part_events import BEGUN, ENDED, PartEvents
from pool.shadow.files import FilesOf
from pool.wire import RemoteError, parse_address
from pool.wire.errors import CallRefused

#: Seconds between two writes of what a gang has in memory.
SIZED = 50.0
#: Seconds after the first part for all others to be ready: the fetch of their inputs is in it.
MEETING_PATIENCE = 14400.0
#: Attributes that are there while it runs.
HOSTS = "AllRemoteHosts"


class Gangs:
    """The gangs of one schedd.

    Args:
        images: the checkpoints that gangs continue from.
        costs: count the work of the submit side for a job.
        ended: called when the end of a run is durable.
        obtain: claims the slots that were matched to parts.
        changed: called when an owner's numbers changed; with True when there is new work that needs a slot.
        send: sends a start that is durable to the startd of its claim.
        files: the files of a job's owner.
        digest_of: the stored copy of a job's executable (A12).
    """

    def __init__(
        self,
        context: ScheddContext,
        settings: ClaimSettings,
        images: StoredCheckpoints,
        costs: SubmitSideCosts,
        ended: EndedJobs,
        *,
        obtain: Obtain,
        changed: Callable[[str, bool], None],
        send: Callable[[HeldClaim, Activation], Awaitable[None]],
        files: FilesOf,
        digest_of: Callable[[QueuedJob], str | None],
    ) -> None:
        self._settings = settings
        self._files = files
        self._digest_of = digest_of
        self.gathering = Gatherings(context, settings, images, obtain=obtain, changed=changed, begin=self.begin)
        self.sets = ParallelCheckpoints(context, settings, images)
        self.events = PartEvents(context)
        self._context = context
        self._images = images
        self._costs = costs
        self._ended = ended
        self._changed = changed
        self._send = send
        self._running: dict[QueuedJob, RunningGang] = {}

    # -- starting ----------------------------------------------------------------------------------------

    async def begin(self, job: QueuedJob, gathering: Gathering, claims: Mapping[int, HeldClaim]) -> None:
        """Every part has its claim: start them all."""
        context = self._context
        gang = RunningGang.for_job(job, int(job.get("NumJobStarts", 0)) + 1, context.outside.secret(16))
        try:
            gang.checkpoint = self._checkpoint_for(gang, claims) if not gathering.anew else None
            ends = self._images.ends_in(job, gang.checkpoint)
            if ends.keys() != gathering.over:
                gathering.over, gathering.anew = frozenset(), True  # parts that had ended begin anew, too
                self._changed(job.cluster.owner, True)
                return
            self.gathering.forget_job(job)
            over = nodes.taken_over if gang.parallel else taken_over
            gang.reports = [(part, over(report)) for part, report in ends.items()]
            gang.recorded_ended = len(gang.reports)
            gang.hosts = _hosts(len(gang.parts), {part: claim.startd for part, claim in claims.items()})
            gang.chosen = self._network_for(gang, claims)
            starts = {part: self._start_of(gang, part, claim) for part, claim in claims.items()}
        except (CannotStart, CannotFill, NetworkMissing) as error:
            self.gathering.forget_job(job)
            for claim in claims.values():
                self.gathering.release_claim(claim)
            await context.ledger.commit(hold_step(job, f"cannot start: {error}", Hold.START_FAILED))
            return
        gang.met = asyncio.get_running_loop().create_future()
        gang.met.add_done_callback(lambda met: met.cancelled() or met.exception())
        for part, claim in sorted(claims.items()):
            self._enter(gang, part, claim)
            claim.start = starts[part]
        notices = [_network_notice(gang)] if gang.chosen.why_not else []
        await context.ledger.commit(self._start_step(gang), *notices)
        await asyncio.gather(*(self._send(claim, starts[part]) for part, claim in sorted(claims.items())))

    def _network_for(self, gang: RunningGang, claims: Mapping[int, HeldClaim]) -> GangNetwork:
        """The network of a job that asks for none. Raises NetworkMissing: see `gang_network`."""
        job = gang.job
        without = job.get("WantJobNetworking") is False or job.get("DockerNetworkType") == "none"
        free = gang.parallel and not job.get(JOB_NETWORK) and not without
        machines = [(claim.slot, _network_facts(claim.ad)) for claim in claims.values()]
        saved_in = None if gang.checkpoint is None else str(job.get(GIVEN) or "")
        return gang_network(self._settings.gang_network, machines, free=free, saved_in=saved_in)

    def _checkpoint_for(self, gang: RunningGang, claims: Mapping[int, HeldClaim]) -> int | None:
        """The checkpoint that a gang continues from on these claims; None for its beginning.

        Raises:
            CannotStart: a part cannot reach its files there.
        """
        images, job = self._images, gang.job
        checkpoint = images.newest(job)
        if checkpoint is None:
            return None
        modes = {
            part: mode_for(ClassAd.from_wire({**job.wire(), **gang.parts[part].own}), claim.ad)
            for part, claim in claims.items()
        }
        return checkpoint if images.fits(job, checkpoint, modes) else None

    def _enter(self, gang: RunningGang, part: int, claim: HeldClaim) -> None:
        claim.gathers = None
        claim.gang, claim.part = gang, part
        claim.job, claim.run, claim.spent, claim.going = gang.job, gang.run, True, False
        gang.claims[part] = claim
        gang.job.run = self._lead_claim(gang)
        self._running[gang.job] = gang

    @staticmethod
    def _lead_claim(gang: RunningGang) -> HeldClaim:
        """Where the job's last process is, whose output is the job's; node 0 of a parallel job."""
        return gang.claims[min(gang.claims) if gang.parallel else max(gang.claims)]

    def _start_of(self, gang: RunningGang, part: int, claim: HeldClaim) -> Activation:
        if gang.parallel:
            kind = gang.parts.kind_of(part)
            key = (kind, *(claim.ad.value(name, None) for name in OF_SLOT))
            start = gang.templates.get(key)
            if start is None:
                start = self._start_of_whole(gang, part, claim)
                if not gang.fills:
                    gang.templates[key] = start
            node = node_of(start, len(gang.parts), part, gang.secret, gang.hosts)
            return with_ranks(node, gang.parts, gang.job.wire()) if node.mpi else node
        return part_of(self._start_of_whole(gang, part, claim), gang.parts, part, gang.secret)

    def _start_of_whole(self, gang: RunningGang, part: int, claim: HeldClaim) -> Activation:
        own = gang.parts[part].own
        ad = ClassAd.from_wire({**gang.job.wire(), **own})
        if needs_filling(ad):
            gang.fills, ad = True, fill(ad, claim.ad, self._context.outside.wall())
        digest = self._digest_of(gang.job) if "Cmd" not in own else None
        start = activation(ad, claim.ad, gang.run, digest, gang.checkpoint)
        return replace(start, job_network=gang.chosen.mode) if gang.chosen.mode else start

    def start_of(self, claim: HeldClaim) -> Activation:
        """The start of a claim's part, worked out again after a restart of the schedd.

        Raises:
            PoolError: it cannot be said any more.
        """
        assert claim.gang is not None
        return self._start_of(claim.gang, claim.part, claim)

    def _start_step(self, gang: RunningGang) -> JobChange:
        now = int(self._context.outside.wall())
        lead = self._lead_claim(gang)
        parts = [_claim_record(claim) for claim in gang.claims.values()]
        note = {"run": gang.run, "gang": gang.secret, "parts": parts, "checkpoint": gang.checkpoint}
        changes: dict[str, Any] = {
            "NumJobStarts": gang.run,
            "JobCurrentStartDate": now,
            "RemoteHost": lead.slot,
            HOSTS: ",".join(claim.slot for claim in gang.claims.values()),
            "_run": note,
            BEGUN: None,
            ENDED: [list(one) for one in gang.reports] or None,
            GIVEN: gang.chosen.mode or None,
            GIVEN_WHY: gang.chosen.why_not or None,
        }
        changes |= costs.goes_on(gang.job.get, gang.job.stored_note(costs.HELD), gang.checkpoint)
        changes |= costs.restarts(gang.job.get, gang.checkpoint)
        if gang.job.get("JobStartDate") is None:
            changes["JobStartDate"] = now
        return JobChange(gang.job, Happening.START, changes | not_begun(gang.job))

    async def wait_for_parts(self, claim_id: str, run: int, card: Card) -> dict[str, Any]:
        """A part is ready to begin: waits for the others, and answers with what those brought that it has pipes to, or
        shares a network with; of parts in another pool, no addresses (`pool.policy.flock.cards`).

        Raises:
            CallRefused: they do not come any more.
        """
        claim = self._context.claims.get(claim_id)
        gang = claim.gang if claim is not None and claim.run == run else None
        if claim is None or gang is None or gang.met is None or gang.root is not None:
            raise CallRefused("the other parts of this job do not come", retry=True)
        own = PartCard(pool_of_slot(claim.slot), machine_of_slot(claim.slot), card)
        gang.cards[claim.part] = own
        if len(gang.cards) == 1:
            self._context.spawn(self._limit_meeting(gang), "slow parts", alone=True)
        if len(gang.cards) == len(gang.parts) - len(gang.reports) and not gang.met.done():
            gang.met.set_result(None)
            self.sets.schedule(gang)
        await asyncio.shield(gang.met)
        others = {part for _, _, part in claim.start.crossings} if claim.start is not None else set(gang.cards)
        if others & (gang.claims.keys() - gang.cards.keys()):  # they met a schedd that was restarted since
            raise CallRefused("the other parts of this job do not come any more", retry=True)
        if card.get("network"):
            others = set(gang.cards)
        there = {part: seen_from(own.pool, gang.cards[part]) for part in others if part in gang.cards}
        return {"cards": [there.get(part) for part in range(max(others, default=-1) + 1)]}

    async def _limit_meeting(self, gang: RunningGang) -> None:
        """Give up the parts that are not ready long after the first one was: their machines live, but are too slow."""
        assert gang.met is not None
        await asyncio.wait([gang.met], timeout=MEETING_PATIENCE)
        late = gang.late_claims
        if late:
            said = {"job": ".".join(map(str, gang.job.id)), "slots": ", ".join(claim.slot for claim in late)}
            self._context.log.warning("parts of a job were not ready in time", extra=said)
            gang.failed_on = gang.failed_on or late[0].slot
            await asyncio.gather(*(self.stop_part(claim) for claim in late))

    # -- ends --------------------------------------------------------------------------------------------

    async def ended(self, claim: HeldClaim, report: dict[str, Any]) -> None:
        """A part is over: it has ended, could not be started, or is lost. Durable when this returns."""
        gang, context = claim.gang, self._context
        if gang is not None and gang.parallel and report.get("core"):
            await self._name_core(claim)
        if gang is None or gang.claims.get(claim.part) is not claim:
            return
        job, part = gang.job, claim.part
        lead = self._lead_claim(gang)
        del gang.claims[part]
        claim.take_network(report)
        if isinstance(report.get("costs"), dict):
            gang.costs[part] = report["costs"]
        if gang.parallel:
            report = nodes.stored_report(report, claim.slot, context.outside.wall())
            if report.get("started_event"):
                gang.begun.setdefault(part, claim.slot)
        gang.reports.append((part, report))
        claim.job, claim.start, claim.gang = None, None, None
        if claim.dedicated and keeps_claim(report):
            context.claims.empty(claim)
        else:
            context.claims.drop(claim)
        first = gang.root is None
        if gang.count_end(len(gang.reports) - 1):
            gang.failed_on = gang.failed_on or claim.slot if first else claim.slot
        if first and gang.root is not None:
            if gang.met is not None and not gang.met.done():
                gang.met.set_exception(CallRefused("another part of this job could not be started", retry=True))
            context.spawn(self._stop(gang), "gang", alone=True)
        self.sets.ends(gang, "one of its parts has ended")
        if gang.claims:
            job.run = self._lead_claim(gang)
            await self.events.write(gang)
            return
        await self._finish_run(gang, lead.slot)

    async def _finish_run(self, gang: RunningGang, slot: str) -> None:
        """The last part is over, and with it the job's run."""
        context, job = self._context, gang.job
        await self.sets.wait_settled(gang)
        self._running.pop(job, None)
        job.run = None
        reports = [report for _, report in gang.reports]
        if gang.parallel:
            report = nodes.merged(gang.reports, gang.root, gang.on_failure)
        else:
            names = [process.name for process in processes_of(job.ad())]
            report = merged(reports, names, gang.root, gang.on_failure)
        if gang.costs:
            report["costs"] = costs_of(gang.costs.values())
        if gang.saved or any(one.get("checkpointed") for one in reports):
            report |= {"checkpointed": True, "generation": self._images.latest(job)}
        if (job.stored_note("_wish") or {}).get("checkpoint"):
            report["kept"] = await self._images.retain_last(job)
        after = After(lambda tries: self._images.newest(job, tries=tries), context.name, gang.network)
        async with gang.writing:
            event_steps = self.events.steps(gang) if gang.parallel else []
            for step in event_steps:
                context.ledger.apply_early(step)
            steps = end_steps(job, gang.failed_on or slot, report, context.outside.wall(), after)
            if report.get("cause") in BY_ITSELF:
                self._images.begin_anew(job, steps)
            self._costs.charge(job, steps)
            steps[0].changes |= {ENDED: None, BEGUN: None, HOSTS: None}
            gang.finished = True
            await context.ledger.commit(*event_steps, *steps)
        self._ended.end_recorded(job)
        self._changed(job.cluster.owner, any(step.status == IDLE for step in steps))

    async def node_started(self, claim: HeldClaim) -> None:
        """The program of a node runs."""
        gang = claim.gang
        if gang is not None and claim.part not in gang.begun:
            gang.begun[claim.part] = claim.slot
            await self.events.node_started(gang)

    async def _name_core(self, claim: HeldClaim) -> None:
        """Where a node's core file lies in its owner's directory already: give it the node's own name."""
        start = claim.start
        if start is None or start.mode is not FileMode.SHARED:
            return
        try:
            await self._files(start.owner).rename(f"{start.iwd}/core", f"{start.iwd}/{start.core_name}")
        except PoolError as error:
            self._context.log.info("a core file keeps its name", extra={"job": start.name, "why": error.message})

    def concerns_job(self, claim: HeldClaim, kind: str, data: Wire, changes: Wire) -> bool:
        """Whether what a part says concerns the job as a whole: it is suspended with its first part, and continued with
        its last; what its parts have in memory counts together, and is written once a minute.

        Args:
            changes: of the job; its size is put right.
        """
        gang = claim.gang
        if gang is None:
            return True
        if kind == "suspended":
            gang.suspended.add(claim.part)
        elif kind == "continued":
            gang.suspended.discard(claim.part)
            return not gang.suspended
        elif kind == "usage" and changes:
            gang.sizes[claim.part] = int(changes["ResidentSetSize"])
            now = asyncio.get_running_loop().time()
            if now < gang.sized_at + SIZED:
                return False
            gang.sized_at = now
            changes["ImageSize"] = changes["ResidentSetSize"] = data["max_rss"] = sum(gang.sizes.values())
        return True

    async def part_lost(self, claim: HeldClaim, why: str) -> None:
        """A part is not running any more, without having ended."""
        await self.ended(claim, {"cause": "lost", "why": why, "reason": str(Evict.MACHINE_LOST)})

    async def _stop(self, gang: RunningGang) -> None:
        """The gang is broken, or its job is over: what is left of it has to go."""
        await asyncio.gather(*(self.stop_part(claim) for claim in list(gang.claims.values())))

    async def stop_part(self, claim: HeldClaim) -> None:
        asked: Wire = {"claim": claim.id, "run": claim.run, "graceful": False, "save": None}
        if claim.gang is not None and claim.gang.is_over:
            asked["outputs"] = True
        try:
            await self._context.calls.call_startd(claim, "startd.deactivate", asked, 30.0)
        except (*TROUBLE, RemoteError):
            return  # `reconnect` finds out about it; its starter learns that it cannot be started

    @staticmethod
    def merge_troubles(claim: HeldClaim, why: list[str]) -> list[str]:
        """The reasons why a job cannot be saved, from all its parts; one of its machines has found new ones."""
        gang = claim.gang
        if gang is None:
            return why
        gang.trouble[claim.part] = [f"{name_of(gang.parts[claim.part], claim.part)}: {line}" for line in why]
        return [line for part in sorted(gang.trouble) for line in gang.trouble[part]]

    def is_broken(self, claim: HeldClaim) -> bool:
        """Whether the other parts of a claim's gang have been given up."""
        return claim.gang is not None and claim.gang.root is not None

    def claims_of(self, job: QueuedJob) -> list[HeldClaim]:
        """The claims that a running job has, of all its parts."""
        gang = self._running.get(job)
        if gang is not None:
            return list(gang.claims.values())
        return [job.run] if job.run is not None and job.run.job is job else []

    def extra_slots(self, owner: str) -> int:
        """How many slots an owner's gangs have or hold beyond one for each running job."""
        running = sum(len(gang.claims) - 1 for job, gang in self._running.items() if job.cluster.owner == owner)
        return running + self.gathering.slots(owner)

    # -- after a restart ---------------------------------------------------------------------------------

    def adopt(self, job: QueuedJob) -> None:
        """Take up the claims under which a gang was running when the schedd stopped. A part that had not met by then
        never does: the cards of the others are lost."""
        note, context = job.stored_note("_run"), self._context
        gang = RunningGang.for_job(job, int(note["run"]), str(note["gang"]))
        gang.checkpoint = note.get("checkpoint")
        gang.chosen = GangNetwork(str(job.get(GIVEN) or ""), str(job.get(GIVEN_WHY) or ""))
        gang.reports = [(int(part), dict(report)) for part, report in job.stored_note(ENDED) or ()]
        gang.recorded_ended = len(gang.reports)
        slots = {int(entry["part"]): str(entry["slot"]) for entry in note["parts"]}
        all_begun = job.get(BEGAN) is not None
        recorded = set(slots) if all_begun else {int(part) for part in job.stored_note(BEGUN) or ()}
        gang.begun = {part: slot for part, slot in slots.items() if part in recorded}
        gang.recorded_begun = len(gang.begun)
        gang.find_root()
        gang.hosts = _hosts(len(gang.parts), {int(entry["part"]): str(entry["startd"]) for entry in note["parts"]})
        over, now = gang.ended_parts, asyncio.get_running_loop().time()
        for entry in note["parts"]:
            if entry["part"] in over:
                continue
            claim = HeldClaim(
                str(entry["claim"]),
                str(entry["slot"]),
                ClassAd(),
                str(entry["startd"]),
                str(entry["owner"]),
                charge(job.ad()),
                float(entry["lease"]),
                now,
                now + patience(float(entry["lease"])),
            )
            context.claims.add(claim)
            self._enter(gang, int(entry["part"]), claim)
        for claim in list(gang.claims.values()):
            context.claims.mark_unreachable(claim)
        if gang.root is None:  # parts that run have met; the others end
            gang.met = asyncio.get_running_loop().create_future()
            gang.met.set_result(None)
            self.sets.schedule(gang)


def keeps_claim(report: Mapping[str, Any]) -> bool:
    """Whether a part's machine takes the dedicated scheduler's next job: it is there, and its owner did not take it."""
    return report.get("cause") not in ("start", "lost") and not report.get("released")


def _claim_record(claim: HeldClaim) -> dict[str, Any]:
    return {
        "part": claim.part,
        "claim": claim.id,
        "slot": claim.slot,
        "startd": claim.startd,
        "owner": claim.owner,
        "lease": claim.lease,
    }


def _network_facts(ad: ClassAd) -> dict[str, object]:
    """The facts about networks of jobs' own in a machine's ad."""
    return {name: ad.value(name, None) for name in (HAS_PRIVATE, WHY, HAS_OUT, OUT_WHY)}


def _network_notice(gang: RunningGang) -> JobChange:
    """The job's log says that it has not the network that GANG_NETWORK names."""
    return JobChange(
        gang.job, None, {}, EventKind.NOTICE, {"text": f"its network is the machines': {gang.chosen.why_not}"}
    )


def _hosts(number: int, startds: Mapping[int, str]) -> str:
    """The addresses of so many nodes, by number, with blanks between them; `-` for one that has ended, and for one on a
    machine of another pool.
    """
    return " ".join(_host(startds[node]) if node in startds else "-" for node in range(number))


def _is_lent(address: str) -> bool:
    """Whether a startd's address is that of a world node, which passes calls on to a machine of another pool."""
    return address.endswith(f"#{AS_STARTD}")


def _host(address: str) -> str:
    if _is_lent(address):
        return "-"
    kind, host, _ = parse_address(address)
    return host if kind in ("tcp", "mem") else "127.0.0.1"

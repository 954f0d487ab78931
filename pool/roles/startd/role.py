"""The startd's methods and timers, around the slots and the owner's policy.

    matched (negotiator)  ->  claim (schedd)  ->  activate (schedd)  ->  ended (to the schedd)  ->  ... -> release

What protects the owner and the pool: a claim needs a grant and its secret, both checked here, and the ads are matched
again at claim and at each activation (RL 3.2.2). A claim is a lease that this side asks to have renewed and counts
from when it asked; when it is over the job is killed, by its keeper if this node is gone (start contract, rule 2).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from pathlib import Path
from typing import Any, ClassVar

from pool.config import Settings
from pool.errors import PoolError
from pool.images import BandwidthShare, ImageStore
from pool.jobs.activation import Activation
from pool.jobs.reasons import Evict, Reason
from pool.machine import Sensors
from pool.network import program as relay_program
from pool.network import way_out_program
from pool.policy import carve
from pool.policy.checkpoints import SaveWish
from pool.policy.why.findings import to_wire
from pool.roles.advertise import Advertiser
from pool.roles.base import Role, bandwidth_of, quota_of
from pool.roles.claim_errors import NoSuchClaim
from pool.roles.startd.checkpoints.checkpointed_job import CheckpointContext
from pool.roles.startd.claims.claim_ends import ClaimEnds
from pool.roles.startd.claims.claiming import ClaimGrants
from pool.roles.startd.claims.leases import ClaimLeases
from pool.roles.startd.claims.loans import SlotLoans
from pool.roles.startd.claims.preempting import Preempting
from pool.roles.startd.claims.urgent import Urgent
from pool.roles.startd.claims.vacated_scratch import VacatedScratch
from pool.roles.startd.images.image_peers import ImagePeers
from pool.roles.startd.images.image_prefetch import PrefetchedImage, forget_prepared
from pool.roles.startd.images.image_stores import ImageStores
from pool.roles.startd.owner.draining import Draining, DrainState
from pool.roles.startd.owner.facts import MachineFacts
from pool.roles.startd.owner.judge import OwnerJudge
from pool.roles.startd.owner.offers import SlotOffers
from pool.roles.startd.owner.policy import PolicyInForce
from pool.roles.startd.owner.watch import OwnerWatch
from pool.roles.startd.recovery import Recovery, in_order
from pool.roles.startd.running.activations import Activations
from pool.roles.startd.running.direct_parts import DirectParts
from pool.roles.startd.running.direct_shadows import DirectShadows
from pool.roles.startd.running.job_account import JobAccounts
from pool.roles.startd.running.networks import NetworkLinks, forward_to
from pool.roles.startd.running.place import SlotPlaces
from pool.roles.startd.running.running_job import JobContext
from pool.roles.startd.running.shells import shell_in
from pool.roles.startd.running.starters import Starters
from pool.roles.startd.running.streams import ExpectedStreams
from pool.roles.startd.running.ways_out import WaysOut
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.records import Slot, SlotClaim, SlotRefused
from pool.roles.startd.slots.table import SlotTable
from pool.starter import image_tools, scratch, urls
from pool.starter.image_cache import ImageCache
from pool.starter.inspecting import bounded
from pool.starter.keeper import Keepers
from pool.starter.shells import WISH
from pool.wire import Call, Right, Stream, method, streaming
from pool.wire.parameter_checks import JOB_ID, MAPPINGS, TEXTS, Takes, optional

TAKEN_BACK = Reason(Evict.VACATED, "its owner took the machine back")
NODE_STOPPED = Reason(Evict.VACATED, "the node was stopped")
ASKED = Reason(Evict.VACATED, "the schedd asked for it")


#: The order to start a job, or to remember it; the fields of its start are looked at by `jobs.activation_fields`.
ORDER: Takes = {"claim": str, "base": list | None, "start": dict, "shared": dict | None, "own": dict}


class Startd(Role):
    """The startd role."""

    name: ClassVar[str] = "startd"
    is_aside: ClassVar[bool] = True

    async def start(self) -> None:
        given = self.given
        self.sensors: Sensors = given.sensors()
        await self.sensors.start()
        self.keepers: Keepers = given.keepers()
        self.execute = Path(self.settings.text("EXECUTE_DIR") or f"{given.state}/execute")
        self.executables = self.execute.parent / "cached-executables"
        kept = int(self.settings.number("IMAGE_CACHE")) << 20
        self.image_cache = ImageCache(self.execute.parent / "cached-images", kept, self.log)
        self.stores = ImageStores(self.execute.parent / "images", quota_of(self.settings))
        with contextlib.suppress(FileNotFoundError):
            os.chmod(self.executables, 0o700)  # jobs get copies; it was open to everybody once
        self.share = BandwidthShare(bandwidth_of(self.settings))
        self.execute.mkdir(parents=True, exist_ok=True, mode=0o711)
        self._build()
        self.machine.read()
        self._lay_out()
        self.loans.load()
        for keeper in sorted(await self.keepers.open(), key=in_order):
            if (found := self.recovery.adopt(keeper)) is not None:
                self.loans.claimed(found)
        self.image_cache.begin()
        given.leases.clear()
        self.machine.read()  # the abilities of the keepers are known now
        held = [name for name, slot in self.slots.items() if slot.claim is not None]
        for left in scratch.leftovers(self.execute, held):
            scratch.discard(left)
        self.spawn(self._drop_stale_images(), "images", alone=True)
        self.spawn(asyncio.to_thread(image_tools.remove_left), "left images", alone=True)
        for line in self.keepers.abilities.reduced:
            self.log.warning("reduced", extra={"what": line})
        self.offers.settle_all()
        self.ads.publish_all()
        self.spawn(self.advertiser.run(), "advertise")
        self.spawn(self.owner.run(), "owner")
        self.spawn(self.ways_out.run(), "ways out")
        self.spawn(self.leases.run(), "leases")

    def _build(self) -> None:
        """Make the role's parts, each from those that it needs."""
        given, outside, log = self.given, self.outside, self.log
        node, address, wall, secret = given.node, given.address, outside.wall, outside.secret
        spawn, settings = self.spawn, lambda: self.settings
        plugins = urls.methods_of(self.settings.text("TRANSFER_PLUGINS").replace(",", " ").split())
        self.advertiser = Advertiser(
            given.links,
            given.collector,
            outside,
            self.settings.number("UPDATE_INTERVAL"),
            self.settings.number("AD_LIFETIME"),
            log,
            given.instance,
            refresh=self._refresh,
        )
        # slots, and the owner's wishes
        self.table = table = SlotTable(wall)
        self.slots, self.claims = table.slots, table.claims
        drain = DrainState(given.state)
        self.policy = PolicyInForce(self.settings, wall, log)
        self.ways_out = WaysOut(
            *(settings, way_out_program(), lambda: (given.address, given.collector), self._way_out_changed, log)
        )
        self.machine = machine = MachineFacts(
            *(self.sensors, self.keepers, settings, wall, plugins),
            lambda: self.ways_out.why_not,
            outside.find_program,
        )
        self.ads = ads = SlotAds(table, machine, self.policy, drain.wire, self.advertiser, node=node, address=address)
        self.judge = judge = OwnerJudge(self.policy, machine, ads, wall)
        self.offers = offers = SlotOffers(table, ads, judge, drain, secret)
        # the ends of claims, and everything that ends them
        vacated = VacatedScratch(self.execute, given.turns, spawn, lambda: self._over, log)
        self.ends = ends = ClaimEnds(table, ads, offers, vacated, spawn, lambda: self._over)
        self.owner = owner = OwnerWatch(
            table, ads, machine, self.sensors, judge, offers, ends.revoke, settings, outside, log
        )
        self.draining = Draining(drain, table, ads, offers, ends.evict, log)
        self.leases = ClaimLeases(table, ads, ends, spawn, log)
        self.loans = SlotLoans(table, ads, ends.evict, given.state, wall, spawn, log)
        # running jobs
        self.peers = ImagePeers(self.images, self.share.wait_for_bytes, secret, spawn)
        self.streams = ExpectedStreams()
        self.network_links = NetworkLinks(node, given.links, secret, relay_program(), self.ways_out)
        self.direct_parts = DirectParts(
            *(self.streams, self.network_links, given.strangers_network, secret, spawn, log), address=address
        )
        self.direct_shadows = DirectShadows(self.claims, given.strangers_network, secret, spawn, log)
        accounts = JobAccounts(settings, node, is_personal=given.user is not None)
        places = SlotPlaces(
            settings=settings,
            machine=lambda: machine.wire,
            state=given.state,
            execute=self.execute,
            vacate=vacated.remove_now,
            executables=self.executables,
            images=self.images,
            image_cache=self.image_cache,
            plugins=plugins,
            outside_names=self.ways_out.names,
            join_outside=self.network_links.networks.enter_alone,
        )
        starters = Starters(
            *(self.keepers, places, accounts, self.streams, self.direct_parts, self.direct_shadows),
            *(self.network_links.networks, self.peers, given.links, secret, spawn),
            node=node,
            address=address,
        )
        checkpoints = CheckpointContext(
            settings=settings,
            wall=wall,
            share=self.share,
            peers=self.peers,
            wants_checkpoint=judge.wants_checkpoint,
            advertise=ads.touch,
            spawn=spawn,
            log=log,
        )
        context = JobContext(
            node=node,
            address=address,
            wall=wall,
            turn=given.turns.moment,
            starters=starters,
            peers=self.peers,
            checkpoints=checkpoints,
            drop=ends.drop,
            spawn=spawn,
            log=log,
            log_failure=self.log_failure,
        )
        self.activations = Activations(table, ads, machine, context)
        # new claims
        self.claiming = claiming = ClaimGrants(
            *(table, ads, machine, offers, self.leases, self.loans, accounts.claimed_ad),
            *(settings, outside, node, log),
        )
        self.urgent = urgent = Urgent(
            table, ads, judge, offers, claiming, drain, owner.act, ends.vacant, wall, spawn, log
        )
        self.preempting = Preempting(
            *(table, ads, machine, judge, offers, claiming, urgent, self.leases, self.loans),
            *(owner.act, ends.revoke, wall, log),
        )
        self.recovery = Recovery(table, self.activations, urgent, drain, given.leases, outside, spawn, log)

    def _way_out_changed(self) -> None:
        self.machine.reload()
        self.machine.read()
        self.ads.publish_all()

    def _refresh(self) -> None:
        """Advertise all slots as they are now."""
        self.machine.freshen()
        self.ads.publish_all()

    async def stop(self, *, handover: bool) -> None:
        if not handover:
            for slot in list(self.claims.values()):
                if slot.claim is not None and slot.claim.running is not None:
                    await slot.claim.running.stop(False, NODE_STOPPED)
        try:
            async with asyncio.timeout(2.0):
                await self.advertiser.withdraw_all()
        except (PoolError, OSError, TimeoutError):
            pass
        await super().stop(handover=handover)
        await self.keepers.close(kill=not handover)
        await self.sensors.stop()

    async def die(self) -> None:
        # The next role counts the leases on, from the time when they were last renewed.
        self.given.leases.update({name: slot.claim.asked for name, slot in self.claims.items() if slot.claim})
        await super().die()
        await self.leases.break_links()
        await self.keepers.close(kill=False)
        await self.sensors.stop()

    def images(self, schedd: str) -> ImageStore:
        """Where checkpoints of a schedd's jobs lie on their way. Blocks on the disk when the first one comes."""
        return self.stores.store_of(schedd)

    async def _drop_stale_images(self) -> None:
        """Drop the checkpoints that an earlier run of the node has not sent, of jobs that are no longer here."""
        here = {slot.claim.running.key for slot in self.claims.values() if slot.claim and slot.claim.running}
        await asyncio.to_thread(self.stores.drop_all_but, here)

    def reload(self, settings: Settings) -> None:
        super().reload(settings)
        self.share.rate = bandwidth_of(settings)
        self.policy.reload(settings)
        self.ways_out.reload()
        self.machine.reload()
        self.table.reload()
        self.advertiser.interval = settings.number("UPDATE_INTERVAL")
        self.advertiser.lifetime = settings.number("AD_LIFETIME")
        self.offers.settle_all()
        self.ads.publish_all()

    # -- negotiator --------------------------------------------------------------------------------------

    @method(Right.NEGOTIATE, takes={"grants": MAPPINGS})
    async def matched(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Matches made for this machine's slots: {grants} -> {accepted: positions in grants}"""
        return {"accepted": self.claiming.matched(params["grants"])}

    # -- anybody -----------------------------------------------------------------------------------------

    @method(Right.READ, takes={"slots": TEXTS})
    async def why(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The verdict of the owner's policy on slots: {slots: names} -> {slots: {name: findings}, time}"""
        found = {str(name): self.table.slot_of(str(name)) for name in params["slots"]}
        views = {name: to_wire(self.judge.view(slot)) for name, slot in found.items() if slot is not None}
        return {"slots": views, "time": self.outside.wall()}

    # -- schedd ------------------------------------------------------------------------------------------

    @method(
        Right.SUBMIT,
        takes={"slot": str, "claim": str, "submitter": str, "lease": int | float, "ad": dict, "count": int | None},
    )
    async def claim(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Claim a slot: {slot, claim, submitter, owner, lease, ad, count} -> {claims: [{claim, slot, ad}], refused}"""
        await self.given.turns.moment(call.identity.name, "claim slots")
        return self.claiming.claim(call, params)

    @method(
        Right.SUBMIT,
        cancellable=True,
        takes={"slot": str, "claim": str, "submitter": str, "lease": int | float, "ad": dict},
    )
    async def preempt(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Claim a slot that is taken, with a grant that says so; the same answer, once the slot is free for it."""
        return await self.preempting.claim(call, params)

    @method(Right.SUBMIT, takes=ORDER)
    async def activate(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Start a job on a claim: {claim, base, start, shared, own}. Asked again for the same, it does nothing more."""
        await self.given.turns.moment(call.identity.name, "start jobs")
        slot, claim = self._claimed(call, params)
        running = claim.running
        if (
            running is not None
            and running.ended
            and self.activations.read_order(claim, params)[0].mark != running.start.mark
        ):
            # Its schedd has the end of that job, and this start came before it was tidied away here.
            await running.gone.wait()
            slot, claim = self._claimed(call, params)
        self.activations.begin(slot, claim, params)
        return {}

    @method(
        Right.SUBMIT,
        takes={
            "claim": str,
            "job": optional(JOB_ID),
            "run": int | None,
            "save": str | None,
            "signal": int | None,
            "outputs": bool | None,
        },
    )
    async def deactivate(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Stop the job of a claim, softly or at once: {claim, job, run, graceful, save, signal}

        Its end is told as ever. One that was handed on to the claim, and has not begun, is given back.

        With `outputs` its job has ended elsewhere, and what this part of it has written is wanted.
        """
        slot, claim = self._claimed(call, params)
        running, job, waiting = claim.running, params.get("job"), claim.handed_on
        if job is not None and waiting is not None and waiting.start.mark == (*job, params.get("run")):
            self.activations.return_unbegun(slot, claim, waiting)
            return {}
        present = running is not None and params.get("run") in (None, running.start.run)
        if running is not None and present and job in (None, list(running.start.job)):
            save = params.get("save")
            saves = SaveWish(save) if save in set(SaveWish) else SaveWish.WORTH
            signal = params.get("signal")
            asks = signal if signal is not None and 1 <= signal <= 64 else None
            running.job_is_over = params.get("outputs") is True
            await running.stop(bool(params.get("graceful", True)), ASKED, saves, asks)
        return {}

    @method(Right.SUBMIT, takes={"claim": str, "run": int})
    async def checkpoint(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Save the job of a claim now: {claim, run} -> {bytes, seconds, standstill}, when it is stored."""
        slot, claim = self._claimed(call, params)
        running = claim.running
        if running is None or running.start.run != int(params["run"]) or running.ended:
            raise SlotRefused(f"no such job runs on slot {slot.name}", retry=True)
        report = await running.saving.save_running()
        return {"bytes": report.bytes, "seconds": report.seconds, "standstill": report.standstill}

    @method(
        Right.SUBMIT,
        takes={"claim": str, "run": int, "set": str, "step": str, "why": str | None, "reason": str | None},
    )
    async def checkpoint_part(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A step of a checkpoint of a job on several machines: {claim, run, set, step: hold | leave | freeze | go, ...}

        With leave comes why the job has to: {why, reason}. See `pool.roles.startd.checkpoints.parallel_checkpoint`.
        Refused if the part cannot take the step any more: then there is no such checkpoint.
        """
        slot, claim = self._claimed(call, params)
        running = claim.running
        if running is None or running.start.run != params["run"] or running.ended:
            raise SlotRefused(f"no such job runs on slot {slot.name}", retry=True)
        kind, why = params.get("reason"), params.get("why") or "another part of it has to leave"
        reason = Reason(Evict(kind) if kind in set(Evict) else Evict.VACATED, why)
        await running.sets.step(params["step"], params["set"], reason)
        return {}

    @method(Right.SUBMIT, takes={"claims": TEXTS, "lent_for": int | float | None})
    async def release(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Give claims back: {claims, lent_for?}. A job that still runs there is killed first, without a report.

        A dedicated scheduler may say for how many seconds it will not need them: `claims.loans`.
        """
        for number in params["claims"]:
            slot = self.claims.get(str(number))
            if slot is None or slot.claim is None or slot.claim.node != call.identity.node:
                continue
            self.loans.lend(slot, params.get("lent_for"))
            await self.leases.abandon_claim(slot)
        return {}

    @method(Right.SUBMIT, takes={"claim": str, "why": str})
    async def take_back(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The world takes a machine back from a job of another pool: {claim, why}. The job is evicted softly."""
        slot, _ = self._claimed(call, params)
        await self.ends.evict(slot, True, Reason(Evict.VACATED, params["why"][:200]))
        return {}

    @method(Right.SUBMIT, takes={"slot": str})
    async def end_after_job(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The world needs a slot for a pool that is owed machine time: its claim ends with the present job: {slot}"""
        if "world" not in call.identity.roles:
            raise SlotRefused(f"{call.identity.name} has no world role", hint="a pool's world asks for this")
        slot = self.table.slot_of(params["slot"].partition("@")[0])
        if slot is not None and slot.claim is not None:
            slot.claim.retiring = True
        return {}

    @method(
        Right.SUBMIT,
        takes={
            "claim": str,
            "job": optional(JOB_ID),
            "run": int | None,
            "set": str | None,
            "handed_on": list | None,
        },
    )
    async def resume(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A schedd is back: {claim, job, run, set, handed_on} -> {state, ad, forgot, has_handed_on}

        The state is unknown, idle, running or ending. `set` is the checkpoint of a job on several machines that it
        makes, empty for none. `handed_on` is the job that it handed on: cluster, process, run. Where that is not here,
        it is not begun any more if it comes after all.
        """
        slot = self.claims.get(str(params.get("claim")))
        if slot is None or slot.claim is None or slot.claim.node != call.identity.node:
            return {"state": "unknown"}
        claim = slot.claim
        if claim.over:
            assert claim.running is not None
            await claim.running.gone.wait()
            return {"state": "unknown"}
        claim.link = call.connection
        self.leases.watch(call.connection)
        claim.reconnected.set()
        claim.reconnected = asyncio.Event()
        running = claim.running
        self.spawn(self.leases.renew(call.connection, [slot]), "renew", alone=True)
        ad = self.claiming.claimed_ad(slot)
        handed = tuple(params.get("handed_on") or ())
        has_it = bool(handed) and self.activations.has_start(claim, handed)
        claim.lapsed = None if has_it else handed
        if running is None:
            claim.last = None
            return {"state": "idle", "ad": ad}
        wanted = params.get("job")
        same = wanted is not None and (*wanted, params.get("run")) == running.start.mark
        state = "ending" if running.ended or not same else "running"
        running.report_condition()
        if state == "running" and params.get("set") is not None:
            running.sets.reconnected(params["set"])
        return {"state": state, "ad": ad, "forgot": running.forgot, "has_handed_on": has_it}

    @method(Right.SUBMIT, takes=ORDER)
    async def restore_order(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Give a restarted startd the order of a job that it runs and no longer knows, as for `activate`."""
        slot, claim = self._claimed(call, params)
        running = claim.running
        start, ad = self.activations.read_order(claim, params)
        if running is not None and running.forgot:
            claim.ad_wire, claim.last = ad, start
            # Of another job than the one here the schedd knows the end already: nothing of it is sent.
            running.remember(start if running.start.mark == start.mark else None)
            self.ads.touch(slot)
        return {}

    @streaming(Right.EXECUTE, takes={"job": str, "ticket": str})
    async def chunks(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Chunks of a checkpoint that was made here, for the machine on which its job goes on: {job, ticket}"""
        await self.peers.send_chunks(params, stream)

    @streaming(Right.EXECUTE, takes={"gang": str, "run": int, "stream": int})
    async def join(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Receive the bytes that another part of a job writes: {gang, run, stream}; see `pool.pipes.remote_pipes`."""
        await self.streams.serve(params, stream)

    @method(Right.EXECUTE, takes={"gang": str, "run": int, "stream": int, "ticket": str, "key": bytes})
    async def open_bulk(self, call: Call, params: dict[str, Any]) -> None:
        """The connection that says this carries a stream's bytes from now on: {gang, run, stream, ticket, key}"""
        await self.streams.open_bulk(params, call.connection)

    @method(Right.EXECUTE, cancellable=True, takes={"gang": str, "run": int, "stream": int, "ticket": str})
    async def wait_bulk(self, call: Call, params: dict[str, Any]) -> None:
        """Wait until that is so: {gang, run, stream, ticket}; see `pool.pipes.bulk`."""
        await self.streams.wait_bulk(params)

    @method(Right.EXECUTE, takes={"gang": str, "run": int, "ticket": str, "key": bytes})
    async def join_network(self, call: Call, params: dict[str, Any]) -> None:
        """The connection that says this carries packets of a job's network from now on: {gang, run, ticket, key}"""
        await self.network_links.join(call, params)

    @method(Right.EXECUTE, cancellable=True, takes={"gang": str, "run": int, "ticket": str})
    async def network_joined(self, call: Call, params: dict[str, Any]) -> None:
        """Wait until that is so: {gang, run, ticket}; see `pool.roles.startd.running.networks`."""
        await self.network_links.joined(params)

    @streaming(Right.SUBMIT, takes={"claim": str, "run": int, "part": int, "key": bytes})
    async def link_from_part(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A link of a job's network from a machine in another pool: {claim, run, part, key}; `NetworkLinks.accept`"""
        await self.network_links.accept(params, stream, self._start_on(call, params))

    @streaming(Right.SUBMIT, takes={"claim": str, "gang": str, "run": int, "stream": int})
    async def pipe_from_part(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The same as `join`, for a part in another pool, by way of the schedd: {claim, gang, run, stream}"""
        await self.streams.serve(params, stream)

    @method(Right.SUBMIT, takes={"claim": str, "run": int, "part": int, "key": bytes})
    async def direct_from_part(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A part in another pool wants a direct connection: {claim, run, part, key} -> {address, ticket, key}"""
        return await self.direct_parts.offer(params, self._claimed(call, params)[1])

    @method(None, takes={"ticket": str, "proof": bytes})
    async def direct(self, call: Call, params: dict[str, Any]) -> None:
        """The connection that says this is one that was offered: {ticket, proof}; see `pool.network.direct_link`."""
        await self.direct_parts.offers.serve(call, params)

    @method(Right.SUBMIT, takes={"claim": str})
    async def end_direct(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Machines of another pool may not connect to the job's any more: {claim}"""
        claim = self._claimed(call, params)[1]
        self.direct_shadows.end(claim)
        if claim.running is not None:
            self.direct_parts.end(claim.running)
        return {}

    @method(Right.SUBMIT, takes={"claim": str, "run": int, "ticket": str, "other": str, "asks": bool})
    async def lend_link(self, call: Call, params: dict[str, Any]) -> None:
        """This connection is to be a link to another machine: {claim, run, ticket, other, asks}; `NetworkLinks.lend`"""
        await self.network_links.lend(call, params, self._start_on(call, params))

    @method(Right.SUBMIT, cancellable=True, takes={"claim": str, "run": int, "ticket": str})
    async def link_lent(self, call: Call, params: dict[str, Any]) -> None:
        """Wait until that is so: {claim, run, ticket}"""
        await self.network_links.lent(call, params, self._start_on(call, params))

    def _start_on(self, call: Call, params: dict[str, Any]) -> Activation | None:
        """The job that runs on a claim of the caller's; None for another's. The claim's own connection stays."""
        slot = self.claims.get(params["claim"])
        claim = slot.claim if slot is not None else None
        if claim is None or claim.over or claim.node != call.identity.node or claim.running is None:
            return None
        return claim.running.start

    @method(Right.EXECUTE, takes={"gang": str, "run": int, "key": bytes})
    async def join_carried(self, call: Call, params: dict[str, Any]) -> None:
        """The same as `join_network`, over a connection that a third node carries: {gang, run, key}"""
        await self.network_links.join_carried(call, params)

    @streaming(Right.EXECUTE, takes={"job": str, "ticket": str})
    async def chunks_ahead(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Chunks of the last checkpoint of a job that leaves, as they are made: {job, ticket}"""
        await self.peers.send_ahead(params, stream)

    @method(Right.SUBMIT, takes={"job": str, "ticket": str})
    async def withdraw_image(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A job of the caller has ended for good: drop its checkpoint that is offered to its next machine."""
        self.peers.withdraw((call.identity.node, params["job"]), params["ticket"])
        return {}

    @method(Right.SUBMIT, takes={"claim": str, "job": str, "nearer": dict})
    async def prepare(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A job that leaves another machine comes next: {claim, job, nearer: {address, ticket}}"""
        slot, claim = self._claimed(call, params)
        if claim.running is not None:
            raise SlotRefused(f"slot {slot.name} is busy", retry=True)
        forget_prepared(claim, self.spawn)
        address, ticket = (str(params["nearer"].get(name)) for name in ("address", "ticket"))
        images = functools.partial(self.images, claim.node)
        claim.prepared = PrefetchedImage(params["job"], images, self.given.links, address, ticket, self.log)
        self.spawn(claim.prepared.run(), "prepare", alone=True)
        return {}

    @streaming(Right.SUBMIT, takes={"claim": str, "offset": int | None, "lines": int | None})
    async def tail(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The output of a running job so far: {claim, file, offset | lines} -> bytes

        With `lines` it begins so many before the end, and says first at which offset that is.
        """
        _, claim = self._claimed(call, params)
        running = claim.running
        if running is not None:
            which, offset = str(params.get("file")), int(params.get("offset") or 0)
            if params.get("lines") is not None:
                offset = await running.last(which, int(params["lines"]))
                await stream.send(offset)
            async for chunk in running.output(which, offset):
                await stream.send(chunk)
        await stream.finish()

    @streaming(Right.SUBMIT, takes={"claim": str, "run": int, "port": int})
    async def forward(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A connection to a port of a running job in its own network: {claim, run, port}; `pool.network.forwarding`."""
        slot, claim = self._claimed(call, params)
        await forward_to(slot, claim, params, stream)

    @streaming(Right.SUBMIT, takes={"claim": str, "run": int, "shell": WISH})
    async def shell(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A shell in a running job: {claim, run, shell}; `pool.starter.shells`."""
        slot, claim = self._claimed(call, params)
        await shell_in(slot, claim, params, stream)

    @method(Right.SUBMIT, cancellable=True, takes={"claim": str, "run": int, "seconds": float | int | None})
    async def inspect(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Report on a running job's processes: {claim, run, seconds} -> {part}; see `pool.policy.inspection`."""
        slot, claim = self._claimed(call, params)
        running = claim.running
        if running is None or running.start.run != params["run"]:
            raise SlotRefused(f"no such job runs on slot {slot.name}", retry=True)
        part = await running.inspect(bounded(params.get("seconds")))
        return {"part": part.to_wire()}

    # -- the owner ---------------------------------------------------------------------------------------

    @method(Right.READ, takes={"slot": str | None})
    async def vacate(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Give the machine back: {slot?, graceful} -> {slots}. For an administrator, and for this machine's user."""
        if Right.MAINTAIN not in call.identity.rights:
            raise SlotRefused(f"{call.identity.name} may not vacate this machine", hint="ask its administrator")
        wish = str(params.get("slot") or "").split("@")[0]
        done: list[str] = []
        for slot in list(self.slots.values()):
            if slot.claim is None or (wish and wish not in (slot.name, slot.parent.name if slot.parent else "")):
                continue
            await self.ends.evict(slot, bool(params.get("graceful", True)), TAKEN_BACK)
            done.append(slot.name)
        if wish and not done and self.table.slot_of(wish) is None:
            raise SlotRefused(f"this machine has no slot {wish}", hint="`poolnode status` lists slots")
        return {"slots": done}

    @method(Right.MAINTAIN, takes={"how": str | None, "reason": str | None})
    async def drain(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Take the machine out of use: {how: finish, vacate or fast; reason} -> {running: slots not empty yet}"""
        return {"running": await self.draining.begin(params.get("how") or "finish", params.get("reason") or "")}

    @method(Right.MAINTAIN)
    async def undrain(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Take the machine into use again."""
        self.draining.end()
        return {}

    async def evict(self, slot: Slot, graceful: bool, reason: Reason = TAKEN_BACK) -> None:
        """End the claim on a slot: its job is stopped (softly or at once) and reported as evicted."""
        await self.ends.evict(slot, graceful, reason)

    # -- claims ------------------------------------------------------------------------------------------

    def _claimed(self, call: Call, params: dict[str, Any]) -> tuple[Slot, SlotClaim]:
        slot = self.claims.get(str(params.get("claim")))
        if slot is None or slot.claim is None or slot.claim.over:
            raise NoSuchClaim
        if slot.claim.node != call.identity.node:
            self.log.warning("a claim used by a stranger", extra={"slot": slot.name, "from": call.identity.node})
            raise NoSuchClaim
        slot.claim.link = call.connection
        self.leases.watch(call.connection)
        return slot, slot.claim

    # -- slots -------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        wall = self.outside.wall()
        layout = carve.layout(self.settings.text("SLOTS"), self.machine.wire)
        gpus = carve.devices(self.machine.wire, (resources.get("GPUs", 0) for _, _, resources in layout))
        for (name, kind, resources), own in zip(layout, gpus, strict=True):
            key = self.outside.secret(16)
            self.table.add(Slot(name, kind, resources, key, wall, since_activity=wall, gpus=own))

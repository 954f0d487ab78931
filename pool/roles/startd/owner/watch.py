"""Watching for the owner: every few seconds the policy is evaluated against fresh facts, and acted upon (A4).

The decisions are `pool.policy.owner`'s; this reads the sensors, keeps slots' states by the table of
`pool.policy.slots`, and passes on what has to happen to the jobs.
"""

from __future__ import annotations

import asyncio
import math
import re
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pool.classad import ClassAd, ParseError, parse_expr
from pool.classad.expr import literal
from pool.config import Settings
from pool.config.kinds import span
from pool.jobs.reasons import Evict, Reason
from pool.machine.clock import clock_facts
from pool.policy.managed import said, schedulers_of
from pool.policy.owner import (
    NAMES,
    OwnerPolicy,
    OwnerVerdict,
    judge,
    preference,
    settled,
    wants_checkpoint,
    weight,
    wire,
)
from pool.policy.shipped import DEDICATED, TIMES, PolicyError
from pool.policy.slots import TABLE, SlotAction, SlotEvent
from pool.policy.why.findings import Finding
from pool.policy.why.machine import owners_view
from pool.roles.base import LANGUAGE
from pool.roles.startd.slots.records import Slot, Wire
from pool.starter import image_tools, urls

if TYPE_CHECKING:
    from pool.roles.startd.role import Startd

#: The version of the job description language's home that default requirements ask machines for.
#: Seconds by which wall clock and monotonic clock may part before that counts as a clock that was set.
CLOCK_SLACK = 1.0
OWNER_IS_BACK = Reason(Evict.OWNER_RETURNED, "the machine's owner is back")
#: Seconds after which it is looked again whether there is a Java.
JAVA_LOOKED_FOR = 300.0
#: Slots that are looked at before others get their turn on the loop.
MANY = 100
#: Different faults of the policy that are logged at most: a job's attributes may make many.
MOST_TOLD = 1000
#: Facts that change all the time: a change of these alone is advertised with the next regular update.
RESTLESS = frozenset(
    {
        "LoadAvg",
        "TotalLoadAvg",
        "TotalCondorLoadAvg",
        "CondorLoadAvg",
        "ClockDay",
        "ClockMin",
        "KeyboardIdle",
        "ConsoleIdle",
        "Disk",
        "AvailableMemory",
    }
)


_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def own_attributes(settings: Settings) -> Wire:
    """What the administrator has a machine's ads say beside what it is (STARTD_ATTRS).

    Raises:
        PolicyError: a name is none, or what it stands for is no expression.
    """
    found: Wire = {}
    for name in settings.text("STARTD_ATTRS").replace(",", " ").split():
        text = settings.text(name)
        if not _ATTRIBUTE.fullmatch(name) or not text:
            raise PolicyError(f"STARTD_ATTRS names {name}, and there is no such macro", hint=f"write {name} = ...")
        try:
            value = literal_of(text)
        except ParseError as error:
            raise PolicyError(f"{name}, which STARTD_ATTRS names, is no expression: {error}") from error
        found[name] = value
    return found


def literal_of(text: str) -> Any:
    """An expression's text in wire form: a plain value where it is one."""
    expression = parse_expr(text, syntax="old")
    value = expression.value
    return value if type(value) in (bool, int, float, str) else [expression.text]


class OwnerWatch:
    """The owner's side of one startd."""

    def __init__(self, startd: Startd) -> None:
        self._startd = startd
        self._told: set[str] = set()
        self._facts: Wire = {}
        self._ahead = startd.outside.wall() - asyncio.get_running_loop().time()
        startd.sensors.watch(self._roots)
        #: What a look would find may have changed since the last one, by more than time.
        self._news = asyncio.Event()
        self._sensors_tell = startd.sensors.tell(self._news.set)
        self._looked = -math.inf
        self._same: tuple[Any, Wire] | None = None
        self._java: tuple[float, str | None] = (-math.inf, None)
        #: The transfer program of each scheme of URLs that is not the machine's own.
        self.plugins = urls.methods_of(startd.settings.text("TRANSFER_PLUGINS").replace(",", " ").split())
        self.reload()

    def reload(self) -> None:
        """Take the policy from the settings.

        Raises:
            PolicyError: it cannot be read; the policy before stays in force.
        """
        settings = self._startd.settings
        self.policy = OwnerPolicy.of(
            settings.text("POLICY"),
            {name: settings.text(name) for name in NAMES if name != "MAX_JOB_RETIREMENT"}
            | _urgent_users(settings)
            | {"MAX_JOB_RETIREMENT": span(settings.text("MAX_JOB_RETIREMENT"))},
            {name: settings.number(name) for name in TIMES},
            schedulers := schedulers_of(settings.text("DEDICATED_SCHEDULER")),
        )
        self._own = own_attributes(settings)
        self._weighs_cpus = self.policy.texts["SLOT_WEIGHT"] == DEDICATED["SLOT_WEIGHT"]
        self.policy_wire: Wire = {
            **wire(self.policy),
            **said(schedulers),
            "SlotWeight": self._said("SLOT_WEIGHT"),
            "MaxJobRetirementTime": self._said("MAX_JOB_RETIREMENT"),
        }
        self._same = None
        self._news.set()
        for slot in self._startd.slots.values():
            slot.troubles.clear()

    def _said(self, name: str) -> Any:
        """An expression as an ad has it: a number plainly."""
        value = self.policy.expressions[name].value
        return value if isinstance(value, (int, float)) else [self.policy.texts[name]]

    def facts(self) -> Wire:
        """What the machine is and how busy it is now."""
        startd = self._startd
        wall = startd.outside.wall()
        self._looked = now = asyncio.get_running_loop().time()
        facts = self._own | startd.sensors.read(wall) | clock_facts(wall) | self._abilities()
        if now >= self._java[0] + JAVA_LOOKED_FOR:
            self._java = (now, shutil.which("java"))
        if (java := self._java[1]) is not None:
            facts |= {"HasJava": True, "JavaPath": java}
        return facts

    def _abilities(self) -> Wire:
        """What settings and keepers can do, which stays the same for long."""
        able, settings = self._startd.keepers.abilities, self._startd.settings
        if self._same is not None and self._same[0] is able:
            return self._same[1]
        facts: Wire = {
            "FileSystemDomain": settings.text("FILESYSTEM_DOMAIN"),
            "UidDomain": settings.text("UID_DOMAIN"),
            "HasFileTransfer": True,
            "HasSelfCheckpointTransfers": True,
            "HasJobDeferral": True,
            "HasFileTransferPluginMethods": ",".join(dict.fromkeys((*urls.OWN, *urls.SIGNED, *self.plugins))),
            "HasPerFileEncryption": True,  # all that goes between nodes is encrypted
            "HasCheckpoint": able.checkpoint,
            "CondorVersion": LANGUAGE,
        }
        if able.full:
            facts |= {"HasContainer": True, "HasSandboxImage": True, **image_tools.abilities()}
        if able.saving:
            facts["CheckpointLacks"] = "; ".join(able.saving)
        facts |= self.remote_io()
        self._same = (able, facts)
        return facts

    def freshen(self, age: float | None = None) -> None:
        """Read the machine's facts, where they were read so many seconds ago; else where that is longer ago than looks
        are apart."""
        if age is None:
            age = self._startd.settings.number("EVALUATE_INTERVAL")
        if asyncio.get_running_loop().time() >= self._looked + age:
            self._startd.machine = self.facts()

    def slot_changed(self) -> None:
        """A slot's condition, claim or job is another: the next look may find something."""
        self._news.set()

    def remote_io(self) -> Wire:
        """Whether and how jobs here can be shown the submit machine's files."""
        able = self._startd.keepers.abilities
        why = {"RemoteIOWhy": able.remote_why} if able.remote_why else {}
        return ({"HasRemoteIO": True, "RemoteIOHow": able.remote} if able.remote else {}) | why

    async def run(self) -> None:
        """Evaluate until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._startd.settings.number("EVALUATE_INTERVAL")
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            apart = self._startd.settings.number("EVALUATE_INTERVAL")
            if self._nothing_changes():
                await self._news.wait()
                due += math.ceil(max(loop.time() - due, 0.0) / apart) * apart
                await asyncio.sleep(max(0.0, due - loop.time()))
            due = loop.time() + apart
            await self.look()

    def _nothing_changes(self) -> bool:
        """Whether looks find what the last one found, until somebody tells of a change."""
        if not self._sensors_tell or self._news.is_set() or not self._weighs_cpus:
            return False
        return all(settled(self.policy, slot.condition) for slot in self._startd.slots.values())

    async def look(self) -> None:
        """One evaluation, with what follows from it for the jobs."""
        startd = self._startd
        self._news.clear()
        self._mind_the_clock()
        startd.machine = self.facts()
        loads = startd.sensors.loads()
        for count, slot in enumerate(list(startd.slots.values()), 1):
            if not count % MANY:
                await asyncio.sleep(0)
            if startd.slots.get(slot.name) is not slot:
                continue
            slot.condor_load = _load_of(slot, loads)
            verdict = self.verdict(slot)
            if verdict.event is not None:
                await self.act(slot, verdict)
        steady = {name: value for name, value in startd.machine.items() if name not in RESTLESS}
        if steady != self._facts:
            self._facts = steady
            startd.ads.tell_all()

    def evaluate(self) -> None:
        """Settle the slots that no job is in, at once."""
        for slot in list(self._startd.slots.values()):
            self.settle(slot)

    def settle(self, slot: Slot) -> None:
        """Owner or unclaimed, as START has it, for a slot without a claim; drained where the machine is out of use."""
        if slot.claim is not None or slot.guest is not None:
            return
        if self._startd.draining.on:
            if (slot.condition, SlotEvent.DRAIN) in TABLE:
                self._free(slot, self.happen(slot, SlotEvent.DRAIN))
            return
        event = self.verdict(slot).event
        if event is not None:
            self._free(slot, self.happen(slot, event))

    def happen(self, slot: Slot, event: SlotEvent) -> SlotAction:
        """Move a slot by the table."""
        self._news.set()
        return slot.happen(event, self._startd.outside.wall())

    def job_ended(self, slot: Slot) -> None:
        """No process of the job in this slot is left."""
        if slot.occupied:
            self.happen(slot, SlotEvent.JOB_ENDS)

    def _mind_the_clock(self) -> None:
        """Where the wall clock was set, slots have been in their conditions for as long as before."""
        ahead = self._startd.outside.wall() - asyncio.get_running_loop().time()
        jumped = ahead - self._ahead
        if abs(jumped) > CLOCK_SLACK:
            self._ahead = ahead
            self._startd.log.warning("the clock was set", extra={"seconds": round(jumped)})
            for slot in self._startd.slots.values():
                slot.since += jumped
                slot.since_activity += jumped
                if slot.claim is not None and slot.claim.running is not None:
                    slot.claim.running.clock_was_set(jumped)

    def _roots(self) -> list[int]:
        """Process numbers of the keepers whose jobs run here."""
        runs = (slot.claim.running for slot in self._startd.slots.values() if slot.claim is not None)
        return [run.pid for run in runs if run is not None and run.pid is not None]

    def verdict(self, slot: Slot) -> OwnerVerdict:
        """What the policy asks of a slot now."""
        startd, claim = self._startd, slot.claim
        if claim is not None and claim.running is not None and claim.running.ended:
            return OwnerVerdict(None)  # nothing of the job is left but its report
        if claim is None and slot.guest is not None:
            return OwnerVerdict(None)  # an urgent job has it
        if self._weighs_cpus and settled(self.policy, slot.condition):
            return OwnerVerdict(None)
        ad = startd.ads.ad_of(slot)
        job = claim.ad if claim is not None else None
        verdict = judge(self.policy, ad, job, slot.condition, startd.outside.wall())
        self.note(slot, verdict)
        if not self._weighs_cpus:
            self.note(slot, weight(self.policy, ad, startd.outside.wall())[1])
        return verdict

    def preference(self, slot: Slot, ad: Wire, job: ClassAd) -> float:
        """How much the machine likes a job."""
        expression = self.policy.expressions["RANK"].value
        if isinstance(expression, (bool, int, float)):
            return float(expression)
        value, verdict = preference(self.policy, ClassAd.from_wire(ad), job, self._startd.outside.wall())
        self.note(slot, verdict)
        return value

    def wants_checkpoint(self, slot: Slot) -> bool:
        """Whether the job in a slot may have a last checkpoint made before it leaves."""
        if self.policy.expressions["WANT_CHECKPOINT"].value is True or slot.claim is None:
            return True
        ad = self._startd.ads.ad_of(slot)
        found, verdict = wants_checkpoint(self.policy, ad, slot.claim.ad, self._startd.outside.wall())
        self.note(slot, verdict)
        return found

    def note(self, slot: Slot, verdict: OwnerVerdict) -> None:
        """Keep the faults of what was asked: they are logged once, and shown in the slot's ad until they are gone."""
        found = {fault.name: fault for fault in verdict.faults}
        changed = False
        for name in verdict.asked:
            if slot.troubles.get(name) != found.get(name):
                changed = True
                slot.troubles.pop(name, None)
        slot.troubles.update(found)
        for fault in verdict.faults:
            if fault.text not in self._told and len(self._told) < MOST_TOLD:
                self._told.add(fault.text)
                self._startd.log.warning("an expression of the owner's policy has no value", extra={"what": fault.text})
        if changed:
            self._startd.ads.touch(slot)

    def view(self, slot: Slot) -> list[Finding]:
        """What the policy makes of a slot with this moment's facts, for whoever asks why (D8)."""
        startd = self._startd
        ad = ClassAd.from_wire({**startd.ads.wire_of(slot), **self.facts(), **slot.resources})
        job = slot.claim.ad if slot.claim is not None else None
        return owners_view(self.policy, ad, job, slot.condition, startd.outside.wall())

    async def act(self, slot: Slot, verdict: OwnerVerdict) -> None:
        """Move a slot as was judged, and do what follows to its job."""
        assert verdict.event is not None
        startd, claim = self._startd, slot.claim
        action = self.happen(slot, verdict.event)
        if claim is None:
            self._free(slot, action)
            return
        if action is SlotAction.END_CLAIM:
            startd.revoke(slot, OWNER_IS_BACK)
            return
        startd.ads.touch(slot, now=True)
        running: Any = claim.running
        reason = OWNER_IS_BACK
        if slot.waiting is not None and verdict.because != "SUSPEND":
            reason = slot.waiting.reason
        startd.log.info(
            "a slot's policy",
            extra={
                "slot": slot.name,
                "does": verdict.event.value,
                "because": verdict.because,
                "job": running.name if running is not None else None,
            },
        )
        if verdict.event in (SlotEvent.RETIRE, SlotEvent.VACATE, SlotEvent.KILL):
            claim.retiring = True
        if running is None:
            return
        if action is SlotAction.SUSPEND_JOB:
            await running.suspend(reason.text)
        elif action is SlotAction.RESUME_JOB:
            await running.resume()
        elif action in (SlotAction.ASK_JOB, SlotAction.KILL_JOB):
            await running.stop(action is SlotAction.ASK_JOB, reason)

    def _free(self, slot: Slot, action: SlotAction) -> None:
        """What follows from a move of a slot without a claim."""
        if action in (SlotAction.WITHDRAW, SlotAction.OFFER):
            slot.grants.clear()
            slot.key = self._startd.outside.secret(16)
        self._startd.ads.touch(slot, now=True)


def _urgent_users(settings: Settings) -> dict[str, str]:
    """START_URGENT by a list of users, where it is not said otherwise."""
    users = settings.text("VALID_COD_USERS")
    if not users or settings.text("START_URGENT") not in ("", DEDICATED["START_URGENT"]):
        return {}
    return {"START_URGENT": f"stringListIMember(TARGET.Owner, {literal(users).text})"}


def _load_of(slot: Slot, loads: Mapping[int, float]) -> float:
    """What the job in a slot adds to the machine's load (A5)."""
    running = slot.claim.running if slot.claim is not None else None
    return loads.get(running.pid, 0.0) if running is not None and running.pid is not None else 0.0

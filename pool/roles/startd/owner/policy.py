"""The owner's policy as the settings have it, and the faults of its expressions: logged once, shown until gone.

The expressions are evaluated by `pool.policy.owner`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pool.classad import ClassAd
from pool.classad.expr import literal
from pool.config import Settings
from pool.config.kinds import span
from pool.policy.managed import manager_attributes, schedulers_of
from pool.policy.owner import NAMES, OwnerPolicy, OwnerVerdict, preference, wire
from pool.policy.shipped import DEDICATED, TIMES
from pool.roles.startd.slots.records import Slot, Wire

#: Different faults of the policy that are logged at most: a job's attributes may make many.
MOST_REPORTED = 1000


class PolicyInForce:
    """The policy of one machine.

    Attributes:
        policy: its expressions. wire: what every slot's ad says of them.
        weighs_cpus: SLOT_WEIGHT is the shipped one, which needs no evaluation here.
    """

    def __init__(self, settings: Settings, wall: Callable[[], float], log: logging.Logger) -> None:
        self._wall = wall
        self._log = log
        self._reported: set[str] = set()
        self.reload(settings)

    def reload(self, settings: Settings) -> None:
        """Take the policy from the settings.

        Raises:
            PolicyError: it cannot be read; the policy before stays in force.
        """
        self.policy = OwnerPolicy.from_shipped(
            settings.text("POLICY"),
            {name: settings.text(name) for name in NAMES if name != "MAX_JOB_RETIREMENT"}
            | _urgent_users(settings)
            | {"MAX_JOB_RETIREMENT": span(settings.text("MAX_JOB_RETIREMENT"))},
            {name: settings.number(name) for name in TIMES},
            schedulers := schedulers_of(settings.text("DEDICATED_SCHEDULER")),
        )
        self.weighs_cpus = self.policy.texts["SLOT_WEIGHT"] == DEDICATED["SLOT_WEIGHT"]
        self.wire: Wire = {
            **wire(self.policy),
            **manager_attributes(schedulers),
            "SlotWeight": self._as_text("SLOT_WEIGHT"),
            "MaxJobRetirementTime": self._as_text("MAX_JOB_RETIREMENT"),
        }

    def _as_text(self, name: str) -> Any:
        """An expression as an ad has it: a number plainly."""
        value = self.policy.expressions[name].value
        return value if isinstance(value, (int, float)) else [self.policy.texts[name]]

    def preference(self, slot: Slot, ad: Wire, job: ClassAd) -> tuple[float, bool]:
        """How much the machine likes a job, and whether the slot's faults are others than before."""
        expression = self.policy.expressions["RANK"].value
        if isinstance(expression, (bool, int, float)):
            return float(expression), False
        value, verdict = preference(self.policy, ClassAd.from_wire(ad), job, self._wall())
        return value, self.note_faults(slot, verdict)

    def note_faults(self, slot: Slot, verdict: OwnerVerdict) -> bool:
        """Keep the faults of what was evaluated for a slot; returns whether they are others than before."""
        found = {fault.name: fault for fault in verdict.faults}
        changed = False
        for name in verdict.asked:
            if slot.troubles.get(name) != found.get(name):
                changed = True
                slot.troubles.pop(name, None)
        slot.troubles.update(found)
        for fault in verdict.faults:
            if fault.text not in self._reported and len(self._reported) < MOST_REPORTED:
                self._reported.add(fault.text)
                self._log.warning("an expression of the owner's policy has no value", extra={"what": fault.text})
        return changed


def _urgent_users(settings: Settings) -> dict[str, str]:
    """START_URGENT by a list of users, where it is not said otherwise."""
    users = settings.text("VALID_COD_USERS")
    if not users or settings.text("START_URGENT") not in ("", DEDICATED["START_URGENT"]):
        return {}
    return {"START_URGENT": f"stringListIMember(TARGET.Owner, {literal(users).text})"}

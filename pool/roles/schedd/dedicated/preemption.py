"""The administrator's rules by which waiting dedicated jobs take machines from running ones.

HTCondor's `SCHEDD_PREEMPTION_REQUIREMENTS` and `SCHEDD_PREEMPTION_RANK`: a machine is a candidate where the first is
true, and the machines where the second is highest are taken first. MY is the machine, with facts about the job that
runs there; TARGET is the waiting job. Without both of them no dedicated job is preempted this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pool.classad import ClassAd, Expr, evaluate, parse_expr
from pool.config import Settings
from pool.policy.queue import QueuedJob
from pool.roles.schedd.core.claims import HeldClaim

REQUIREMENTS, RANK = "SCHEDD_PREEMPTION_REQUIREMENTS", "SCHEDD_PREEMPTION_RANK"
#: Facts about a running job, in the ad of its machine: of the job's own ad, and by which name here.
FACTS = {
    "JobPrio": "RemoteJobPrio",
    "QDate": "RemoteJobQDate",
    "JobCurrentStartDate": "RemoteJobStart",
    "CommittedTime": "RemoteCommittedTime",
    "NumJobStarts": "RemoteNumJobStarts",
}


@dataclass(frozen=True, slots=True)
class PreemptionRules:
    """Both expressions."""

    requirements: Expr
    rank: Expr

    @classmethod
    def read(cls, settings: Settings) -> PreemptionRules | None:
        """The rules of the configuration; None where there are none."""
        texts = [settings.text(name).strip() for name in (REQUIREMENTS, RANK)]
        if not all(texts) or texts[0].lower() == "false":
            return None
        return cls(*(parse_expr(text, syntax="old") for text in texts))

    def candidates(
        self, job: ClassAd, claims: Iterable[HeldClaim], now: float, index: Callable[[str], ClassAd | None]
    ) -> Mapping[str, float]:
        """The machines that a waiting job may take, with their ranks.

        Args:
            job: its ad.
            claims: those of running dedicated jobs.
            now: wall time.
            index: the newest ad of a machine, by its slot; None where only the claim's is known.
        """
        found: dict[str, float] = {}
        for claim in claims:
            if claim.job is None:
                continue
            machine = ClassAd.from_wire(_facts(claim.job), parent=index(claim.slot) or claim.ad)
            if evaluate(self.requirements, machine, job, now) is not True:
                continue
            rank = evaluate(self.rank, machine, job, now)
            known = isinstance(rank, (int, float))
            found[claim.slot] = float(rank) if known else 0.0
        return found


def trouble(settings: Settings) -> str:
    """Why one of the two expressions does nothing, in words; empty where that is not so."""
    said = [name for name in (REQUIREMENTS, RANK) if settings.text(name).strip()]
    if len(said) != 1:
        return ""
    other = RANK if said[0] == REQUIREMENTS else REQUIREMENTS
    return f"{said[0]} does nothing without {other}: no dedicated job is preempted; set both"


def _facts(job: QueuedJob) -> dict[str, object]:
    facts: dict[str, object] = {"RemoteOwner": job.cluster.owner}
    for name, shown in FACTS.items():
        value = job.get(name)
        if isinstance(value, (int, float)):
            facts[shown] = value
    return facts

"""The administrator's settings about claims, as they are now; a reload changes them in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pool.config import Settings
from pool.jobs.network import HOST
from pool.policy.checkpoints import CheckpointInterval
from pool.policy.moving import MovingTerms
from pool.roles.schedd.core.claims import lease_for

#: The longest a claim stays idle in the hope of another job of its owner, seconds.
LINGER = 1.0
#: A negotiator that has not asked for so many of its longest intervals is not there.
CYCLES_MISSED = 2.0


@dataclass(slots=True)
class ClaimSettings:
    """Times in seconds.

    Attributes:
        life: after it a claim is given back at the next end of a job (CLAIM_LIFE).
        lease: a claim lives so long without being renewed, if its job does not say (CLAIM_LEASE).
        longest_lease: the longest that a job may ask for (CLAIM_LEASE_MAX).
        hand_on_below: while a claim's jobs are shorter, the next is handed on before they end (HAND_ON_BELOW).
        linger: an idle claim is kept so long for the owner's next job.
        patience: so long the schedd waits for a slot that another job has to leave (CLAIM_PATIENCE).
        gather_patience: so long a job that needs several claims keeps those it has (GANG_PATIENCE).
        unheard: a negotiator that asks nothing for so long counts as gone.
        rematch: when running jobs move to better machines; None: they do not.
        rhythm: when parallel jobs are saved.
        gang_network: the network of parallel jobs that ask for none (GANG_NETWORK).
    """

    life: float
    lease: float
    longest_lease: float
    patience: float
    gather_patience: float
    unheard: float
    hand_on_below: float = 0.0
    rematch: MovingTerms | None = None
    rhythm: CheckpointInterval = field(default_factory=CheckpointInterval)
    linger: float = LINGER
    gang_network: str = HOST

    @classmethod
    def from_settings(cls, settings: Settings) -> ClaimSettings:
        """The settings as the configuration has them."""
        return cls(**_values(settings))

    def reload(self, settings: Settings) -> None:
        """Take in settings that were read again."""
        for name, value in _values(settings).items():
            setattr(self, name, value)

    def lease_of(self, asked: Any) -> float:
        """The lease of a claim for a job with this JobLeaseDuration, seconds."""
        return lease_for(asked, self.lease, self.longest_lease)


def _values(settings: Settings) -> dict[str, Any]:
    number = settings.number
    terms = None
    if settings.flag("REMATCH"):
        terms = MovingTerms(number("REMATCH_GAIN"), number("REMATCH_PAUSE"), int(number("REMATCH_MOVES")))
    return {
        "life": number("CLAIM_LIFE"),
        "lease": number("CLAIM_LEASE"),
        "longest_lease": number("CLAIM_LEASE_MAX"),
        "patience": number("CLAIM_PATIENCE"),
        "gather_patience": number("GANG_PATIENCE"),
        "unheard": CYCLES_MISSED * number("NEGOTIATION_INTERVAL"),
        "hand_on_below": number("HAND_ON_BELOW"),
        "rematch": terms,
        "gang_network": settings.text("GANG_NETWORK"),
        "rhythm": CheckpointInterval(number("CHECKPOINT_FIRST"), number("CHECKPOINT_MOST")),
    }

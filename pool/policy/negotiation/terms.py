"""The administrator's terms of a cycle: preemption, ranks, limits, and who stands how (RL 4.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pool.policy.matching.looking import references_of_all


@dataclass(frozen=True, slots=True)
class NegotiationTerms:
    """Expressions may be an `Expr` or a plain value. MY is the slot's ad, TARGET the job's. An undefined value, an
    error or a wrong type counts as 0 for a rank, and does not preempt as a requirement.

    Attributes:
        preemption_requirements: whether a claim may give way to a submitter of better priority. The slot's ad then
            also has RemoteUserPrio, RemoteUserResourcesInUse and RemoteGroup, the job's SubmitterUserPrio,
            SubmitterUserResourcesInUse and SubmitterGroup; TotalJobRunTime, ActivityTimer and StateTimer (seconds)
            are there where the slot does not give them itself.
        preemption_rank: which preemption is better, among slots that the job likes equally and that are preempted
            on the same ground.
        pre_job_rank, post_job_rank: compared before and after the job's own Rank.
        rank_preemption: whether a claim gives way to a job that the machine ranks higher.
        minimum_run: seconds that a job has had before priority may end it. A slot that does not say since when its
            job runs counts as too young.
        guest_minimum: seconds for which a job of another pool that cannot be saved has a machine before it leaves.
        moving_gain: how much more a running job must like another machine to move there.
        priorities: effective priority of each submitter, for preemption and its expressions.
        default_priority: of a submitter that is not among them.
        lower_is_better: whether a low number is a good priority (fair share) or a high one (up-down).
        in_use: slot weight that each submitter holds; counted from the slots' ads when it is None.
        groups: the accounting group of each submitter that has one.
        limits: for each concurrency limit, in lower case, how much may be in use at once.
        limits_in_use: how much is; counted from the slots' ads when it is None.
        default_limit: of a limit that is not among them.
    """

    preemption_requirements: Any = False
    preemption_rank: Any = 0.0
    pre_job_rank: Any = 0.0
    post_job_rank: Any = 0.0
    rank_preemption: bool = True
    minimum_run: float = 0.0
    guest_minimum: float = 0.0
    moving_gain: float = 0.0
    priorities: Mapping[str, float] = field(default_factory=dict)
    default_priority: float = 0.5
    lower_is_better: bool = True
    in_use: Mapping[str, float] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    limits_in_use: Mapping[str, float] | None = None
    default_limit: float = math.inf

    def priority(self, submitter: str) -> float:
        return self.priorities.get(submitter, self.default_priority)

    def is_better(self, one: str, other: str) -> bool:
        """Whether one submitter's priority is better than another's."""
        a, b = self.priority(one), self.priority(other)
        return a < b if self.lower_is_better else a > b

    @property
    def references(self) -> frozenset[str]:
        """Folded names that the expressions mention, of either ad: what requests must not be thrown together by."""
        return references_of_all(
            (self.preemption_requirements, self.preemption_rank, self.pre_job_rank, self.post_job_rank)
        ).names

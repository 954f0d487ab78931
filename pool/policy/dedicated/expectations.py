"""When a running gang will probably end.

An expected duration only plans. A gang that runs longer than expected is not ended. Its expectation is corrected in
steps that grow, as in Tsafrir, Etsion, Feitelson 2007 (section 4.3). So a prediction that was a little too short is
corrected by little, and one that was quite wrong does not promise the end anew every minute.
"""

from __future__ import annotations

import bisect
import math

from pool.policy.dedicated.model import DedicatedRun

#: How long after its first expected end a gang is expected to end, once it has run longer: the next of these.
CORRECTIONS = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 18000.0, 36000.0, 72000.0, 180000.0, 360000.0, 720000.0)
#: How long after its expected end a gang counts as about to end, for machines that are kept for others: seconds.
GRACE = 10.0


def expected_end(gang: DedicatedRun, now: float, grace: float = 0.001) -> float:
    """When it will probably end; inf where nothing is known; `now` or later.

    Args:
        grace: so many seconds after the expected end it is expected to end now; the steps count after that.
    """
    if gang.leaving:
        return now + gang.job.save_seconds
    whole = gang.job.whole
    if whole is None:
        return math.inf
    restore = gang.job.restore_seconds if gang.job.attained else 0.0
    end = gang.started + restore + max(1.0, whole - gang.job.attained)
    if end > now:
        return end
    over = now - end
    if over <= grace:
        return now
    position = bisect.bisect_right(CORRECTIONS, over)
    return end + CORRECTIONS[position] if position < len(CORRECTIONS) else now + over

"""Which jobs on several machines may have machines of other pools (WR 6.4).

The parts of a job reach each other over all pools: pipes, and packets in a network of the job's own, pass through the
worlds. The machines themselves do not reach each other. So MPI ranks that would use the machines' network stay in one
pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pool.jobs.gangs import MPI, PARTS
from pool.jobs.mpi import FAMILY
from pool.jobs.network import JOB_NETWORK, OWN

_HAS_OWN = " || ".join(f'(TARGET.{JOB_NETWORK} =?= "{mode}")' for mode in sorted(OWN))
#: For the Requirements of a machine of another pool: no MPI job whose ranks would not reach each other.
WITHOUT_LINKS = (
    f"((TARGET.{PARTS} =?= undefined) || ((TARGET.JobUniverse =!= {MPI}) && (TARGET.{FAMILY} =?= undefined))"
    f" || {_HAS_OWN})"
)


def why_it_stays(ad: Mapping[str, Any]) -> str:
    """Why a job stays in its own pool since its parts would not reach each other; empty where they would.

    Args:
        ad: the job's, in wire form.
    """
    has_ranks = PARTS in ad and (ad.get("JobUniverse") == MPI or FAMILY in ad)
    if has_ranks and ad.get(JOB_NETWORK) not in OWN:
        return "its ranks reach no machine of another pool; job_network = private lets it go there"
    return ""

"""Which jobs on several machines may have machines of other pools (WR 6.4).

Nodes of a parallel job are programs by themselves: they may run on machines of several pools, each with files of its
own. Machines of different pools do not reach each other, so a job whose parts have links stays in one pool: pipes, MPI
ranks, and a network of the job's own, also one that only its checkpoint was made in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pool.classad import ClassAd
from pool.jobs.gangs import PARALLEL, PARTS
from pool.jobs.network import HAS_OUT, HAS_PRIVATE, JOB_NETWORK, OUT_WHY, OWN, WHY
from pool.policy.gang_networks import GIVEN

#: Why a machine of another pool is in no network of a job's own.
ELSEWHERE = "a machine of another pool"
_NO_LINKS = " && ".join(f'(TARGET.{JOB_NETWORK} =!= "{mode}")' for mode in sorted(OWN))
_NOT_SAVED = " && ".join(
    f'((TARGET.{GIVEN} =!= "{mode}") || (TARGET.NumCkpts =?= undefined) || (TARGET.NumCkpts == 0))'
    for mode in sorted(OWN)
)
#: For the Requirements of a machine of another pool: no job on several machines whose parts have links.
WITHOUT_LINKS = (
    f"((TARGET.{PARTS} =?= undefined) || ((TARGET.JobUniverse =?= {PARALLEL}) && {_NO_LINKS} && {_NOT_SAVED}))"
)


def why_it_stays(ad: Mapping[str, Any]) -> str:
    """Why a job stays in its own pool since its parts have links; empty where they have none.

    Args:
        ad: the job's, in wire form.
    """
    if PARTS not in ad:
        return ""
    if ad.get("JobUniverse") != PARALLEL:
        return "pipes and MPI ranks reach no machine of another pool"
    if ad.get(JOB_NETWORK) in OWN:
        return "its network reaches no machine of another pool; job_network = host lets it go there"
    if ad.get(GIVEN) in OWN and ad.get("NumCkpts"):
        return "its checkpoint was made in a network of its own, which reaches no machine of another pool"
    return ""


def network_facts(ad: ClassAd, lender: str) -> dict[str, object]:
    """The facts about networks of jobs' own in a machine's ad; a machine of another pool is in none.

    Args:
        lender: the attribute that such a machine has.
    """
    if ad.value(lender, None) is not None:
        return {WHY: ELSEWHERE, OUT_WHY: ELSEWHERE}
    return {name: ad.value(name, None) for name in (HAS_PRIVATE, WHY, HAS_OUT, OUT_WHY)}

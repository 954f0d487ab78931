"""The network of a parallel job that asks for none: decided where all its machines are known.

`GANG_NETWORK` of the submit side names a network of the job's own, or `host` for the network that each machine gives by
its JOB_NETWORK. A job has the former where every machine can give it, and else the latter: parts of one job never have
different ones. A job that goes on from a checkpoint has the network in which it was saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pool.errors import PoolError
from pool.jobs.network import HAS_OUT, HAS_PRIVATE, HOST, OUT_WHY, PRIVATE_OUT, WHY

#: So many machines are named.
NAMED = 3
#: The job's attributes: the network that was chosen for it, empty for the machines' own; and why not another one.
GIVEN, GIVEN_WHY = "JobNetworkGiven", "JobNetworkWhy"


class GangNetwork(NamedTuple):
    """The choice.

    Attributes:
        mode: of `pool.jobs.network.OWN`, as if the job asked for it; empty for the machines' own.
        why_not: why it is not the one that GANG_NETWORK names; empty where it is.
    """

    mode: str = ""
    why_not: str = ""


class NetworkMissing(PoolError):
    """The job cannot go on from its checkpoint without a network of its own."""


def gang_network(
    setting: str, machines: Sequence[tuple[str, Mapping[str, object]]], *, free: bool, saved_in: str | None
) -> GangNetwork:
    """The network of a parallel job that starts.

    Args:
        setting: GANG_NETWORK.
        machines: each part's slot, and the facts of `pool.jobs.network.offered` that its ad has.
        free: it asks for no network, and does not ask to have none.
        saved_in: the mode of the run whose checkpoint it goes on from; None for none.

    Raises:
        NetworkMissing: it was saved in a network of its own that these machines cannot give.
    """
    if not free:
        return GangNetwork()
    mode = (setting if setting != HOST else "") if saved_in is None else saved_in
    if not mode:
        other = saved_in is not None and setting != HOST
        return GangNetwork("", "its checkpoint was made in the machines' network" if other else "")
    has, why = (HAS_OUT, OUT_WHY) if mode == PRIVATE_OUT else (HAS_PRIVATE, WHY)
    lacking = [_lacks(slot, str(facts.get(why) or "")) for slot, facts in machines if facts.get(has) is not True]
    if not lacking:
        return GangNetwork(mode)
    more = f", and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
    said = f"no job_network = {mode} from {', '.join(lacking[:NAMED])}{more}"
    if saved_in:
        raise NetworkMissing(
            f"{said}, and its checkpoint was made in such a network",
            hint=f"add TARGET.{has} to its Requirements (`poolnode qedit`) and release it",
        )
    return GangNetwork("", said)


def _lacks(slot: str, why: str) -> str:
    return f"{slot} ({why})" if why else slot

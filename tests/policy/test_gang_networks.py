"""The network of parallel jobs that ask for none."""

from __future__ import annotations

import pytest

from pool.jobs.network import offered
from pool.policy.gang_networks import GangNetwork, NetworkMissing, gang_network

CAN = ("slot1@one", offered("", "host", ""))
NO_OUT = ("slot1@two", offered("", "host", "no destinations"))
CANNOT = ("slot1@three", offered("no veth", "host", ""))
SET_SO = ("slot1@four", offered("", "none", ""))


@pytest.mark.parametrize("setting", ["private", "private+out"])
def test_a_job_has_it_where_all_machines_can_give_it(setting: str) -> None:
    assert gang_network(setting, [CAN, CAN], free=True, saved_in=None) == GangNetwork(setting)
    assert gang_network(setting, [CAN, CAN], free=False, saved_in=None) == GangNetwork()
    assert gang_network("host", [CAN, CAN], free=True, saved_in=None) == GangNetwork()


def test_where_one_machine_cannot_the_job_has_the_machines_and_it_is_said() -> None:
    mode, why = gang_network("private", [CAN, CANNOT, SET_SO], free=True, saved_in=None)
    assert mode == ""
    assert why == (
        "no job_network = private from slot1@three (no veth), slot1@four (its administrator has set JOB_NETWORK = none)"
    )
    assert gang_network("private+out", [CAN, NO_OUT], free=True, saved_in=None).why_not == (
        "no job_network = private+out from slot1@two (no destinations)"
    )
    assert gang_network("private", [("slot1@old", {})], free=True, saved_in=None).why_not.endswith("slot1@old")
    assert gang_network("private", [CANNOT] * 9, free=True, saved_in=None).why_not.endswith(", and 6 more")


def test_a_job_goes_on_from_its_checkpoint_in_the_network_in_which_it_was_saved() -> None:
    assert gang_network("host", [CAN], free=True, saved_in="private") == GangNetwork("private")
    mode, why = gang_network("private", [CAN], free=True, saved_in="")
    assert (mode, why) == ("", "its checkpoint was made in the machines' network")
    assert gang_network("host", [CAN], free=True, saved_in="") == GangNetwork()
    with pytest.raises(NetworkMissing, match=r"its checkpoint was made in such a network.*HasPrivateNetwork"):
        gang_network("host", [CAN, CANNOT], free=True, saved_in="private")

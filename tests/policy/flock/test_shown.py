"""Nothing that another pool says about its machines and jobs gives it more than the agreement does (EV 8)."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd, requirements_accept
from pool.policy.flock.private import users_order
from pool.policy.flock.shown import NotForGuests, guest_order, guest_request, is_lendable, lent_machine

EVIL_MACHINE: dict[str, Any] = {
    "name": "slot1@head",
    "Machine": "head",
    "MACHINE": "head",
    "StartdAddress": "tcp://127.0.0.1:1",
    "FileSystemDomain": "lab",
    "filesystemdomain": "lab",
    "UidDomain": "lab",
    "DedicatedSchedulers": "DedicatedScheduler@head",
    "Rank": 1e30,
    "Requirements": True,
    "Memory": 4096,
    "State": "Unclaimed",
    "flockvalue": 1e30,
}


def test_a_lent_machine_passes_for_no_machine_of_ours() -> None:
    ad = lent_machine(EVIL_MACHINE, "slot1@m1", "chem", "tcp://10.0.0.1:9618")
    lower = {name.lower(): value for name, value in ad.items()}
    assert len(lower) == len(ad), "no name twice in other letters"
    assert "machine" not in lower
    assert "name" not in lower, "the collector gives both from the certificate"
    assert lower["filesystemdomain"] == lower["uiddomain"] == "flock.chem"
    assert lower["startdaddress"] == "tcp://10.0.0.1:9618#world_machines"
    assert lower["rank"] == 0.0
    assert "dedicatedschedulers" not in lower
    assert (ad["FlockPool"], ad["FlockMachine"], ad["Memory"]) == ("chem", "m1", 4096)


@pytest.mark.parametrize(("kflops", "value"), [(None, 0.8), (3e6, 2.4), (1.234e6, 0.99), (-1, 0.8), ("9", 0.8)])
def test_a_lent_machine_has_the_server_value_that_we_give_it(kflops: Any, value: float) -> None:
    """The value of one processor: a large slot comes no earlier than a small one."""
    machine = {**EVIL_MACHINE, "Cpus": 64, "KFlops": kflops}
    ad = lent_machine(machine, "slot1@m1", "chem", "tcp://h:1", round_trip=0.2)
    assert ad["FlockValue"] == value
    assert "flockvalue" not in ad


@pytest.mark.parametrize(
    ("job", "accepted"),
    [
        *(({}, True), ({"WantFlock": True}, True), ({"WantFlock": False}, False)),
        *(({"GangParts": "2", "JobUniverse": universe}, universe != 8) for universe in (5, 8, 11)),
        *(({"GangParts": "2", "JobUniverse": 11, "MpiFamily": family}, False) for family in ("mpich", "pmix")),
        *(
            ({"GangParts": "2", "JobUniverse": 8, "JobNetwork": network}, network != "host")
            for network in ("host", "private", "private+out")
        ),
    ],
)
def test_a_lent_machine_takes_jobs_that_may_flock(job: dict[str, Any], accepted: bool) -> None:
    ad = ClassAd.from_wire(lent_machine(EVIL_MACHINE, "slot1@m1", "chem", "tcp://h:1"))
    assert requirements_accept(ad, ClassAd.from_wire(job), 0.0) is accepted


def test_a_lent_machine_takes_no_guest() -> None:
    """Neither one of the pool that lends it nor one of a third: a pool lends its own machines only."""
    ad = ClassAd.from_wire(lent_machine(EVIL_MACHINE, "slot1@m1", "chem", "tcp://h:1"))
    for pool in ("chem", "bio"):
        guest = ClassAd.from_wire(guest_request({"FlockGuestOf": ["undefined"], "WantFlock": True}, "bob", pool))
        assert not requirements_accept(ad, guest, 0.0)


@pytest.mark.parametrize("expression", [["Memory > 1 || true"], ["true) || (true"], "nonsense", 7, None, []])
def test_no_requirements_of_another_pool_undo_ours(expression: Any) -> None:
    """Not even a text that closes our brackets: what cannot be read accepts nothing."""
    ad = ClassAd.from_wire(lent_machine({**EVIL_MACHINE, "Requirements": expression}, "slot1@m1", "chem", "tcp://h:1"))
    assert not requirements_accept(ad, ClassAd.from_wire({"WantFlock": False}), 0.0)


def test_a_guest_is_no_user_of_ours() -> None:
    evil = {"owner": "root", "User": "root@lab", "AcctGroup": "vip", "NiceUser": False, "UidDomain": "lab", "Cmd": "x"}
    ad = guest_request(evil, "root", "physics")
    lower = {name.lower(): value for name, value in ad.items()}
    assert len(lower) == len(ad)
    assert (lower["owner"], lower["user"]) == ("root@physics", "root@physics")
    assert lower["uiddomain"] == "flock.physics"
    assert lower["niceuser"] is True, "after all jobs of this pool"
    assert "acctgroup" not in lower


def test_an_order_makes_its_owner_a_guest_wherever_it_says_so() -> None:
    order = {"claim": "c", "start": {"mode": "transfer"}, "shared": {"OWNER": "root", "A": 1}, "own": {"user": "root"}}
    found = guest_order(order, "physics")
    assert found["shared"]["Owner"] == "root@physics"
    assert "OWNER" not in found["shared"]
    assert "user" not in found["own"]
    assert found["own"]["FlockGuestOf"] == found["shared"]["FlockGuestOf"] == "physics"


def test_an_order_for_our_own_files_is_refused() -> None:
    with pytest.raises(NotForGuests):
        guest_order({"start": {"mode": "shared"}, "own": {}}, "physics")


@pytest.mark.parametrize(
    ("change", "lendable"),
    [
        ({}, True),
        ({"State": "Owner"}, False),
        ({"State": "Claimed"}, False),
        ({"FlockPool": "math"}, False),
        ({"DedicatedSchedulers": "x"}, True),
        ({"DedicatedSchedulers": "x", "State": "Claimed"}, False),
    ],
)
def test_what_a_pool_shows_to_others(change: dict[str, Any], lendable: bool) -> None:
    """Idle machines of its own: what a third pool lends is not lent on, so that a ring of pools ends."""
    ad = {"State": "Unclaimed", "StartdAddress": "tcp://h:1", **change}
    assert is_lendable(ad) is lendable


@pytest.mark.parametrize(
    "start",
    [
        {"mode": "shared"},
        {"mode": "transfer", "image": "/home/bob"},
        {"image": "/srv/images/debian"},
        {"image": ".image", "image_source": "/home/bob/backup.tar"},
        {"image": ".image", "image_source": "../../../home/bob/backup.tar"},
    ],
)
def test_no_start_of_a_guest_shows_it_files_of_the_machine(start: dict[str, object]) -> None:
    """A directory of the machine as an image would: what everybody may read there is none of a guest's."""
    with pytest.raises(NotForGuests, match="cannot work on files of the machine"):
        guest_order({"start": start, "own": {}}, "physics")
    with pytest.raises(NotForGuests, match="cannot work on files of the machine"):
        users_order({"start": start, "own": {}}, "alice", "home", "lab")


@pytest.mark.parametrize(
    "start",
    [
        {"mode": "transfer"}, {"mode": "remote", "image": ""}, {"image": "tree"}, {},
        {"image": ".image", "image_source": "debian.tar"}, {"image": ".image", "image_source": "docker://lab/debian:12"},
    ],
)  # fmt: skip
def test_images_that_are_copied_or_fetched_are_a_guests_own(start: dict[str, object]) -> None:
    assert guest_order({"start": start, "own": {}}, "physics")["start"] == start


def test_a_job_whose_image_lies_on_the_machine_goes_to_no_other_pool() -> None:
    lent = ClassAd.from_wire(lent_machine({"Requirements": True}, "slot1@a", "chem", "tcp://x:1"))
    for source, goes in (("local", False), ("cedar", True), (None, True)):
        job = ClassAd.from_wire({} if source is None else {"ContainerImageSource": source})
        assert requirements_accept(lent, job) is goes

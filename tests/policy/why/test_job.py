"""The census: hand-made pools with known answers, and counts that agree with the matchmaker's own test."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pool.classad import ClassAd, requirements_accept, symmetric_match
from pool.jobs.gangs import GangPart, attributes_of
from pool.policy.flock.shown import lent_machine
from pool.policy.why import crowd
from pool.policy.why.findings import (
    Busy,
    Finding,
    Free,
    Machines,
    Nearest,
    NoNetwork,
    Queued,
    RefusedFinding,
    TooFew,
    Unmet,
    Unshown,
    Unusable,
    ValueCount,
)
from pool.policy.why.holding import run_all
from pool.policy.why.job import MOST_CLAUSES, UNSAID, census_of, examine
from pool.policy.why.words import lines
from tests.policy.why.support import DESKTOP, NOW, alike, found, job, one, pool, slot, some

BIG = "(TARGET.Memory >= RequestMemory)"


def test_an_empty_pool_is_said_to_be_empty() -> None:
    assert found({}, job()) == [Machines(0, 0)]


def test_a_request_is_said_as_it_was_written_with_the_largest_there_is() -> None:
    findings = found(alike(40), job(BIG, RequestMemory=65536))
    unmet = one(findings, Unmet)
    assert unmet.count == 40
    (condition,) = unmet.conditions
    assert (condition.text, condition.rules_out, condition.alone) == ("request_memory 64 GB", 40, 40)
    assert (condition.want, condition.best, condition.best_fitting) == ("largest", "32 GB", "")
    assert one(findings, Nearest) == Nearest(("request_memory 64 GB",), 40)


def test_values_that_machines_have_instead() -> None:
    (condition,) = one(found(alike(40), job('OpSys == "WINDOWS"')), Unmet).conditions
    assert (condition.text, condition.attribute) == ('OpSys == "WINDOWS"', "OpSys")
    assert condition.has == (ValueCount("LINUX", 40),)


def test_a_clause_that_asks_for_several_things() -> None:
    (condition,) = one(found(alike(3), job('(HasTool && Cpus > 8) || OpSys == "WINDOWS"')), Unmet).conditions
    assert condition.has == (ValueCount("Cpus 4", 3), ValueCount("no HasTool", 3), ValueCount("OpSys LINUX", 3))


def test_machines_that_do_not_say() -> None:
    (condition,) = one(found(alike(3), job("TARGET.HasMatlab")), Unmet).conditions
    assert (condition.attribute, condition.silent, condition.has) == ("HasMatlab", 3, ())


def test_what_machines_lack_to_show_a_job_its_files() -> None:
    fuse = "there is no /dev/fuse (permission denied) and no system call notification (invalid argument)"
    tree = "jobs get no file tree of their own there"
    slots = pool(
        slot("slot1@a", RemoteIOWhy=fuse),
        slot("slot1@b", RemoteIOWhy=fuse),
        slot("slot1@c", RemoteIOWhy=tree),
        slot("slot1@d"),
        slot("slot1@e", HasRemoteIO=True, OpSys="MACOS"),
    )
    request = job('OpSys == "LINUX" && (TARGET.FileSystemDomain == MY.FileSystemDomain || TARGET.HasRemoteIO)')
    findings = found(slots, request)
    assert one(findings, Unshown) == Unshown(4, (ValueCount(fuse, 2), ValueCount(UNSAID, 1), ValueCount(tree, 1)))
    told = "\n".join(lines([Queued("1.0", "alice", 1, NOW), *findings], NOW))
    assert f"its owner's files cannot be shown to it on 4 machines: {fuse} (2), {UNSAID} (1), {tree} (1)" in told
    assert "way out: with `remote_io = auto` they are copied there; a node shows them whose user may open" in told
    assert not [finding for finding in found(slots, job("TARGET.HasMatlab")) if isinstance(finding, Unshown)]


def test_why_machines_give_a_job_no_network_of_its_own() -> None:
    denied = "there are no user namespaces (operation not permitted)"
    slots = pool(
        slot("slot1@a", HasPrivateNetwork=False, PrivateNetworkWhy=denied),
        slot("slot1@b"),
        slot("slot1@c", HasPrivateNetwork=True, OpSys="MACOS"),
    )
    findings = found(slots, job('OpSys == "LINUX" && TARGET.HasPrivateNetwork'))
    assert one(findings, NoNetwork) == NoNetwork(2, (ValueCount(UNSAID, 1), ValueCount(denied, 1)))
    told = "\n".join(lines([Queued("1.0", "alice", 1, NOW), *findings], NOW))
    assert f"it gets no network of its own, as it asks, on 2 machines: {UNSAID} (1), {denied} (1)" in told


def test_why_machines_give_a_job_no_way_out_of_its_network() -> None:
    slots = pool(
        slot("slot1@a", HasPrivateNetwork=True, HasNetworkOut=False, NetworkOutWhy="no destinations"),
        slot("slot1@b", HasPrivateNetwork=True, HasNetworkOut=True, OpSys="MACOS"),
    )
    findings = found(slots, job('OpSys == "LINUX" && TARGET.HasNetworkOut'))
    assert one(findings, NoNetwork) == NoNetwork(1, (ValueCount("no destinations", 1),), True)
    told = "\n".join(lines([Queued("1.0", "alice", 1, NOW), *findings], NOW))
    assert "it gets no way out of its network, as it asks, on 1 machine: no destinations" in told


def test_the_best_value_where_all_else_fits() -> None:
    slots = pool(
        slot("slot1@a", OpSys="MACOS", Memory=65536),
        slot("slot1@b", Memory=16384),
        slot("slot1@c", Memory=32768, OpSys="MACOS"),
    )
    findings = found(slots, job(f'OpSys == "LINUX" && {BIG}', RequestMemory=40000))
    conditions = {condition.text: condition for condition in one(findings, Unmet).conditions}
    memory = conditions["request_memory 39.1 GB"]
    assert (memory.rules_out, memory.alone, memory.best, memory.best_fitting) == (2, 1, "64 GB", "16 GB")
    assert conditions['OpSys == "LINUX"'].alone == 1
    nearest = one(findings, Nearest)
    assert (len(nearest.changes), nearest.lets_in) == (1, 1)


def test_the_nearest_miss_is_the_smallest_change_with_most_machines() -> None:
    slots = alike(5, Memory=1024, OpSys="MACOS") | pool(
        slot("slot1@x", Memory=1024), slot("slot1@y", Memory=1024), slot("slot1@z", OpSys="MACOS")
    )
    nearest = one(found(slots, job(f'OpSys == "LINUX" && {BIG}', RequestMemory=4096)), Nearest)
    assert nearest == Nearest(("request_memory 4 GB",), 2)


def test_what_only_machines_can_change_comes_after_what_the_user_can() -> None:
    desks = {**DESKTOP, "KeyboardIdle": 5}
    slots = alike(5, **desks) | pool(slot("slot1@x", Arch="ARM", OpSys="MACOS"))
    nearest = one(found(slots, job('OpSys == "LINUX" && Arch == "X86_64"')), Nearest)
    assert nearest == Nearest(('OpSys == "LINUX"', 'Arch == "X86_64"'), 1)
    alone = one(found(alike(5, **desks), job()), Nearest)
    assert alone == Nearest((), 5, ("KeyboardIdle > 900",))


def test_machines_that_refuse_and_by_which_clause() -> None:
    slots = alike(3, **DESKTOP, KeyboardIdle=10, State="Owner") | pool(slot("slot1@free"))
    findings = found(slots, job())
    refused = one(findings, RefusedFinding)
    assert refused.count == 3
    (clause,) = refused.clauses
    assert (clause.text, clause.count, clause.states) == ("KeyboardIdle > 900", 3, (ValueCount("Owner", 3),))
    assert clause.names == ("slot1@m0", "slot1@m1", "slot1@m2")
    assert one(findings, Free).count == 1


def test_a_request_that_both_sides_look_at_counts_once_as_the_jobs() -> None:
    findings = found(alike(4), job("true", RequestCpus=16))
    assert not [finding for finding in findings if isinstance(finding, RefusedFinding)]
    (condition,) = one(findings, Unmet).conditions
    assert (condition.text, condition.best) == ("request_cpus 16", "4")
    assert one(findings, Nearest).changes == ("request_cpus 16",)


def test_who_has_the_machines_that_match() -> None:
    busy = {"State": "Claimed", "Activity": "Busy"}
    slots = pool(
        slot("slot1@a", **busy, RemoteUser="bob@h"),
        slot("slot1@b", **busy, RemoteUser="bob@h"),
        slot("slot1@c", **busy, RemoteUser="carol@h"),
        slot("slot1@d", State="Drained"),
    )
    findings = found(slots, job())
    assert one(findings, Busy) == Busy(3, (ValueCount("bob@h", 2), ValueCount("carol@h", 1)))
    assert one(findings, Unusable) == Unusable(1, (ValueCount("Drained", 1),))


def test_a_carved_slot_is_what_it_can_be_and_busy_while_it_is_not() -> None:
    slots = pool(
        slot("slot1@m", PartitionableSlot=True, Memory=96, Cpus=0),
        slot("slot1_1@m", DynamicSlot=True, Memory=4000, Cpus=4, RemoteUser="bob@h", State="Claimed"),
    )
    findings = found(slots, job(BIG, RequestMemory=4090))
    assert one(findings, Machines).slots == 1
    assert one(findings, Busy) == Busy(1, (ValueCount("bob@h", 1),))
    too_much = found(slots, job(BIG, RequestMemory=5000))
    assert one(too_much, Unmet).conditions[0].best == "4 GB"


def test_a_job_without_requirements_matches_nothing_and_is_told() -> None:
    ad = job()
    del ad["Requirements"]
    unmet = one(found(alike(2), ad), Unmet)
    assert unmet.count == 2
    assert "no Requirements" in unmet.conditions[0].text


@pytest.mark.parametrize("requirements", ["undefined", "error", '"yes"', "false", "1 / 0", "Nothing.At.All"])
def test_requirements_without_a_usable_value_rule_everything_out(requirements: str) -> None:
    unmet = one(found(alike(3), job(requirements)), Unmet)
    assert unmet.count == 3
    assert unmet.conditions


def test_thousands_of_clauses_are_looked_at_as_a_hundred() -> None:
    clauses = " && ".join(f"X{number} =!= {number}" for number in range(1000))
    census = run_all(census_of(crowd.whole_slots(alike(2)), job(clauses), NOW))
    assert len(census.items) <= MOST_CLAUSES + 10
    assert census.matching.bit_count() == 2


@pytest.mark.parametrize("seed", range(30))
def test_the_counts_agree_with_the_matchmaker(seed: int) -> None:
    """For every machine: ruled out, refused and matching are what evaluating the two Requirements says."""
    chance = random.Random(seed)
    slots = some(chance, 30)
    clauses = chance.sample(
        [
            'OpSys == "LINUX"',
            BIG,
            "TARGET.Cpus >= RequestCpus",
            "HasTool",
            "(HasTool || Cpus > 4)",
            "!HasTool",
            "Memory > 5000 ? Cpus > 1 : true",
            "KeyboardIdle =!= 3",
            "Owner == TARGET.Nobody",
            "1",
        ],
        chance.randrange(1, 5),
    )
    memory, cpus = chance.choice([1, 8192, 65536]), chance.choice([1, 8])
    request = job(" && ".join(clauses), RequestMemory=memory, RequestCpus=cpus)
    places = crowd.whole_slots(slots)
    findings, census = run_all(examine(slots, request, NOW))
    matching = [bool(census.matching >> number & 1) for number in range(len(places))]
    assert matching == [symmetric_match(request, place.whole, NOW) for place in places]
    for number, place in enumerate(places):
        if not requirements_accept(request, place.whole, NOW):
            assert census.failed >> number & 1
    kinds = (Unmet, RefusedFinding, Busy, Free, Unusable)
    assert sum(finding.count for finding in findings if isinstance(finding, kinds)) == len(places)
    for finding in findings:
        if isinstance(finding, Unmet):
            assert all(one.alone <= one.rules_out <= finding.count for one in finding.conditions)
        if isinstance(finding, Nearest):
            assert finding.lets_in > 0
            assert not sum(matching)


def _few(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if isinstance(one, TooFew)]


@pytest.mark.parametrize(
    ("needs", "apart", "suit"),
    [(5, False, 4), (4, False, None), (5, True, 4), (4, True, None)],
)
def test_a_job_bigger_than_the_pool_is_said_to_be(needs: int, apart: bool, suit: int | None) -> None:
    gang = job(**attributes_of([GangPart(count=needs)], apart=apart))
    findings = found(alike(4), gang)
    assert _few(findings) == ([] if suit is None else [TooFew(needs, suit, apart)])


def test_what_could_be_carved_counts_and_not_what_is_free() -> None:
    """Two machines of 8 processors: 4 parts of 2 fit on each, whatever has been carved by now."""
    there = pool(
        *(slot(name, PartitionableSlot=True, Cpus=8, Memory=8000, Disk=80_000_000) for name in ("slot1@a", "slot1@b"))
    )
    for needs, apart, suit in ((8, False, None), (9, False, 8), (2, True, None), (3, True, 2)):
        gang = job(RequestCpus=2, RequestMemory=1, **attributes_of([GangPart(count=needs)], apart=apart))
        assert _few(found(there, gang)) == ([] if suit is None else [TooFew(needs, suit, apart)])


def test_nothing_is_claimed_of_a_job_whose_parts_differ() -> None:
    parts = [GangPart(count=3), GangPart(own={"RequestCpus": 1}, count=3)]
    assert not _few(found(alike(4), job(**attributes_of(parts, apart=False))))


@pytest.mark.parametrize(
    ("job_has", "shown"),
    [
        ({"WantFlock": False}, "a job that may run in other pools, so not with flock = false"),
        (
            {"GangParts": ["{}"], "JobUniverse": 8},
            "no ranks that reach no machine of another pool (job_network = private lets them)",
        ),
        ({"FlockGuestOf": "physics"}, "a job of our own pool, since another pool lends us its machine"),
        ({"ContainerImageSource": "local"}, "a container image that is not a file of the machine itself"),
    ],
)
def test_what_lent_machines_ask_for_is_in_words(job_has: dict[str, Any], shown: str) -> None:
    lent = lent_machine(slot("slot1@m").to_wire(), "slot1@m", "chem", "tcp://10.0.0.1:9618")
    slots = pool(ClassAd.from_wire({**lent, "Name": "slot1@m@chem", "Machine": "m@chem"}))
    refused = one(found(slots, job(**job_has)), RefusedFinding)
    assert [clause.text for clause in refused.clauses] == [shown]
    assert not [finding for finding in found(slots, job()) if isinstance(finding, RefusedFinding)]

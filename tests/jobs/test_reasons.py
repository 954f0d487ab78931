"""Reasons: every kind has advice, numbers are HTCondor's, and the wire keeps them."""

from __future__ import annotations

import pytest

from pool.jobs.reasons import DISK_EXCEEDED, MEMORY_EXCEEDED, Evict, Hold, Kind, Reason, Refuse, hold_attributes

KINDS: list[Kind] = [*Hold, *Evict, *Refuse]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{type(kind).__name__}.{kind.name}")
def test_every_kind_has_a_way_out_or_heals(kind: Kind) -> None:
    reason = Reason(kind, "what happened", 2)
    assert reason.hint or reason.heals
    assert Reason.from_wire(reason.to_wire()) == reason


def test_holds_never_heal_by_themselves_and_evictions_always_do() -> None:
    assert not any(Reason(kind, "").heals for kind in Hold)
    assert all(Reason(kind, "").heals for kind in Evict)


def test_the_numbers_scripts_know() -> None:
    assert (Hold.USER_REQUEST, Hold.JOB_POLICY, Hold.START_FAILED, Hold.TRANSFER_INPUT) == (1, 3, 6, 13)
    assert Reason(Evict.LEASE_ENDED, "x").code == 0


def test_as_a_line_and_in_the_ad() -> None:
    reason = Reason(Hold.START_FAILED, "cannot execute /bin/nothing: no such file", 2)
    assert str(reason).startswith("cannot execute /bin/nothing: no such file (mend what")
    assert hold_attributes(reason) == {
        "HoldReason": "cannot execute /bin/nothing: no such file",
        "HoldReasonCode": 6,
        "HoldReasonSubCode": 2,
    }
    assert str(Reason(Evict.VACATED, "its machine was wanted")) == "its machine was wanted"
    assert Reason(Hold.START_FAILED, "x", own_hint="do this").hint == "do this"


def test_kinds_of_a_newer_program_become_general_ones() -> None:
    assert Reason.from_wire({"family": "Hold", "kind": 99999, "text": "t"}).kind is Hold.UNSPECIFIED
    assert Reason.from_wire({"family": "Evict", "kind": "new", "text": "t"}).kind is Evict.MACHINE_LOST
    assert Reason.from_wire({"family": "Refuse", "kind": "new"}).kind is Refuse.WRONG_STATE
    assert Reason.from_wire({}).kind is Hold.UNSPECIFIED


def test_the_way_out_is_of_what_was_exceeded() -> None:
    memory = Reason(Hold.OUT_OF_RESOURCES, "x", MEMORY_EXCEEDED).hint
    disk = Reason(Hold.OUT_OF_RESOURCES, "x", DISK_EXCEEDED).hint
    assert "request_memory" in memory
    assert "request_disk" not in memory
    assert "request_disk" in disk
    assert "request_memory" not in disk

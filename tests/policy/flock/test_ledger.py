"""The ledger of two pools: equal on both sides whatever is lost, doubled or late, and no more than was measured."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from pool.policy.flock.ledger import (
    SLACK,
    BadEntry,
    ClaimUse,
    CreditEntry,
    CreditLedger,
    CreditTerms,
    EntryKind,
    SignedEntry,
    claim_digest,
    given_in,
    judge_proposal,
    most_signed,
    room_for,
    settling,
)

LENDER, BORROWER = "a" * 64, "b" * 64
CLAIM = claim_digest("tcp://m1:1", "secret")
TERMS = CreditTerms(True, bound=3600.0 * 100)


def entry(**changes: Any) -> CreditEntry:
    return replace(CreditEntry(LENDER, BORROWER, CLAIM, 1, 60_000, 1000, 0), **changes)


def use(**changes: Any) -> ClaimUse:
    return replace(
        ClaimUse("chem", CLAIM, False, "slot1@m1", "alice", 1000, 600.0, total=60_000, closed=True), **changes
    )


def judged(proposal: CreditEntry, own: ClaimUse | None, ledger: CreditLedger | None = None) -> str:
    found = judge_proposal(proposal, ledger or CreditLedger(BORROWER), own, 0.0, TERMS)
    return "accepted" if found.accepted else "known" if found.known is not None else found.refusal


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "accepted"),
        ({"total": 60_000 + SLACK}, "accepted"),
        ({"total": 60_000 + SLACK + 1}, "more than was measured here"),
        ({"total": 2**53}, "more than was measured here"),
        ({"claim": "f" * 32}, "no such claim"),
        ({"value": 2000}, "the machine's value was 1 when it was claimed"),
        ({"at": 4 * 86_400_000}, "clocks"),
        ({"kind": EntryKind.SETTLED}, "forgives more than is owed"),
    ],
)
def test_a_borrower_signs_what_it_has_measured_and_no_more(change: dict[str, Any], words: str) -> None:
    proposal = entry(**change)
    assert words in judged(proposal, use() if proposal.claim == CLAIM else None)


def test_an_entry_that_is_said_again_is_answered_with_what_was_signed() -> None:
    ledger = CreditLedger(BORROWER)
    assert ledger.add(SignedEntry(entry(sequence=2), "", ""))
    assert judged(entry(sequence=2, total=10**9), use(), ledger) == "known"
    assert judged(entry(sequence=1), use(), ledger) == "known"
    assert "less than was signed before" in judged(entry(sequence=3, total=1), use(), ledger)


def test_no_debt_passes_the_bound() -> None:
    ledger = CreditLedger(BORROWER)
    terms = CreditTerms(True, bound=50.0)
    found = judge_proposal(entry(), ledger, use(), 0.0, terms)
    assert (found.accepted, found.measured) == (False, 50_000)
    assert room_for(terms, 20.0, 7_000, 2000) == 7_000 + 15_000
    assert room_for(terms, 60.0, 7_000, 2000) == 7_000


@pytest.mark.parametrize("value", [1, 1000, 1_000_000])
def test_many_small_steps_pass_the_bound_no_more_than_one_does(value: int) -> None:
    """A lender proposes five seconds more, again and again, of a claim that was measured."""
    ledger, terms = CreditLedger(BORROWER), CreditTerms(True, bound=100.0 * value / 1000)
    own = use(total=10**9, value=value)
    for sequence in range(1, 100):
        proposal = entry(sequence=sequence, total=SLACK * sequence, value=value)
        if judge_proposal(proposal, ledger, own, 0.0, terms).accepted:
            ledger.add(SignedEntry(proposal, "", ""))
    assert terms.bound <= -ledger.balance(0, terms) <= 1.01 * terms.bound + SLACK * value / 1e6


def test_a_name_of_a_forgiven_debt_is_no_name_of_a_claim() -> None:
    ledger = CreditLedger(BORROWER)
    ledger.add(SignedEntry(entry(kind=EntryKind.SETTLED, total=1), "", ""))
    assert "another kind" in judged(entry(sequence=2), use(), ledger)


def test_time_without_an_agreement_is_not_signed() -> None:
    own = use(total=0, closed=False, seen=0.0)
    own.see(100.0, 100.0, credit=False)
    own.terms_change(130.0, 130.0, credit=False)
    own.terms_change(150.0, 150.0, credit=True)
    own.terms_change(170.0, 170.0, credit=False)
    own.see(200.0, 200.0, credit=True)
    assert (own.total, own.asked_time) == (200_000, 50_000)
    assert "more than was measured" in judged(entry(total=56_000), own)
    for second in range(10_000):
        own.terms_change(200.0 + second, 200.0 + second, credit=second % 2 == 0)
    own.closed = True
    assert own.total == 200_000, "terms that change are no sign of life"


def test_a_machine_of_which_nothing_was_heard_is_worth_nothing() -> None:
    """Made, and never used: no call about it has passed."""
    own = use(total=0, closed=False, seen=0.0, lease=10_000.0)
    assert "more than was measured" in judged(entry(total=SLACK + 1), own)


@pytest.mark.parametrize(("one", "other", "holds"), [(0, 5, 0), (5, 0, 0), (5, 9, 9), (0, 0, 0)])
def test_a_debt_is_forgotten_no_faster_than_either_wants(one: float, other: float, holds: float) -> None:
    assert CreditTerms(True, 1.0, one).with_theirs(CreditTerms(True, 2.0, other)) == CreditTerms(True, 1.0, holds)


def test_a_debt_is_halved_and_forgiven() -> None:
    mine, theirs, terms = CreditLedger(LENDER), CreditLedger(BORROWER), CreditTerms(True, 1000.0, half_life=100.0)
    for ledger in (mine, theirs):
        ledger.add(SignedEntry(entry(), "", ""))
    assert mine.balance(0, terms) == 60.0
    assert mine.balance(200_000, terms) == -theirs.balance(200_000, terms) == 15.0
    forgiving = settling(15.0, LENDER, BORROWER, "c" * 32, 200.0)
    assert judge_proposal(forgiving, theirs, None, 200.0, terms).accepted
    for ledger in (mine, theirs):
        ledger.add(SignedEntry(forgiving, "", ""))
    assert mine.balance(200_000, terms) == theirs.balance(200_000, terms) == 0.0
    assert len(mine.forget_old(10**9, terms)) == 2


HUGE = 2**53 + 1


@pytest.mark.parametrize(
    "change",
    [
        {"total": HUGE}, {"total": -1}, {"total": 1.5}, {"total": True}, {"total": "1"}, {"total": float("nan")},
        {"sequence": 0}, {"value": 0}, {"value": 1_000_001}, {"at": None}, {"claim": "x" * 32}, {"claim": "ab"},
        {"lender": None}, {"kind": "gift"}, {"kind": 3}, {"claim": "a" * 10_000},
    ],
)  # fmt: skip
def test_what_is_no_entry_is_refused_in_words(change: dict[str, Any]) -> None:
    with pytest.raises(BadEntry):
        CreditEntry.from_wire({**entry().to_wire(), **change})
    assert CreditEntry.from_wire(entry().to_wire()) == entry()


@pytest.mark.parametrize("said", [None, "much", -1, 2**60, 1.5, True, 0, 30_000])
def test_a_lender_gives_in_to_what_a_borrower_would_sign(said: Any) -> None:
    own = use(lends=True, agreed=None)
    own.agreed = given_in(own, said, last=10_000)
    assert 10_000 <= own.billed() <= own.total
    assert own.disputed(10_000) == (own.total - 10_000) * 1000, "whatever it says"


class Side:
    """One world of the exchange below: what is on its disk, and what a crash leaves of it."""

    def __init__(self, key: str, lends: bool) -> None:
        self.ledger = CreditLedger(key)
        self.uses: dict[str, ClaimUse] = {}
        self.lends = lends


@pytest.mark.parametrize("seed", range(60))
def test_both_ledgers_are_equal_after_any_trouble(seed: int) -> None:
    """Proposals and answers are lost, doubled, and overtake each other; the answer's disk is written before it is sent.

    The two sides measure differently by up to a tenth. In the end both have the same entries, none above what the
    borrower measured and its slack, and none above what the lender did.
    """
    chance = random.Random(seed)
    lender, borrower = Side(LENDER, lends=True), Side(BORROWER, lends=False)
    for number in range(5):
        claim = claim_digest("m", str(number))
        total = chance.randint(0, 500_000)
        theirs = int(total * chance.uniform(0.9, 1.1))
        lender.uses[claim] = use(claim=claim, lends=True, total=total)
        borrower.uses[claim] = use(claim=claim, total=theirs)
    flying: list[tuple[str, Any]] = []

    def propose() -> None:
        for claim, own in lender.uses.items():
            known = lender.ledger.find(LENDER, claim)
            sequence = known.entry.sequence + 1 if known is not None else 1
            if known is None or own.billed() > known.entry.total:
                flying.append(("proposal", own.proposal(LENDER, BORROWER, sequence, 0.0)))

    def arrive(kind: str, what: Any) -> None:
        if kind == "answer":
            lender.ledger.add(what)
        elif kind == "refusal":
            claim, measured = what
            known = lender.ledger.find(LENDER, claim)
            own = lender.uses[claim]
            own.agreed = given_in(own, measured, known.entry.total if known is not None else 0)
        else:
            found = judge_proposal(what, borrower.ledger, borrower.uses[what.claim], 0.0, TERMS)
            if found.known is not None:
                flying.append(("answer", found.known))
            elif found.accepted:
                signed = SignedEntry(what, "", "")
                borrower.ledger.add(signed)
                flying.append(("answer", signed))
            elif found.measured:
                flying.append(("refusal", (what.claim, found.measured)))

    for _ in range(200):
        propose()
        chance.shuffle(flying)
        for _ in range(min(len(flying), 6)):
            kind, what = flying.pop()
            fate = chance.random()
            if fate > 0.3:
                arrive(kind, what)
            if fate > 0.8:
                flying.append((kind, what))
        del flying[50:]
    for _ in range(10):  # quiet at last
        propose()
        while flying:
            arrive(*flying.pop(0))
    assert {one.entry for one in lender.ledger} == {one.entry for one in borrower.ledger}
    assert lender.ledger.balance(0, TERMS) == -borrower.ledger.balance(0, TERMS)
    for claim, own in lender.uses.items():
        signed = lender.ledger.find(LENDER, claim)
        assert signed is not None or own.total == 0 or borrower.uses[claim].total == 0
        if signed is not None:
            assert signed.entry.total <= min(own.total, most_signed(borrower.uses[claim].total))


def test_the_time_of_a_claim_is_counted_to_its_last_sign_of_life() -> None:
    own = ClaimUse("chem", CLAIM, False, "", "", 1000, lease=60.0, seen=0.0)
    own.see(30.0, 1030.0)
    assert own.total == 30_000
    assert own.measured(1000.0, 2000.0) == 90_000, "a silence counts for one lease at most"
    again = ClaimUse.from_wire(own.to_wire())
    assert again.seen is None
    again.see(5.0, 1050.0)
    assert again.total == 50_000, "a world that was restarted counts by its wall clock"


def test_a_debt_is_forgiven_once_and_what_is_no_debt_never() -> None:
    """Each entry that forgives is one for good: there cannot be any number of them."""
    ledger = CreditLedger(BORROWER)

    def forgives(total: int, number: int) -> str:
        proposal = entry(claim=claim_digest("x", str(number)), kind=EntryKind.SETTLED, total=total)
        said = judged(proposal, None, ledger)
        if said == "accepted":
            ledger.add(SignedEntry(proposal, "", ""))
        return said

    assert forgives(0, 1) == forgives(1000, 2) == "it forgives more than is owed"
    ledger.add(SignedEntry(entry(), "", ""))
    assert forgives(0, 3) == forgives(500, 4) == "it forgives next to nothing"
    assert forgives(60_000, 5) == "accepted"
    assert {forgives(total, 6) for total in (0, 1, 1000)} == {"it forgives more than is owed"}
    assert len(ledger) == 2

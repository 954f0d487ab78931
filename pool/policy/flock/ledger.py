"""Agreements with credit: the ledger of what two pools have lent each other (EV 4.2).

The unit is a machine-second times the machine's server value. The use of one claim is one entry, which grows: it holds
the claim's whole use so far, and a later sequence number takes the place of an earlier one. So an entry that is lost,
doubled or late changes nothing in the end, and two ledgers with the same entries have the same balance, to the digit.

    lender                                     borrower
    proposes an entry, signed        ---->     compares it with its own measurement, signs it, keeps it on disk
    keeps it with both signatures    <----     the entry with both signatures, or why not and what it has measured

An entry counts when both have signed it. The borrower's disk decides: an answer that is lost is given again when the
lender asks again. A borrower that measured less signs no more than that; the lender gives in, and tells the difference.

All amounts are whole numbers: time in milliseconds, values in thousandths.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pool.errors import PoolError

Wire = dict[str, Any]
#: Numbers in an entry are no larger than this, so that every language reads them alike.
LARGEST = 2**53
#: A machine's value in an entry, thousandths.
LEAST_VALUE, MOST_VALUE = 1, 1_000_000
#: The lender may have measured so much more than the borrower: milliseconds, and of the whole.
SLACK, SLACK_PART = 5_000, 0.01
#: A lender forgives no less of a debt at once: each time is an entry for good.
LEAST_FORGIVEN = 0.01
#: The clocks of two pools may differ by so much, milliseconds.
CLOCKS = 3 * 86_400_000
#: The text that is signed begins with this.
_SIGNED = b"poolnode flock credit 1\n"
#: Amounts in a machine-second.
UNIT = 1_000_000.0


class BadEntry(PoolError):
    """An entry that cannot be taken in."""


class EntryKind(StrEnum):
    """The ground of an entry."""

    USE = "use"
    """A machine was lent."""
    SETTLED = "settled"
    """The lender has forgiven so much."""


@dataclass(frozen=True, slots=True)
class CreditEntry:
    """The use of one claim so far, or a debt that was forgiven.

    Attributes:
        lender, borrower: the public keys of both worlds, in hexadecimal.
        claim: `claim_digest`.
        sequence: from 1; a higher one takes the place of a lower one.
        total: milliseconds since the claim began.
        value: of the machine, thousandths.
        at: wall time at the lender, milliseconds.
    """

    lender: str
    borrower: str
    claim: str
    sequence: int
    total: int
    value: int
    at: int
    kind: EntryKind = EntryKind.USE

    @property
    def amount(self) -> int:
        """The debt of the borrower for it, millionths of a machine-second; negative where debts were forgiven."""
        return self.total * self.value * (1 if self.kind is EntryKind.USE else -1)

    def signed_text(self) -> bytes:
        """The bytes that both sign."""
        return _SIGNED + json.dumps(self.to_wire(), sort_keys=True, separators=(",", ":")).encode()

    def to_wire(self) -> Wire:
        return {
            "lender": self.lender,
            "borrower": self.borrower,
            "claim": self.claim,
            "sequence": self.sequence,
            "total": self.total,
            "value": self.value,
            "at": self.at,
            "kind": self.kind.value,
        }

    @classmethod
    def from_wire(cls, wire: Any) -> CreditEntry:
        """An entry as the other pool says it.

        Raises:
            BadEntry: it is none.
        """
        if not isinstance(wire, Mapping):
            raise BadEntry("an entry of the ledger is no mapping")
        sequence, total, value, at = (_whole(wire.get(name), name) for name in ("sequence", "total", "value", "at"))
        lender, borrower, claim = (_hexadecimal(wire.get(name), name) for name in ("lender", "borrower", "claim"))
        kind = wire.get("kind")
        if kind not in list(EntryKind):
            raise BadEntry("an entry of the ledger is of no known kind")
        if sequence < 1 or not LEAST_VALUE <= value <= MOST_VALUE:
            raise BadEntry("an entry of the ledger has a sequence or a value out of range")
        return cls(lender, borrower, claim, sequence, total, value, at, EntryKind(kind))


@dataclass(frozen=True, slots=True)
class SignedEntry:
    """An entry with the signatures of the lender and of the borrower, hexadecimal."""

    entry: CreditEntry
    by_lender: str
    by_borrower: str = ""

    def to_wire(self) -> Wire:
        return {"entry": self.entry.to_wire(), "by_lender": self.by_lender, "by_borrower": self.by_borrower}

    @classmethod
    def from_wire(cls, wire: Any) -> SignedEntry:
        """Raises BadEntry."""
        if not isinstance(wire, Mapping):
            raise BadEntry("a signed entry is no mapping")
        signatures = [_hexadecimal(wire.get(name), name, least=0) for name in ("by_lender", "by_borrower")]
        return cls(CreditEntry.from_wire(wire.get("entry")), *signatures)


@dataclass(frozen=True, slots=True)
class CreditTerms:
    """The terms between two pools.

    Attributes:
        credit: whether use is counted and paid back; else machines are lent while they are idle, and that is all.
        bound: what one may owe the other, machine-seconds.
        half_life: seconds after which half of a debt is forgotten; 0 forgets nothing.
    """

    credit: bool = False
    bound: float = 0.0
    half_life: float = 0.0

    def with_theirs(self, other: CreditTerms) -> CreditTerms:
        """The terms that hold, where the other pool has these: what both want.

        There is credit if both want it, up to the smaller bound; a debt is forgotten no faster than either would, so
        that no debtor can make its debt go by terms of its own.
        """
        lives = (self.half_life, other.half_life)
        life = max(lives) if all(lives) else 0.0
        return CreditTerms(self.credit and other.credit, min(self.bound, other.bound), life)

    def to_wire(self) -> Wire:
        return {"credit": self.credit, "bound": self.bound, "half_life": self.half_life}

    @classmethod
    def from_wire(cls, wire: Any) -> CreditTerms:
        """Raises BadEntry."""
        if not isinstance(wire, Mapping) or not isinstance(wire.get("credit"), bool):
            raise BadEntry("the terms of an agreement cannot be read")
        bound, life = (wire.get(name) for name in ("bound", "half_life"))
        for number in (bound, life):
            if not isinstance(number, int | float) or isinstance(number, bool) or not 0 <= number < LARGEST:
                raise BadEntry("the terms of an agreement have a number out of range")
        return cls(bool(wire["credit"]), float(bound or 0.0), float(life or 0.0))


@dataclass(frozen=True, slots=True)
class Judgement:
    """The borrower's answer to a proposal.

    Attributes:
        accepted: sign and keep it.
        known: signed already, as the answer; the proposal is this one again, or an older one.
        refusal: why not, for people.
        measured: milliseconds that the borrower would sign, with the claim's use.
    """

    accepted: bool = False
    known: SignedEntry | None = None
    refusal: str = ""
    measured: int = 0


class CreditLedger:
    """All signed entries between this pool and one other.

    Args:
        own_key: this world's public key.
    """

    def __init__(self, own_key: str) -> None:
        self.own_key = own_key
        self._entries: dict[tuple[str, str], SignedEntry] = {}

    def __iter__(self) -> Iterator[SignedEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, lender: str, claim: str) -> SignedEntry | None:
        """The last signed entry of a claim with this lender."""
        return self._entries.get((lender, claim))

    def add(self, signed: SignedEntry) -> bool:
        """Take in an entry that both have signed; False where this one or a later one is there already."""
        key = (signed.entry.lender, signed.entry.claim)
        known = self._entries.get(key)
        if known is not None and known.entry.sequence >= signed.entry.sequence:
            return False
        self._entries[key] = signed
        return True

    def balance(self, now: int, terms: CreditTerms) -> float:
        """Machine-seconds that the other pool owes us; negative where we owe.

        Args:
            now: wall time, milliseconds.
        """
        if not terms.half_life:
            return sum(self._sign(one.entry) * one.entry.amount for one in self) / UNIT
        return math.fsum(self._decayed(one.entry, now, terms.half_life) for one in self)

    def forget_old(self, now: int, terms: CreditTerms) -> list[SignedEntry]:
        """Drop entries of which less than a millisecond is left, and return them."""
        if not terms.half_life:
            return []
        gone = [one for one in self if abs(self._decayed(one.entry, now, terms.half_life)) < 0.001]
        for one in gone:
            del self._entries[one.entry.lender, one.entry.claim]
        return gone

    def _sign(self, entry: CreditEntry) -> int:
        return 1 if entry.lender == self.own_key else -1

    def _decayed(self, entry: CreditEntry, now: int, half_life: float) -> float:
        left: float = 0.5 ** (max(0, now - entry.at) / 1000 / half_life)
        return self._sign(entry) * entry.amount / UNIT * left


@dataclass(slots=True)
class ClaimUse:
    """One side's own measurement of a claim: from its beginning to the last call about it that both worlds saw.

    Attributes:
        pool: the other pool. lends: whether the machine is ours.
        slot: the machine's slot in its own pool. user: the job's owner in its own pool.
        value: thousandths. lease: seconds; a longer silence is not counted.
        total: milliseconds until `seen`, a time of the loop; None after a restart, when `seen_wall` is known.
        confirmed: the borrower has used the claim.
        agreed: where the borrower has measured less, what it would sign.
        forgone: milliseconds that nobody asks for: the debt had reached its bound, or nothing was agreed then.
        split: milliseconds of the claim at the last change of terms; `forgone` is right up to there.
        unasked: at the borrower, milliseconds that the lender had not asked for when an entry was last signed.
        by_credit: it was given ahead of the lender's own jobs; `way` is then its schedd, startd and id.
    """

    pool: str
    claim: str
    lends: bool
    slot: str
    user: str
    value: int
    lease: float
    total: int = 0
    seen: float | None = None
    seen_wall: float = 0.0
    confirmed: bool = False
    closed: bool = False
    agreed: int | None = None
    forgone: int = 0
    split: int = 0
    unasked: int = 0
    by_credit: bool = False
    way: tuple[str, str, str] | None = None

    def see(self, now: float, wall: float, *, credit: bool = True) -> None:
        """The claim is alive: count the time until now, in which there was an agreement with credit or was none."""
        total = self.measured(now, wall)
        if not credit:
            self.forgone += max(0, total - max(self.total, self.split))
        self.total = total
        self.seen, self.seen_wall = now, wall

    def terms_change(self, now: float, wall: float, *, credit: bool) -> None:
        """The terms change now, before which there was credit or was none. It is no sign that the claim is alive."""
        if self.closed:
            return
        until = self.measured(now, wall)
        if not credit:
            self.forgone += max(0, until - max(self.total, self.split))
        self.split = max(self.split, until)

    def measured(self, now: float, wall: float) -> int:
        """Milliseconds until now, if the claim is alive."""
        if self.seen is not None:
            since, most = now - self.seen, self.lease
        else:  # it is written every quarter of a lease; a claim that lives has lived since
            since, most = wall - self.seen_wall, 2 * self.lease
        return min(LARGEST, self.total + round(1000 * min(max(since, 0.0), most)))

    @property
    def asked_time(self) -> int:
        """The milliseconds that were measured while there was credit, and below the bound."""
        return max(0, self.total - self.forgone)

    def billed(self, last: int = 0) -> int:
        """The time that the lender asks for: its own measurement, or what the borrower would sign of it.

        Args:
            last: signed already. Where that is all that the borrower would sign of a claim that goes on, it is asked
                again for the whole: it may have been restarted, or cut off.
        """
        if self.agreed is None or (not self.closed and self.agreed <= last):
            return self.asked_time
        return min(self.asked_time, self.agreed)

    def disputed(self, last: int) -> int:
        """Millionths of machine-seconds that the borrower was asked for and did not sign; it has signed `last`."""
        return max(0, self.asked_time - last) * self.value if self.agreed is not None else 0

    def to_wire(self) -> Wire:
        return {name: getattr(self, name) for name in self.__slots__ if name != "seen"}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> ClaimUse:
        """As this pool itself has kept it."""
        way = wire.get("way")
        return cls(**{**wire, "way": tuple(way) if way else None})

    def proposal(self, lender: str, borrower: str, sequence: int, wall: float, last: int = 0) -> CreditEntry:
        """The lender's next entry for it, after `last` milliseconds."""
        at, total = round(wall * 1000), max(last, self.billed(last))
        return CreditEntry(lender, borrower, self.claim, sequence, total, self.value, at)


def judge_proposal(
    entry: CreditEntry, ledger: CreditLedger, use: ClaimUse | None, wall: float, terms: CreditTerms
) -> Judgement:
    """Whether the borrower signs an entry of the lender's.

    Args:
        entry: its keys are those of both worlds.
        use: the borrower's own measurement of the claim, up to the last call about it that passed here; None where it
            has no such claim.
        wall: wall time.
        terms: those that hold.
    """
    owed = -ledger.balance(round(wall * 1000), terms)
    known = ledger.find(entry.lender, entry.claim)
    if known is not None and known.entry.sequence >= entry.sequence:
        return Judgement(known=known)
    if known is not None and known.entry.kind is not entry.kind:
        return Judgement(refusal="an entry of another kind has this name")
    if abs(entry.at - wall * 1000) > CLOCKS:
        return Judgement(refusal="the clocks of the two pools differ by days")
    if entry.kind is EntryKind.SETTLED:
        if known is not None or owed <= 0 or -entry.amount > owed * UNIT * 1.01 + UNIT:
            return Judgement(refusal="it forgives more than is owed")
        if -entry.amount < owed * UNIT * LEAST_FORGIVEN:
            return Judgement(refusal="it forgives next to nothing")  # without an end, each an entry for good
        return Judgement(accepted=True)
    if use is None or use.lends:
        return Judgement(refusal="this pool has no such claim")
    if entry.value != use.value:
        return Judgement(refusal=f"the machine's value was {use.value / 1000:g} when it was claimed")
    if entry.total > most_signed(use.asked_time):
        return Judgement(refusal="more than was measured here", measured=use.asked_time)
    last = known.entry.total if known is not None else 0
    if entry.total < last:
        return Judgement(refusal="less than was signed before")
    after = owed + (entry.total - last) * entry.value / UNIT
    if entry.total > last and after > terms.bound * (1 + SLACK_PART) + SLACK * entry.value / UNIT:
        allowed = room_for(terms, owed, last, entry.value)
        return Judgement(refusal="the bound of the agreement is reached", measured=allowed)
    return Judgement(accepted=True)


def room_for(terms: CreditTerms, owed: float, last: int, value: int) -> int:
    """The milliseconds up to which a claim may be put into the ledger before the debt is at its bound.

    Args:
        owed: by the borrower now, machine-seconds. last: of this claim, in the ledger already.
    """
    return min(LARGEST, last + int(max(0.0, terms.bound - owed) * UNIT) // value)


def most_signed(measured: int) -> int:
    """The milliseconds up to which a borrower signs that has measured so many."""
    return min(LARGEST, measured + max(SLACK, int(measured * SLACK_PART)))


def given_in(use: ClaimUse, measured: Any, last: int) -> int:
    """The time that the lender proposes after a refusal, milliseconds: as much as the borrower would sign.

    Args:
        measured: as the borrower says; not trusted.
        last: what it has signed of the claim already.
    """
    if type(measured) is not int or not 0 <= measured <= LARGEST:
        measured = 0
    return max(last, min(use.asked_time, most_signed(measured)))


def settling(balance: float, lender: str, borrower: str, claim: str, wall: float) -> CreditEntry:
    """The entry by which a lender forgives its whole balance, machine-seconds."""
    total = min(LARGEST, max(0, round(balance * 1000)))
    return CreditEntry(lender, borrower, claim, 1, total, 1000, round(wall * 1000), EntryKind.SETTLED)


def claim_digest(startd: str, claim: str) -> str:
    """The name of a claim in ledgers, which is no secret as the claim's id is."""
    return hashlib.sha256(f"{startd}|{claim}".encode()).hexdigest()[:32]


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise BadEntry(f"an entry of the ledger: {name} is no whole number up to 2^53")
    return value


def _hexadecimal(value: Any, name: str, least: int = 32) -> str:
    if not isinstance(value, str) or not least <= len(value) <= 128 or not set(value) <= set("0123456789abcdef"):
        raise BadEntry(f"an entry of the ledger: {name} is not hexadecimal")
    return value

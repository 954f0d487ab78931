"""The ledgers between this pool and others: use of machines measured, proposed, signed and kept (EV 4.2).

Both worlds see every call about a claim that passes between the pools, its renewals among them; each measures by those.
The lender proposes entries to the borrower after each lease and when claims end. The rules are in
`pool.policy.flock.ledger`; here are the measurements, the disk, and the exchange.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy.flock.ledger import (
    UNIT,
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
    room_for,
    settling,
)
from pool.policy.flock.payback import lasts, slots_ahead
from pool.policy.flock.reports import plain_line
from pool.roles.base import Spawn
from pool.roles.cooperative import WorkTurns
from pool.roles.world.claim_measures import ClaimMeasures
from pool.roles.world.ledger_disk import LedgerDisk, entry_row, partner_row, settling_row, use_row
from pool.roles.world.rare_log import RareLog
from pool.roles.world.relay import NoWay
from pool.store.flock_ledger import FlockLedgerStore, Row
from pool.wire import Connection
from pool.wire.signing import SigningKey, is_signed

Wire = dict[str, Any]
#: Entries in one call.
BATCH = 200
#: Seconds for an exchange.
PATIENCE = 30.0
#: Seconds after the end of a claim for which others gather.
GATHER = 1.0
#: A partner that has answered no exchange for so many times `every` is silent.
SILENT = 2.0
#: Entries that `history` has, the newest first.
SHOWN = 20
#: A lender whose measurements were not signed for so much lends no more: machine-seconds, and a part of the bound.
DISPUTED, DISPUTED_PART = 3600.0, 0.01


@dataclass(slots=True)
class Partner:
    """Another pool, as the ledger knows it.

    Attributes:
        key: its world's public key; empty while it is not known.
        terms: its terms.
        disputed: millionths of machine-seconds that it did not sign.
        trouble: why the last exchange failed.
        silent_since: time of the loop since when each exchange has failed.
    """

    ledger: CreditLedger
    key: str = ""
    terms: CreditTerms = field(default_factory=CreditTerms)
    disputed: int = 0
    trouble: str = ""
    silent_since: float | None = None

    def to_wire(self) -> Wire:
        return {"key": self.key, "terms": self.terms.to_wire(), "disputed": self.disputed}


class CreditBook:
    """All ledgers of one world.

    Args:
        terms: ours with a pool.
        turns: signatures are checked in slices.
        borrower: the connection to a pool that borrows from us. Raises NoWay.
        every: seconds within which the ledgers of two pools become equal; a quarter of it between two exchanges.
    """

    def __init__(
        self,
        store: FlockLedgerStore,
        key: SigningKey,
        outside: OutsideWorld,
        *,
        turns: WorkTurns,
        spawn: Spawn,
        log: logging.Logger,
        terms: Callable[[str], CreditTerms],
        borrower: Callable[[str], Connection],
        every: float,
    ) -> None:
        self._key = key
        self._outside = outside
        self._turns = turns
        self._spawn = spawn
        self._log = log
        self._rare = RareLog(log)
        self._own_terms = terms
        self._borrower = borrower
        self.every = every
        self.partners: dict[str, Partner] = {}
        self._settling: dict[tuple[str, str], CreditEntry] = {}
        self._disk = LedgerDisk(store, spawn, log)
        self.measures = ClaimMeasures(self._disk, outside, terms=self.terms, counts=self._counts)
        self._agreed: dict[str, CreditTerms] = {}
        self._load(store)

    def _load(self, store: FlockLedgerStore) -> None:
        for part, key, value in store.load():
            pool, _, rest = key.partition("|")
            if part == "pool":
                partner = self._keep_partner(pool)
                partner.key, partner.disputed = str(value["key"]), int(value["disputed"])
                partner.terms = CreditTerms.from_wire(value["terms"])
            elif part == "entry":
                self._keep_partner(pool).ledger.add(SignedEntry.from_wire(value))
            elif part == "use":
                use = ClaimUse.from_wire(value)
                self.measures.uses[use.pool, use.lends, use.claim] = use
            elif part == "terms":
                self._agreed[pool] = CreditTerms.from_wire(value)
            elif part == "settling":
                self._settling[pool, rest] = CreditEntry.from_wire(value)

    def _partner(self, pool: str) -> Partner:
        """The record of a pool; an empty one, where it is a name only."""
        return self.partners.get(pool) or Partner(CreditLedger(self._key.public))

    def _keep_partner(self, pool: str) -> Partner:
        return self.partners.setdefault(pool, self._partner(pool))

    @property
    def pools(self) -> set[str]:
        """All pools with a ledger, or with terms of ours."""
        return {*self.partners, *self._agreed}

    # -- terms and balance -------------------------------------------------------------------------------

    def terms(self, pool: str) -> CreditTerms:
        """The terms that hold between us."""
        return self._own_terms(pool).with_theirs(self._partner(pool).terms)

    def agreed(self, pool: str) -> CreditTerms:
        """Our terms with a pool by `invite` and `accept`; the flock's file may say others."""
        return self._agreed.get(pool, CreditTerms())

    async def agree(self, pool: str, terms: CreditTerms) -> None:
        """Keep our terms with a pool."""
        self.measures.terms_change(pool)
        self._agreed[pool] = terms
        await self._disk.save([("terms", pool, terms.to_wire())])
        self.greet(pool)

    def balance(self, pool: str) -> float:
        """Machine-seconds that the pool owes us by the ledger, negative where we owe."""
        return self._partner(pool).ledger.balance(round(self._outside.wall() * 1000), self.terms(pool))

    def running(self, pool: str) -> float:
        """Machine-seconds that are measured and not in the ledger yet, as `balance` counts them."""
        now, wall, found = self._now(), self._outside.wall(), 0
        for use in self.measures.of_pool(pool) if self.terms(pool).credit else ():
            total = use.total if use.closed else use.measured(now, wall)
            found += (
                max(0, total - use.forgone - use.unasked - self._signed(use)) * use.value * (1 if use.lends else -1)
            )
        return found / UNIT

    def owed(self, pool: str) -> float:
        """Machine-seconds that we owe a pool now, with all that is measured, and no more than the bound."""
        terms = self.terms(pool)
        return min(terms.bound, max(0.0, -(self.balance(pool) + self.running(pool)))) if terms.credit else 0.0

    def slots_ahead(self, pool: str) -> int:
        """How many more machines a pool may have ahead of our own jobs, to pay back what we owe it."""
        return slots_ahead(self.owed(pool), self._rate(pool))

    def _rate(self, pool: str) -> float:
        return sum(use.value for use in self.measures.of_pool(pool) if use.lends and not use.closed) / 1000

    def is_ahead(self, pool: str, startd: str, claim: object) -> bool:
        """Whether a claim on a machine of ours was given ahead of our own jobs."""
        use = self.measures.find(pool, startd, claim, lends=True)
        return use is not None and use.by_credit

    def paid_back(self) -> Iterator[tuple[ClaimUse, float]]:
        """Claims that were given ahead of our own jobs, and the seconds until nothing is owed for them any more."""
        for pool in {use.pool for use in self.measures.uses.values() if use.by_credit and not use.closed}:
            left = lasts(self.owed(pool), self._rate(pool))
            for use in self.measures.of_pool(pool):
                if use.by_credit and not use.closed:
                    yield use, left

    def why_not_lend(self, pool: str) -> str:
        """Why this pool gets no machine of ours, by its ledger; empty where it may."""
        terms, partner = self.terms(pool), self._partner(pool)
        if not terms.credit:
            return ""
        lent = [use for use in self.measures.of_pool(pool) if use.lends and use.confirmed]
        disputed = (partner.disputed + sum(use.disputed(self._signed(use)) for use in lent)) / UNIT
        most = max(DISPUTED, DISPUTED_PART * terms.bound)
        if disputed > most:
            return f"the ledgers of the two pools differ by {disputed / 3600:.1f} machine-hours"
        silent = partner.silent_since is not None and self._now() - partner.silent_since > SILENT * self.every
        if silent and sum((use.asked_time - self._signed(use)) * use.value for use in lent) / UNIT > most:
            return f"it does not sign what was lent to it: {partner.trouble}"
        return ""

    def status(self, pool: str) -> Wire:
        """A pool's ledger as an administrator is shown it."""
        ours, partner = self._own_terms(pool), self._partner(pool)
        holds = ours.with_theirs(partner.terms)
        entries = sorted(partner.ledger, key=lambda one: -one.entry.at)[:SHOWN]
        return {
            "agreement": "credit" if holds.credit else "idle-only",
            "they_want": ("credit" if partner.terms.credit else "idle-only") if partner.key else "",
            "we_want": "credit" if ours.credit else "idle-only",
            "bound": holds.bound,
            "half_life": holds.half_life,
            "balance": self.balance(pool),
            "running": self.running(pool),
            "disputed": partner.disputed / UNIT,
            "not_lent": self.why_not_lend(pool),
            "ledger_trouble": self._disk.trouble or partner.trouble,
            "history": [
                {
                    "claim": one.entry.claim[:12],
                    "lent": one.entry.lender == self._key.public,
                    "kind": one.entry.kind.value,
                    "seconds": one.entry.total / 1000,
                    "value": one.entry.value / 1000,
                    "time": one.entry.at / 1000,
                }
                for one in entries
            ],
        }

    def taken_back(self, use: ClaimUse) -> None:
        """A claim is no longer ahead of our own jobs: its machine is taken back."""
        use.by_credit = False
        self.measures.changed(use)

    def _counts(self, pool: str) -> bool:
        """Whether we want credit with a pool, or have had it."""
        return self._own_terms(pool).credit or self._partner(pool).key != ""

    def _signed(self, use: ClaimUse) -> int:
        partner = self._partner(use.pool)
        known = partner.ledger.find(self._key.public if use.lends else partner.key, use.claim)
        return known.entry.total if known is not None else 0

    # -- the lender's side -------------------------------------------------------------------------------

    def greet(self, pool: str) -> None:
        """A pool that borrows has connected, or our terms have changed: tell it our terms."""
        if self._own_terms(pool).credit or pool in self.partners:
            self._spawn(self.exchange(pool), "exchange", alone=True)

    async def run(self) -> None:
        """Propose entries for as long as the world runs."""
        while True:
            try:
                async with asyncio.timeout(self.every / 4):
                    await self.measures.ended.wait()
                await asyncio.sleep(GATHER)
            except TimeoutError:
                pass
            self.measures.ended.clear()
            self.measures.sweep()
            self._forget_old()
            await self._disk.try_save()
            await asyncio.gather(*map(self.exchange, sorted(self._pools_to_ask())))  # one may hang

    def _forget_old(self) -> None:
        for pool, partner in self.partners.items():
            gone = partner.ledger.forget_old(round(self._outside.wall() * 1000), self.terms(pool))
            self._disk.add_rows(entry_row(pool, one, gone=True) for one in gone)

    def _pools_to_ask(self) -> set[str]:
        """Pools of which something is to be signed."""
        lent = {use.pool for use in self.measures.uses.values() if use.lends and self._counts(use.pool)}
        return lent | {pool for pool, _ in self._settling}

    async def exchange(self, pool: str) -> None:
        """Propose what is new to a pool that borrows, and take in its answers; trouble is told in `status`."""
        partner = self._keep_partner(pool)
        try:
            asked = {"key": self._key.public, "terms": self._own_terms(pool).to_wire(), "entries": []}
            if not partner.key or partner.trouble or not self.terms(pool).credit:
                answer = await self._borrower(pool).call("world_back.credit", asked, timeout=PATIENCE)
                await self._take_introduction(pool, answer)
            proposals = self._proposals(pool)
            for start in range(0, max(1, len(proposals)), BATCH):
                some = proposals[start : start + BATCH]
                items = [{**one.to_wire(), "final": final} for one, final in some]
                answer = await self._borrower(pool).call(
                    "world_back.credit", {**asked, "entries": items}, timeout=PATIENCE
                )
                await self._take_introduction(pool, answer)
                await self._take_answers(pool, [one for one, _ in some], answer)
            partner.trouble, partner.silent_since = "", None
        except (PoolError, OSError, TimeoutError) as error:
            if isinstance(error, NoWay) and pool not in self._pools_to_ask():
                return  # it borrows nothing: there is nothing to tell it
            partner.trouble = plain_line(str(error))
            partner.silent_since = self._now() if partner.silent_since is None else partner.silent_since
            self._log.info("a ledger was not exchanged", extra={"pool": pool, "error": str(error)})

    def _proposals(self, pool: str) -> list[tuple[SignedEntry, bool]]:
        wall, found = self._outside.wall(), list[tuple[SignedEntry, bool]]()
        partner, terms = self._partner(pool), self.terms(pool)
        owed = self.balance(pool)
        for use in self.measures.of_pool(pool) if terms.credit else ():
            if not use.lends or not use.confirmed:
                continue
            if not use.closed and use.seen is None and wall - use.seen_wall < use.lease:
                continue  # this world was restarted: the next renewal tells whether the claim lives
            known = partner.ledger.find(self._key.public, use.claim)
            last = known.entry.total if known is not None else 0
            use.forgone += max(0, use.asked_time - room_for(terms, owed, last, use.value))
            if use.billed(last) <= last and not use.closed:
                continue
            owed += max(0, use.billed(last) - last) * use.value / UNIT
            sequence = known.entry.sequence + 1 if known is not None else 1
            entry = use.proposal(self._key.public, partner.key, sequence, wall, last)
            found.append((self._signed_proposal(entry), use.closed))
        for (other, _), entry in self._settling.items():
            if other == pool:
                found.append((self._signed_proposal(entry), True))
        return found

    def _signed_proposal(self, entry: CreditEntry) -> SignedEntry:
        return SignedEntry(entry, self._key.sign(entry.signed_text()))

    async def _take_introduction(self, pool: str, said: Any) -> None:
        """Take in the other world's key and terms.

        Raises:
            BadEntry: they cannot be read, or the key is another than before.
        """
        partner = self._partner(pool)
        key = said.get("key") if isinstance(said, dict) else None
        if not isinstance(key, str) or len(key) != 64 or not set(key) <= set("0123456789abcdef"):
            raise BadEntry(f"the pool {pool} has told no key for its ledger")
        if partner.key and partner.key != key:
            raise BadEntry(
                f"the pool {pool} signs its ledger with another key than before",
                hint=f"if its administrator says so, `poolnode flock leave {pool}`, and begin anew",
            )
        if key == self._key.public:
            raise BadEntry(f"the pool {pool} shows our own key for its ledger")
        terms = CreditTerms.from_wire(said.get("terms"))
        if (key, terms) != (partner.key, partner.terms):
            self._rare.warning("another pool says its terms", {"pool": pool, **terms.to_wire()}, logging.INFO)
            self.measures.terms_change(pool)
            partner = self._keep_partner(pool)
            partner.key, partner.terms = key, terms
            await self._disk.save([partner_row(pool, partner.to_wire())])

    async def _take_answers(self, pool: str, proposed: list[SignedEntry], answer: Wire) -> None:
        answers = answer.get("answers")
        if not isinstance(answers, list) or len(answers) != len(proposed):
            raise BadEntry(f"the pool {pool} has not answered for each entry")
        async with self._turns.work(pool, "check a ledger's signatures") as turn:
            for mine, said in zip(proposed, answers, strict=True):
                if turn.is_over:
                    await turn.pause()
                self._disk.add_rows(self._take_answer(pool, mine, said))  # what is known in memory comes to the disk
        await self._disk.save()

    def _take_answer(self, pool: str, mine: SignedEntry, said: Any) -> list[Row]:
        if not isinstance(said, dict):
            raise BadEntry(f"the pool {pool} has answered with no mapping")
        partner, claim = self._partner(pool), mine.entry.claim
        use = self.measures.uses.get((pool, True, claim))
        if "signed" in said:
            signed = SignedEntry.from_wire(said["signed"])
            if use is None or signed.entry.sequence >= mine.entry.sequence:
                return self._adopt(pool, mine, signed)
            return self._give_in(partner, use, {"refused": "it answers with an older entry"})
        if mine.entry.kind is EntryKind.USE:
            return self._give_in(partner, use, said) if use is not None else []
        if self._settling.pop((pool, claim), None) is not None:
            self._log.warning(
                "another pool does not sign that a debt is forgiven",
                extra={"pool": pool, "why": str(said.get("refused"))[:200]},
            )
        return [settling_row(pool, claim, None)]

    def _adopt(self, pool: str, mine: SignedEntry, signed: SignedEntry) -> list[Row]:
        """Take in an entry that the borrower has signed: this one, or one that we had proposed before."""
        entry, partner = signed.entry, self._partner(pool)
        own = (entry.lender, entry.borrower, entry.claim) == (self._key.public, partner.key, mine.entry.claim)
        text = entry.signed_text()
        if not own or not is_signed(text, signed.by_lender, self._key.public):
            raise BadEntry(f"the pool {pool} has signed an entry that we have not proposed")
        if not is_signed(text, signed.by_borrower, partner.key):
            raise BadEntry(f"the signature of the pool {pool} is wrong")
        rows: list[Row] = []
        if partner.ledger.add(signed):
            rows.append(entry_row(pool, signed))
        use = self.measures.uses.get((pool, True, entry.claim))
        if use is None:
            self._settling.pop((pool, entry.claim), None)
            rows.append(settling_row(pool, entry.claim, None))
        elif use.closed and entry.total >= use.billed():
            rows += self._finish(partner, use)
        elif use.agreed is not None and entry.total > use.agreed:
            use.agreed = None
        return rows

    def _give_in(self, partner: Partner, use: ClaimUse, said: Wire) -> list[Row]:
        last = self._signed(use)
        before = use.agreed
        use.agreed = given_in(use, said["measured"], last) if "measured" in said else last
        why = {"pool": use.pool, "claim": use.claim[:12], "why": str(said.get("refused"))[:200]}
        self._rare.warning("another pool does not sign what was measured here", why)
        if use.closed and (use.agreed <= last or before is not None):
            return self._finish(partner, use)
        if use.closed:
            self.measures.ended.set()
        return [use_row(use)]

    def _finish(self, partner: Partner, use: ClaimUse) -> list[Row]:
        partner.disputed += use.disputed(self._signed(use))
        del self.measures.uses[use.pool, use.lends, use.claim]
        return [use_row(use, gone=True), partner_row(use.pool, partner.to_wire())]

    async def settle(self, pool: str) -> tuple[float, float, bool]:
        """Forgive a pool what it owes us, and what it has not signed; both in machine-seconds, and whether it has
        answered. If not, it is asked again until it has: then it is in both ledgers."""
        partner = self._partner(pool)
        claims = [claim for other, claim in self._settling if other == pool]
        forgiven = max(0.0, self.balance(pool) + sum(self._settling[pool, one].amount for one in claims) / UNIT)
        unsigned = partner.disputed / UNIT
        if not partner.key or (not forgiven and not unsigned):
            raise PoolError(f"the pool {pool} owes nothing that could be forgiven")
        partner.disputed = 0
        rows: list[Row] = [partner_row(pool, partner.to_wire())]
        if forgiven:
            claim = claim_digest(pool, self._outside.secret(16))
            entry = settling(forgiven, self._key.public, partner.key, claim, self._outside.wall())
            self._settling[pool, claim] = entry
            rows.append(settling_row(pool, claim, entry.to_wire()))
        await self._disk.save(rows)
        await self.exchange(pool)
        return forgiven, unsigned, not any(other == pool for other, _ in self._settling)

    # -- the borrower's side -----------------------------------------------------------------------------

    async def answer(self, pool: str, params: Wire) -> Wire:
        """A lender's proposals: {key, terms, entries: [{entry, by_lender, final}]} -> {key, terms, answers}

        Each answer is {signed: entry} with both signatures, or {refused: why, measured: milliseconds}.

        Raises:
            BadEntry: something in it cannot be read.
        """
        if len(params["entries"]) > BATCH:
            raise BadEntry(f"more than {BATCH} entries in one call")
        if not self._own_terms(pool).credit and pool not in self.partners:
            nothing = [{"refused": "this pool has agreed to no credit"} for _ in params["entries"]]
            return self._reply(pool, nothing)
        await self._take_introduction(pool, params)
        answers = list[Wire]()
        async with self._turns.work(pool, "check a ledger's signatures") as turn:
            for item in params["entries"]:
                if turn.is_over:
                    await turn.pause()
                told, rows = self._judge(pool, item)
                answers.append(told)
                self._disk.add_rows(rows)
        await self._disk.save()  # only what is on disk is answered
        return self._reply(pool, answers)

    def _reply(self, pool: str, answers: list[Wire]) -> Wire:
        return {"key": self._key.public, "terms": self._own_terms(pool).to_wire(), "answers": answers}

    def _judge(self, pool: str, item: Wire) -> tuple[Wire, list[Row]]:
        proposed, partner, terms = SignedEntry.from_wire(item), self._partner(pool), self.terms(pool)
        entry = proposed.entry
        if (entry.lender, entry.borrower) != (partner.key, self._key.public):
            raise BadEntry("an entry is of other pools")
        text = entry.signed_text()
        if not is_signed(text, proposed.by_lender, partner.key):
            raise BadEntry("the lender's signature is wrong")
        if not terms.credit and entry.kind is EntryKind.USE:
            return {"refused": "there is no agreement with credit"}, []
        use = self.measures.uses.get((pool, False, entry.claim))
        found = judge_proposal(entry, partner.ledger, use, self._outside.wall(), terms)
        if found.known is not None:
            return {"signed": found.known.to_wire()}, []
        if not found.accepted:
            said = {"pool": pool, "claim": entry.claim[:12], "why": found.refusal}
            self._rare.warning("an entry of another pool was not signed", said)
            return {"refused": found.refusal} | ({"measured": found.measured} if found.measured else {}), []
        signed = SignedEntry(entry, proposed.by_lender, self._key.sign(text))
        partner.ledger.add(signed)
        self.measures.ahead.set()
        rows = [entry_row(pool, signed)]
        if use is not None and item.get("final") is True:
            if not use.closed:
                use.closed = True  # the lender counts no more of it
            rows.append(use_row(use, gone=True))
            del self.measures.uses[pool, False, entry.claim]
        elif use is not None:
            use.unasked = max(0, use.asked_time - entry.total)
        return {"signed": signed.to_wire()}, rows

    def forget_key(self, pool: str) -> None:
        """There is no agreement any more: the next one may bring another key. The entries stay."""
        rows: list[Row] = [("terms", pool, None)]
        self.measures.terms_change(pool)
        self._agreed.pop(pool, None)
        for key in [key for key in self._settling if key[0] == pool]:
            del self._settling[key]  # another key would not sign it
            rows.append(settling_row(*key, None))
        if (partner := self.partners.get(pool)) is not None:
            partner.key, partner.terms, partner.trouble = "", CreditTerms(), ""
            rows.append(partner_row(pool, partner.to_wire()))
        self._disk.put_soon(rows)

    def _now(self) -> float:
        return self.measures.now()

    def close(self, *, killed: bool = False) -> None:
        """Write what is not written, unless the process was killed, and close the file."""
        self._disk.close(self.measures.rows(), killed=killed)

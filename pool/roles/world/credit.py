"""The ledgers between this pool and others: use of machines measured, proposed, signed and kept (EV 4.2).

Both worlds see every call about a claim that passes between the pools, its renewals among them; each measures by those.
The lender proposes entries to the borrower after each lease and when claims end. The rules are in
`pool.policy.flock.ledger`; here are the measurements, the disk, and the exchange.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
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
    SignedEntry,
    claim_digest,
    given_in,
    judge_proposal,
    room_for,
    settling,
)
from pool.policy.flock.payback import lasts, slots_ahead
from pool.policy.flock.value import value_in_ledger
from pool.roles.base import Spawn
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
#: Seconds for which a borrower keeps the measurement of a claim that has ended and was not signed.
KEPT = 30 * 86400.0
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
    """

    ledger: CreditLedger
    key: str = ""
    terms: CreditTerms = field(default_factory=CreditTerms)
    disputed: int = 0
    trouble: str = ""

    def to_wire(self) -> Wire:
        return {"key": self.key, "terms": self.terms.to_wire(), "disputed": self.disputed}


class CreditBook:
    """All ledgers of one world.

    Args:
        terms: ours with a pool.
        borrower: the connection to a pool that borrows from us. Raises NoWay.
        every: seconds within which the ledgers of two pools become equal; a quarter of it between two exchanges.
    """

    def __init__(
        self,
        store: FlockLedgerStore,
        key: SigningKey,
        outside: OutsideWorld,
        *,
        spawn: Spawn,
        log: logging.Logger,
        terms: Callable[[str], CreditTerms],
        borrower: Callable[[str], Connection],
        every: float,
    ) -> None:
        self._store = store
        self._key = key
        self._outside = outside
        self._spawn = spawn
        self._log = log
        self._own_terms = terms
        self._borrower = borrower
        self.every = every
        self.partners: dict[str, Partner] = {}
        self.uses: dict[tuple[str, bool, str], ClaimUse] = {}
        self._settling: dict[tuple[str, str], CreditEntry] = {}
        self._dirty: set[tuple[str, bool, str]] = set()
        self._unwritten: list[Row] = []
        self._wake = asyncio.Event()
        self.ahead = asyncio.Event()
        self._saving: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._agreed: dict[str, CreditTerms] = {}
        self._load()

    def _load(self) -> None:
        for part, key, value in self._store.load():
            pool, _, rest = key.partition("|")
            if part == "pool":
                partner = self._partner(pool)
                partner.key, partner.disputed = str(value["key"]), int(value["disputed"])
                partner.terms = CreditTerms.from_wire(value["terms"])
            elif part == "entry":
                self._partner(pool).ledger.add(SignedEntry.from_wire(value))
            elif part == "use":
                use = ClaimUse.from_wire(value)
                self.uses[use.pool, use.lends, use.claim] = use
            elif part == "terms":
                self._agreed[pool] = CreditTerms.from_wire(value)
            elif part == "settling":
                self._settling[pool, rest] = CreditEntry.from_wire(value)

    def _partner(self, pool: str) -> Partner:
        return self.partners.setdefault(pool, Partner(CreditLedger(self._key.public)))

    # -- terms and balance -------------------------------------------------------------------------------

    def terms(self, pool: str) -> CreditTerms:
        """The terms that hold between us."""
        return self._own_terms(pool).with_theirs(self._partner(pool).terms)

    def agreed(self, pool: str) -> CreditTerms:
        """Our terms with a pool by `invite` and `accept`; the flock's file may say others."""
        return self._agreed.get(pool, CreditTerms())

    async def agree(self, pool: str, terms: CreditTerms) -> None:
        """Keep our terms with a pool."""
        for use in self._uses_of(pool):
            if not use.closed:
                self._measure(use)
        self._agreed[pool] = terms
        await self._save([("terms", pool, terms.to_wire())])
        self.greet(pool)

    def balance(self, pool: str) -> float:
        """Machine-seconds that the pool owes us by the ledger, negative where we owe."""
        return self._partner(pool).ledger.balance(round(self._outside.wall() * 1000), self.terms(pool))

    def running(self, pool: str) -> float:
        """Machine-seconds that are measured and not in the ledger yet, as `balance` counts them."""
        now, wall, found = self._now(), self._outside.wall(), 0
        for use in self._uses_of(pool) if self.terms(pool).credit else ():
            total = use.total if use.closed else use.measured(now, wall)
            found += (total - use.forgone - self._signed(use)) * use.value * (1 if use.lends else -1)
        return found / UNIT

    def slots_ahead(self, pool: str) -> int:
        """How many more machines a pool may have ahead of our own jobs, to pay back what we owe it."""
        if not self.terms(pool).credit:
            return 0
        return slots_ahead(-(self.balance(pool) + self.running(pool)), self._rate(pool))

    def _rate(self, pool: str) -> float:
        return sum(use.value for use in self._uses_of(pool) if use.lends and not use.closed) / 1000

    def is_ahead(self, pool: str, startd: str, claim: object) -> bool:
        """Whether a claim on a machine of ours was given ahead of our own jobs."""
        use = self.uses.get((pool, True, claim_digest(startd, str(claim))))
        return use is not None and use.by_credit

    def paid_back(self) -> Iterator[tuple[ClaimUse, float]]:
        """Claims that were given ahead of our own jobs, and the seconds until nothing is owed for them any more."""
        for pool in {use.pool for use in self.uses.values() if use.by_credit and not use.closed}:
            left = lasts(-(self.balance(pool) + self.running(pool)), self._rate(pool))
            for use in self._uses_of(pool):
                if use.by_credit and not use.closed:
                    yield use, left

    def why_not_lend(self, pool: str) -> str:
        """Why this pool gets no machine of ours, by its ledger; empty where it may."""
        terms, partner = self.terms(pool), self._partner(pool)
        open_now = sum(use.disputed for use in self._uses_of(pool) if use.lends and use.confirmed)
        disputed = (partner.disputed + open_now) / UNIT
        if terms.credit and disputed > max(DISPUTED, DISPUTED_PART * terms.bound):
            return f"the ledgers of the two pools differ by {disputed / 3600:.1f} machine-hours"
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
            "trouble": partner.trouble,
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

    # -- measuring ---------------------------------------------------------------------------------------

    def begin(
        self,
        pool: str,
        startd: str,
        made: Wire,
        *,
        lends: bool,
        user: str,
        lease: float,
        way: tuple[str, str, str] | None = None,
    ) -> None:
        """A claim was made: {claim, slot, ad} as its startd said. Without an agreement with credit it is known, too: it
        may outlive the day on which one is made, and counts from then on.

        Args:
            way: of a machine that was given ahead of our own jobs: the schedd, the startd and the claim's id.
        """
        claim = claim_digest(startd, str(made.get("claim")))
        value = value_in_ledger(made.get("ad"))
        use = ClaimUse(
            pool, claim, lends, str(made.get("slot")), user, value, lease, way=way, by_credit=way is not None
        )
        use.confirmed = not lends
        use.seen, use.seen_wall = self._now(), self._outside.wall()
        self.uses[pool, lends, claim] = use
        self._changed(use)
        if way is not None:
            self.ahead.set()

    def seen(self, pool: str, startd: str, claims: Iterable[Any], *, lends: bool) -> None:
        """Calls about these claims have passed."""
        for claim in claims:
            use = self.uses.get((pool, lends, claim_digest(startd, str(claim))))
            if use is not None and not use.closed:
                first = not use.confirmed or use.seen is None
                self._measure(use)
                use.confirmed = True
                if first:
                    self._changed(use)

    def over(self, pool: str, startd: str, claims: Iterable[Any], *, lends: bool) -> None:
        """These claims have ended."""
        for claim in claims:
            use = self.uses.get((pool, lends, claim_digest(startd, str(claim))))
            if use is not None and not use.closed:
                self._measure(use)
                self._close(use)

    def _measure(self, use: ClaimUse) -> None:
        before = use.total
        use.see(self._now(), self._outside.wall())
        if not self.terms(use.pool).credit:
            use.forgone += use.total - before  # nobody asks for time without an agreement

    def called(self, pool: str, startd: str, verb: str, params: Wire, answer: Any, *, lends: bool) -> None:
        """A call about claims has passed, either way: {claim} or {claims}, and the answer to it."""
        claims = params["claims"] if isinstance(params.get("claims"), list) else [params.get("claim")]
        gone = answer.get("gone") if verb == "renew" and isinstance(answer, dict) else None
        ended = claims if verb in ("release", "revoked") else gone if isinstance(gone, list) else []
        self.over(pool, startd, ended, lends=lends)
        self.seen(pool, startd, (claim for claim in claims if claim not in ended), lends=lends)

    def taken_back(self, use: ClaimUse) -> None:
        """A claim is no longer ahead of our own jobs: its machine is taken back."""
        use.by_credit = False
        self._changed(use)

    def sweep(self) -> None:
        """Close claims that nobody renews any more, and forget what nobody will ask for."""
        now, wall = self._now(), self._outside.wall()
        for key, use in list(self.uses.items()):
            silent = now - use.seen if use.seen is not None else wall - use.seen_wall
            if not use.closed and silent > 2 * use.lease:
                self._close(use)
            elif use.closed and not use.lends and silent > KEPT:
                self._drop(key)
        self._dirty |= {key for key, use in self.uses.items() if not use.closed and self._counts(use)}
        for pool, partner in self.partners.items():
            gone = partner.ledger.forget_old(round(wall * 1000), self.terms(pool))
            if gone:
                self._spawn(self._save([_entry_row(pool, one, gone=True) for one in gone]), "forget", alone=True)

    def _close(self, use: ClaimUse) -> None:
        use.closed = True
        if not self._counts(use):
            self.uses.pop((use.pool, use.lends, use.claim), None)
        elif use.lends and not use.confirmed:
            self._drop((use.pool, use.lends, use.claim))  # no schedd of the other pool has ever known of it
        else:
            self._changed(use)
            self._wake.set()

    def _counts(self, use: ClaimUse) -> bool:
        """Whether we want credit with its pool, or have had it: only then it is kept on disk and proposed."""
        return self._own_terms(use.pool).credit or self._partner(use.pool).key != ""

    def _uses_of(self, pool: str) -> list[ClaimUse]:
        return [use for use in self.uses.values() if use.pool == pool]

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
                    await self._wake.wait()
                await asyncio.sleep(GATHER)
            except TimeoutError:
                pass
            self._wake.clear()
            self.sweep()
            await self._save_measurements()
            lent = {use.pool for use in self.uses.values() if use.lends and self._counts(use)}
            for pool in sorted(lent | self._pools_to_settle()):
                await self.exchange(pool)

    async def _save_measurements(self) -> None:
        try:
            await self._save([])
        except PoolError as error:
            self._log.error("the flock's ledger is not saved", extra={"why": str(error)})

    def _pools_to_settle(self) -> set[str]:
        return {pool for pool, _ in self._settling}

    async def exchange(self, pool: str) -> None:
        """Propose what is new to a pool that borrows, and take in its answers; trouble is told in `status`."""
        partner = self._partner(pool)
        try:
            asked = {"key": self._key.public, "terms": self._own_terms(pool).to_wire(), "entries": []}
            if not partner.key or not self.terms(pool).credit:
                answer = await self._borrower(pool).call("world_back.credit", asked, timeout=PATIENCE)
                await self._take_introduction(pool, answer)
            proposals = self._proposals(pool) if self.terms(pool).credit else []
            for start in range(0, max(1, len(proposals)), BATCH):
                some = proposals[start : start + BATCH]
                items = [{**one.to_wire(), "final": final} for one, final in some]
                answer = await self._borrower(pool).call(
                    "world_back.credit", {**asked, "entries": items}, timeout=PATIENCE
                )
                await self._take_introduction(pool, answer)
                await self._take_answers(pool, [one for one, _ in some], answer)
            partner.trouble = ""
        except (PoolError, OSError, TimeoutError) as error:
            partner.trouble = str(error)
            self._log.info("a ledger was not exchanged", extra={"pool": pool, "error": str(error)})

    def _proposals(self, pool: str) -> list[tuple[SignedEntry, bool]]:
        wall, found = self._outside.wall(), list[tuple[SignedEntry, bool]]()
        partner, terms = self._partner(pool), self.terms(pool)
        owed = self.balance(pool)
        for use in self._uses_of(pool):
            if not use.lends or not use.confirmed:
                continue
            if not use.closed and use.seen is None and wall - use.seen_wall < use.lease:
                continue  # this world was restarted: the next renewal tells whether the claim lives
            known = partner.ledger.find(self._key.public, use.claim)
            last = known.entry.total if known is not None else 0
            use.forgone += max(0, use.total - use.forgone - room_for(terms, owed, last, use.value))
            if use.billed() <= last and not use.closed:
                continue
            owed += max(0, use.billed() - last) * use.value / UNIT
            sequence = known.entry.sequence + 1 if known is not None else 1
            found.append(
                (self._signed_proposal(use.proposal(self._key.public, partner.key, sequence, wall)), use.closed)
            )
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
            partner.key, partner.terms = key, terms
            await self._save([("pool", pool, partner.to_wire())])

    async def _take_answers(self, pool: str, proposed: list[SignedEntry], answer: Wire) -> None:
        answers = answer.get("answers")
        if not isinstance(answers, list) or len(answers) != len(proposed):
            raise BadEntry(f"the pool {pool} has not answered for each entry")
        partner, rows = self._partner(pool), list[Row]()
        for mine, said in zip(proposed, answers, strict=True):
            if not isinstance(said, dict):
                raise BadEntry(f"the pool {pool} has answered with no mapping")
            if "signed" in said:
                rows += self._adopt(pool, mine, SignedEntry.from_wire(said["signed"]))
            elif mine.entry.claim and (use := self.uses.get((pool, True, mine.entry.claim))) is not None:
                rows += self._give_in(partner, use, said)
            else:
                self._settling.pop((pool, mine.entry.claim), None)
                rows.append(("settling", f"{pool}|{mine.entry.claim}", None))
        await self._save(rows)

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
            rows.append(_entry_row(pool, signed))
        use = self.uses.get((pool, True, entry.claim))
        if use is None:
            self._settling.pop((pool, entry.claim), None)
            rows.append(("settling", f"{pool}|{entry.claim}", None))
        elif use.closed and entry.total >= use.billed():
            rows += self._finish(partner, use)
        return rows

    def _give_in(self, partner: Partner, use: ClaimUse, said: Wire) -> list[Row]:
        last = self._signed(use)
        before = use.agreed
        use.agreed = given_in(use, said["measured"], last) if "measured" in said else last
        self._log.warning(
            "another pool does not sign what was measured here",
            extra={"pool": use.pool, "claim": use.claim[:12], "why": str(said.get("refused"))[:200]},
        )
        if use.closed and (use.agreed <= last or use.agreed == before):
            return self._finish(partner, use)
        if use.closed:
            self._wake.set()
        return [_use_row(use)]

    def _finish(self, partner: Partner, use: ClaimUse) -> list[Row]:
        partner.disputed += use.disputed
        del self.uses[use.pool, use.lends, use.claim]
        return [_use_row(use, gone=True), ("pool", use.pool, partner.to_wire())]

    async def settle(self, pool: str) -> float:
        """Forgive a pool what it owes us; machine-seconds. It is in both ledgers once the pool has answered."""
        forgiven, partner = self.balance(pool), self._partner(pool)
        if forgiven <= 0 or not partner.key:
            raise PoolError(f"the pool {pool} owes nothing that could be forgiven")
        claim = claim_digest(pool, self._outside.secret(16))
        entry = settling(forgiven, self._key.public, partner.key, claim, self._outside.wall())
        self._settling[pool, claim] = entry
        await self._save([("settling", f"{pool}|{claim}", entry.to_wire())])
        await self.exchange(pool)
        return forgiven

    # -- the borrower's side -----------------------------------------------------------------------------

    async def answer(self, pool: str, params: Wire) -> Wire:
        """A lender's proposals: {key, terms, entries: [{entry, by_lender, final}]} -> {key, terms, answers}

        Each answer is {signed: entry} with both signatures, or {refused: why, measured: milliseconds}.

        Raises:
            BadEntry: something in it cannot be read.
        """
        if not self._own_terms(pool).credit and pool not in self.partners:
            nothing = [{"refused": "this pool has agreed to no credit"} for _ in params["entries"]]
            return self._reply(pool, nothing)
        await self._take_introduction(pool, params)
        answers, rows = list[Wire](), list[Row]()
        for item in params["entries"][:BATCH]:
            told, more = self._judge(pool, item)
            answers.append(told)
            rows += more
        await self._save(rows)  # only what is on disk is answered
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
        if not terms.credit:
            return {"refused": "there is no agreement with credit"}, []
        use = self.uses.get((pool, False, entry.claim))
        found = judge_proposal(entry, partner.ledger, use, self._now(), self._outside.wall(), terms)
        if found.known is not None:
            return {"signed": found.known.to_wire()}, []
        if not found.accepted:
            self._log.warning(
                "an entry of another pool was not signed",
                extra={"pool": pool, "claim": entry.claim[:12], "why": found.refusal},
            )
            return {"refused": found.refusal} | ({"measured": found.measured} if found.measured else {}), []
        signed = SignedEntry(entry, proposed.by_lender, self._key.sign(text))
        partner.ledger.add(signed)
        self.ahead.set()
        rows = [_entry_row(pool, signed)]
        if use is not None and item.get("final") is True:
            if not use.closed:
                use.closed = True  # the lender counts no more of it
            rows.append(_use_row(use, gone=True))
            del self.uses[pool, False, entry.claim]
        return {"signed": signed.to_wire()}, rows

    def forget_key(self, pool: str) -> None:
        """There is no agreement any more: the next one may bring another key. The entries stay."""
        if (partner := self.partners.get(pool)) is not None:
            partner.key, partner.terms = "", CreditTerms()
            self._agreed.pop(pool, None)
            rows: list[Row] = [("pool", pool, partner.to_wire()), ("terms", pool, None)]
            self._spawn(self._save(rows), "forget", alone=True)

    # -- the disk ----------------------------------------------------------------------------------------

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _changed(self, use: ClaimUse) -> None:
        if not self._counts(use):
            return
        self._dirty.add((use.pool, use.lends, use.claim))
        if self._saving is None or self._saving.done():
            self._saving = self._spawn(self._save([]), "save", alone=True)

    def _drop(self, key: tuple[str, bool, str]) -> None:
        use = self.uses.pop(key)
        self._dirty.discard(key)
        self._spawn(self._save([_use_row(use, gone=True)]), "save", alone=True)

    async def _save(self, rows: list[Row]) -> None:
        """Return when these rows, and all before them, are on disk.

        Raises:
            StoreError: they cannot be written; the next save tries again.
        """
        self._unwritten += rows
        async with self._writing:
            rows = [
                *(_use_row(use) for key in self._dirty if (use := self.uses.get(key)) is not None),
                *self._unwritten,
            ]
            self._dirty, self._unwritten = set(), []
            if not rows:
                return
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._store.save, rows)
            except BaseException:
                self._unwritten = rows + self._unwritten
                raise

    def close(self, *, killed: bool = False) -> None:
        """Write what is not written, unless the process was killed, and close the file."""
        try:
            if not killed:
                counted = (use for use in self.uses.values() if self._counts(use))
                self._store.save([*self._unwritten, *map(_use_row, counted)])
        except PoolError as error:
            self._log.error("the flock's ledger is not saved", extra={"why": str(error)})
        self._store.close()


def _entry_row(pool: str, signed: SignedEntry, *, gone: bool = False) -> Row:
    return ("entry", f"{pool}|{signed.entry.lender}|{signed.entry.claim}", None if gone else signed.to_wire())


def _use_row(use: ClaimUse, *, gone: bool = False) -> Row:
    return ("use", f"{use.pool}|{int(use.lends)}|{use.claim}", None if gone else use.to_wire())

"""The machines as the matchmaker sees them, kept from cycle to cycle and changed by differences.

A request is matched with all machines at once. Its Requirements and theirs are taken apart into questions (`clauses`).
Each question is answered for groups of machines with equal values of the attributes in it (`columns`, `tables`), and
the answers are put together as sets (`solving`). An answer stays until its machines change, so that the cost of the
next cycle follows from the changes.

Nothing here decides who gets what; see `pool.policy.negotiation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pool.classad import ERROR, UNDEFINED, ClassAd, Expr, literal
from pool.classad.compact import CompactAttributes, columns, compact
from pool.classad.names import SHADOWED, fold
from pool.policy.matching.bits import Bits, bits_of, marked, members
from pool.policy.matching.clauses import Clause, Question, Side, Tree, deciding_attributes, questions, resolved, split
from pool.policy.matching.columns import Grouping, Moment, SingleSlots
from pool.policy.matching.comparing import Ordered
from pool.policy.matching.levels import Levels, Ranks
from pool.policy.matching.looking import NOTHING, ExprReferences, references_of
from pool.policy.matching.offers import Offers, SlotKinds
from pool.policy.matching.pairs import Pair, Pairs, token
from pool.policy.matching.solving import Ask, classes, where_true
from pool.policy.matching.tables import Table
from pool.policy.matching.vocabulary import Vocabulary, changes, changes_among

#: Up to so many groups are put together from the set of each.
_FEW = 64
#: Requirements of requests that are kept taken apart.
_REMEMBERED = 20_000
_NO_PAIR = Pair(ClassAd(), 0.0)
_PLAIN = frozenset({bool, int, float, str, type(UNDEFINED), type(ERROR)})


class SlotIndex:
    """All slots that are known.

    Slots have places, small numbers that sets are made of; a place is used again when its slot has gone.
    """

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self.alive: Bits = 0
        self._ads: list[ClassAd | None] = []
        self._held: list[CompactAttributes | None] = []
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        self._free: list[int] = []
        self._groupings: dict[tuple[str, ...], Grouping] = {}
        self._whole: SingleSlots | None = None
        self._watching: dict[str, list[Grouping]] = {}
        self._tables: dict[Question, Table] = {}
        self._wider_tables: dict[tuple[Question, ExprReferences], Table] = {}
        self._closures: dict[Any, ExprReferences] = {}
        self._looked_at: set[str] = set()
        self._ranks: dict[Any, Ranks] = {}
        self._trees: dict[Any, Tree] = {}
        self._by_value: dict[str, Ordered] = {}
        self._lately: dict[str, tuple[Moment, dict[int, Ordered]]] = {}
        self._version = 0
        self._forgotten = 0
        self._pairs = Pairs()
        self._read_ahead: set[Any] = set()
        self._shadowed = len(SHADOWED)
        self._kinds = SlotKinds(self._watch)
        self._watch("requirements", self._kinds)
        self._offers = Offers(self, self._kinds)

    # --- what is known

    def __len__(self) -> int:
        return len(self._places)

    @property
    def count(self) -> int:
        """How many slots there are."""
        return len(self._places)

    @property
    def size(self) -> int:
        """How many places there are, those without a slot included."""
        return len(self._ads)

    def set_ad(self, name: str, ad: ClassAd, only: Iterable[str] | None = None) -> None:
        """A slot is known, or its ad is another. The ad must not be changed from here on; it is compared with the one
        before, so that what is the same costs nothing later.

        Args:
            only: folded names of all attributes that may be different from the ad before.
        """
        place = self._places.get(name)
        ad = ad.compacted(None if place is None else only)
        after = compact(ad.holdings)
        if place is None:
            self._add(self._new_place(name), ad, after)
            return
        before = self._held[place]
        assert before is not None
        differences = changes(before, after) if only is None else changes_among(only, before, after)
        self._ads[place] = ad
        self._held[place] = after
        if differences:
            self._changed(place, differences)

    def _add(self, place: int, ad: ClassAd, held: CompactAttributes) -> None:
        """A slot is new."""
        self._ads[place] = ad
        self._held[place] = held
        for grouping in self._groupings.values():
            grouping.touch(place)
        self._kinds.touch(place)
        if self._whole is not None:
            self._whole.touch(place)
        self._version += 1
        wider = self.vocabulary.add(held)
        if wider:
            self._add_attributes(wider)

    def drop(self, name: str) -> None:
        """A slot is gone, if it was there."""
        place = self._places.pop(name, None)
        if place is None:
            return
        held = self._held[place]
        assert held is not None
        self.alive &= ~(1 << place)
        self._ads[place] = self._held[place] = None
        self._names[place] = ""
        self._free.append(place)
        self._changed(place, [(key, value, None) for key, value in held.items()])

    def clear(self) -> None:
        """Forget everything, as when the collector must be heard anew."""
        self.__init__()  # type: ignore[misc]

    def close(self) -> None:
        """Free everything at once; it is not to be used any more. Its parts know it, so that only a collection of
        garbage would find them.
        """
        self.__dict__.clear()

    def _new_place(self, name: str) -> int:
        if self._free:
            place = self._free.pop()
            self._names[place] = name
        else:
            place = len(self._ads)
            self._ads.append(None)
            self._held.append(None)
            self._names.append(name)
        self._places[name] = place
        self.alive |= 1 << place
        return place

    def _changed(self, place: int, differences: list[tuple[str, Any, Any]]) -> None:
        change, watching = self.vocabulary.change, self._watching
        wider: list[str] = []
        for key, before, after in differences:
            if change(key, before, after):
                wider.append(key)
            for grouping in watching.get(key, ()):
                grouping.touch(place)
        if self._whole is not None:
            self._whole.touch(place)
        self._version += 1
        if wider:
            self._add_attributes(wider)

    def _add_attributes(self, names: Iterable[str]) -> None:
        """Machines hold what they did not: forget what looked at such names without finding them."""
        if not self._looked_at.isdisjoint(names):
            self._forget()

    def _forget(self) -> None:
        """Ask everything anew."""
        self._forgotten += 1
        self._tables.clear()
        self._wider_tables.clear()
        self._closures.clear()
        self._looked_at.clear()
        self._ranks.clear()
        self._offers.forget()

    # --- slots by name and place

    @property
    def ads(self) -> dict[str, ClassAd]:
        """The ads of all slots by name."""
        return {name: self.ad_at(place) for name, place in self._places.items()}

    def ad(self, name: str) -> ClassAd | None:
        """A slot's ad; None when it is not known."""
        place = self._places.get(name)
        return None if place is None else self._ads[place]

    def place_of(self, name: str) -> int | None:
        return self._places.get(name)

    def ad_at(self, place: int) -> ClassAd:
        """The ad of the slot in a place that is taken."""
        ad = self._ads[place]
        assert ad is not None
        return ad

    def attributes_at(self, place: int) -> CompactAttributes:
        """The attributes in that ad, by folded name; quicker than the ad where few are wanted."""
        held = self._held[place]
        assert held is not None
        return held

    def name(self, place: int) -> str:
        return self._names[place]

    def names(self, bits: Bits) -> list[str]:
        """The names of the slots in a set, in the order of their places."""
        return [self._names[place] for place in members(bits & self.alive)]

    def set_of(self, names: Iterable[str]) -> Bits:
        """The set of these slots, those that are known."""
        places = self._places
        return bits_of([places[name] for name in names if name in places], self.size)

    # --- what machines hold

    def values(self, attribute: str) -> Counter[Any]:
        """How many slots have each value of an attribute. Expressions are evaluated in their ad alone; slots that lack
        it count as UNDEFINED, lists and ads by their text.
        """
        key = fold(attribute)
        grouping = self.grouping((key,))
        found: Counter[Any] = Counter()
        for place in members(self.alive):
            held = grouping.values[grouping.groups[place]]
            value = self.ad_at(place).eval(key) if type(held) is Expr else UNDEFINED if held is None else held
            found[value if type(value) in _PLAIN else literal(value).text] += 1
        return found

    def slots_where(self, attribute: str, accept: Any) -> Bits:
        """The slots whose plain value of an attribute is accepted by a function of it; None is nothing."""
        grouping = self.grouping((fold(attribute),))
        accepted = [group for group, value in enumerate(grouping.values) if accept(value)]
        if len(grouping) <= _FEW:
            sets, found = grouping.sets(), 0
            for group in accepted:
                found |= sets.get(group, 0)
            return self.alive & found
        codes = bytearray(b"0" * len(grouping))
        for group in accepted:
            codes[group] = ord("1")
        return self.alive & marked(bytes(map(codes.__getitem__, grouping.groups)))

    def slots_by_value(self, attribute: str) -> list[tuple[Any, Bits]]:
        """The values that slots hold for an attribute, with the set of slots that hold each; None is nothing. Two sets
        may be of values that are equal, of two types.
        """
        grouping = self.grouping((fold(attribute),))
        here = [(grouping.values[group], bits & self.alive) for group, bits in grouping.sets().items()]
        return [(value, bits) for value, bits in here if bits]

    def grouping(self, names: tuple[str, ...]) -> Grouping:
        """The slots grouped by what they hold for these names, folded and in order; up to date."""
        found = self._groupings.get(names)
        if found is None:
            found = self._new_grouping(names)
            found.touch_all()
        found.update_groups(self._held)
        return found

    def _new_grouping(self, names: tuple[str, ...]) -> Grouping:
        found = self._groupings[names] = Grouping(names)
        for name in names:
            self._watch(name, found)
        return found

    def single_slots(self) -> SingleSlots:
        """Every slot by itself; up to date."""
        if self._whole is None:
            self._whole = SingleSlots()
            self._whole.touch_all()
        self._whole.update_groups(self._ads)
        return self._whole

    def _watch(self, name: str, grouping: Grouping) -> None:
        self._watching.setdefault(name, []).append(grouping)

    # --- requests

    def read_ahead(self, requests: Iterable[ClassAd], names: Iterable[str] = ()) -> None:
        """Read the machines' ads once for all that is going to be asked about them: by the Requirements and Rank of
        these requests, and by the machines' own Requirements. What is not read here is read when it is asked about,
        in one more pass over all ads for each name.

        Args:
            names: folded names of attributes that are asked about besides.
        """
        known = self._read_ahead
        wanted: dict[tuple[str, ...], None] = {(name,): None for name in names if self.vocabulary.holders[name] > 0}
        if len(known) >= _REMEMBERED:
            known.clear()

        def add_names(what: Any, begin: ExprReferences) -> None:
            closure = self.request_closure(what, begin, _NO_PAIR)
            if not closure.hidden:
                wanted[self.vocabulary.held(closure.names)] = None

        trees: list[Tree | None] = []
        for request in requests:
            requirements, rank = request.held("Requirements"), request.held("Rank")
            if type(requirements) is Expr and requirements not in known:
                known.add(requirements)
                trees.append(self._tree(requirements, request))
            if type(rank) is Expr and ("rank", rank) not in known:
                known.add(("rank", rank))
                add_names(("request", rank), references_of(rank))
        self._kinds.update_groups(self._held)
        if (moment := (self._kinds.epoch, len(self._kinds))) not in known:
            known.add(moment)
            trees.extend(self._kinds.values)
        for question in dict.fromkeys(question for tree in trees if tree is not None for question in questions(tree)):
            add_names(question, references_of(question.expr))
        new = [one for one in wanted if one and one not in self._groupings]
        if not new:
            return
        read = tuple(dict.fromkeys(name for one in new for name in one))
        by_name = dict(zip(read, columns(self._held, read), strict=True))
        for one in new:
            self._new_grouping(one).take_columns([by_name[name] for name in one])

    def pair(self, request: ClassAd, now: float) -> Pair:
        """A request, to ask several things about it. Answers of one time serve at the next, so that for a request that
        waits from cycle to cycle only changes are evaluated; the ad must not be changed meanwhile.

        Args:
            now: wall time in seconds, for expressions that ask for it.
        """
        return self._pairs.pair_of(request, now)

    def matches(self, request: ClassAd | Pair, now: float = 0.0) -> Bits:
        """The slots that accept the request and are accepted by it, as `symmetric_match` has it."""
        pair = request if isinstance(request, Pair) else Pair(request, now)
        return self.accepted(pair, self.accepting(pair, self.alive))

    def accepted(self, pair: Pair, among: Bits | None = None) -> Bits:
        """The slots whose own Requirements accept the request."""
        self._kinds.update_groups(self._held)
        return self._offers.accepted(pair, self.alive if among is None else among & self.alive)

    def accepting(self, pair: Pair, among: Bits | None = None) -> Bits:
        """The slots that the request's Requirements accept."""
        among = self.alive if among is None else among & self.alive
        requirements = pair.request.held("Requirements")
        if requirements is None:
            return 0
        return where_true(self._tree(requirements, pair.request), self.asking(pair), among)

    def asking(self, pair: Pair) -> Ask:
        """The answers to questions for one request."""
        self._heed_shadows()
        version = (self._version, self._forgotten)
        if pair.version != version:
            if pair.version[1] != self._forgotten:
                pair.bound.clear()
            pair.answers.clear()
            pair.version = version
        answers, bound = pair.answers, pair.bound

        def answer_of(question: Question) -> Mapping[int, Bits]:
            found = answers.get(question)
            if found is not None:
                return found
            known = bound.get(question)
            if known is None:
                table = self.table(question, pair)
                partition = table.partition(pair)
                if table.lasting:
                    bound[question] = table, partition
            else:
                table, partition = known
                self._follow(table)
            found = answers[question] = table.current_answers(partition, pair)
            return found

        return answer_of

    def bound(self, pair: Pair) -> dict[Any, Any]:
        """The value that is kept with a request for as long as nothing is forgotten."""
        self.asking(pair)
        return pair.bound

    def tree_of(self, request: ClassAd) -> Tree | None:
        """The logic of a request's Requirements; None where it has none."""
        requirements = request.held("Requirements")
        return None if requirements is None else self._tree(requirements, request)

    def machine_tree(self, place: int) -> Tree | None:
        """The logic of a slot's Requirements, as it was when slots were last asked what they accept."""
        tree: Tree | None = self._kinds.values[self._kinds.groups[place]]
        return tree

    def _tree(self, requirements: Any, request: ClassAd) -> Tree:
        if type(requirements) is not Expr:
            return resolved(requirements, "request")
        key = (requirements, tuple(deciding_attributes(requirements, request.held)))
        tree = self._trees.get(key)
        if tree is None:
            if len(self._trees) >= _REMEMBERED:
                self._trees.clear()
            tree = self._trees[key] = resolved(requirements, "request", request.held)
        return tree

    # --- clause by clause

    def clauses(self, request: ClassAd) -> tuple[Clause, ...]:
        """The clauses of a request's Requirements; empty when it has none, which matches nothing."""
        requirements = request.held("Requirements")
        return () if requirements is None else split(requirements, "request", request.held)

    def machine_clauses(self) -> list[tuple[Clause, Bits]]:
        """The different clauses of the machines' Requirements, with the slots that have each. A slot without
        Requirements has none, and accepts nothing.
        """
        self._kinds.update_groups(self._held)
        return [(clause, bits & self.alive) for clause, bits in self._offers.clauses() if bits & self.alive]

    def holds(self, clause: Clause, request: ClassAd, now: float) -> Bits:
        """The slots for which a clause is true with this request. For a clause of the machines it is asked of all of
        them, those that do not have it included.
        """
        pair = Pair(request, now)
        true, _, _ = classes(clause.tree, self.asking(pair), self.alive)
        return true

    def refusals(self, request: ClassAd, now: float) -> list[tuple[Clause, Bits]]:
        """The machines' clauses that are not true for a request, with the slots that refuse it by each."""
        found = []
        for clause, slots in self.machine_clauses():
            refusing = slots & ~self.holds(clause, request, now)
            if refusing:
                found.append((clause, refusing))
        return found

    # --- ranks

    def job_ranks(self, pair: Pair) -> Levels:
        """How much the request likes each slot, as `pool.classad.rank` has it; one without Rank has the slots'."""
        rank = pair.request.held("Rank")
        return self.machine_ranks(pair) if rank is None else self.levels(rank, "request", pair)

    def machine_ranks(self, pair: Pair) -> Levels:
        """How much each slot likes the request; one without Rank has the request's."""
        begin = self.vocabulary.references_of("rank")
        lacking = self.vocabulary.holders["rank"] < len(self)
        if lacking:
            begin = begin | ExprReferences(frozenset({"rank"}))
        self._looked_at.add("rank")
        return self._levels(("rank", lacking), begin, pair, _rank_of_machine, frozenset({"rank"}))

    def levels(self, expression: Any, side: Side, pair: Pair) -> Levels:
        """The value of an expression of either side as a rank of the slots; plain values are the same for all."""

        def value(pair: Pair) -> Any:
            return pair.value(expression, side) if type(expression) is Expr else expression

        return self._levels((side, token(expression)), references_of(expression), pair, value)

    def _levels(
        self,
        what: Any,
        begin: ExprReferences,
        pair: Pair,
        value: Callable[[Pair], Any],
        also: frozenset[str] = frozenset(),
    ) -> Levels:
        closure = self.request_closure(what, begin, pair)
        key = (what, closure)
        found = self._ranks.get(key)
        if found is None:
            grouping = (
                self.single_slots() if closure.hidden else self.grouping(self.vocabulary.held(closure.names | also))
            )
            found = self._ranks[key] = Ranks(closure, grouping, value)
        found.grouping.update_groups(self._ads if closure.hidden else self._held)
        return found.levels(pair)

    # --- how far questions look

    def closure(self, begin: ExprReferences, request: ClassAd | None = None) -> ExprReferences:
        """All that can matter to something that looks so far, in the machines' ads and in a request's."""
        found = self.vocabulary.closure(begin, request)
        self._looked_at |= found.names
        return found

    def request_closure(self, what: Any, begin: ExprReferences, pair: Pair) -> ExprReferences:
        """As `closure` for a request, remembered by what it is about, which stands for `begin`."""
        found = self._closures.get(what)
        if found is None:
            found = self._closures[what] = self.closure(begin)
        return found if found.names.isdisjoint(pair.expressions) else self.closure(begin, pair.request)

    def table(self, question: Question, pair: Pair) -> Table:
        """The answers to a question, for requests with expressions like this one's."""
        self._heed_shadows()
        found = self._tables.get(question)
        if found is None:
            found = self._tables[question] = self._new_table(
                question, self.request_closure(question, references_of(question.expr), _NO_PAIR)
            )
        if not found.closure.names.isdisjoint(pair.expressions):
            closure = self.closure(references_of(question.expr), pair.request)
            if closure != found.closure:
                key = (question, closure)
                wider = self._wider_tables.get(key)
                if wider is None:
                    wider = self._wider_tables[key] = self._new_table(question, closure)
                found = wider
        self._follow(found)
        return found

    def _heed_shadows(self) -> None:
        if len(SHADOWED) != self._shadowed:  # an ad has an attribute named as a scope: names mean other things now
            self._shadowed = len(SHADOWED)
            self._forget()

    def _follow(self, table: Table) -> None:
        """Bring a table's grouping up to date."""
        grouping = table.grouping
        if grouping.is_stale():
            grouping.update_groups(self._ads if table.closure.hidden else self._held)

    def _new_table(self, question: Question, closure: ExprReferences) -> Table:
        if closure.hidden:
            return Table(question, closure, self.single_slots(), _unordered, _unordered)
        names = self.vocabulary.held(closure.names)
        grouping = self.grouping(names)
        return Table(
            question,
            closure,
            grouping,
            lambda: self.by_value(names[0]),
            lambda read: self.recently_changed(names[0], read),
        )

    def by_value(self, name: str) -> Ordered:
        """The slots by their value of one attribute, by its folded name; as they were a while ago, when few have
        changed since (`recently_changed`).
        """
        grouping = self.grouping((name,))
        found = self._by_value.get(name)
        epoch, moves, size = grouping.moment
        if found is None or found.moment[0] != epoch or moves - found.moment[1] + size - found.moment[2] > size // 8:
            found = self._by_value[name] = Ordered(grouping)
        return found

    def recently_changed(self, name: str, read: int) -> Ordered:
        """Those slots whose value of one attribute has changed since its grouping had so many moves."""
        grouping = self.grouping((name,))
        moment, known = self._lately.get(name, (None, {}))
        if moment != grouping.moment:
            known = {}
            self._lately[name] = (grouping.moment, known)
        found = known.get(read)
        if found is None:
            found = known[read] = Ordered(grouping, dict.fromkeys(grouping.moved[read:]))
        return found

    def references(self) -> frozenset[str]:
        """Folded names that the machines' Requirements, Rank and StartUrgent can read in a request, directly or through
        machines' values. Names that every machine has itself are left out.
        """
        begin = NOTHING
        for name in ("requirements", "rank", "starturgent"):
            begin = begin | self.vocabulary.references_of(name)
        closure = self.closure(begin)
        return frozenset(name for name in closure.names if self.vocabulary.holders[name] < len(self))


def _rank_of_machine(pair: Pair) -> Any:
    rank = pair.machine_holds("rank")
    if rank is None:
        rank = pair.request.held("Rank")
        return pair.value(rank, "request") if type(rank) is Expr else rank
    return pair.value(rank, "machine") if type(rank) is Expr else rank


def _unordered(read: int = 0) -> Ordered:
    raise AssertionError("slots that stand by themselves have no order")

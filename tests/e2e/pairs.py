"""Few cases in which every two features meet once, where all cases together would be too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, product

Row = tuple[str, ...]
Pair = frozenset[str]


def pairs_of(row: Row) -> set[Pair]:
    """Every two values of it."""
    return {frozenset(pair) for pair in combinations(row, 2)}


def covering_rows(factors: Mapping[str, Sequence[str]], refused: Collection[Pair] = ()) -> list[Row]:
    """Rows with a value of each factor, in the factors' order, such that each pair that a row may hold is in some row.

    Each next row is the one that brings most new pairs, of several the one whose values were used least, and of those
    the first: the same rows every time, and all values about as often.

    Args:
        factors: the values by the factor's name; no value is in two factors.
        refused: pairs that no row may hold.
    """
    allowed = [row for row in product(*factors.values()) if not pairs_of(row) & set(refused)]
    missing = {pair for row in allowed for pair in pairs_of(row)}
    used: Counter[str] = Counter()
    rows: list[Row] = []

    def worth(row: Row) -> tuple[int, int]:
        return len(pairs_of(row) & missing), -sum(used[value] for value in row)

    while missing:
        best = max(allowed, key=worth)
        missing -= pairs_of(best)
        used.update(best)
        rows.append(best)
    return rows

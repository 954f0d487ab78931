"""The idle jobs of a group in the order in which they are to start, one bit for each.

Jobs of one cluster and one priority stand in pages of process numbers, whose members are the bits of an integer; the
pages stand in a sorted list that is kept in short pieces. A job that leaves is gone at once: no step has to look past
others that left before it, and nothing is left to be freed when a group of a million is held or removed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from pool.policy.paged_table import PAGE, PAGE_BITS

#: Negated priority, cluster, page of process numbers: in the order of starts.
Place = tuple[float, int, int]
#: Pages of a piece of the list, at most.
PIECE = 512


class IdleOrder:
    """Idle jobs, the highest priority first, then by cluster and process."""

    __slots__ = ("_members", "_pieces")

    def __init__(self) -> None:
        self._members: dict[Place, int] = {}
        self._pieces: list[list[Place]] = []  # each sorted, and none empty

    def add(self, prio: float, cluster: int, proc: int) -> None:
        """A job is idle that was not."""
        place = (-prio, cluster, proc >> PAGE_BITS)
        members = self._members.get(place, 0)
        if not members:
            self._insert(place)
        self._members[place] = members | 1 << (proc & (PAGE - 1))

    def remove(self, prio: float, cluster: int, proc: int) -> None:
        """A job that was added leaves, with the priority that it came with."""
        place = (-prio, cluster, proc >> PAGE_BITS)
        left = self._members[place] & ~(1 << (proc & (PAGE - 1)))
        if left:
            self._members[place] = left
        else:
            del self._members[place]
            self._take_out(place)

    def add_range(self, prio: float, cluster: int, first: int, count: int) -> None:
        """Jobs of a cluster that follow each other are idle that were not."""
        for page, added in _pages(first, count):
            place = (-prio, cluster, page)
            members = self._members.get(place, 0)
            if not members:
                self._insert(place)
            self._members[place] = members | added

    def remove_range(self, prio: float, cluster: int, first: int, count: int) -> None:
        """Jobs that follow each other leave, which were added with that priority."""
        for page, gone in _pages(first, count):
            place = (-prio, cluster, page)
            left = self._members[place] & ~gone
            if left:
                self._members[place] = left
            else:
                del self._members[place]
                self._take_out(place)

    def first(self) -> tuple[float, int, int] | None:
        """The first job's place: negated priority, cluster, process; None where there is none."""
        if not self._pieces:
            return None
        prio, cluster, page = place = self._pieces[0][0]
        members = self._members[place]
        return prio, cluster, page * PAGE + (members & -members).bit_length() - 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The jobs as (cluster, process), in their order; none may be added or removed meanwhile."""
        for piece in self._pieces:
            for place in piece:
                members = self._members[place]
                while members:
                    lowest = members & -members
                    yield place[1], place[2] * PAGE + lowest.bit_length() - 1
                    members ^= lowest

    def _piece_of(self, place: Place) -> int:
        """The piece that has the place, or that it belongs into."""
        return bisect_left(self._pieces, place, key=lambda piece: piece[-1])

    def _insert(self, place: Place) -> None:
        pieces = self._pieces
        if not pieces or place > pieces[-1][-1]:
            if pieces and len(pieces[-1]) < PIECE:
                pieces[-1].append(place)
            else:
                pieces.append([place])
            return
        number = self._piece_of(place)
        piece = pieces[number]
        insort(piece, place)
        if len(piece) > PIECE:
            half = len(piece) // 2
            pieces[number : number + 1] = [piece[:half], piece[half:]]

    def _take_out(self, place: Place) -> None:
        number = self._piece_of(place)
        piece = self._pieces[number]
        del piece[bisect_left(piece, place)]
        if not piece:
            del self._pieces[number]


def _pages(first: int, count: int) -> Iterator[tuple[int, int]]:
    """The pages of processes that follow each other, with the bits of those in each."""
    end = first + count
    for page in range(first >> PAGE_BITS, (end - 1 >> PAGE_BITS) + 1):
        begin = page * PAGE
        low, high = max(first, begin) - begin, min(end, begin + PAGE) - begin
        yield page, (1 << high) - (1 << low)

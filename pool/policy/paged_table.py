"""A mapping from whole numbers to clusters or jobs, in pages of a bounded size.

A queue may have a million clusters, and a cluster a million jobs. A plain dict of so many is rebuilt as a whole
whenever it grows (50 ms), copied as a whole before a walk during which some leave, and looked through as a whole by the
search for garbage. A node answers nobody meanwhile. Here each of these takes one page at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
#: Numbers of a page, as a power of two.
PAGE_BITS = 10
PAGE = 1 << PAGE_BITS


class PagedTable(Generic[T]):
    """A mapping from whole numbers.

    A walk (`values`, iteration) goes page by page: entries may come and leave meanwhile. One that leaves may still be
    met if its page was begun before, and one whose page is new may be missed.
    """

    __slots__ = ("_count", "_first", "_others")

    def __init__(self) -> None:
        self._count = 0
        self._first: dict[int, T] = {}  # page 0, beside which most clusters have none
        self._others: dict[int, dict[int, T]] | None = None

    def get(self, number: int) -> T | None:
        """The entry of that number, None where there is none."""
        place = number >> PAGE_BITS
        if not place:
            return self._first.get(number)
        if self._others is None or (page := self._others.get(place)) is None:
            return None
        return page.get(number)

    def values(self) -> Iterator[T]:
        """The entries, page by page; of a page, and of pages, in the order in which they came."""
        later = list(self._others.values()) if self._others is not None else []
        yield from list(self._first.values())
        for page in later:
            yield from list(page.values())

    def items(self) -> Iterator[tuple[int, T]]:
        """The entries with their numbers, in the order of `values`."""
        later = list(self._others.values()) if self._others is not None else []
        yield from list(self._first.items())
        for page in later:
            yield from list(page.items())

    def __iter__(self) -> Iterator[int]:
        """The numbers, ascending."""
        yield from sorted(self._first)
        if self._others is not None:
            for place in sorted(self._others):
                yield from sorted(self._others.get(place, ()))

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.get(number) is not None

    def __getitem__(self, number: int) -> T:
        found = self.get(number)
        if found is None:
            raise KeyError(number)
        return found

    def __setitem__(self, number: int, value: T) -> None:
        page = self._page(number >> PAGE_BITS)
        self._count += number not in page
        page[number] = value

    def _page(self, place: int) -> dict[int, T]:
        """The page of that place, made where it is not there."""
        if not place:
            return self._first
        if self._others is None:
            self._others = {}
        return self._others.setdefault(place, {})

    def __delitem__(self, number: int) -> None:
        place = number >> PAGE_BITS
        if not place:
            del self._first[number]
        else:
            page = (self._others or {})[place]
            del page[number]
            if not page and self._others is not None:
                del self._others[place]
        self._count -= 1

    def insert_range(self, first: int, values: Sequence[T]) -> None:
        """Put entries in that have numbers from `first` on, one after the other, of which none is there yet."""
        start = 0
        while start < len(values):
            number = first + start
            end = min(len(values), start + PAGE - number % PAGE)
            self._page(number >> PAGE_BITS).update(zip(range(number, first + end), values[start:end], strict=True))
            start = end
        self._count += len(values)

    def remove_range(self, first: int, count: int) -> None:
        """Take out entries that have numbers from `first` on, one after the other, and are all there."""
        for number in range(first, first + count):
            del self[number]

    def pop(self, number: int) -> T | None:
        """Take out the entry of that number, and return it; None where there is none."""
        found = self.get(number)
        if found is not None:
            del self[number]
        return found

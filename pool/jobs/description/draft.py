"""A cluster of jobs as it would be queued: one common ad and what each process has beyond it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pool.classad import ClassAd
from pool.jobs.description.diagnostics import Diagnostic
from pool.jobs.description.expressions import Wire
from pool.jobs.description.facts import PROVISIONAL_CLUSTER

_MARK = str(PROVISIONAL_CLUSTER)


def bind_cluster(attributes: Mapping[str, Wire], cluster: int) -> dict[str, Wire]:
    """The attributes with the cluster's own number where the provisional one stands."""
    found = {
        name: _bound(value, cluster)
        for name, value in attributes.items()
        if (_MARK in value if type(value) is str else type(value) is list or value == PROVISIONAL_CLUSTER)
    }
    return {**attributes, **found}


def _bound(value: Wire, cluster: int) -> Wire:
    if isinstance(value, str):
        return value.replace(_MARK, str(cluster)) if _MARK in value else value
    if isinstance(value, list):
        return [text.replace(_MARK, str(cluster)) for text in value]
    return cluster if value == PROVISIONAL_CLUSTER and isinstance(value, int) else value


@dataclass(slots=True)
class Runs:
    """The differences of many processes: a list as long as needed, None where a process has none."""

    found: list[dict[str, Wire] | None] = field(default_factory=list)
    uniform: bool = True

    def add(self, difference: dict[str, Wire] | None, count: int = 1) -> None:
        """Append the next `count` processes."""
        if difference:
            self.uniform = False
        if not self.uniform and len(self.found) < self.total:
            self.found += [None] * (self.total - len(self.found))
        if not self.uniform:
            self.found += [difference or None] * count
        self.total += count

    @property
    def differences(self) -> list[dict[str, Wire] | None]:
        """One for each process."""
        return [None] * self.total if self.uniform else self.found

    total: int = 0


@dataclass
class ClusterDraft:
    """A cluster that can be queued.

    Attributes:
        attributes: wire form of what the first process has and all share, without ClusterId and ProcId.
        count: number of processes.
        cluster: the number that stands for the cluster in the texts, PROVISIONAL_CLUSTER when none was given.
    """

    attributes: dict[str, Wire]
    count: int
    cluster: int
    _runs: Runs

    @cached_property
    def ad(self) -> ClassAd:
        """The common ad."""
        return ClassAd.from_wire(self.attributes)

    @property
    def uniform(self) -> bool:
        """Whether no process differs from another; such a cluster costs nothing per process."""
        return self._runs.uniform

    @cached_property
    def uses_cluster(self) -> bool:
        """Whether the cluster's number stands in some text, so that it must be bound once it is known."""
        mark = str(self.cluster)
        return any(mark in str(attributes) for attributes in (self.attributes, *self._runs.found) if attributes)

    def delta(self, index: int) -> dict[str, Wire]:
        """Wire form of what process `index` has beyond, or other than, the common ad."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        return {} if self.uniform else self._runs.found[index] or {}

    def deltas(self) -> Iterator[dict[str, Wire]]:
        """The differences of all processes in order."""
        for index in range(self.count):
            yield self.delta(index)

    def wire_deltas(self) -> list[dict[str, Wire] | None] | None:
        """All differences for the wire, None for a process without any; None when there are none at all."""
        return None if self.uniform else self._runs.found


@dataclass(frozen=True, slots=True)
class Description:
    """A job description that was read.

    Attributes:
        warnings: those that it deserves.
        further: the differences of the processes that further items of the last queue statement make: from lines, and
            how many lines that statement has had before. It raises DescriptionError.
    """

    clusters: list[ClusterDraft]
    warnings: list[Diagnostic]
    further: Callable[[list[str], int], list[dict[str, Wire] | None]] | None = field(
        default=None, repr=False, compare=False
    )

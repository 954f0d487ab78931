"""Which machines the parts of many jobs can have together: a bipartite matching over classes.

First fit is wrong where kinds of machines overlap: a part that could run on A and B takes the A that another part
needs. So the accepted demands and the free machines form a flow network. A new demand is accepted if and only if the
flow can be augmented by all of it; earlier demands are moved to other machines for it (Ford and Fulkerson 1956). The
matching is maximal, which a test compares with brute force. The network has one vertex for each class of alike parts
and one for each class of alike machines, never one for each machine, so that its size does not depend on how large the
pool is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

#: A class of alike machines.
Node = TypeVar("Node", bound=Hashable)
#: The nodes that a class of parts can have, the preferred ones first. Demands with equal choices are one vertex.
Choices = tuple[Node, ...]
#: So many parts with such choices.
Demand = tuple[tuple[Node, ...], int]


class ClassMatching(Generic[Node]):
    """Accepted demands, and the machines that are left.

    Attributes:
        left: how many machines of each class no demand uses.
    """

    def __init__(self, supplies: Mapping[Node, int]) -> None:
        self.left: dict[Node, int] = {node: count for node, count in supplies.items() if count > 0}
        self._flows: dict[Choices[Node], dict[Node, int]] = {}
        self._users: dict[Node, dict[Choices[Node], None]] = {}
        self.total = sum(self.left.values())

    def add(self, node: Node, count: int) -> None:
        """More machines of a class."""
        self.left[node] = self.left.get(node, 0) + count
        self.total += count

    def offer(self, demands: Sequence[Demand[Node]]) -> bool:
        """Accept these demands of one job, all of them or none.

        Returns:
            whether they were accepted. Nothing has changed if not.
        """
        needed = demands[0][1] if len(demands) == 1 else sum(count for _, count in demands)
        if needed > self.total:
            return False
        log: list[tuple[Choices[Node], Node, int]] = []
        for choices, count in demands:
            if not self._augment(choices, count, log):
                self._undo(log)
                return False
        return True

    def fits(self, demands: Sequence[Demand[Node]]) -> bool:
        """Whether `offer` would accept them; nothing changes."""
        log: list[tuple[Choices[Node], Node, int]] = []
        if sum(count for _, count in demands) > self.total:
            return False
        found = all(self._augment(choices, count, log) for choices, count in demands)
        self._undo(log)
        return found

    def _undo(self, log: list[tuple[Choices[Node], Node, int]]) -> None:
        for vertex, node, amount in reversed(log):
            self._push(vertex, node, -amount)

    def flow(self, choices: Choices[Node]) -> dict[Node, int]:
        """How many machines of each class the demands with these choices use together, in the order of the choices."""
        flow = self._flows.get(choices, {})
        return {node: flow[node] for node in choices if flow.get(node)}

    def _augment(self, choices: Choices[Node], count: int, log: list[tuple[Choices[Node], Node, int]]) -> bool:
        for node in choices:
            amount = min(count, self.left.get(node, 0))
            if amount > 0:
                self._push(choices, node, amount)
                log.append((choices, node, amount))
                count -= amount
                if not count:
                    return True
        while count:
            path = self._path(choices)
            if path is None:
                return False
            # The path alternates: (vertex, node that it gains). Each vertex after the first loses the node before.
            amount = min(count, self.left[path[-1][1]])
            for (_, node), (vertex, _) in pairwise(path):
                amount = min(amount, self._flows[vertex][node])
            for position in range(len(path) - 1, -1, -1):
                vertex, node = path[position]
                self._push(vertex, node, amount)
                log.append((vertex, node, amount))
                if position:
                    lost = path[position - 1][1]
                    self._push(vertex, lost, -amount)
                    log.append((vertex, lost, -amount))
            count -= amount
        return True

    def _path(self, start: Choices[Node]) -> list[tuple[Choices[Node], Node]] | None:
        """The shortest augmenting path, breadth first."""
        came: dict[Node, tuple[Choices[Node], Node | None]] = {}
        queue: list[tuple[Choices[Node], Node | None]] = [(start, None)]
        seen = {start}
        for vertex, through in queue:
            for node in vertex:
                if node in came:
                    continue
                came[node] = (vertex, through)
                if self.left.get(node, 0) > 0:
                    path: list[tuple[Choices[Node], Node]] = []
                    step: Node | None = node
                    while step is not None:
                        owner, before = came[step]
                        path.append((owner, step))
                        step = before
                    return path[::-1]
                for other in self._users.get(node, ()):
                    if other not in seen and self._flows[other].get(node, 0) > 0:
                        seen.add(other)
                        queue.append((other, node))
        return None

    def _push(self, vertex: Choices[Node], node: Node, amount: int) -> None:
        flow = self._flows.setdefault(vertex, {})
        flow[node] = flow.get(node, 0) + amount
        self.left[node] = self.left.get(node, 0) - amount
        self.total -= amount
        if amount > 0:
            self._users.setdefault(node, {})[vertex] = None


def fits_together(supplies: Mapping[Node, int], demands: Iterable[Demand[Node]]) -> bool:
    """Whether these machines can hold all these parts at once."""
    return ClassMatching(supplies).offer(list(demands))

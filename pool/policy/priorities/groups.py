"""Quotas: how much of the pool groups of users may hold, and who gets what a group leaves.

    GROUP_QUOTAS = physics=0.5, physics.theory=0.4 alone, chem=20

Names with dots make a tree. A quota of at most 1 is a share of the group above, a larger one is slot weight. The part
that a group does not want goes to its siblings that want more, in proportion to their quotas, unless one is `alone`:
that one never has more than its own. The part that no group was given belongs to the users of none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pool.decimals import real_number
from pool.errors import PoolError

#: The users of no group.
NONE = ""
_NAME = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*")
_TRIFLE = 1e-9


class QuotaError(PoolError):
    """A list of quotas that cannot be."""


@dataclass(frozen=True, slots=True)
class GroupQuota:
    """One group's.

    Attributes:
        share: at most 1 a part of what is above, else slot weight.
        alone: it takes nothing of what others leave.
    """

    name: str
    share: float
    alone: bool = False


@dataclass(slots=True)
class _Node:
    name: str
    quota: GroupQuota | None
    below: list[_Node] = field(default_factory=list)
    wants: float = 0.0  # of its own users
    whole: float = 0.0  # and of all below
    nominal: float = 0.0


def read_quotas(text: str) -> tuple[GroupQuota, ...]:
    """The quotas that a setting names.

    Raises:
        QuotaError: what is wrong, and with which group.
    """
    found: dict[str, GroupQuota] = {}
    for entry in filter(None, (part.strip() for part in re.split(r"[,\n]", text))):
        name, sign, rest = (part.strip() for part in entry.partition("="))
        words = rest.split()
        alone = len(words) == 2 and words[1].lower() == "alone"
        if not sign or not _NAME.fullmatch(name) or not words or (len(words) > 1 and not alone):
            raise QuotaError(f"{entry!r} is no quota", hint="write GROUP=NUMBER or GROUP=NUMBER alone")
        number = real_number(words[0].removesuffix("%"))
        if number is None:
            raise QuotaError(f"the quota of group {name} is no number: {words[0]!r}")
        share = number / (100 if words[0].endswith("%") else 1)
        if not 0 <= share < 1e12:
            raise QuotaError(f"the quota of group {name} cannot be {words[0]}")
        if name.lower() in found:
            raise QuotaError(f"group {name} has two quotas")
        found[name.lower()] = GroupQuota(name.lower(), share, alone)
    for name in found:
        above = name.rpartition(".")[0]
        if above and above not in found:
            raise QuotaError(f"group {name} has a quota, but {above} above it has none")
    return tuple(found[name] for name in sorted(found))


def group_of(name: str, quotas: Iterable[GroupQuota]) -> str:
    """The group that pays for a job which names one: that, or the nearest above it that has a quota."""
    known = {quota.name for quota in quotas}
    name = name.lower()
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def lineage(group: str) -> tuple[str, ...]:
    """A group and those above it, itself first; none for the users of no group."""
    found: list[str] = []
    while group:
        found.append(group)
        group = group.rpartition(".")[0]
    return tuple(found)


def allot(quotas: Iterable[GroupQuota], wants: Mapping[str, float], total: float) -> dict[str, float]:
    """The slot weight that each group's own users may hold, and under "" that of users of no group.

    Args:
        wants: slot weight that each group's own users hold or ask for.
        total: of the whole pool.

    Returns:
        Slot weight by group, each at most what is wanted there; together at most `total`.
    """
    root = _tree(quotas)
    for node in _walk(root):
        node.wants = max(wants.get(node.name, 0.0), 0.0)
    _sum_up(root)
    given: dict[str, float] = {}
    _distribute(root, min(total, root.whole), total, given)
    return given


def entitled(quotas: Iterable[GroupQuota], total: float) -> dict[str, float]:
    """The slot weight of each group by its quota alone, everything below it included; for showing."""
    root = _tree(quotas)
    _nominate(root, total)
    return {node.name: node.nominal for node in _walk(root)}


def _tree(quotas: Iterable[GroupQuota]) -> _Node:
    root = _Node(NONE, None)
    nodes = {NONE: root}
    for quota in sorted(quotas, key=lambda quota: quota.name):
        node = nodes[quota.name] = _Node(quota.name, quota)
        nodes[quota.name.rpartition(".")[0]].below.append(node)
    return root


def _walk(node: _Node) -> Iterable[_Node]:
    yield node
    for child in node.below:
        yield from _walk(child)


def _sum_up(node: _Node) -> float:
    node.whole = node.wants + sum(_sum_up(child) for child in node.below)
    return node.whole


def _nominate(node: _Node, size: float) -> None:
    """The slot weight of each node by its quota, of a part of the pool of that size."""
    node.nominal = size
    asked = [_requested_share(child.quota, size) for child in node.below]
    fits = min(1.0, size / sum(asked)) if any(asked) else 1.0
    for child, amount in zip(node.below, asked, strict=True):
        _nominate(child, amount * fits)


def _requested_share(quota: GroupQuota | None, size: float) -> float:
    if quota is None:
        return 0.0
    return quota.share * size if quota.share <= 1 else quota.share


def _distribute(node: _Node, amount: float, size: float, given: dict[str, float]) -> None:
    """Deal `amount` among a node's own users and the groups below it."""
    _nominate(node, size)
    own = _Node(node.name, None, wants=node.wants, whole=node.wants)
    own.nominal = max(size - sum(child.nominal for child in node.below), 0.0)
    claimants = [own, *node.below]
    shares = [min(claimant.nominal, claimant.whole) for claimant in claimants]
    if (dealt := sum(shares)) > amount:
        shares = [share * amount / dealt for share in shares]
    left = amount - sum(shares)
    while left > _TRIFLE:
        open_ = [
            place
            for place, claimant in enumerate(claimants)
            if claimant.whole - shares[place] > _TRIFLE and not (claimant.quota and claimant.quota.alone)
        ]
        weights = [claimants[place].nominal for place in open_]
        if not open_:
            break
        if not sum(weights):
            weights = [1.0] * len(open_)
        dealt = 0.0
        for place, weight in zip(open_, weights, strict=True):
            more = min(left * weight / sum(weights), claimants[place].whole - shares[place])
            shares[place] += more
            dealt += more
        left -= dealt
        if dealt <= _TRIFLE:
            break
    given[node.name] = shares[0]
    for child, share in zip(node.below, shares[1:], strict=True):
        _distribute(child, share, child.nominal, given)

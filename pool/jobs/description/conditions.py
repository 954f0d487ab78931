"""The conditions of `if` and `elif`, and the nesting of their blocks.

A condition is a number, `true`, `false`, `yes`, `no`, `t`, `f`, `defined NAME`, or `version OP x.y.z`, with
`!` before it where the opposite is meant; macros in it are expanded first. Comparisons and `&&` are refused
as the reference refuses them, so that a file means the same in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_IDENTIFIER = re.compile(r"[A-Za-z0-9_./]*[A-Za-z][A-Za-z0-9_./]*")
_DEFINED = re.compile(r"defined(?:\s+(.*))?", re.IGNORECASE)
_VERSION = re.compile(r"version\s*(!?)(>=|<=|==|=|>|<)\s*(.*)", re.IGNORECASE)
_WORDS = {"true": True, "yes": True, "t": True, "false": False, "no": False, "f": False}


class ConditionError(Exception):
    """A condition that cannot be decided; the message says what was expected."""


def decide(
    text: str,
    expand: Callable[[str], str],
    lookup: Callable[[str], str | None],
    version: tuple[int, int, int],
) -> bool:
    """The truth of a condition. Raises ConditionError."""
    expanded = expand(text).strip()
    inverted = expanded.startswith("!")
    condition = expanded[1:].lstrip() if inverted else expanded
    if not condition:
        if "$" not in text:
            raise ConditionError("expected a condition")
        return inverted
    return _truth(condition, lookup, version) != inverted


def _truth(text: str, lookup: Callable[[str], str | None], version: tuple[int, int, int]) -> bool:
    if _NUMBER.fullmatch(text):
        return float(text) != 0
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if found := _DEFINED.fullmatch(text):
        return _defined((found[1] or "").strip(), lookup)
    if (found := _VERSION.fullmatch(text)) and (not found[1] or found[2] == "="):
        return _compare(found[2], found[3].strip(), version) != bool(found[1])
    raise ConditionError(f"expected true, false, a number, 'defined NAME' or 'version >= x.y.z', not {text!r}")


def _defined(name: str, lookup: Callable[[str], str | None]) -> bool:
    if not name:
        return False
    if _NUMBER.fullmatch(name) or name.lower() in ("true", "false"):
        return True
    if name.lower().startswith("use "):
        return False  # this pool has no templates
    if not _IDENTIFIER.fullmatch(name):
        raise ConditionError(f"expected the name of a macro after 'defined', not {name!r}")
    return bool(lookup(name)) or name.lower() in _WORDS


def _compare(operator: str, text: str, version: tuple[int, int, int]) -> bool:
    found = re.fullmatch(r"[vV]?([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?", text)
    if not found or int(found[1]) < 6:
        raise ConditionError(f"expected a version such as 8.9.2, not {text!r}")
    other = (int(found[1]), int(found[2]), int(found[3]) if found[3] else version[2])
    if version == other:
        return "=" in operator
    return (version > other) == (">" in operator) and operator not in ("=", "==")


@dataclass(slots=True)
class Block:
    """One `if` that is open: whether its present branch is read, one was taken, and `else` was seen."""

    enabled: bool
    taken: bool
    in_else: bool = False


@dataclass(slots=True)
class Blocks:
    """The nesting of conditions at the present line."""

    stack: list[Block] = field(default_factory=list)

    @property
    def enabled(self) -> bool:
        """Whether the present line is read or passed over."""
        return all(block.enabled for block in self.stack)

    def step(self, keyword: str, condition: Callable[[], bool]) -> None:
        """Apply one `if`, `elif`, `else` or `endif`; `condition` is asked only where it counts.

        Raises ConditionError where the keyword has no place here or the condition cannot be decided; the
        block is then open all the same, with this branch passed over and no other branch taken.
        """
        if keyword == "if":
            block = Block(enabled=False, taken=True)
            outer = self.enabled
            self.stack.append(block)
            if outer:
                block.enabled = block.taken = condition()
        elif not self.stack:
            raise ConditionError(f"{keyword} without an if before it")
        elif keyword == "endif":
            self.stack.pop()
        else:
            self._branch(keyword, condition)

    def _branch(self, keyword: str, condition: Callable[[], bool]) -> None:
        block = self.stack[-1]
        if block.in_else:
            raise ConditionError(f"{keyword} after else: expected endif")
        outer = all(other.enabled for other in self.stack[:-1])
        block.enabled = False
        block.in_else = keyword == "else"
        if outer and not block.taken:
            block.taken = True  # stays so when the condition cannot be decided
            block.enabled = block.taken = block.in_else or condition()

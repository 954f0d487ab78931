"""The macros of a description file and how a text that names them is expanded.

Expansion is textual: again and again the first reference is replaced by the text of its macro, so that a name
may itself be put together from macros. `$(name:default)` gives the default where the macro is undefined
or empty; `$$(...)` is left for the matched machine; `$(DOLLAR)` becomes `$` at the very end. A macro that
comes back to itself is an error in words.

Macros that differ from one process to the next (`$(Process)`, queue variables) are *live*. `Macros.compile`
expands everything else once and leaves numbered holes for them, so that a process costs a join of strings.
Functions are in `functions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pool.jobs.description.diagnostics import SourcePosition

_REFERENCE = re.compile(r"\$(\$?[A-Za-z0-9_]*)")
_OPENING = re.compile(r"(?<!\$)\$[A-Za-z0-9_]*\(")
_PLAIN_BODY = re.compile(r"([A-Za-z0-9_./]*)(?::((?:[A-Za-z0-9_./$ ,\\:]|\([^)]*\))*))?\)")
_NAME = re.compile(r"[A-Za-z0-9_./]+")
FUNCTIONS = frozenset(
    {"ENV", "RANDOM_CHOICE", "RANDOM_INTEGER", "CHOICE", "SUBSTR", "INT", "REAL", "STRING", "EVAL"}
    | {"BASENAME", "DIRNAME"}
)
_FILE_FUNCTION = re.compile(r"F[pnxdqabfwuPNXDQABFWU]*")
_LIMIT = 100_000  # replacements in one text: far beyond any real file, short of a hang


class MacroError(Exception):
    """A text that cannot be expanded; the message is for the user."""


class Varies(Exception):
    """Raised while compiling at what has no fixed text: it is then expanded for each process."""


def is_name(text: str) -> bool:
    """Whether the text can name a macro or command."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Reference:
    """One `$...(...)` in a text: `start` to `end`, the function name (empty for a plain one), its parts."""

    start: int
    end: int
    function: str
    body: str
    default: str | None


def references(text: str, start: int = 0) -> Iterator[Reference]:
    """The references of a text that expansion would look at, from `start` on; `$$(...)` is none."""
    position = start
    while found := _REFERENCE.search(text, position):
        word = found[1]
        position = found.end()
        if text[position : position + 1] != "(":
            continue
        if word == "" or word == "ENV":
            body = _PLAIN_BODY.match(text, position + 1)
            if body is None or (word == "" and body[0].upper() == "DOLLAR)"):
                continue
            yield Reference(found.start(), body.end(), word, body[1], body[2])
            position = body.end()
        elif word in FUNCTIONS or _FILE_FUNCTION.fullmatch(word):
            close = text.find(")", position)
            if close < 0:
                continue
            yield Reference(found.start(), close + 1, word, text[position + 1 : close], None)
            position = close + 1


@dataclass(slots=True)
class Macro:
    """A macro or command as it was last written; `used` once something has asked for it."""

    name: str
    text: str
    where: SourcePosition
    used: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled text: `constant`, or parts of which the integers are indices of live values.

    Where neither is possible, `varying` is the text itself, to be expanded for each process.
    """

    constant: str | None = None
    parts: tuple[str | int, ...] = ()
    varying: str | None = None

    def fill(self, values: Sequence[str]) -> str:
        """The text for these live values; only for templates with parts."""
        return "".join([part if type(part) is str else values[part] for part in self.parts])  # type: ignore[index]


@dataclass(slots=True)
class Macros:
    """Named texts, their defaults, and which of them are live.

    Attributes:
        evaluate: applies a `$FUNCTION(...)`; handed in, so that this module knows none of them.
        defaults: names that always exist, in lower case (`process`, `arch`, `year`...).
        live: name in lower case to its index among the live values.
        opaque: live names whose every value is non-empty and free of `$`; only these may become holes.
        undefined: called with the name of a macro that is not defined and has no default where it is used.
    """

    evaluate: Callable[[MacroScope, Reference], str]
    defaults: dict[str, str] = field(default_factory=dict)
    table: dict[str, Macro] = field(default_factory=dict)
    live: dict[str, int] = field(default_factory=dict)
    opaque: frozenset[str] = frozenset()
    undefined: Callable[[str], None] = lambda name: None

    def set(self, name: str, text: str, where: SourcePosition) -> None:
        """Define or redefine a macro; references to itself take its old text, now."""
        known = self.table.get(name.lower())
        text = self._expand_self(name, text)
        if known:
            known.text, known.where = text, where
        else:
            self.table[name.lower()] = Macro(name, text, where)

    def _expand_self(self, name: str, text: str) -> str:
        position = 0
        while found := next((r for r in references(text, position) if _is_self(r, name)), None):
            if found.function:
                value = self.evaluate(MacroScope(self), found)
            else:
                value = self.lookup(name) or found.default or ""
            text = text[: found.start] + value + text[found.end :]
            position = found.start + len(value)
        return text

    def lookup(self, name: str) -> str | None:
        """The unexpanded text of a macro, its default, or None; marks it as used."""
        macro = self.table.get(name.lower())
        if macro is not None:
            macro.used = True
            return macro.text
        return self.defaults.get(name.lower())

    def expand(self, text: str, live: Mapping[str, str] | None = None) -> str:
        """Expand a text completely; `live` overrides macros by lower-case name. Raises MacroError."""
        return _dollars(MacroScope(self, {} if live is None else live).expand(text))

    def compile(self, text: str) -> Template:
        """Expand all that is the same for every process. Raises MacroError."""
        if "$" not in text:
            return Template(constant=text)
        try:
            parts = MacroScope(self, fixed=True).replace(text, holes=True)
        except Varies:
            return Template(varying=text)
        if all(isinstance(part, str) for part in parts):
            return Template(constant=_dollars("".join(map(str, parts))))
        filled = (_dollars(part) if isinstance(part, str) else part for part in parts)
        return Template(parts=tuple(part for part in filled if part != ""))


@dataclass(frozen=True, slots=True)
class MacroScope:
    """Macros as one process sees them; `fixed` while compiling, where no process is known yet."""

    macros: Macros
    live: Mapping[str, str] = field(default_factory=dict)
    fixed: bool = False

    def find(self, name: str) -> str | None:
        """The unexpanded text of a macro. Raises Varies for a live one while compiling."""
        key = name.lower()
        if self.fixed and key in self.macros.live:
            raise Varies
        text = self.macros.lookup(key)
        value = self.live.get(key)
        return text if value is None else value

    def expand(self, text: str) -> str:
        """Expand a text but for `$(DOLLAR)`, which is replaced once, at the very end."""
        return "".join(map(str, self.replace(text))) if "$" in text else text

    def replace(self, text: str, *, holes: bool = False) -> list[str | int]:
        """Expand a text into parts; with `holes`, opaque live macros are left as their indices."""
        parts: list[str | int] = []
        within: list[tuple[str, int, int]] = []  # macros being expanded: name, begin, length of the text behind
        for _ in range(_LIMIT):
            found = next(references(text), None)
            if found is None:
                return [*parts, text]
            name = found.body.lower()
            if holes and not found.function and name in self.macros.opaque:
                self.macros.lookup(name)
                if _OPENING.search(text, 0, found.start):
                    raise Varies  # the value becomes part of a name
                parts += (text[: found.start], self.macros.live[name])
                text, within = text[found.end :], []
                continue
            while within and not within[-1][1] <= found.start < len(text) - within[-1][2]:
                within.pop()
            value = self._value(found, [entry[0] for entry in within])
            within.append((name if not found.function else "", found.start, len(text) - found.end))
            text = text[: found.start] + value + text[found.end :]
        raise MacroError("the text never ends when its macros are expanded")

    def _value(self, found: Reference, chain: Sequence[str]) -> str:
        if found.function:
            return self.macros.evaluate(self, found)
        value = self.find(found.body)
        if not value:
            if value is None and found.default is None:
                self.macros.undefined(found.body)
            return found.default or ""
        if found.body.lower() in chain:
            circle = [*chain[chain.index(found.body.lower()) :], found.body.lower()]
            steps = " -> ".join(f"$({step})" for step in circle if step)
            raise MacroError(f"macros go round in a circle: {steps}")
        return value


def _is_self(found: Reference, name: str) -> bool:
    plain = not found.function or _FILE_FUNCTION.fullmatch(found.function) is not None
    return plain and found.body.lower() == name.lower()


def _dollars(text: str) -> str:
    return re.sub(r"\$\(DOLLAR\)", "$", text, flags=re.IGNORECASE) if "$" in text else text

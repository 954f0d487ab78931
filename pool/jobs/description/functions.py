"""The `$FUNCTION(...)`s of the description language: what each makes of its arguments.

`$ENV` reads the submitter's environment, `$Fpdnxbqafuw` takes a file name apart, `$INT`, `$REAL`, `$STRING`
and `$EVAL` evaluate a ClassAd expression, `$CHOICE`, `$SUBSTR` and the `$RANDOM_...` choose. An argument that
names a macro stands for its text, any other for itself. A function whose arguments make no sense deserves a
warning and gives an empty text, or the format that is none, as the reference does.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pool.decimals import clipped_number
from pool.jobs.description.expressions import evaluate_text, integer_of, real_of, unparsed
from pool.jobs.description.macros import MacroScope, Reference, Varies

_INTEGER_FORMAT = re.compile(r"([^%]|%%)*%[-+ #0']*[0-9]{0,4}(\.[0-9]{1,4})?(hh|h|ll|l|q|j|z|t|L)?[dioxXu]([^%]|%%)*")
_REAL_FORMAT = re.compile(r"([^%]|%%)*%[-+ #0']*[0-9]{0,4}(\.[0-9]{1,4})?(l|L)?[eEfFgGaA]([^%]|%%)*")
_TEXT_FORMAT = re.compile(r"([^%]|%%)*%-?[0-9]{0,4}(\.[0-9]{1,4})?s([^%]|%%)*")
_LENGTH = re.compile(r"(hh|h|ll|l|q|j|z|t|L)(?=[dioxXueEfFgGaA])")


class FunctionError(Exception):
    """A function that cannot be applied; `instead` is the text that it gives all the same."""

    def __init__(self, message: str, instead: str = "") -> None:
        super().__init__(message)
        self.instead = instead


@dataclass(slots=True)
class Functions:
    """The functions with what they need from outside.

    Attributes:
        environ: the submitter's environment.
        chance: source of the random functions.
        iwd: the job's initial directory, for `$Ff`; `iwd_varies` when processes have different ones.
        report: called with the reason why a function gave nothing.
    """

    environ: Mapping[str, str]
    chance: random.Random
    iwd: str
    iwd_varies: bool = False
    report: Callable[[str], None] = lambda message: None

    def __call__(self, scope: MacroScope, call: Reference) -> str:
        """Apply one reference. Raises Varies while compiling where the result differs by process."""
        name = call.function
        try:
            if name == "ENV":
                return self._env(call)
            if name.startswith("RANDOM"):
                return self._random(name, scope, call.body)
            if name in _EXPRESSIONS:
                return _EXPRESSIONS[name](scope, call.body)
            return self._file(name, scope, call.body)
        except FunctionError as trouble:
            self.report(f"${name}({call.body}) gives {trouble.instead or 'nothing'}: {trouble}")
            return trouble.instead

    def _env(self, call: Reference) -> str:
        value = self.environ.get(call.body)
        if value is None and call.default is None:
            return "UNDEFINED"
        return value or call.default or ""

    def _random(self, name: str, scope: MacroScope, body: str) -> str:
        if scope.fixed:
            raise Varies  # a new choice for each process
        items = [item.strip() for item in body.split(",")]
        if name == "RANDOM_INTEGER":
            low, high, step = _range(items)
            return str(low + self.chance.randrange((step + high - low) // step) * step)
        if len(items) == 1:
            if not items[0]:
                raise FunctionError("expected a list to choose from")
            items = [item.strip() for item in _argument(scope, body, 0).split(",")]
        return self.chance.choice(items)

    def _file(self, name: str, scope: MacroScope, body: str) -> str:
        letters = {"BASENAME": "nx", "DIRNAME": "p"}.get(name, name[1:].lower())
        if scope.fixed and self.iwd_varies and "f" in letters:
            raise Varies
        text = scope.find(body)
        return file_parts(body if text is None else scope.expand(text), letters, self.iwd)


def file_parts(path: str, letters: str, iwd: str) -> str:
    """The parts of a file name that `$F` letters ask for.

    p folder, d its last parts, n name, x extension, f full, b bare, q and a quoted, u and w slashes.
    """
    if len(path) > 1 and path[0] == path[-1] and path[0] in "\"'":
        path = path[1:-1]
    if "f" in letters and iwd and not path.startswith("/"):
        path = f"{iwd.rstrip('/')}/{path.removeprefix('./') if len(path) > 2 else path}"
    if "w" in letters:
        path = path.replace("/", "\\")
    elif "u" in letters:
        path = path.replace("\\", "/")
    cut = path.rfind("/") + 1
    dot = path.rfind(".", cut + 1)
    dot = len(path) if dot < 0 else dot
    name, extension, bare = "n" in letters, "x" in letters, "b" in letters
    folder, parents = "p" in letters, letters.count("d")
    begin, end = 0, len(path)
    if not cut and (name or extension):
        folder, parents = False, 0
    if parents:
        begin = _parent(path, cut, parents)
        end = end if extension else dot if name else cut - (bare and cut > 0)
        if not cut:
            begin = end = len(path)
    elif folder and not (name or extension):
        end = cut - (bare and cut > 0)
    elif folder:
        end = len(path) if extension else dot
    elif name or extension:
        begin = cut if name else dot + (bare and dot < len(path))
        end = len(path) if extension else dot
    quote = ("'" if "a" in letters else '"') if "q" in letters else ""
    return f"{quote}{path[begin:end]}{quote}"


def _parent(path: str, cut: int, levels: int) -> int:
    begins = [i + 1 for i, char in enumerate(path[:cut]) if char == "/"]
    begins = begins[: max(len(begins) - levels, 0)]
    return begins[-1] if begins else 0


def _range(items: list[str]) -> tuple[int, int, int]:
    labels = ("smallest value", "largest value", "step")
    numbers = [0, 0, 1]
    for index, label in enumerate(labels):
        if index >= len(items):
            if index < 2:
                raise FunctionError(f"expected a {label}")
            continue
        found = re.match(r"[-+]?[0-9]+", items[index])
        if not found:
            raise FunctionError(f"expected an integer as {label}, not {items[index]!r}")
        numbers[index] = clipped_number(found[0])
    low, high, step = numbers
    if step < 1 or low > high:
        raise FunctionError("expected smallest value <= largest value and a step of at least 1")
    return low, high, step


def _argument(scope: MacroScope, body: str, index: int) -> str:
    items = body.split(",")
    if index >= len(items):
        raise FunctionError(f"expected {index + 1} arguments")
    word = items[index].strip()
    text = scope.find(word)
    text = word if text is None else text
    return scope.expand(text)


def _choice(scope: MacroScope, body: str) -> str:
    items = [item.strip() for item in body.split(",")][1:]
    if not items:
        raise FunctionError("expected an index and a list")
    word = _argument(scope, body, 0)
    index = integer_of(word)
    if index is None or index < 0:
        raise FunctionError(f"expected an index from 0 on, not {word!r}")
    if len(items) == 1:
        named = scope.find(items[0])
        if named is None:
            raise FunctionError(f"there is no list named {items[0]!r}")
        items = [item.strip() for item in scope.expand(named).split(",")]
    if index >= len(items):
        raise FunctionError(f"index {index} is beyond the {len(items)} items of the list")
    return items[index]


def _substr(scope: MacroScope, body: str) -> str:
    name = body.split(",")[0].strip()
    text = scope.expand(scope.find(name) or "")
    if not text:
        return ""
    numbers = []
    for index in range(1, min(3, body.count(",") + 1)):
        word = _argument(scope, body, index)
        number = integer_of(word)
        if number is None:
            raise FunctionError(f"expected an integer, not {word!r}")
        numbers.append(number)
    if not numbers:
        raise FunctionError("expected where to begin")
    start = numbers[0] + len(text) if numbers[0] < 0 else numbers[0]
    rest = text[min(max(start, 0), len(text)) :]
    if len(numbers) == 1:
        return rest
    length = numbers[1]
    return rest[: max(length + len(rest), 0)] if length < 0 else rest[:length]


def _integer(scope: MacroScope, body: str) -> str:
    format_ = _format(body, _INTEGER_FORMAT)
    word = _argument(scope, body, 0)
    number = integer_of(word)
    if number is None:
        raise FunctionError(f"{word!r} is no integer")
    return str(number) if format_ is None else format_ % number


def _real(scope: MacroScope, body: str) -> str:
    format_ = _format(body, _REAL_FORMAT)
    word = _argument(scope, body, 0)
    number = real_of(word)
    if number is None:
        raise FunctionError(f"{word!r} is no number")
    if format_ is None:
        return f"{number:.16G}"
    text: str = format_ % number
    return text if "." in text else text + ".0"


def _string(scope: MacroScope, body: str) -> str:
    format_ = _format(body, _TEXT_FORMAT)
    text = _argument(scope, body, 0)
    value = evaluate_text(text)
    text = value if isinstance(value, str) else text
    return text if format_ is None else format_ % text


def _eval(scope: MacroScope, body: str) -> str:
    text = scope.find(body)
    return unparsed(scope.expand(body if text is None else text))


def _format(body: str, allowed: re.Pattern[str]) -> str | None:
    items = body.split(",")
    if len(items) < 2:
        return None
    if not allowed.fullmatch(items[1]):
        raise FunctionError(f"{items[1]!r} is no format for it", instead=items[1])
    return _LENGTH.sub("", items[1])


_EXPRESSIONS: dict[str, Callable[[MacroScope, str], str]] = {
    "CHOICE": _choice,
    "SUBSTR": _substr,
    "INT": _integer,
    "REAL": _real,
    "STRING": _string,
    "EVAL": _eval,
}

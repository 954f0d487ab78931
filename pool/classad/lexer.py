"""Text to tokens, in both lexings.

*New* lexing reads C's escapes in strings and joins adjacent strings; nested ads and ads outside JSON are written in it.
*Old* is the long form, one `Name = expression` on each line, in which job and machine ads are printed. It knows one
escape only: a backslash before a quote, and not even that when the quote ends the line.

A token has a kind, a value and a position; the three come as lists. Kinds: "int", "real", "string", "name",
"true", "false", "undefined", "error", "end", or the operator itself; `is` and `isnt` come as "=?=" and
"=!=". Numbers have no suffixes, and
neither octal nor hexadecimal integers exist (the pool's mode of the reference refuses both).
"""

from __future__ import annotations

import re
from typing import Any

from pool.classad.errors import ParseError
from pool.classad.values import INT_MAX, INT_MIN, decoded, encoded

Tokens = tuple[list[str], list[Any], list[int]]
"""Kinds, values and positions of all tokens."""

_SPACE = r"[ \t\n\v\f\r]"
_SKIP = re.compile(rf"{_SPACE}*(?:(?://[^\n]*|/\*.*?\*/){_SPACE}*)*", re.DOTALL)
_TOKEN = re.compile(
    rf"""(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<real>(?:[0-9]+\.[0-9]+|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<int>[0-9]+)
    |(?P<quote>["'])
    |(?P<op>=\?=|=!=|==|>>>|>>|>=|<<|<=|!=|&&|\|\||\?{_SPACE}*:|\.\.?|[-+*/%~^?:;,\[\](){{}}&|<>=!])
    """,
    re.VERBOSE,
)
_WORDS = {"true": "true", "false": "false", "undefined": "undefined", "error": "error", "is": "=?=", "isnt": "=!="}
_AFTER_OPERAND = frozenset({"int", "real", "string", "name", "true", "false", "undefined", "error"} | set(".])}"))
_BODY = {'"': re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL), "'": re.compile(r"[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL)}
_NEXT = re.compile(_SPACE + "*")
_ESCAPE = re.compile(rb"\\([0-3][0-7][0-7]|[0-7][0-7]?|.)", re.DOTALL)
_PLAIN_ESCAPES = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}

MAX_TEXT = 4_000_000
"""Longest text that is read, in characters (a job's environment is one long string)."""
MAX_TOKENS = 20_000
"""Most tokens in one text."""


def tokens(text: str, old: bool = False) -> Tokens:
    """All tokens of the text, ending with one of kind "end".

    Raises:
        ParseError: a character that begins no token, an unfinished string, number or comment.
    """
    if len(text) > MAX_TEXT:
        raise ParseError(f"the expression is {len(text)} characters long, the limit is {MAX_TEXT}", MAX_TEXT)
    cut = text.find("\0")
    if cut >= 0:
        text = text[:cut]
    kinds: list[str] = []
    values: list[Any] = []
    positions: list[int] = []
    skip, match = _SKIP.match, _TOKEN.match
    position, length, previous = 0, len(text), ""
    while True:
        if text[position : position + 1] in " \t\n\v\f\r/":
            position = skip(text, position).end()  # type: ignore[union-attr]
            if position >= length:
                break
        got = match(text, position)
        if got is None or text.startswith("/*", position):
            raise _refused(text, position)
        kind = got.lastgroup
        start, position = position, got.end()
        if kind == "name":
            word = got.group()
            previous = _WORDS.get(word.lower(), "name") if len(word) < 10 else "name"
            value: Any = word
        elif kind == "op":
            sign = value = got.group()
            if sign[0] == "?" and len(sign) > 1:
                sign = value = "?:"
            elif sign == "..":
                sign = value = "."
            elif sign == "=" and text.startswith("?", position):
                raise ParseError(f"'=?' without a second '=' at column {start + 1}", start)
            elif sign == "-" and previous not in _AFTER_OPERAND:
                number = _TOKEN.match(text, position)
                if number is not None and number.lastgroup in ("int", "real"):
                    sign = str(number.lastgroup)
                    value = _number(text, start, number, negative=True)
                    position = number.end()
            previous = sign
        elif kind == "quote":
            value, position = (_old_string if old else _new_string)(text, start)
            previous = "string" if text[start] == '"' else "name"
        else:
            previous = str(kind)
            value = _number(text, start, got, negative=False)
        kinds.append(previous)
        values.append(value)
        positions.append(start)
        if len(kinds) > MAX_TOKENS:
            raise ParseError(f"the expression has more than {MAX_TOKENS} names, numbers and operators", start)
    kinds.append("end")
    values.append("")
    positions.append(length)
    return kinds, values, positions


def _refused(text: str, position: int) -> ParseError:
    if position >= len(text):
        return ParseError("the expression is empty", position)
    if text.startswith("/*", position):
        return ParseError(f"comment opened at column {position + 1} is never closed", position)
    return ParseError(f"unexpected character {text[position]!r} at column {position + 1}", position)


def _number(text: str, start: int, got: re.Match[str], *, negative: bool) -> int | float:
    digits = got.group()
    following = text[got.end() : got.end() + 1]
    whole = got.lastgroup == "int"
    if (whole and following in (".", "e", "E") and following) or (
        not whole and following in ("e", "E") and following and "e" not in digits.lower()
    ):
        raise ParseError(f"unfinished number {digits + following!r} at column {start + 1}", start)
    if not whole:
        return -float(digits) if negative else float(digits)
    if digits[0] == "0":
        if following in ("x", "X") and following:
            raise ParseError(f"hexadecimal number at column {start + 1}: only decimal numbers are known", start)
        if len(digits) > 1 and (not negative or "8" in digits or "9" in digits):
            raise ParseError(f"number {digits!r} begins with 0 at column {start + 1}", start)
    if len(digits) > 19:
        return 0
    value = -int(digits) if negative else int(digits)
    return value if INT_MIN <= value <= INT_MAX else 0


def _unfinished(text: str, start: int) -> ParseError:
    what = "string" if text[start] == '"' else "quoted name"
    return ParseError(f"{what} opened at column {start + 1} is never closed", start)


def _new_string(text: str, start: int) -> tuple[str, int]:
    delimiter = text[start]
    parts: list[str] = []
    position = start + 1
    while True:
        body = _BODY[delimiter].match(text, position)
        if body is None:
            raise _unfinished(text, start)
        parts.append(body.group()[:-1])
        position = body.end()
        after = _NEXT.match(text, position).end()  # type: ignore[union-attr]
        if text[after : after + 1] != delimiter:
            break
        position = after + 1
    raw = "".join(parts)
    return (_unescaped(raw, start) if "\\" in raw else raw), position


def _unescaped(raw: str, start: int) -> str:
    def unescape(escape: re.Match[bytes]) -> bytes:
        code = escape.group(1)
        if b"0" <= code[:1] <= b"7":
            return bytes([int(code, 8)])
        return _PLAIN_ESCAPES.get(code, code)

    data = _ESCAPE.sub(unescape, encoded(raw))
    if b"\0" in data:
        raise ParseError(f"string at column {start + 1} contains the character \\0", start)
    return decoded(data)


def _old_string(text: str, start: int) -> tuple[str, int]:
    delimiter = text[start]
    parts: list[str] = []
    begin = start + 1
    while True:
        end = text.find(delimiter, begin)
        if end < 0:
            raise _unfinished(text, start)
        piece = text[begin:end]
        if not piece.endswith("\\") or text[end + 1 : end + 2] in ("", "\n"):
            parts.append(piece)
            return "".join(parts), end + 1
        parts.append(piece[:-1] + delimiter)
        begin = end + 1

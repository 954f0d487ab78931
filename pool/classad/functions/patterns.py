"""regexp, regexpMember, regexps, replace, replaceall: Perl-compatible patterns.

Options are letters in a string: i, m, s, x as in Perl; f for the full subject with the replacement in place, g for
all matches. Others are ignored. Replacing all matches of a pattern that matches the empty end of the subject is
ERROR, as it is in the reference.
"""

from __future__ import annotations

from typing import Any

from pool.classad.functions.registry import Family
from pool.classad.functions.strings import paid
from pool.classad.patterns import Pattern, PatternError, Spans, compiled_pattern
from pool.classad.scope import ListValue, Scope
from pool.classad.values import ERROR, UNDEFINED, decoded, encoded

FUNCTIONS = Family()


def _refused(*values: Any) -> Any:
    """ERROR or UNDEFINED if one of the values is; None when all can be used."""
    if any(value is ERROR for value in values):
        return ERROR
    return UNDEFINED if any(value is UNDEFINED for value in values) else None


def _pattern(pattern: str, options: str) -> Pattern | None:
    try:
        return compiled_pattern(pattern, options)
    except PatternError:
        return None


def _matches(scope: Scope, matcher: Pattern, text: str) -> Any:
    try:
        return matcher.search(text, scope.spend) is not None
    except PatternError:
        return ERROR


@FUNCTIONS.strict("regexp", 2, 3)
def regexp(scope: Scope, pattern: Any, text: Any, options: Any = "") -> Any:
    """Whether the pattern matches somewhere in the text."""
    refused = _refused(pattern, text, options)
    if refused is not None:
        return refused
    if type(pattern) is not str or type(text) is not str or type(options) is not str:
        return ERROR
    matcher = _pattern(pattern, options)
    return ERROR if matcher is None else _matches(scope, matcher, text)


@FUNCTIONS.strict("regexpMember", 2, 3)
def regexp_member(scope: Scope, pattern: Any, items: Any, options: Any = "") -> Any:
    """Whether the pattern matches some string of the list; undefined when none does and one was undefined."""
    refused = _refused(pattern, items, options)
    if refused is not None:
        return refused
    if type(pattern) is not str or type(items) is not ListValue or type(options) is not str:
        return ERROR
    matcher = _pattern(pattern, options)
    undefined = False
    for item in items.items(scope):
        if item is UNDEFINED:
            undefined = True
        elif type(item) is not str:
            return ERROR
        elif matcher is not None and _matches(scope, matcher, item) is True:
            return True
    return UNDEFINED if undefined else False


def _substitution(fixed: str) -> Any:
    def apply(scope: Scope, pattern: Any, text: Any, replacement: Any, options: Any = "") -> Any:
        refused = _refused(pattern, text, replacement, options)
        if refused is not None:
            return refused
        if not all(type(value) is str for value in (pattern, text, replacement, options)):
            return ERROR
        options += fixed
        matcher = _pattern(pattern, options)
        if matcher is None:
            return ERROR
        try:
            return _substituted(scope, matcher, text, replacement, "f" in options, "g" in options)
        except PatternError:
            return ERROR

    return apply


FUNCTIONS.strict("regexps", 3, 4)(_substitution(""))
FUNCTIONS.strict("replace", 3, 4)(_substitution("f"))
FUNCTIONS.strict("replaceall", 3, 4)(_substitution("fg"))


def _substituted(scope: Scope, matcher: Pattern, text: str, replacement: str, full: bool, every: bool) -> Any:
    data, template = encoded(text), encoded(replacement)
    output: list[bytes] = []
    at, size, after_empty = 0, 0, False
    while True:
        spans = matcher.match_nonempty(data, scope.spend, at) if after_empty else matcher.search(data, scope.spend, at)
        if spans is None:
            if not after_empty:
                break
            if at >= len(data):
                return ERROR
            output.append(data[at : at + 1])
            at += 1
            after_empty = False
            continue
        filled = _filled(template, data, spans)
        if filled is None:
            return ERROR
        if full:
            output.append(data[at : spans[0]])
        output.append(filled)
        size += len(output[-1])
        scope.spend(size // 4096 + 1)
        at = spans[1]
        after_empty = spans[0] == spans[1]
        if not every:
            break
    if full:
        output.append(data[at:])
    return paid(scope, decoded(b"".join(output)))


def _filled(template: bytes, data: bytes, spans: Spans) -> bytes | None:
    """The replacement with \\0 to \\9 put in; None when it names a group beyond the last that took part."""
    last = max(index for index in range(0, len(spans), 2) if spans[index] >= 0) // 2
    parts: list[bytes] = []
    pieces = template.split(b"\\")
    parts.append(pieces[0])
    for piece in pieces[1:]:
        if b"0" <= piece[:1] <= b"9":
            group = int(piece[:1])
            if group > last:
                return None
            parts.append(data[spans[2 * group] : spans[2 * group + 1]] if spans[2 * group] >= 0 else b"")
            parts.append(piece[1:])
        else:
            parts.append(b"\\" + piece)
    return b"".join(parts)

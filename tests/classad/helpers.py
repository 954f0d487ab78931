"""Helpers for the tests of the language: values as text, so that a table of cases reads like a session."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pool.classad import ClassAd, evaluate, literal, parse_expr
from pool.classad.printing import LONG

NOW = 1_700_000_000.0
LONG_ENOUGH = 20.0
"""Seconds of the test's own processor time after which something is taken to have no end."""


@contextmanager
def ending() -> Iterator[None]:
    """Work done here comes to an end; it is broken off and fails the test where it does not."""

    def endless(*_: object) -> None:
        raise AssertionError(f"no end after {LONG_ENOUGH:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, endless)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONG_ENOUGH)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def ad(attributes: Mapping[str, str] | None = None, parent: ClassAd | None = None) -> ClassAd:
    """An ad of expression texts."""
    return ClassAd({name: parse_expr(text) for name, text in (attributes or {}).items()}, parent)


def text_of(value: Any) -> str:
    """A value as the long form prints it."""
    return literal(value).print(LONG)


def value(
    expression: str,
    my: Mapping[str, str] | None = None,
    target: Mapping[str, str] | None = None,
    now: float | None = NOW,
) -> str:
    """The value of an expression as text, seen from an ad of expression texts."""
    other = None if target is None else ad(target)
    return text_of(evaluate(parse_expr(expression), ad(my), other, now))

"""Errors and warnings about a job description file, each with its place, and the nearest word that may be meant.

A `Diagnostic` is data; whoever shows it renders it. A `Reporter` gathers all of a file, so that a user mends
the file once and not error by error (VS 6.3.2 complains of the opposite). It decides nothing about what is an
error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from pool.errors import PoolError


class Severity(StrEnum):
    """How bad it is: an error refuses the file, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A line of a file; line 0 stands for the file as a whole."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: where it is, what is wrong, and the way out (empty when there is nothing to add)."""

    severity: Severity
    where: SourcePosition
    message: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.severity}: {self.message}"
        return f"{text} ({self.hint})" if self.hint else text


class DescriptionError(PoolError):
    """A job description that cannot be queued; `diagnostics` holds every error and warning found in it."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        errors = [d for d in self.diagnostics if d.severity is Severity.ERROR]
        first = errors[0]
        more = f" [and {len(errors) - 1} more]" if len(errors) > 1 else ""
        super().__init__(f"{first.where}: {first.message}{more}", hint=first.hint)


class CommandRefused(Exception):
    """Ends the work on one command after its error was reported; never leaves this package."""


@dataclass(slots=True)
class Reporter:
    """Gathers diagnostics in the order they were found, each only once."""

    found: list[Diagnostic] = field(default_factory=list)
    errors: int = 0
    _seen: set[Diagnostic] = field(default_factory=set)

    def error(self, where: SourcePosition, message: str, hint: str = "") -> None:
        """Add an error: the file will be refused."""
        self._add(Diagnostic(Severity.ERROR, where, message, hint))

    def warning(self, where: SourcePosition, message: str, hint: str = "") -> None:
        """Add a warning: the file can still be queued."""
        self._add(Diagnostic(Severity.WARNING, where, message, hint))

    def warnings(self) -> list[Diagnostic]:
        """The warnings alone."""
        return [d for d in self.found if d.severity is Severity.WARNING]

    def _add(self, diagnostic: Diagnostic) -> None:
        if diagnostic in self._seen:
            return
        self._seen.add(diagnostic)
        self.found.append(diagnostic)
        self.errors += diagnostic.severity is Severity.ERROR


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that `word` was probably meant to be, or an empty string.

    Underscores and case count for nothing, so that `RequestCpu` finds `request_cpus`.
    """
    import difflib  # only a description with a slip needs it

    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.lower().replace("_", ""), candidate)
    close = difflib.get_close_matches(word.lower().replace("_", ""), folded, n=1, cutoff=0.75)
    return folded[close[0]] if close else ""

"""A job's environment and the two ways people and job ads write it.

Old style: `A=1;B=2`, where a leading punctuation character chooses another separator. New style: the whole in
double quotes, entries between blanks, single quotes around blanks (as in `arguments`). A job ad keeps new
style as `Environment`, old style as `Env` with its separator in `EnvDelim`. An entry without `=` that holds
`$$` becomes an entry at the matched machine and is kept as it is.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping

from pool.jobs.arguments import QuotingError, is_quoted, join_words, split_words, unquote

SEPARATOR = ";"
_SEPARATORS = frozenset("!#$%&*+,-/:;<>?@^`|~\x1f")


class Environment(dict[str, str | None]):
    """Variables and their values; None for an entry that only the matched machine completes."""

    def entries(self) -> list[str]:
        """`NAME=value`, in order of the names."""
        return [name if value is None else f"{name}={value}" for name, value in sorted(self.items())]

    def to_new(self) -> str:
        """The text of the attribute `Environment`."""
        return join_words(self.entries())

    def to_old(self) -> str:
        """The text of the attribute `Env`. Raises QuotingError where a value holds the separator."""
        for entry in self.entries():
            if SEPARATOR in entry or "\n" in entry:
                raise QuotingError(
                    f"the environment entry {entry!r} cannot be written in old style",
                    hint="use 'environment' with double quotes around its text",
                )
        return SEPARATOR.join(self.entries())

    def add(self, entry: str) -> None:
        """Add one `NAME=value`. Raises QuotingError."""
        name, equals, value = entry.partition("=")
        if not equals and "$$" in entry:
            self[entry] = None
        elif not equals:
            raise QuotingError(f"expected NAME=value in the environment, not {entry!r}")
        elif not name:
            raise QuotingError(f"expected a name before {entry!r} in the environment")
        else:
            self[name] = value


def read_environment(text: str) -> Environment:
    """Read the `environment` command in either style. Raises QuotingError."""
    found = Environment()
    if is_quoted(text):
        for entry in split_words(unquote(text)):
            found.add(entry)
        return found
    separator = SEPARATOR
    if text[:1] in _SEPARATORS:
        separator, text = text[0], text[1:]
    _add_old(found, text, separator)
    return found


def _add_old(found: Environment, text: str, separator: str) -> None:
    for entry in text.replace("\n", separator).split(separator):
        if entry.lstrip(" \t\r\n"):
            found.add(entry.lstrip(" \t\r\n"))


def imported(environ: Mapping[str, str], patterns: Iterable[str] = (), *, old: bool = False) -> Environment:
    """The submitter's variables that `getenv` lets through.

    Patterns are names with `*`, without regard to case; one that begins with `!` takes variables away.
    Without a positive pattern all are taken. With `old`, values that old style cannot hold are left out.
    """
    wanted: list[str] = []
    unwanted: list[str] = []
    for pattern in patterns:
        (unwanted if pattern.startswith("!") else wanted).append(pattern.lstrip("!").strip().lower())
    found = Environment()
    for name, value in environ.items():
        if "\n" in value or (old and SEPARATOR in value):
            continue
        if _matches(name, unwanted) or (wanted and not _matches(name, wanted)):
            continue
        found[name] = value
    return found


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in patterns)


def written(attributes: Mapping[str, object]) -> Environment:
    """The entries of a job's attributes `Environment` or `Env`. Raises QuotingError."""
    found = Environment()
    new, old = attributes.get("Environment"), attributes.get("Env")
    if isinstance(new, str):
        for entry in split_words(new):
            found.add(entry)
    elif isinstance(old, str):
        delimiter = attributes.get("EnvDelim")
        _add_old(found, old, delimiter[0] if isinstance(delimiter, str) and delimiter else SEPARATOR)
    return found


def environment_of(attributes: Mapping[str, object]) -> dict[str, str]:
    """The variables that a job's attributes `Environment` or `Env` stand for. Raises QuotingError."""
    return {name: value for name, value in written(attributes).items() if value is not None}

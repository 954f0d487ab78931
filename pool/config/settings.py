"""Reading settings: a pool-wide file and a local file over it, the environment, the command line (EV 2.5, TS 8).

    NAME = value            a macro: $(NAME) stands for it anywhere below and above
    NAME : expression       a control expression

A name in the table is a setting of ours; any other is a macro of the administrator's own. What comes later
wins: default, pool-wide file, local file, POOLNODE_NAME in the environment, --set. Every setting says where its
value came from.
"""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pool.config.table import TABLE, Kind, Setting
from pool.errors import PoolError

POOL_FILE, LOCAL_FILE = "pool.conf", "pool.local.conf"
PLACES = (Path("/etc/poolnode"),)
_LINE = re.compile(r"^\s*([A-Za-z_][A-Za-z0-9_.]*)\s*([=:])\s*(.*)$")
_MACRO = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.]*)(?::([^()]*))?\)")
DEEPEST = 50


class ConfigError(PoolError):
    """The configuration cannot be used; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Warning_:
    """Something in a configuration file that is probably not meant."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True, slots=True)
class _Value:
    text: str
    source: str


@dataclass(slots=True)
class Settings:
    """All settings of one node."""

    values: dict[str, _Value] = field(default_factory=dict)
    warnings: list[Warning_] = field(default_factory=list)

    @classmethod
    def load(
        cls,
        path: Path | None,
        *,
        sets: Mapping[str, str],
        environ: Mapping[str, str],
        files: bool = True,
    ) -> Settings:
        """Read everything there is.

        Args:
            path: the pool-wide file; None looks at $POOLNODE_CONFIG and in the usual places.
            sets: what the command line sets.
            files: False reads no file at all.

        Raises:
            ConfigError: a file that cannot be read, a line that is none, a value of the wrong kind.
        """
        settings = cls()
        for name in (path, *_usual(environ)) if files else ():
            if name is None:
                continue
            if name == path or name.exists():
                settings._read(name)
                local = name.with_name(LOCAL_FILE)
                if local.exists() and local != name:
                    settings._read(local)
                break
        for variable, text in environ.items():
            name_ = variable.removeprefix("POOLNODE_")
            if name_ != variable and name_ in TABLE:
                settings.values[name_] = _Value(text, f"environment {variable}")
        for given, text in sets.items():
            if given.upper() not in TABLE:
                raise ConfigError(f"--set {given}: there is no such setting", hint=_nearest(given))
            settings.values[given.upper()] = _Value(text, "command line")
        settings._check()
        return settings

    # -- asking ------------------------------------------------------------------------------------------

    def text(self, name: str) -> str:
        """A setting's value with its macros replaced."""
        value = self._expanded(name)
        if not value and name in ("UID_DOMAIN", "FILESYSTEM_DOMAIN", "NODE_NAME"):
            return socket.gethostname()
        return value

    def number(self, name: str) -> float:
        """A setting that is a number."""
        return float(self._expanded(name))

    def flag(self, name: str) -> bool:
        """A setting that is true or false."""
        return self._expanded(name).lower() in ("true", "yes", "on", "1")

    def is_set(self, name: str) -> bool:
        """Whether anybody has set it."""
        return name in self.values

    def explain(self, name: str) -> tuple[str, str]:
        """A setting's value and where it was set."""
        known = self.values.get(name)
        return self.text(name), known.source if known else "default"

    def describe(self, names: Any = None) -> list[dict[str, Any]]:
        """Settings as data: name, value, source, unit, doc."""
        wanted = [str(name).upper() for name in names] if names else list(TABLE)
        for name in wanted:
            if name not in TABLE and name not in self.values:
                raise ConfigError(f"there is no setting {name}", hint=_nearest(name))
        found = []
        for name in wanted:
            row = TABLE.get(name)
            value, source = self.explain(name)
            found.append(
                {
                    "name": name,
                    "value": value,
                    "source": source,
                    "unit": row.unit if row else "",
                    "doc": row.doc if row else "",
                }
            )
        return found

    def differences(self, other: Settings) -> list[str]:
        """Names whose value is not the same in both."""
        return [name for name in TABLE if self.text(name) != other.text(name)]

    # -- reading -----------------------------------------------------------------------------------------

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_text().split("\n")
        except OSError as error:
            raise ConfigError(
                f"cannot read {path}: {error.strerror}", hint="give another with --config"
            ) from error
        number = 0
        while number < len(lines):
            first = number
            line = lines[number]
            while line.endswith("\\") and number + 1 < len(lines):
                number += 1
                line = line[:-1] + lines[number].lstrip()
            number += 1
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            match = _LINE.match(line)
            where = f"{path}:{first + 1}"
            if match is None:
                raise ConfigError(
                    f"{where}: expected NAME = value or NAME : expression, found {line.strip()[:40]!r}"
                )
            name, value = match[1].upper(), match[3].strip()
            if name not in TABLE:
                close = difflib.get_close_matches(name, TABLE, 1, 0.8)
                if close:
                    self.warnings.append(Warning_(where, f"{name} is no setting; is {close[0]} meant?"))
            self.values[name] = _Value(value, where)

    def _expanded(self, name: str, depth: int = 0) -> str:
        known = self.values.get(name)
        text = known.text if known else TABLE[name].default if name in TABLE else ""
        return self._replace(text, name, depth)

    def _replace(self, text: str, name: str, depth: int) -> str:
        if "$(" not in text:
            return text
        if depth > DEEPEST:
            raise ConfigError(f"{self.explain_source(name)}: {name} refers to itself")

        def macro(match: re.Match[str]) -> str:
            inner = match[1].upper()
            if inner in self.values or inner in TABLE:
                return self._expanded(inner, depth + 1)
            return match[2] or ""

        return _MACRO.sub(macro, text)

    def explain_source(self, name: str) -> str:
        """Where a setting's value came from."""
        known = self.values.get(name)
        return known.source if known else "default"

    def _check(self) -> None:
        for name, value in self.values.items():
            row = TABLE.get(name)
            text = self._expanded(name)
            if row is not None:
                _check_kind(row, text, value.source)


def _check_kind(row: Setting, text: str, source: str) -> None:
    if row.kind is Kind.NUMBER:
        try:
            float(text)
        except ValueError:
            raise ConfigError(f"{source}: {row.name} = {text}: expected a number{_in(row)}") from None
    if row.kind is Kind.FLAG and text.lower() not in ("true", "false", "yes", "no", "on", "off", "1", "0"):
        raise ConfigError(f"{source}: {row.name} = {text}: expected true or false")


def _in(row: Setting) -> str:
    return f" ({row.unit})" if row.unit else ""


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name.upper(), TABLE, 1, 0.5)
    return f"is {close[0]} meant? `poolnode config` lists them" if close else "`poolnode config` lists them"


def _usual(environ: Mapping[str, str]) -> list[Path]:
    named = environ.get("POOLNODE_CONFIG")
    if named:
        return [Path(named)]
    home = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
    own = [Path(home) / "poolnode" / POOL_FILE] if home else []
    return [*own, *(place / POOL_FILE for place in PLACES)]

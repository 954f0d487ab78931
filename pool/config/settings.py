"""All settings of one node: what is set where, what each comes to, and what is wrong with it (A8; EV 2.5, TS 8).

Later sources win: the default, the pool-wide file, the local file, POOLNODE_NAME in the environment, --set. A name in
the table is a setting of ours; any other is a macro of the administrator's own, for use in other definitions. Macros
are replaced when a value is read, so that a local file may change a macro that the pool-wide file's expressions use.

A number or a length of time that stands in an expression as a macro is put in as a plain number, in the setting's
unit: `$(START_IDLE)` is 600 where it was set to `10 min`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pool.config import kinds
from pool.config.kinds import SettingKind, Unfit
from pool.config.macros import Replacer, TooLong, names_in
from pool.config.places import config_files
from pool.config.reading import DEEPEST, ConfigError, Opener, SettingDefinition, open_file, parse
from pool.config.table import TABLE, Setting, canonical
from pool.policy.shipped import MACROS, SHIPPED_TEXTS

DEFAULT, COMMAND_LINE = "default", "command line"
PREFIX = "POOLNODE_"
_OWN_STATE = re.compile(r"\bEnteredCurrentState\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ConfigWarning:
    """Something in a configuration that is probably not meant."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


class ExplainedSetting(NamedTuple):
    """A setting's value, and where it was set: file and line, the environment, the command line, or `default`."""

    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that is not what it was.

    Attributes:
        live: whether it takes effect now, or when the node is started again.
    """

    name: str
    before: str
    after: str
    source: str
    live: bool


@dataclass(slots=True)
class Settings:
    """All settings of one node. Not changed after it was loaded."""

    values: dict[str, SettingDefinition] = field(default_factory=dict)
    warnings: list[ConfigWarning] = field(default_factory=list)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    hostname: str = field(default_factory=socket.gethostname)
    _known: dict[str, str] = field(default_factory=dict, repr=False)
    _numbers: dict[str, float] = field(default_factory=dict, repr=False)
    _used: set[str] = field(default_factory=set, repr=False)

    @classmethod
    def load(
        cls,
        path: Path | None,
        *,
        sets: Mapping[str, str],
        environ: Mapping[str, str],
        files: bool = True,
        opener: Opener = open_file,
    ) -> Settings:
        """Read everything there is.

        Args:
            path: the pool-wide file; None looks at $POOLNODE_CONFIG and in the usual places.
            sets: what the command line sets.
            environ: for POOLNODE_NAME, and for $ENV(NAME).
            files: False reads no file at all.
            opener: how a file is read.

        Raises:
            ConfigError: a file that cannot be read, a line that is none, a value of the wrong kind.
        """
        settings = cls(environ=environ)
        if files:
            settings._read_files(path, opener)
        settings._read_environment()
        for given, text in sets.items():
            if canonical(given) not in TABLE and given.upper() != "VACATE":
                raise ConfigError(f"--set {given}: there is no such setting", hint=nearest(given))
            settings._assign(SettingDefinition(given, text.strip(), COMMAND_LINE))
        settings._check()
        return settings

    # -- asking ------------------------------------------------------------------------------------------

    def text(self, name: str) -> str:
        """A setting's value with its macros replaced."""
        name = canonical(name)
        value = self._known.get(name)
        if value is None:
            value = self._known[name] = self._expanded(name, ()) or ""
        return value

    def raw(self, name: str) -> str:
        """The text that a name was set to, with its macros; empty where it was not set."""
        found = self.values.get(canonical(name))
        return found.text if found is not None else ""

    def number(self, name: str) -> float:
        """A setting that is a number or a length of time, in its unit."""
        value = self._numbers.get(name)
        if value is None:
            text = self.text(name)
            read = kinds.duration if TABLE[canonical(name)].kind is SettingKind.DURATION else kinds.number
            value = self._numbers[name] = read(text)
        return value

    def flag(self, name: str) -> bool:
        """A setting that is true or false."""
        return kinds.flag(self.text(name))

    def is_set(self, name: str) -> bool:
        """Whether anybody has set it."""
        return canonical(name) in self.values

    def source(self, name: str) -> str:
        """Where a setting's value came from."""
        name = canonical(name)
        known = self.values.get(name)
        if known is None or (not known.text and name in TABLE and TABLE[name].needed):
            return DEFAULT
        return known.where

    def explain(self, name: str) -> ExplainedSetting:
        """A setting's value and where it was set.

        Raises:
            ConfigError: there is no such setting, and no macro of that name.
        """
        self._must_exist(name)
        return ExplainedSetting(self.text(name), self.source(name))

    def describe(self, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Settings as data: name, value, source, unit, doc, kind, default, live. All of the table's by default.

        Raises:
            ConfigError: there is no setting of one of the names.
        """
        found = []
        for name in names or TABLE:
            value, source = self.explain(name)
            row = TABLE.get(canonical(name)) or Setting(
                canonical(name), SettingKind.TEXT, "", "", "a macro of one's own"
            )
            found.append(
                {
                    "name": row.name,
                    "value": value,
                    "source": source,
                    "unit": row.unit,
                    "doc": row.doc,
                    "kind": str(row.kind),
                    "default": row.default,
                    "live": row.live,
                }
            )
        return found

    def differences(self, other: Settings) -> list[str]:
        """Names of settings whose value is not the same in both."""
        return [name for name in TABLE if self.text(name) != other.text(name)]

    def changes_since(self, before: Settings) -> list[Change]:
        """The settings that differ from those read before."""
        return [
            Change(name, before.text(name), self.text(name), self.source(name), TABLE[name].live)
            for name in self.differences(before)
        ]

    def _must_exist(self, name: str) -> None:
        if canonical(name) not in TABLE and canonical(name) not in self.values:
            raise ConfigError(f"there is no setting {name}", hint=nearest(name))

    # -- reading -----------------------------------------------------------------------------------------

    def _read_files(self, path: Path | None, opener: Opener) -> None:
        main = path or next((one for one in config_files(self.environ) if one.exists()), None)
        if path is None and self.environ.get("POOLNODE_CONFIG"):
            main = Path(self.environ["POOLNODE_CONFIG"])
        if main is None:
            return
        self._read(main, opener, ())
        named = self.text("LOCAL_CONFIG")
        self._known.clear()
        self._numbers.clear()
        if not named:
            return
        local = main.parent / named
        if local.exists() and local != main:
            self._read(local, opener, ())
        elif self.is_set("LOCAL_CONFIG") and local != main:
            self._warn(self.source("LOCAL_CONFIG"), f"there is no local file {local}")

    def _read(self, path: Path, opener: Opener, within: tuple[Path, ...]) -> None:
        if path in within:
            raise ConfigError(f"{path} includes itself")
        if len(within) > DEEPEST:
            raise ConfigError(f"{path}: too many files within files")
        for item in parse(opener(path), str(path)):
            if isinstance(item, SettingDefinition):
                self._assign(item)
                continue
            self._used |= {canonical(name) for name in names_in(item.path)}
            there = path.parent / self._replaced(item.path, "include", item.where, ())
            if item.needed and not there.exists():
                raise ConfigError(
                    f"{item.where}: there is no file {there}", hint="`include ifexist : FILE` does without"
                )
            if there.exists():
                self._read(there, opener, (*within, path))

    def _read_environment(self) -> None:
        for variable, text in sorted(self.environ.items()):
            name = canonical(variable.removeprefix(PREFIX))
            if not variable.startswith(PREFIX):
                continue
            if name in TABLE:
                self._assign(SettingDefinition(name, text.strip(), f"environment {variable}"))
            elif close := _close(name, TABLE, 0.85):
                self._warn(f"environment {variable}", f"there is no setting {name}; is {close[0]} meant?")

    def _assign(self, made: SettingDefinition) -> None:
        """Take a definition in; EV's VACATE becomes the PREEMPT that it says for a suspended job."""
        name, text = canonical(made.name), made.text
        if name == "VACATE" and text:
            name = "PREEMPT"
            text = f'Activity == "Suspended" && ({_OWN_STATE.sub("EnteredCurrentActivity", text)})'
        self.values[name] = SettingDefinition(made.name, text, made.where, made.control, self.values.get(name))
        self._known.clear()
        self._numbers.clear()

    def _warn(self, where: str, text: str) -> None:
        warning = ConfigWarning(where, text)
        if warning not in self.warnings:
            self.warnings.append(warning)

    # -- macros ------------------------------------------------------------------------------------------

    def _expanded(self, name: str, asking: tuple[str, ...]) -> str | None:
        """The value of a name with all macros replaced; None where it has none."""
        known = self.values.get(name)
        if known is None or (not known.text and name in TABLE and TABLE[name].needed):
            return self._default(name, asking)
        return self._definition_value(name, known, asking)

    def _definition_value(self, name: str, made: SettingDefinition | None, asking: tuple[str, ...]) -> str | None:
        """One definition of a name; the one before it, for what names itself."""
        if made is None:
            return self._default(name, asking)
        return self._replaced(made.text, name, made.where, asking, made.before)

    def _default(self, name: str, asking: tuple[str, ...]) -> str | None:
        if name in TABLE:
            return self._replaced(TABLE[name].default, name, DEFAULT, asking)
        if name == "HOSTNAME":
            return self.hostname
        if name == "DOLLAR":
            return "$"
        policy, _, knob = name.partition("_")
        if policy == "POLICY" and knob in SHIPPED_TEXTS["desktop"]:
            chosen = (self._expanded("POLICY", (*asking, name)) or "").lower()
            return self._replaced(SHIPPED_TEXTS.get(chosen, SHIPPED_TEXTS["desktop"])[knob], name, DEFAULT, asking)
        if name in MACROS:
            return self._replaced(MACROS[name], name, DEFAULT, asking)
        return None

    def _replaced(
        self, text: str, name: str, where: str, asking: tuple[str, ...], before: SettingDefinition | None = None
    ) -> str:
        if "$" not in text:
            return text
        if name in asking:
            others = ", ".join(asking[asking.index(name) + 1 :])
            raise ConfigError(f"{where}: {name} refers to itself" + (f" by way of {others}" if others else ""))

        def lookup(other: str) -> str | None:
            other = canonical(other)
            if other == name:
                return self._definition_value(name, before, asking)
            value = self._expanded(other, (*asking, name))
            return value if value is None else _plain(other, value)

        replacer = Replacer(lookup, self.environ)
        try:
            replaced = replacer.replace(text)
        except TooLong:
            raise ConfigError(f"{where}: {name} grows without end when its macros are replaced") from None
        for missing in replacer.missing:
            self._warn(where, f"{missing} in {name} stands for nothing{_did_you_mean(missing, self.values)}")
        return replaced

    # -- checking ----------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Every value is of its kind, and every name is used.

        Raises:
            ConfigError: one is not; names the first, and counts the rest.
        """
        wrong: list[str] = []
        for row in TABLE.values():
            said = _unfit(row, self.text(row.name))
            if said:
                wrong.append(f"{self._blamed(row.name)}: {row.name} = {self.text(row.name)}: expected {said}")
            elif row.kind is SettingKind.TEXT and row.name in self.values and " #" in self.values[row.name].text:
                self._warn(self.source(row.name), f"{row.name} contains ` #`: a comment needs a line of its own")
        if wrong:
            more = f"and {len(wrong) - 1} more: {'; '.join(each.partition(' = ')[0] for each in wrong[1:])}"
            raise ConfigError(wrong[0], hint=more if wrong[1:] else "")
        self._check_names()

    def _blamed(self, name: str) -> str:
        """Where what makes a setting's value wrong was set: itself, or the youngest of the macros in it."""
        if name in self.values:
            return self.source(name)
        used = names_in(TABLE[name].default)
        reached: set[str] = set()
        while used:
            one = canonical(used.pop())
            if one in reached:
                continue
            reached.add(one)
            if one in self.values:
                return self.source(one)
            used |= names_in(self._raw_default(one))
        return DEFAULT

    def _raw_default(self, name: str) -> str:
        if name.startswith("POLICY_"):
            policy = SHIPPED_TEXTS.get(self.text("POLICY").lower(), {})
            return policy.get(name.removeprefix("POLICY_"), "")
        return MACROS.get(name, "")

    def _check_names(self) -> None:
        used = set(self._used)
        used |= {f"JOB_TRANSFORM_{one}".upper() for one in self.text("JOB_TRANSFORM_NAMES").replace(",", " ").split()}
        for made in self.values.values():
            one: SettingDefinition | None = made
            while one is not None:
                used |= {canonical(name) for name in names_in(one.text)}
                one = one.before
        for name, made in self.values.items():
            if name in TABLE or name in used or name in MACROS:
                continue
            self._warn(made.where, f"{made.name} is no setting, and nothing uses it{_did_you_mean(name, TABLE)}")


def _unfit(row: Setting, text: str) -> str:
    """The kind of value that was expected; nothing when the value is fit."""
    unit = f" ({row.unit})" if row.unit and row.kind is not SettingKind.DURATION else ""
    readers = {SettingKind.NUMBER: kinds.number, SettingKind.COUNT: kinds.count, SettingKind.DURATION: kinds.duration}
    try:
        if row.kind in readers:
            if readers[row.kind](text) < row.least:
                return f"at least {row.least:g}{unit or ' ' + row.unit}".rstrip()
        elif row.kind is SettingKind.FLAG:
            kinds.flag(text)
        elif row.kind is SettingKind.ADDRESS:
            kinds.address(text)
        elif row.kind is SettingKind.EXPRESSION:
            if text or row.needed:
                kinds.expression(text)
        elif row.kind is SettingKind.SPAN:
            kinds.span(text)
        elif row.kind is SettingKind.CHOICE and text.strip().lower() not in row.choices:
            return f"one of {', '.join(row.choices)}"
    except Unfit as unfit:
        return f"{unfit}{unit}"
    return ""


def _plain(name: str, value: str) -> str:
    """A length of time as plain seconds, for use within other values."""
    row = TABLE.get(name)
    if row is None or row.kind is not SettingKind.DURATION:
        return value
    try:
        return repr(kinds.duration(value)).removesuffix(".0")
    except Unfit:
        return value


def nearest(name: str) -> str:
    """A hint at what may have been meant."""
    close = _close(name.upper(), TABLE, 0.5)
    return f"is {close[0]} meant? `poolnode config` lists them" if close else "`poolnode config` lists them"


def _did_you_mean(name: str, among: Iterable[str]) -> str:
    close = _close(name.strip("$()").upper(), among, 0.8)
    return f"; is {close[0]} meant?" if close else ""


def _close(name: str, among: Iterable[str], least: float) -> list[str]:
    """The name among these that is nearest to another one, if it is near enough (0 to 1)."""
    import difflib  # a node whose settings have no slip does without

    return difflib.get_close_matches(name, list(among), 1, least)

"""One job being written: what a section may ask of the description, and the attributes it puts down.

A section reads commands with `param` and its kin, attributes with `lookup`, and writes with the `set_...`
methods. While the first process of a queue statement is written, the job notes whether the section asked for
anything that differs by process; only such sections are applied again for the others. Nothing here knows a
command by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pool.jobs.description.diagnostics import CommandRefused, Reporter, SourcePosition
from pool.jobs.description.expressions import ExpressionError, Wire, boolean_of, integer_of, wire_of
from pool.jobs.description.facts import SubmitFacts
from pool.jobs.description.files import DescriptionFiles
from pool.jobs.description.macros import MacroError, Macros, Template

_SLASHES = re.compile(r"//+")


@dataclass(slots=True)
class JobKind:
    """The sort of job that a cluster holds; decided once, from its first process."""

    universe: int = 5
    docker: bool = False
    container: bool = False
    grid_type: str = ""
    vm_type: str = ""


@dataclass(slots=True)
class JobDraft:
    """The job being written.

    Attributes:
        own, parent: attributes by lower-case name; `own` holds only what differs from `parent` (the first
            process of the cluster).
        names: the spelling of each attribute, as it was first written.
        values: live values of this process, in the order of the macros' indices.
        varies: the present section asked for a text that differs by process.
        asked_for: the varying attributes that the present section asked for.
        varying: attributes (lower case) that differ by process.
        good_folders: directories that were found writable already.
        unchecked: the description itself switches file checks off.
        written: commands and macros (lower case) that the present queue statement has.
        several: the job has several processes (VS 3.2), whose programs and arguments `sections.processes` writes.
        last_files: what the commands `input`, `output` and `error` of such a job say: the first's, the last's.
        parts: of such a job the names of the processes that run together; empty where it is of one process.
        apart: no two of them on one machine.
        nodes: the numbers of the nodes of the present queue statement, of a parallel job.
        asked: the command whose text is being expanded, for what is said about its macros.
    """

    macros: Macros
    reporter: Reporter
    facts: SubmitFacts
    files: DescriptionFiles
    environ: Mapping[str, str]
    user: str
    folder: str
    check_files: bool
    iwd: str = ""
    nature: JobKind = field(default_factory=JobKind)
    own: dict[str, Wire] = field(default_factory=dict)
    parent: dict[str, Wire] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    values: Sequence[str] = ()
    live: Mapping[str, str] = field(default_factory=dict)
    varies: bool = False
    varying: set[str] = field(default_factory=set)
    asked_for: set[str] = field(default_factory=set)
    good_folders: set[str] = field(default_factory=set)
    asked: str = ""
    unchecked: bool = False
    written: frozenset[str] = frozenset()
    several: bool = False
    last_files: Mapping[str, str] = field(default_factory=dict)
    parts: Sequence[Sequence[str]] = ()
    apart: bool = False
    nodes: range = range(1)
    _templates: dict[str, Template] = field(default_factory=dict)

    # -- what the description says -------------------------------------------------------------------

    def forget_texts(self) -> None:
        """Compile all commands again: the macros have changed."""
        self._templates.clear()
        self.written = frozenset((*self.macros.table, *self.macros.live))

    def param(self, name: str, other: str = "") -> str | None:
        """The expanded text of a command, or of `other` where it is not written; None when that is empty."""
        template = self._templates.get(name)
        if template is None and name.lower() in self.written:
            template = self._compile(name)
        if template is None:
            return self.param(other) if other else None
        if template.constant is not None:
            return template.constant or None
        self.varies = True
        if template.parts:
            return template.fill(self.values) or None
        return self._expand(name, template.varying or "") or None

    def _compile(self, name: str) -> Template:
        key = name.lower()
        if key in self.macros.opaque:
            template = Template(parts=(self.macros.live[key],))
        elif key in self.macros.live:
            template = Template(varying=f"$({name}:)")
        else:
            macro = self.macros.table[key]
            macro.used = True
            self.asked = name
            try:
                template = self.macros.compile(macro.text)
            except MacroError as trouble:
                raise self.refuse(name, f"cannot expand '{name}': {trouble}") from None
        self._templates[name] = template
        return template

    def _expand(self, name: str, text: str) -> str:
        self.asked = name
        try:
            return self.macros.expand(text, self.live)
        except MacroError as trouble:
            raise self.refuse(name, f"cannot expand '{name}': {trouble}") from None

    def boolean(self, name: str, other: str = "") -> bool | None:
        """A command that must be true or false, or None when it is not given."""
        text = self.param(name, other)
        if text is None:
            return None
        value = boolean_of(text)
        if value is None:
            raise self.refuse(name, f"expected true or false for '{name}', not {text!r}", other=other)
        return value

    def integer(self, name: str, other: str = "") -> int | None:
        """A command that must be an integer, or None when it is not given."""
        text = self.param(name, other)
        if text is None:
            return None
        value = integer_of(text)
        if value is None:
            raise self.refuse(name, f"expected an integer for '{name}', not {text!r}", other=other)
        return value

    # -- trouble -------------------------------------------------------------------------------------

    def location(self, name: str, other: str = "") -> SourcePosition:
        """The line that gave a command, or the description as a whole."""
        for key in (name.lower(), other.lower()):
            if (macro := self.macros.table.get(key)) is not None:
                return macro.where
        return SourcePosition(self.facts.name)

    def refuse(self, name: str, message: str, hint: str = "", *, other: str = "") -> CommandRefused:
        """Report an error of a command; the result is to be raised."""
        self.reporter.error(self.location(name, other), message, hint)
        return CommandRefused(message)

    def refuse_path(self, name: str, path: str, message: str, hint: str = "", *, other: str = "") -> CommandRefused:
        """Report that a command's path cannot be used: that a directory above it is closed, if one is."""
        return self.refuse(name, *(self.closed_above(path) or (message, hint)), other=other)

    def closed_above(self, path: str) -> tuple[str, str] | None:
        """That the submitter may not enter a directory on the way to a path, and the way out; None if none is so."""
        closed = self.files.closed_above(path)
        if closed is None:
            return None
        said = f"{path} cannot be reached: {self.user} may not enter the directory {closed}"
        return said, f"chmod a+x {closed} (its owner may), or name a copy elsewhere"

    def warn(self, name: str, message: str, hint: str = "") -> None:
        """Report a warning about a command."""
        self.reporter.warning(self.location(name), message, hint)

    # -- attributes ----------------------------------------------------------------------------------

    def lookup(self, attribute: str) -> Wire | None:
        """An attribute in wire form, this process's own or the first process's; None when there is none."""
        key = attribute.lower()
        if key in self.varying:
            self.asked_for.add(key)
        value = self.own.get(key)
        return self.parent.get(key) if value is None else value

    def text_of(self, attribute: str) -> str:
        """An attribute that is a string, or an empty text."""
        value = self.lookup(attribute)
        return value if isinstance(value, str) else ""

    def is_true(self, attribute: str) -> bool:
        """Whether an attribute is literally true, or a number other than 0."""
        value = self.lookup(attribute)
        return bool(value) if isinstance(value, bool | int | float) else False

    def set(self, attribute: str, value: Wire) -> None:
        """Put an attribute down; what the first process has too costs nothing."""
        key = attribute.lower()
        if key not in self.names:
            self.names[key] = attribute
        old = self.parent.get(key)
        if old is not None and type(old) is type(value) and old == value:
            self.own.pop(key, None)
        else:
            self.own[key] = value

    def set_expression(self, attribute: str, text: str, command: str, other: str = "") -> None:
        """Put an expression down; a text that is none is an error of the command it came from."""
        try:
            self.set(attribute, wire_of(text))
        except ExpressionError as trouble:
            raise self.refuse(
                command,
                f"expected an expression for '{command}', not {text!r}: {trouble}",
                'a text as a value needs double quotes: "..."' if command.startswith(("+", "MY.")) else "",
                other=other,
            ) from None

    # -- files ---------------------------------------------------------------------------------------

    def full_path(self, path: str, folder: str = "") -> str:
        """A path as an absolute one, seen from the job's initial directory unless another folder is given."""
        if not path.startswith("/"):
            if not folder and "iwd" in self.varying:
                self.asked_for.add("iwd")
            path = f"{folder or self.iwd}/{path}"
        return _SLASHES.sub("/", path)

    def parent_of(self, path: str) -> str:
        """The directory that a path lies in."""
        return path.rstrip("/").rpartition("/")[0] or "/"

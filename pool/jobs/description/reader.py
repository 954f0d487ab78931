"""Reading a job description from its first line to its clusters.

    lines (source) -> statements -> macros, conditions, includes -> queue: items, processes (builder)

Every statement that makes no sense is reported and skipped, so that one reading finds all errors. This module does not
know what a command means.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pool.jobs.description import conditions, statements
from pool.jobs.description.builder import Builder
from pool.jobs.description.commands import NAMES, is_command, process_command
from pool.jobs.description.diagnostics import DescriptionError, Reporter, SourcePosition, nearest
from pool.jobs.description.draft import Description, Runs
from pool.jobs.description.expressions import Wire
from pool.jobs.description.facts import PROVISIONAL_CLUSTER, SubmitFacts
from pool.jobs.description.files import DescriptionFiles, RealFiles
from pool.jobs.description.functions import Functions
from pool.jobs.description.items import read_items
from pool.jobs.description.job import JobDraft
from pool.jobs.description.macros import MacroError, Macros, is_name
from pool.jobs.description.queueing import QueueArguments, QueueError, parse_queue
from pool.jobs.description.source import Source, SourceLine
from pool.outside import OutsideWorld

_DEEPEST_INCLUDE = 20
_STATEMENT_WORDS = ("queue", "include", "if", "elif", "else", "endif", "use", "error", "warning")
_INCLUDE_WORDS = frozenset({"ifexist", "ifexists", "command", "output"})


def read_description(
    text: str,
    *,
    name: str = "job.sub",
    iwd: str,
    environ: Mapping[str, str],
    user: str,
    facts: SubmitFacts,
    files: DescriptionFiles | None = None,
    extra: Sequence[str] = (),
    cluster: int | None = None,
    check_files: bool = True,
    chance: random.Random | None = None,
) -> Description:
    """Read a job description (VS 2.1, EV 2.8, and the language as users of batch pools write it today).

    Args:
        text: the description; `name` is what diagnostics call it.
        iwd: absolute directory it is submitted from.
        environ: the submitter's environment, for `getenv` and `$ENV`.
        user: the submitter's name.
        facts: what machine and pool say.
        files: the file system; the real one when not given.
        extra: further lines, applied before the first queue statement.
        cluster: the cluster's number where it is known; otherwise PROVISIONAL_CLUSTER stands for it.
        check_files: whether executable, input and directories are looked at.
        chance: the source of `$RANDOM_...`; the world's own when not given.

    Raises:
        DescriptionError: with every error and warning of the description.
    """
    reader = _DescriptionReader(
        facts if facts.name == name else replace(facts, name=name),
        files or RealFiles(),
        iwd.rstrip("/") or "/",
        environ,
        chance or OutsideWorld().chance,
        cluster or PROVISIONAL_CLUSTER,
        extra,
    )
    reader.prepare(user, check_files)
    return reader.read(text)


class _DescriptionReader:
    def __init__(
        self,
        facts: SubmitFacts,
        files: DescriptionFiles,
        folder: str,
        environ: Mapping[str, str],
        chance: random.Random,
        cluster: int,
        extra: Sequence[str],
    ) -> None:
        self.facts, self.files, self.folder, self.environ = facts, files, folder, environ
        self.cluster, self.extra = cluster, extra
        self.reporter = Reporter()
        self.where = SourcePosition(facts.name)
        self.queued = 0
        self.piped = False  # a queue statement had the pipes that are written so far
        self.last: tuple[QueueArguments, SourcePosition] | None = None  # the last queue statement
        self.functions = Functions(environ, chance, folder, report=self._function_trouble)
        self.macros = Macros(self.functions, defaults=_defaults(facts, cluster), undefined=self._undefined)
        self.blocks = conditions.Blocks()

    def prepare(self, user: str, check_files: bool) -> None:
        """Make the job that is going to be written."""
        self.job = JobDraft(
            self.macros,
            self.reporter,
            self.facts,
            self.files,
            self.environ,
            user,
            self.folder,
            check_files,
        )
        self.builder = Builder(self.job, self.macros, self.functions, self.cluster)

    # -- lines ---------------------------------------------------------------------------------------

    def read(self, text: str) -> Description:
        """Read all, or raise DescriptionError."""
        self._lines(Source(text, self.facts.name), depth=0)
        if not self.queued and not self.reporter.errors:
            self.reporter.error(self.where, "there is no queue statement, so that no job is queued", "end with: queue")
        self._unused()
        if self.reporter.errors:
            raise DescriptionError(self.reporter.found)
        drafts = [self.builder.draft()] if self.builder.count else []
        return Description(drafts, self.reporter.warnings(), self._read_further if self.last else None)

    def _read_further(self, items: list[str], first_row: int) -> list[dict[str, Wire] | None]:
        assert self.last is not None
        statement, where = self.last
        self.builder.runs = Runs()
        try:
            self.builder.queue(statement, items, where, first_row)
        except MacroError as trouble:
            self.reporter.error(where, str(trouble))
        if self.reporter.errors:
            raise DescriptionError(self.reporter.found)
        return self.builder.runs.differences

    def _lines(self, source: Source, depth: int) -> None:
        outer, self.blocks = self.blocks, conditions.Blocks()
        opened = source.location
        while (line := source.next()) is not None:
            if not line.text or line.text.startswith("#"):
                continue
            self.where = line.location
            if condition := statements.condition_of(line.text):
                if condition.keyword == "if":
                    opened = line.location
                self._condition(condition)
            elif self.blocks.enabled:
                self._statement(statements.statement_of(line.text), line, source, depth)
        if self.blocks.stack:
            tell = self.reporter.warning if self.queued else self.reporter.error
            tell(opened, "this if has no endif", "write endif after its last line")
        self.blocks = outer

    def _condition(self, condition: statements.IfStatement) -> None:
        def decide() -> bool:
            return conditions.decide(condition.text, self.macros.expand, self.macros.lookup, self.facts.version)

        try:
            self.blocks.step(condition.keyword, decide)
        except (conditions.ConditionError, MacroError) as trouble:
            self.reporter.error(self.where, f"{condition.keyword}: {trouble}")

    def _statement(self, statement: statements.Statement, line: SourceLine, source: Source, depth: int) -> None:
        match statement:
            case statements.Assignment(name, text):
                self._assign(name, self._whole_list(text, source) if name.lower() == "pipe" else text)
            case statements.Append(name, text, separator):
                old = self.macros.lookup(name)
                joint = f" {separator} " if len(separator) > 1 else separator or " "
                self._assign(name, f"{old}{joint}{text}" if old else text)
            case statements.TextBlock(name, tag):
                self._here(name, tag, source)
            case statements.Directive("include", words, text):
                self._include(words, text, depth)
            case statements.Directive("use", words, text):
                self.reporter.error(
                    self.where, f"'use {words} : {text}' names a template, and this pool has none of its own"
                )
            case statements.Directive(keyword, _, text):
                tell = self.reporter.error if keyword == "error" else self.reporter.warning
                tell(self.where, self._expanded(text))
            case statements.QueueStatement(arguments):
                self._queue(arguments, source, line.location, included=depth > 0)
            case statements.Unclear(word, _):
                self._unclear(word, line)

    def _unclear(self, word: str, line: SourceLine) -> None:
        meant = nearest(word, [*NAMES, *_STATEMENT_WORDS])
        hint = f"write {meant} = ..." if meant and meant not in _STATEMENT_WORDS else f"did you mean {meant}?"
        rest = line.text[len(word) :].lstrip()
        if rest.startswith(":"):
            message = f"expected '=' after {word!r}, not ':'"
        else:
            message = f"expected 'name = text' or 'queue', not {line.text[:60]!r}"
        self.reporter.error(line.location, message, hint if meant else "")

    # -- macros --------------------------------------------------------------------------------------

    def _assign(self, name: str, text: str) -> None:
        name = self._expanded(name)
        if name[:1] in ("+", "-"):
            name, text = f"MY.{name[1:]}", text if name[0] == "+" else ""
        if not is_name(name):
            meant = nearest(name.rstrip("+"), NAMES)
            self.reporter.error(
                self.where,
                f"{name!r} cannot be the name of a command or macro: expected letters, digits, '_' and '.'",
                f"did you mean {meant}?" if meant else "",
            )
            return
        if name.lower() == "pipe" and text and (before := self.macros.lookup("pipe")) and not self.piped:
            text = f"{before}, {text}"  # each line adds to those before it, until the next queue statement
        self.piped = self.piped and name.lower() != "pipe"
        self.macros.set(name, text, self.where)

    @staticmethod
    def _whole_list(text: str, source: Source) -> str:
        """A list of pipes may be broken after a comma, as in VS 7.1: what is no statement by itself goes on with it."""
        while text.endswith(","):
            line = source.next_if(lambda line: isinstance(statements.statement_of(line), statements.Unclear))
            if line is None:
                break
            text = f"{text} {line.text}"
        return text

    def _here(self, name: str, tag: str, source: Source) -> None:
        begin = self.where
        lines: list[str] = []
        while (line := source.next()) is not None:
            if line.text == f"@{tag}":
                self._assign(name, "\n".join(lines))
                return
            if line.text and not line.text.startswith("#"):
                lines.append(line.text)
        self.reporter.error(begin, f"expected a line '@{tag}' to end the text of '{name}'")

    def _expanded(self, text: str) -> str:
        try:
            return self.macros.expand(text)
        except MacroError as trouble:
            self.reporter.error(self.where, str(trouble))
            return ""

    # -- other sources -------------------------------------------------------------------------------

    def _include(self, words: str, text: str, depth: int) -> None:
        options = words.lower().split()
        unknown = [word for word in options if word not in _INCLUDE_WORDS]
        if unknown:
            self.reporter.error(self.where, f"expected ifexist or command after include, not {unknown[0]!r}")
            return
        name = self._expanded(text).strip()
        if depth >= _DEEPEST_INCLUDE:
            self.reporter.error(self.where, f"{name!r} is included {depth} levels deep: includes go in a circle")
            return
        command = name.endswith("|") or bool({"command", "output"} & set(options))
        here = self.where
        try:
            content = self._content(name, command)
        except OSError as trouble:
            if command or not {"ifexist", "ifexists"} & set(options):
                self.reporter.error(self.where, f"cannot include {name!r}: {trouble.strerror or trouble}")
            return
        self._lines(Source(content, name), depth + 1)
        self.where = here

    def _content(self, name: str, command: bool) -> str:
        if not command:
            return self.files.read_text(name if name.startswith("/") else f"{self.folder}/{name}")
        if not self.facts.allow_commands:
            raise OSError("commands are not allowed here")
        return self.files.run(name.removesuffix("|").strip(), self.folder)

    # -- queue ---------------------------------------------------------------------------------------

    def _queue(self, arguments: str, source: Source, where: SourcePosition, *, included: bool = False) -> None:
        if included:
            self.reporter.error(where, "queue is not allowed in an included file", "move it to the description")
            return
        if not self.queued:
            self._extra_lines()
        self.queued += 1
        self.piped = True
        self.where = where
        try:
            statement = parse_queue(self._expanded(arguments))
            items = read_items(statement, source, self.files, self.folder, self.facts, self.reporter.warning)
        except QueueError as trouble:
            self.reporter.error(where, f"queue: {trouble}")
            return
        if statement.variables and not any(True for _ in statement.selected(len(items))):
            self.reporter.warning(where, "this queue statement selects no items: it queues no jobs")
            return
        self._build(statement, items, where)

    def _build(self, statement: QueueArguments, items: list[str], where: SourcePosition) -> None:
        self.last = statement, where
        try:
            self.builder.queue(statement, items, where)
        except MacroError as trouble:
            self.reporter.error(where, str(trouble))

    def _extra_lines(self) -> None:
        before = self.where
        source = Source("\n".join(self.extra), "command line")
        self._lines(source, depth=1)
        self.where = before

    # -- what is said about names --------------------------------------------------------------------

    def _undefined(self, name: str) -> None:
        meant = nearest(name, [macro.name for macro in self.macros.table.values()])
        where = self.job.location(self.job.asked) if self.queued else self.where
        self.reporter.warning(
            where,
            f"$({name}) is not defined and stands for nothing",
            f"did you mean $({meant})?" if meant else "",
        )

    def _function_trouble(self, message: str) -> None:
        self.reporter.warning(self.job.location(self.job.asked) if self.queued else self.where, message)

    def _unused(self) -> None:
        for macro in self.macros.table.values():
            if macro.used or is_command(macro.name) or process_command(macro.name):
                continue
            if macro.name.lower() in self.builder.variables:
                self.reporter.warning(macro.where, f"the queue variable '{macro.name}' is used nowhere")
                continue
            meant = nearest(macro.name, NAMES)
            hint = f"did you mean {meant}?" if meant else f"for an attribute of the job write +{macro.name}"
            self.reporter.warning(macro.where, f"'{macro.name}' is no command and is used nowhere", hint)


def _defaults(facts: SubmitFacts, cluster: int) -> dict[str, str]:
    moment = datetime.datetime.fromtimestamp(facts.now + facts.zone, datetime.UTC)
    return {
        "arch": facts.arch,
        "opsys": facts.opsys,
        "opsysver": facts.opsys_version,
        "opsysmajorver": facts.opsys_major,
        "opsysandver": facts.opsys_and_version,
        "islinux": "1" if facts.opsys == "LINUX" else "0",
        "iswindows": "0",
        "cluster": str(cluster),
        "clusterid": str(cluster),
        "joblistid": "$(ClusterId)",
        "jobid": "$(ClusterId).$(ProcId)",
        "node": "",
        "process": "0",
        "procid": "0",
        "step": "0",
        "row": "0",
        "itemindex": "0",
        "taskid": "0",
        "item": "",
        "spool": "",
        "request_cpus": "$(RequestCPUs:)",
        "request_memory": "$(RequestMemory:)",
        "submit_file": facts.name,
        "submit_time": str(int(facts.now)),
        "year": f"{moment.year:04d}",
        "month": f"{moment.month:02d}",
        "day": f"{moment.day:02d}",
    }

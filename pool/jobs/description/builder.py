"""From macros and a queue statement to the processes of a cluster.

The first process of a statement is written in full, and each section is watched meanwhile. A section that
asked for nothing that differs by process is done with for the whole statement. The others are applied again
for each process, on the compiled texts of `macros`, and leave only what differs from the first process of the
cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pool.jobs.description.diagnostics import CommandRefused, SourcePosition
from pool.jobs.description.draft import ClusterDraft, Runs
from pool.jobs.description.expressions import Wire
from pool.jobs.description.functions import Functions
from pool.jobs.description.job import JobDraft
from pool.jobs.description.macros import Macros
from pool.jobs.description.queueing import QueueArguments, split_item
from pool.jobs.description.sections import parallel
from pool.jobs.description.sections.order import (
    AFTER_ADDITIONS,
    BEFORE_ADDITIONS,
    IWD,
    Section,
    additions,
    beginning,
)
from pool.jobs.description.sections.universe import universe
from pool.jobs.gangs import GangPart

_COUNTED = ("process", "procid", "step", "itemindex", "row", "taskid")
_MOST_ERRORS = 20


@dataclass(frozen=True, slots=True)
class SectionStep:
    """A section that is applied for every process of a statement.

    `reads` are the varying attributes it asked for, with their values in the first process. Where `by_text`
    is false it asked for nothing else that varies, so `result`, what it left for the first process, holds
    again whenever they do.
    """

    section: Section
    by_text: bool
    reads: dict[str, Wire | None]
    result: dict[str, Wire]


@dataclass(slots=True)
class Builder:
    """Writes one cluster, queue statement after queue statement."""

    job: JobDraft
    macros: Macros
    functions: Functions
    cluster: int
    count: int = 0
    runs: Runs = field(default_factory=Runs)
    first: dict[str, Wire] | None = None
    variables: set[str] = field(default_factory=set)
    parts: list[GangPart] = field(default_factory=list)

    def queue(self, statement: QueueArguments, items: Sequence[str], where: SourcePosition, first_row: int = 0) -> None:
        """Write the processes of one queue statement; errors are reported, and end it where they are many.

        Args:
            first_row: the number of the first of these items, where the statement has had others.
        """
        rows = [(first_row + index, values) for index, values in self._rows(statement, items)]
        per_item = statement.count or 1
        self._declare_live(statement.variables, rows, where)
        if self.first is not None and parallel.is_parallel(self.job):
            self._next_nodes(rows, per_item, where)
            self._retire_live(statement.variables, rows)
            return
        varying: list[SectionStep] = []
        static: dict[str, Wire] = {}
        for row, (index, values) in enumerate(rows):
            for step in range(per_item):
                if self.job.reporter.errors > _MOST_ERRORS:
                    break
                self._place_values(index, step, values)
                if row == 0 and step == 0:
                    varying, static = self._first_of_statement()
                    if not varying:
                        self._repeat(static, len(rows) * per_item)
                        break
                else:
                    self._next(varying, static)
            if not varying:
                break
        self._retire_live(statement.variables, rows)
        if self.count > 1 and parallel.is_parallel(self.job):
            each = f"{len(self.job.nodes)} node{'s' if len(self.job.nodes) > 1 else ''}"
            self.job.reporter.warning(
                where,
                f"this queues {self.count} jobs of {each} each; HTCondor makes one job of all of them",
                "for one job of more nodes raise machine_count, and write queue",
            )

    def draft(self) -> ClusterDraft:
        """The cluster as it was written."""
        attributes = self._named(self.first or {})
        if self.parts:
            attributes = parallel.combine_parts(attributes, self.parts)
        return ClusterDraft(attributes, self.count, self.cluster, self.runs)

    # -- items and live macros -----------------------------------------------------------------------

    @staticmethod
    def _rows(statement: QueueArguments, items: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        values = [""] * len(statement.variables)
        for index in statement.selected(len(items)):
            if statement.variables:
                found = split_item(items[index], len(values), statement.columns)
                values = found or values
            yield index, values

    def _declare_live(
        self, variables: Sequence[str], rows: Sequence[tuple[int, list[str]]], where: SourcePosition
    ) -> None:
        macros = self.macros
        names = [name.lower() for name in variables]
        self.variables.update(names)
        macros.live = {name: index for index, name in enumerate([*_COUNTED, *names])}
        written = set(macros.table) - set(names)
        macros.live = {name: index for name, index in macros.live.items() if name not in written}
        plain = {name for name in macros.live if name not in names}
        for column, name in enumerate(names):
            if all(values[column] and "$" not in values[column] for _, values in rows):
                plain.add(name)
        macros.opaque = frozenset(plain)
        for variable in variables:
            macros.set(variable, "", where)
        self.job.forget_texts()
        self.job.varying = set()

    def _retire_live(self, variables: Sequence[str], rows: Sequence[tuple[int, list[str]]]) -> None:
        """The variables keep their last values."""
        self.macros.live, self.macros.opaque = {}, frozenset()
        for variable, value in zip(variables, rows[-1][1] if rows else (), strict=False):
            self.macros.table[variable.lower()].text = value

    def _place_values(self, index: int, step: int, values: Sequence[str]) -> None:
        number, row = str(self.count), str(index)
        self.job.values = (number, number, str(step), row, row, "0", *values)
        self.job.live = _Texts(self.macros.live, self.job.values)

    # -- processes -----------------------------------------------------------------------------------

    def _first_of_statement(self) -> tuple[list[SectionStep], dict[str, Wire]]:
        job, steps = self.job, self._write_in_full()
        if self.first is None:
            self.first, job.own = job.own, {}
            self._finish(None)
            return steps, {}
        self._finish(job.own)
        return steps, {key: value for key, value in job.own.items() if key not in job.varying}

    def _next_nodes(self, rows: Sequence[tuple[int, list[str]]], per_item: int, where: SourcePosition) -> None:
        """A further queue statement of a parallel job: more nodes of the same job."""
        job = self.job
        if self.count != 1 or len(rows) * per_item != 1:
            job.reporter.error(
                where,
                "the queue statements of a parallel job are the nodes of one job: each queues one process",
                "write queue without a number; for more jobs use one queue statement, or submit again",
            )
            return
        job.nodes = range(job.nodes.stop, job.nodes.stop + 1)
        self._place_values(rows[0][0], 0, rows[0][1])
        self._write_in_full()
        try:
            parallel.add_statement(job, self.parts, where)
        except CommandRefused:
            return

    def _write_in_full(self) -> list[SectionStep]:
        """Write a statement's first process, and find the sections that are applied again for the others."""
        job = self.job
        job.own, job.parent = {}, self.first or {}
        if self.first is None:
            beginning(job)
            self._apply(Section(universe))
        steps = []
        sections = (IWD, *BEFORE_ADDITIONS, *additions(job), *AFTER_ADDITIONS)
        for section in [one for one in sections if not (one.commands and one.commands.isdisjoint(job.written))]:
            job.varies, job.asked_for = False, set()
            self._apply(section)
            if job.varies or job.asked_for:
                written = self._written(section)
                reads = {key: job.own.get(key, job.parent.get(key)) for key in job.asked_for}
                result = {key: job.own[key] for key in written & job.own.keys()} if self.first else {}
                steps.append(SectionStep(section, job.varies, reads, result))
                job.varying |= written
            if section is IWD:
                self.functions.iwd, self.functions.iwd_varies = job.iwd, job.varies
        return steps

    def _next(self, steps: Sequence[SectionStep], static: dict[str, Wire]) -> None:
        job, parent = self.job, self.first or {}
        own = job.own = dict(static)
        job.parent = parent
        for step in steps:
            if not step.by_text and all(own.get(key, parent.get(key)) == value for key, value in step.reads.items()):
                own.update(step.result)
                continue
            try:
                step.section.write(job)
            except CommandRefused:
                continue
            if step.section is IWD:
                self.functions.iwd = job.iwd
        self._finish(own)

    def _repeat(self, static: dict[str, Wire], count: int) -> None:
        """All processes of the statement are alike: the first is written, the others cost nothing."""
        if count > 1:
            self.runs.add(self._named(static), count - 1)
            self.count += count - 1

    def _finish(self, own: dict[str, Wire] | None) -> None:
        self.runs.add(self._named(own) if own else None)
        self.count += 1

    def _named(self, own: dict[str, Wire]) -> dict[str, Wire]:
        names = self.job.names
        return {names[key]: value for key, value in own.items()}

    def _apply(self, section: Section) -> None:
        try:
            section.write(self.job)
        except CommandRefused:
            return

    def _written(self, section: Section) -> set[str]:
        known = self.job.names
        found: set[str] = set()
        for attribute in section.attributes:
            if attribute.endswith("*"):
                found |= {key for key in known if key.startswith(attribute[:-1])}
                found.add(attribute[:-1])
            else:
                found.add(attribute)
        return found


class _Texts(dict[str, str]):
    """The live values of a process by name; only needed where a text is expanded again."""

    def __init__(self, live: dict[str, int], values: Sequence[str]) -> None:
        super().__init__()
        self._live, self._values = live, values

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        index = self._live.get(name)
        return default if index is None else self._values[index]

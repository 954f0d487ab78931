"""Reading DAG files: includes and splices, all errors of all files in one go.

lines -> nodes and splices of a file -> its other statements -> dependencies without a circle
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence

from pool.jobs.dag.lines import DagLine, dag_lines
from pool.jobs.dag.model import Dag, DagNode, find_cycle
from pool.jobs.dag.scope import DagScope, StatementError
from pool.jobs.dag.statements import FIRST, REFUSED, SECOND, WHOLE, expect
from pool.jobs.description.diagnostics import DescriptionError, Reporter, SourcePosition, nearest

#: Gives the text of a file by its name, seen from the submitter's directory; raises OSError.
ReadText = Callable[[str], str]

DEEPEST = 40
MOST_NODES = 1_000_000


class DagError(DescriptionError):
    """DAG files that cannot be run; `diagnostics` holds every error and warning found in them."""


def read_dag(
    files: Sequence[str], read: ReadText, *, own_directory: bool = False, append_variables: bool = False
) -> Dag:
    """Reads the DAG files of one work flow.

    Args:
        files: one or more; of several the nodes' names begin with the file's number and a point, as in `0.A`.
        read: gives a file's text.
        own_directory: names in each file start from the file's own directory (-usedagdir).
        append_variables: VARS with neither PREPEND nor APPEND come after the description.

    Raises:
        DagError: with every error and warning.
    """
    dag = Dag(files[0])
    reader = _DagReader(dag, read, append_variables)
    for number, file in enumerate(files):
        directory = posixpath.dirname(file) if own_directory else ""
        scope = DagScope(dag, file, f"{number}." if len(files) > 1 else "", directory, append=append_variables)
        name = posixpath.basename(file) if directory else file
        reader.read_file(scope, name, SourcePosition(file))
    return reader.finished()


def apply_rescue(dag: Dag, file: str, text: str) -> None:
    """Takes the nodes that are done, and the retries that are left, from a rescue or save file.

    Raises:
        DagError: it has other statements, or names a node that is not there.
    """
    reporter = Reporter()
    scope = DagScope(dag, file)
    scope.own = list(dag.nodes)
    for line in dag_lines(text, file, reporter):
        words = line.text.split()
        if words[0].upper() not in ("DONE", "RETRY"):
            reporter.error(
                line.where, f"{words[0]} does not belong in a rescue file", "submit a full DAG file by itself"
            )
            continue
        _run(SECOND[words[0].upper()], scope, line, words[1:], reporter)
    if reporter.errors:
        raise DagError(reporter.found)


def _run(
    handler: Callable[[DagScope, DagLine, list[str]], None],
    scope: DagScope,
    line: DagLine,
    words: list[str],
    reporter: Reporter,
) -> None:
    try:
        handler(scope, line, words)
    except StatementError as trouble:
        reporter.error(line.where, str(trouble), trouble.hint)


class _DagReader:
    def __init__(self, dag: Dag, read: ReadText, append: bool) -> None:
        self.dag = dag
        self.read = read
        self.append = append
        self.reporter = Reporter()
        self.open: list[str] = []

    def finished(self) -> Dag:
        """The work flow, once all files are read. Raises DagError."""
        dag, reporter = self.dag, self.reporter
        if not reporter.errors:
            if not dag.nodes:
                reporter.error(SourcePosition(dag.file), "there is no node in it", "write JOB NAME DESCRIPTION")
            elif circle := find_cycle(dag.nodes, dag.dependencies):
                shown = circle if len(circle) <= 12 else [*circle[:10], "...", circle[-1]]
                reporter.error(dag.nodes[circle[0]].where, f"nodes wait for each other: {' -> '.join(shown)}")
        if reporter.errors:
            raise DagError(reporter.found)
        dag.warnings = reporter.warnings()
        return dag

    def read_file(self, scope: DagScope, name: str, asked_at: SourcePosition) -> None:
        """Reads one file into a scope; what is wrong is reported."""
        lines = list(self._lines(scope, name, asked_at))
        self.open.append(posixpath.normpath(scope.path(name)))
        for line, word, words in lines:
            if word == "SPLICE":
                _run(self._splice, scope, line, words, self.reporter)
            elif word in FIRST:
                _run(FIRST[word], scope, line, words, self.reporter)
        self.open.pop()
        for own in scope.own:
            self._resolve(scope, self.dag.nodes[own])
        for line, word, words in lines:
            if word in WHOLE and scope.is_splice:
                self.reporter.warning(
                    line.where, f"{word} does nothing in a splice", "write it into the first DAG file"
                )
            elif word in SECOND:
                _run(SECOND[word], scope, line, words, self.reporter)
            elif word not in FIRST and word != "SPLICE":
                self._unknown(line, word)

    def _lines(self, scope: DagScope, name: str, asked_at: SourcePosition) -> Iterator[tuple[DagLine, str, list[str]]]:
        path = posixpath.normpath(scope.path(name))
        if path in self.open or len(self.open) >= DEEPEST:
            self.reporter.error(
                asked_at, f"DAG files include each other in a circle: {' -> '.join([*self.open, path])}"
            )
            return
        try:
            text = self.read(path)
        except OSError as trouble:
            said = (trouble.strerror or str(trouble)).lower()
            self.reporter.error(asked_at, f"cannot read DAG file {path}: {said}")
            return
        self.open.append(path)
        for line in dag_lines(text, path, self.reporter):
            word, *words = line.text.split()
            if word.upper() != "INCLUDE":
                yield line, word.upper(), words
                continue
            try:
                expect(words, 1, 1, "INCLUDE FILE")
            except StatementError as trouble:
                self.reporter.error(line.where, str(trouble))
                continue
            yield from self._lines(scope, words[0], line.where)
        self.open.pop()

    def _splice(self, scope: DagScope, line: DagLine, words: list[str]) -> None:
        form = "SPLICE NAME FILE [DIR directory]"
        expect(words, 2, 4, form)
        if len(words) > 2 and (words[2].upper() != "DIR" or len(words) != 4):
            raise StatementError(f"expected: {form}")
        name = words[0]
        if "+" in name or name in scope.splices or scope.prefix + name in self.dag.nodes:
            raise StatementError(f"{name} cannot be the name of a splice: it is taken, or has a '+'")
        directory = scope.path(words[3]) if len(words) > 2 else scope.directory
        inner = DagScope(self.dag, words[1], f"{scope.prefix}{name}+", directory, is_splice=True, append=self.append)
        inner.descriptions = dict(scope.descriptions)
        if len(self.dag.nodes) > MOST_NODES:
            raise StatementError(f"more than {MOST_NODES} nodes")
        self.read_file(inner, words[1], line.where)
        scope.own += inner.own
        scope.splices[name] = inner.as_splice()

    def _resolve(self, scope: DagScope, node: DagNode) -> None:
        if node.inline is None and node.name.removeprefix(scope.prefix).count("+") == 0:
            node.inline = scope.descriptions.get(node.description)

    def _unknown(self, line: DagLine, word: str) -> None:
        if word in REFUSED:
            self.reporter.error(line.where, f"{word}: {REFUSED[word]}")
            return
        meant = nearest(word, [*FIRST, *SECOND, "SPLICE", "INCLUDE"])
        self.reporter.error(
            line.where, f"{word} is no statement of a DAG file", f"did you mean {meant}?" if meant else ""
        )

"""The lines of a DAG file: comments and blank lines left out, continued lines joined, inline descriptions whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pool.jobs.description.diagnostics import Reporter, SourcePosition

#: Statements after which a description may stand in braces.
_WITH_BLOCK = re.compile(r"(JOB|FINAL|PROVISIONER|SERVICE|SUBMIT-DESCRIPTION)\s+\S+\s*\{\s*$", re.IGNORECASE)
_VARIABLE = re.compile(r'([^\s=]+)\s*=\s*"((?:[^"\\]|\\.)*)"(?=\s|$)\s*')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class DagLine:
    """One statement.

    Attributes:
        text: without its description.
        block: the description in braces after it; None where there is none.
        tail: the words after the closing brace.
    """

    where: SourcePosition
    text: str
    block: str | None = None
    tail: str = ""


def dag_lines(text: str, name: str, reporter: Reporter) -> Iterator[DagLine]:
    """The statements of a file in order. A brace that nothing closes is reported."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        where = SourcePosition(name, at + 1)
        line, at = lines[at].strip(), at + 1
        if not line or line.startswith("#"):
            continue
        while line.endswith("\\") and at < len(lines):
            line, at = f"{line[:-1].rstrip()} {lines[at].strip()}", at + 1
        if not (line.endswith("{") and _WITH_BLOCK.match(line)):
            yield DagLine(where, line)
            continue
        block: list[str] = []
        while at < len(lines) and not lines[at].lstrip().startswith("}"):
            block.append(lines[at])
            at += 1
        if at == len(lines):
            reporter.error(where, "this description has no closing brace", "end it with a line }")
            return
        tail, at = lines[at].strip()[1:].strip(), at + 1
        yield DagLine(where, line.rstrip()[:-1].rstrip(), "\n".join(block) + "\n", tail)


def split_variables(text: str) -> list[tuple[str, str]] | str:
    """The pairs of `name="value" ...`, or the part of the text that is none.

    In a value, `\\"` is a double quote and `\\\\` a backslash.
    """
    found: list[tuple[str, str]] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _VARIABLE.match(text, at)
        if match is None:
            return text[at:][:60]
        value = match[2]
        if "\\" in value:
            value = _ESCAPE.sub(lambda one: one[1] if one[1] in '"\\' else one[0], value)
        found.append((match[1], value))
        at = match.end()
    return found

"""Formats a table of jobs that come in groups (`pool.jobs.job_columns`): cells that a group shares are made once."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import repeat

from pool.cli.tables import Column, finished
from pool.jobs.job_columns import JobColumns, values


def render_groups(columns: Sequence[Column], groups: Sequence[JobColumns], width: int | None = None) -> list[str]:
    """The lines of a table of jobs, as `render` makes them, in the order of their ids.

    Each group has one pattern for its lines, which holds the shared cells. The other cells fill it.
    """
    needs = [frozenset(map(str.lower, column.needs)) for column in columns]
    cells = [list(map(_cells, columns, needs, repeat(group))) for group in groups]
    titles = [column.title for column in columns]
    sizes = [max(map(_longest, texts)) for texts in zip(titles, *cells, strict=True)]
    forms = [f"{'>' if column.right else '<'}{size}" for column, size in zip(columns, sizes, strict=True)]
    jobs: list[tuple[int, int, str]] = []
    for group, row in zip(groups, cells, strict=True):
        own = [texts for texts in row if not isinstance(texts, str)]
        pattern = " ".join(
            _escaped(format(texts, form)) if isinstance(texts, str) else f"{{:{form}}}"
            for texts, form in zip(row, forms, strict=True)
        )
        clusters, procs = values(group, "ClusterId", 0), values(group, "ProcId")
        lines = map(pattern.format, *own) if own else repeat(pattern.format(), len(procs))
        jobs += zip(clusters, procs, lines, strict=True)
    jobs.sort()
    heading = " ".join(map(format, titles, forms))
    return finished([heading, *(line for _, _, line in jobs)], width)


def _cells(column: Column, needs: Container[str], group: JobColumns) -> str | list[str]:
    """The cell of a column that all jobs of a group share, or one cell for each job.

    Args:
        needs: the attributes that the column reads, in lower case.
    """
    shared, own = group
    names = [name for name in own if name.lower() in needs]
    if not names:
        return column.cell(shared)
    ad, texts = {**shared}, []
    for job in range(len(own[names[0]])):
        for name in names:
            ad[name] = own[name][job]
        texts.append(column.cell(ad))
    return texts


def _longest(cells: str | Sequence[str]) -> int:
    return len(cells) if isinstance(cells, str) else max(map(len, cells))


def _escaped(text: str) -> str:
    """Text with its braces doubled, for a pattern of `str.format`."""
    return text.replace("{", "{{").replace("}", "}}")

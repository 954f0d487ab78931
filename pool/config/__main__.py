"""`python -m pool.config`: every setting as a table in Markdown, for the docs."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pool.config.table import ALIASES, ROWS, Setting


def reference(rows: Iterable[Setting] = ROWS) -> str:
    """Name, kind, default and purpose of each setting; a star where it takes effect only when the node starts."""
    other: dict[str, list[str]] = {target: [] for target in ALIASES.values()}
    for alias, target in ALIASES.items():
        other[target].append(alias)
    lines = ["| setting | value | default | what it is for |", "|---|---|---|---|"]
    for row in rows:
        value = ", ".join(row.choices) or f"{row.kind}{f' ({row.unit})' if row.unit else ''}"
        also = f"; also {', '.join(other[row.name])}" if row.name in other else ""
        default = f"`{row.default}`" if row.default else ""
        if row.default.startswith("$(POLICY_"):
            default = "the policy's"
        cells = (row.name + ("" if row.live else " *"), value, default, row.doc + also)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())

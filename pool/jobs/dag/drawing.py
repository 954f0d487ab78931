"""A graph for Graphviz, as DAGMan's DOT files have it: a node's label names it, and its state in brackets."""

from __future__ import annotations

from collections.abc import Sequence

#: The letters of states, by DAGMan's numbers.
_LETTERS = ("I", "R", "P", "S", "T", "D", "E", "F")
#: How they are filled.
_FILLED = ("", "", *["lightblue"] * 3, "palegreen", "salmon", "salmon")
_COLOURS = tuple(f' style=filled fillcolor="{one}"' if one else "" for one in _FILLED)


def draw_dot(nodes: Sequence[tuple[str, int]], edges: Sequence[Sequence[Sequence[int]]]) -> str:
    """The text of a DOT file.

    Args:
        nodes: names and states.
        edges: numbers of parents, and of children that wait for all of them.
    """
    quoted = [f'"{name.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"' for name, _ in nodes]
    lines = ["digraph DAG {"]
    for name, (_, state) in zip(quoted, nodes, strict=True):
        lines.append(f'    {name} [shape=ellipse{_COLOURS[state]} label="{name[1:-1]} ({_LETTERS[state]})"];')
    for number, (parents, children) in enumerate(edges):
        if len(parents) > 1 and len(children) > 1:
            lines.append(f"    join{number} [shape=point];")
            lines += [f"    {quoted[parent]} -> join{number};" for parent in parents]
            lines += [f"    join{number} -> {quoted[child]};" for child in children]
        else:
            lines += [f"    {quoted[parent]} -> {quoted[child]};" for parent in parents for child in children]
    return "\n".join([*lines, "}"]) + "\n"

"""Graphs for Graphviz."""

from __future__ import annotations

from pool.jobs.dag.drawing import draw_dot


def test_a_drawing_has_names_states_and_joints() -> None:
    text = draw_dot([("A", 5), ('B"x', 3), ("C", 0), ("D", 7)], [[[0], [1]], [[0, 1], [2, 3]]])
    assert '"A" [shape=ellipse label="A (D)"];' in text
    assert '"A" -> "B\\"x";' in text
    assert text.count("join1") == 5
    assert text.startswith("digraph DAG {\n")
    assert text.endswith("}\n")

"""Drawings of work flows: text for Graphviz, and what Graphviz makes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pool.cli.main import main
from pool.jobs.dag.drawing import draw_dot

DAG = "JOB A {\nexecutable = /bin/true\n}\nJOB B {\nexecutable = /bin/true\n}\nPARENT A CHILD B\nDONE A\n"


def test_a_drawing_has_names_states_and_joints() -> None:
    text = draw_dot([("A", 5), ('B"x', 3), ("C", 0), ("D", 7)], [[[0], [1]], [[0, 1], [2, 3]]])
    assert '"A" [shape=ellipse style=filled fillcolor="palegreen" label="A (D)"];' in text
    assert '"A" -> "B\\"x";' in text
    assert text.count("join1") == 5
    assert text.startswith("digraph DAG {\n")
    assert text.endswith("}\n")


def test_states_have_letters_and_colours() -> None:
    text = draw_dot([('a"b', 5), ("c", 6), ("d", 0), ("e", 3)], [[[0, 1], [2, 3]]])
    assert '\\"b" [shape=ellipse style=filled fillcolor="palegreen" label="a\\"b (D)"];' in text
    assert '"c" [shape=ellipse style=filled fillcolor="salmon" label="c (E)"];' in text
    assert '"d" [shape=ellipse label="d (I)"];' in text
    assert text.count("->") == 4


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs graphviz")
def test_graphviz_draws_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("it.dag").write_text(DAG)
    with pytest.raises(SystemExit) as ended:
        main(["dag", "show", "it.dag", "--svg", "it.svg", "--dot", "it.dot"])
    assert not ended.value.code
    drawn = Path("it.svg").read_text()
    assert drawn.count('class="node"') == 2
    assert "palegreen" in drawn or "#98fb98" in drawn
    assert Path("it.dot").read_text().startswith("digraph")


def test_without_graphviz_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    Path("it.dag").write_text(DAG)
    with pytest.raises(SystemExit) as ended:
        main(["dag", "show", "it.dag", "--svg", "it.svg"])
    assert ended.value.code == 1
    assert "apt-get install graphviz" in capsys.readouterr().err

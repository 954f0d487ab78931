#!/usr/bin/env python3
"""Gather what the runs of knn.py printed into a table with bars on standard output and a plot, accuracy.svg.

    table.py DIRECTORY

Reads every k*.txt of the directory, one line each as knn.py prints it. Needs nothing but Python.
"""

import re
import sys
from pathlib import Path

LINE = re.compile(r"k=(\d+) digits=\d+ folds=\d+ accuracy=([\d.]+) spread=([\d.]+)\s*")
WIDTH, HEIGHT, MARGIN = 640, 360, 56


def read_results(directory):
    """The (k, accuracy, spread) rows of a directory, by k."""
    rows = []
    for path in directory.glob("k*.txt"):
        found = LINE.fullmatch(path.read_text())
        if found is None:
            sys.exit(f"{path}: not a line that knn.py prints (did that process end well? see its .err file)")
        rows.append((int(found[1]), float(found[2]), float(found[3])))
    if not rows:
        sys.exit(f"{directory}: no k*.txt in it (run digits.sub first)")
    return sorted(rows)


def table(rows):
    """The lines of the table; the bar of the best k is full and that of the worst has one mark."""
    best = max(accuracy for _, accuracy, _ in rows)
    worst = min(accuracy for _, accuracy, _ in rows)
    yield " k   accuracy   spread"
    for k, accuracy, spread in rows:
        marks = 1 + round(39 * (accuracy - worst) / ((best - worst) or 1.0))
        yield f"{k:2}   {accuracy:8.3%}   {spread:6.3%}   {'#' * marks}{'  best' if accuracy == best else ''}"


def plot(rows):
    """The text of an SVG picture: accuracy over k, a bar of one spread up and down at each point."""
    low = min(accuracy - spread for _, accuracy, spread in rows)
    high = max(accuracy + spread for _, accuracy, spread in rows)
    first, last = rows[0][0], rows[-1][0]

    def across(k):
        return MARGIN + (WIDTH - 2 * MARGIN) * (k - first) / ((last - first) or 1)

    def down(accuracy):
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (accuracy - low) / ((high - low) or 1.0)

    def stroke(x1, x2, y1, y2, colour):
        return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'

    def label(x, y, text, anchor="middle"):
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'

    yield '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12"'
    yield f'     viewBox="0 0 {WIDTH} {HEIGHT}">'
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    yield label(WIDTH / 2, 24, "Handwritten digits: accuracy over k")
    for step in range(5):
        value = low + (high - low) * step / 4
        yield stroke(MARGIN, WIDTH - MARGIN, down(value), down(value), "#ddd")
        yield label(MARGIN - 6, down(value) + 4, f"{value:.1%}", "end")
    line = " ".join(f"{across(k):.1f},{down(accuracy):.1f}" for k, accuracy, _ in rows)
    yield f'<polyline points="{line}" fill="none" stroke="#1f5fa8" stroke-width="2"/>'
    for k, accuracy, spread in rows:
        yield stroke(across(k), across(k), down(accuracy - spread), down(accuracy + spread), "#1f5fa8")
        yield f'<circle cx="{across(k):.1f}" cy="{down(accuracy):.1f}" r="4" fill="#1f5fa8"/>'
        yield label(across(k), HEIGHT - MARGIN + 20, str(k))
    yield label(WIDTH / 2, HEIGHT - 10, "neighbours asked, k")
    yield "</svg>"


def main(arguments):
    if len(arguments) != 1:
        sys.exit("usage: table.py DIRECTORY")
    rows = read_results(Path(arguments[0]))
    print("\n".join(table(rows)))
    Path("accuracy.svg").write_text("\n".join(plot(rows)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

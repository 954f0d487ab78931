#!/usr/bin/env python3
"""Draws heat.txt as heat.svg, a square for each cell of a coarse grid: `python3 plot.py`. Needs nothing but Python."""

from pathlib import Path

MOST = 60
SIDE = 8


def colour(heat: float) -> str:
    """From dark blue (0 degrees) over red to yellow (100)."""
    part = max(0.0, min(1.0, heat / 100))
    return f"#{int(255 * min(1, 2 * part)):02x}{int(255 * max(0, 2 * part - 1)):02x}{int(120 * (1 - part)):02x}"


def main() -> None:
    """Read the plate, take the mean of each block of cells, and write the picture."""
    plate = [[float(word) for word in line.split()] for line in Path("heat.txt").read_text().splitlines()]
    block = -(-len(plate) // MOST)
    squares = []
    for top in range(0, len(plate), block):
        for left in range(0, len(plate[0]), block):
            cells = [heat for row in plate[top : top + block] for heat in row[left : left + block]]
            x, y = left // block * SIDE, top // block * SIDE
            fill = colour(sum(cells) / len(cells))
            squares.append(f'<rect x="{x}" y="{y}" width="{SIDE}" height="{SIDE}" fill="{fill}"/>')
    side = -(-len(plate) // block) * SIDE
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{side}" height="{side}" shape-rendering="crispEdges">'
    Path("heat.svg").write_text("\n".join([head, *squares, "</svg>", ""]))


if __name__ == "__main__":
    main()

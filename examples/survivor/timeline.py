#!/usr/bin/env python3
"""Draws a job's event log: which machine ran it when, when it stood still there, was saved, left, waited.

    timeline.py LOG [OWNERS] >PICTURE.svg

LOG is what a description file's `log` names, of one job. OWNERS, if given, has lines like `1795263000.25 attic comes`.
Needs nothing but Python.
"""

import re
import sys
from datetime import datetime
from pathlib import Path

HEAD = re.compile(r"(\d{3}) \(\S+\) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (.*)")
QUEUE = "in the queue"
LEFT, LANE, TOP, WIDTH, RIGHT = 96, 44, 56, 900, 24
COLOURS = {"runs": "#3a7d44", "stands still": "#e0a526", "waits": "#9aa5b1"}
OWNER, SAVED = "#f3d9d3", "#1d3557"


def read_log(text):
    """The stretches (machine, what, from, to), the moments at which it was saved, (machine, time), and the end."""
    stretches, saved, state = [], [], None

    def turn(now, machine, what):
        nonlocal state
        if state and now >= state[2]:
            stretches.append((*state, now))
        state = (machine, what, now) if what else None

    for event in text.split("...\n"):
        lines = event.splitlines()
        found = HEAD.match(lines[0]) if lines else None
        if not found:
            continue
        code, now = found[1], datetime.fromisoformat(found[2]).timestamp()
        if code == "001":
            slot = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("\tSlotName:"))
            turn(now, slot.split("@")[-1], "runs")
        elif code in ("000", "004"):
            turn(now, QUEUE, "waits")
        elif code == "003" and state:
            saved.append((state[0], now))
        elif code in ("010", "011") and state:
            turn(now, state[0], "stands still" if code == "010" else "runs")
        elif code in ("005", "009"):
            turn(now, "", "")
    return stretches, saved


def read_owners(text, end):
    """The stretches (machine, from, to) in which owners were there."""
    there, stretches = {}, []
    for line in text.splitlines():
        when, machine, what = line.split()
        if what == "comes":
            there[machine] = float(when) // 1  # as the log tells times
        elif machine in there:
            stretches.append((machine, there.pop(machine), float(when) // 1))
    return stretches + [(machine, since, end) for machine, since in there.items()]


def scale(length):
    """Seconds between two marks of the axis."""
    return next((step for step in (1, 2, 5, 10, 20, 30, 60, 300, 600, 1800, 3600) if length / step <= 12), 6 * 3600)


def box(x, y, width, height, fill, title):
    place = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}"'
    return f'<rect {place} fill="{fill}"><title>{title}</title></rect>'


def label(x, y, text, anchor="start", size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{text}</text>'


def lane_parts(y, machine, stretches, owners, saved, across):
    """The drawing of one machine, or of the queue."""
    yield label(LEFT - 10, y + LANE / 2 + 4, machine, "end")
    for _, begin, end in (owner for owner in owners if owner[0] == machine):
        yield box(across(begin), y + 2, across(end) - across(begin), LANE - 4, OWNER, "its owner is there")
    for _, what, begin, end in (stretch for stretch in stretches if stretch[0] == machine):
        title = f"{what}, {end - begin:.0f} s"
        yield box(across(begin), y + 14, max(across(end) - across(begin), 1.5), LANE - 28, COLOURS[what], title)
    for _, when in (moment for moment in saved if moment[0] == machine):
        x = across(when)
        yield f'<path d="M{x - 5:.1f} {y + 4} h10 l-5 9 z" fill="{SAVED}"><title>saved</title></path>'


def legend(y):
    x = LEFT
    for text, colour in (*COLOURS.items(), ("its owner is there", OWNER), ("saved", SAVED)):
        if text == "saved":
            yield f'<path d="M{x + 1} {y - 9} h10 l-5 9 z" fill="{colour}"/>'
        else:
            yield box(x, y - 10, 12, 12, colour, text)
        yield label(x + 18, y, text)
        x += 40 + 7 * len(text)


def picture(log, owners=""):
    """The text of an SVG."""
    stretches, saved = read_log(log)
    if not stretches:
        sys.exit("no job has run in this log")
    first, last = stretches[0][2], stretches[-1][3]
    there = read_owners(owners, last)
    lanes = [*sorted({machine for machine, *_ in stretches if machine != QUEUE} | {name for name, *_ in there}), QUEUE]
    height, length = TOP + LANE * len(lanes) + 40, max(last - first, 1)

    def across(when):
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max((when - first) / length, 0), 1)

    parts = [f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *legend(26)]
    for number, machine in enumerate(lanes):
        y = TOP + LANE * number
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#e3e7eb"/>')
        parts += lane_parts(y, machine, stretches, there, saved, across)
    bottom = TOP + LANE * len(lanes)
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}" stroke="#52606d"/>')
    for second in range(0, int(length) + 1, scale(length)):
        x = across(first + second)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="#52606d"/>')
        parts.append(label(x, bottom + 19, f"{second} s", "middle", 11))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" viewBox="0 0 {WIDTH} {height}">'
    return "\n".join((head, *parts, "</svg>")) + "\n"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: timeline.py LOG [OWNERS]")
    try:
        print(picture(*(Path(name).read_text() for name in sys.argv[1:])), end="")
    except OSError as error:
        sys.exit(f"timeline.py: {error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()

"""A chart of machines over time, for the terminal and as SVG. Pure: a plan in, text out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool.client.dedicated import DedicatedPlan

#: The fill of each kind of bar, and its colour.
FILLS = {"running": "#", "planned": "=", "reserved": "R", "lent": "L"}
COLOURS = {"running": "#4c78a8", "planned": "#9ecae9", "reserved": "#f58518", "lent": "#b279a2"}
#: Seconds that a chart shows at least, and how much of it what ends nobody knows when takes beyond the last known end.
SHORTEST, BEYOND = 600.0, 0.1
#: Columns of a bar's name, its user and its machines.
LABEL, USER, MACHINES = 12, 10, 5
#: Lanes and bars that are drawn at most.
MOST_LANES, MOST_BARS = 200, 500


def draw(plan: DedicatedPlan, width: int) -> list[str]:
    """The chart as lines of a terminal: a row for each job and reservation."""
    heading = f"{plan.scheduler}: {plan.machines} machine{'' if plan.machines == 1 else 's'}"
    if not plan.bars:
        return [heading, "nothing runs, waits or is reserved", *_later(plan)]
    first, last = _range(plan)
    left = LABEL + USER + MACHINES + 3
    room = max(20, width - left)
    lines = [heading, f"{'':{left}}{_axis(first, last, room)}"]
    for bar in plan.bars[:MOST_BARS]:
        begin = int(room * (max(bar["start"], first) - first) / (last - first))
        end = room if bar["end"] is None else int(room * (min(bar["end"], last) - first) / (last - first))
        end = min(room, max(end, begin + 1))
        filled = " " * begin + FILLS.get(bar["what"], "-") * (end - begin)
        if bar["end"] is None:
            filled = filled[:-1] + ">"
        name = f"{bar['label']:{LABEL}.{LABEL}} {bar['user']:{USER}.{USER}}"
        lines.append(f"{name} {bar['machines']:>{MACHINES}} {filled}".rstrip())
    if len(plan.bars) > MOST_BARS:
        lines.append(f"... and {len(plan.bars) - MOST_BARS} more")
    lines.append("   ".join(f"{fill} {what}" for what, fill in FILLS.items()))
    return [*lines, *_later(plan)]


def _later(plan: DedicatedPlan) -> list[str]:
    """The loans, and the waiting jobs whose start nobody can say, in words."""
    lines = [_loan(plan, loan) for loan in plan.loans][:MOST_BARS]
    return lines + _unknown(plan)


def _loan(plan: DedicatedPlan, loan: dict[str, Any]) -> str:
    until = _clock(loan["until"], loan["until"] - plan.time)
    if loan["borrower"] == plan.scheduler:
        return f"{loan['slot']}: {loan['lender'] or 'another scheduler'} lends it until {until}"
    kept = ", for a gang that cannot be saved" if loan["gang"] else ""
    return f"{loan['slot']}: lent until {until}, to {loan['borrower'] or 'anybody'}{kept}"


def _unknown(plan: DedicatedPlan) -> list[str]:
    return [f"{one['job']}: {one['words']}" for one in plan.starts if one["start"] is None][:MOST_BARS]


def _range(plan: DedicatedPlan) -> tuple[float, float]:
    """From when to when a chart goes."""
    ends = [bar["end"] for bar in plan.bars if bar["end"] is not None]
    last = max([plan.time + SHORTEST, *ends, *(bar["start"] for bar in plan.bars)])
    if any(bar["end"] is None for bar in plan.bars):
        last += BEYOND * (last - plan.time)
    return plan.time, last


def _axis(first: float, last: float, room: int) -> str:
    """Times of day along a row, as many as there is room for."""
    made, step = "", max(1, room // 12)
    for place in range(0, room, step):
        text = _clock(first + (last - first) * place / room, last - first)
        if place + len(text) > room:
            break
        made = made.ljust(place) + text
    return made


def _clock(moment: float, whole: float) -> str:
    return time.strftime("%d %H:%M" if whole > 86400.0 else "%H:%M", time.localtime(moment))


def lanes(bars: Sequence[dict[str, Any]], most: int = MOST_LANES) -> list[list[int]]:
    """The rows of each bar's machines in a chart, from 0: no two bars share one at a time, as far as there are rows."""
    free_from: list[float] = []
    found: list[list[int]] = []
    for bar in bars:
        own: list[int] = []
        end = math.inf if bar["end"] is None else bar["end"]
        for lane, until in enumerate(free_from):
            if len(own) < bar["machines"] and until <= bar["start"]:
                own.append(lane)
                free_from[lane] = end
        while len(own) < bar["machines"] and len(free_from) < most:
            own.append(len(free_from))
            free_from.append(end)
        found.append(own)
    return found


def draw_svg(plan: DedicatedPlan) -> str:
    """The chart as SVG: a row for each machine."""
    first, last = _range(plan)
    bars = sorted(plan.bars, key=lambda bar: bar["start"])[:MOST_BARS]
    placed = lanes(bars)
    rows = max([plan.machines, 1, *(lane + 1 for own in placed for lane in own)])
    rows = min(rows, MOST_LANES)
    wide, high, top, left = 900, 14, 40, 10
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide + 2 * left}" height="{top + rows * high + 30}" '
        'font-family="sans-serif" font-size="11">',
        f'<text x="{left}" y="16">{escape(plan.scheduler)}: {plan.machines} machines</text>',
    ]
    for n in range(7):
        x = left + wide * n / 6
        moment = _clock(first + (last - first) * n / 6, last - first)
        made.append(f'<line x1="{x:.0f}" y1="{top}" x2="{x:.0f}" y2="{top + rows * high}" stroke="#ddd"/>')
        made.append(f'<text x="{x:.0f}" y="{top - 6}" text-anchor="{"end" if n == 6 else "start"}">{moment}</text>')
    for bar, own in zip(bars, placed, strict=True):
        made += _rectangles(bar, own, first, last, (left, top, wide, high))
    below = top + rows * high + 18
    for place, (what, colour) in enumerate(COLOURS.items()):
        x = left + 100 * place
        made.append(f'<rect x="{x}" y="{below - 10}" width="12" height="12" fill="{colour}"/>')
        made.append(f'<text x="{x + 16}" y="{below}">{what}</text>')
    return "\n".join([*made, "</svg>"]) + "\n"


def _rectangles(
    bar: dict[str, Any], own: Iterable[int], first: float, last: float, box: tuple[int, int, int, int]
) -> list[str]:
    left, top, wide, high = box
    end = last if bar["end"] is None else min(bar["end"], last)
    x = left + wide * (max(bar["start"], first) - first) / (last - first)
    length = max(1.0, left + wide * (end - first) / (last - first) - x)
    title = escape(f"{bar['label']} of {bar['user']}: {bar['machines']} machines, {bar['what']}")
    colour = COLOURS.get(bar["what"], "#bbb")
    made: list[str] = []
    for number, lane in enumerate(own):
        y = top + lane * high
        shape = f'x="{x:.1f}" y="{y}" width="{length:.1f}" height="{high - 1}"'
        made.append(f'<rect {shape} fill="{colour}"><title>{title}</title></rect>')
        if not number and length > 30:
            made.append(f'<text x="{x + 3:.1f}" y="{y + high - 4}">{escape(bar["label"])}</text>')
    return made

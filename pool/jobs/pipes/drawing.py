"""The processes of a job and what flows between them, drawn for a terminal.

    inp --> foo --[fort.11 > fort.10]--> bar +--> gzip --> x.gz
                                             +--> sort --> out

A process is drawn once with what leaves it; where something else leads to it, it stands as `^name`. Drawing only:
whether a job may look like that is `pool.jobs.description`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from pool.jobs.pipes.model import Joint, PipelineProcess

INDENT = 4


def draw(processes: Sequence[PipelineProcess], joints: Sequence[Joint], width: int = 100) -> list[str]:
    """The lines of the drawing.

    Args:
        width: columns that it should not go beyond; what would is continued below, further to the left.
    """
    drawing = _Drawing(processes, joints, width)
    read = {joint.reader for joint in joints}
    lines: list[str] = []
    for process in sorted(processes, key=lambda one: one.name in read):  # sorted() keeps the order of equals
        if process.name not in drawing.drawn:
            lines += drawing.beginning(process)
    return lines


class _Drawing:
    def __init__(self, processes: Sequence[PipelineProcess], joints: Sequence[Joint], width: int) -> None:
        self.processes = {process.name: process for process in processes}
        self.joints = joints
        self.width = width
        self.drawn: set[str] = set()

    def beginning(self, process: PipelineProcess) -> list[str]:
        """Where a pipeline begins: its first input comes from the left."""
        if not process.stdin:
            return self.block(process.name, self.width)
        arrow = f"{process.stdin} --> "
        return _join_right(arrow, self.block(process.name, self.width - len(arrow), entered=True))

    def block(self, name: str, width: int, *, entered: bool = False) -> list[str]:
        """A process and everything that it leads to."""
        process = self.processes[name]
        if name in self.drawn:
            return [f"^{name}"]
        self.drawn.add(name)
        head = name if entered or not process.stdin else f"{name} < {process.stdin}"
        ways = [joint for joint in self.joints if joint.writer == name]
        count = len(ways) + bool(process.stdout)
        if not count:
            return [head]
        bar = " +" if count > 1 else " "
        lines: list[str] = []
        for number in range(count):
            arrow, rest = self.draw_arrow(
                process, ways[number] if number < len(ways) else None, width - len(head) - len(bar)
            )
            before = head + bar if number == 0 else " " * len(head) + bar
            after = " " * (len(head) + 1) + ("|" if number < count - 1 else " " if count > 1 else "")
            lines += [(before if i == 0 else after) + line for i, line in enumerate(_join_right(arrow, rest))]
        if count == 1 and max(map(len, lines)) > width:
            return self.continued(lines, head, bar)
        return lines

    def draw_arrow(self, process: PipelineProcess, joint: Joint | None, width: int) -> tuple[str, list[str]]:
        """One that leaves a process: the arrow, and where it leads."""
        if joint is None:
            return (">> " if process.append_stdout else "--> "), [process.stdout]
        arrow = "--> "
        if joint.writer_file or joint.reader_file:
            arrow = f"--[{joint.writer_file or '-'} > {joint.reader_file or '-'}]--> "
        return arrow, self.block(joint.reader, max(width - len(arrow), self.width // 2))

    @staticmethod
    def continued(lines: list[str], head: str, bar: str) -> list[str]:
        """The same with all that follows the first arrow below it."""
        start = lines[0].index("> ", len(head)) + 2
        first, indent = lines[0][:start].rstrip(), " " * INDENT
        return [first, *(indent + line[start:] for line in lines)]


def _join_right(arrow: str, block: Sequence[str]) -> list[str]:
    return [(arrow if i == 0 else " " * len(arrow)) + line for i, line in enumerate(block)]

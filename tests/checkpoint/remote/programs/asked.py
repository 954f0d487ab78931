"""Does what it is asked, an expression a line, and says what came of it: what a test drives step by step."""

from __future__ import annotations

import os
import time
from typing import TextIO


def read(name: str) -> str:
    with open(name) as file:
        return file.read()


def reads(name: str, seconds: float) -> bool:
    """How often a file can be read within a time."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        read(name)
        os.stat(name)
        count += 1
    return count > 1


def reads_until(name: str, sign: str) -> None:
    """Read a file again and again until another one is there."""
    while not os.path.exists(sign):
        read(name)


def there(directory: str, first: int, end: int) -> list[int]:
    """Those of the names that are numbers, asked for one by one, that there are."""
    return [number for number in range(first, end) if os.path.exists(f"{directory}/{number}")]


def exchanged(directory: str, numbers: list[int]) -> None:
    """Make those of the names that there are not, and remove the others."""
    for number in numbers:
        name = f"{directory}/{number}"
        if os.path.exists(name):
            os.unlink(name)
        else:
            with open(name, "x") as file:
                file.write("text")


def stats(name: str, seconds: float) -> int:
    """How often a file's attributes are asked for within a time."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        os.stat(name)
        count += 1
    return count


def listed(name: str) -> list[tuple[str, int]]:
    return sorted((entry.name, entry.stat().st_size) for entry in os.scandir(name))


kept: list[TextIO] = []
with open("/job/ask") as questions, open("/job/answer", "w") as answers:
    for line in questions:
        try:
            said = eval(line)
        except OSError as error:
            said = error.strerror
        print(repr(said), file=answers, flush=True)

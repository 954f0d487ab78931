"""Remembers descriptions, so that a program that submits the same one again and again has it read once.

A description is used again only if reading it would give the same result. So the text, name, directory, user,
environment and facts must be the same, and the second in which it was read. The file system must give the same answer
to each question. Nothing in it may have come from chance or from a program's output.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from pool.jobs.description import Description, DescriptionFiles, RealFiles
from pool.jobs.description.files import Kind

#: The most descriptions that are remembered, and the most characters or bytes of a file.
MOST, LARGEST = 16, 64 * 1024


class RememberedFiles:
    """The machine's own files. Each question to them is remembered with its answer.

    Attributes:
        is_repeatable: whether all questions can be asked again.
    """

    def __init__(self) -> None:
        self.is_repeatable = True
        self._files = RealFiles()
        self._asked: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = []

    def read_text(self, path: str) -> str:
        text: str = self._answer_of(self._files.read_text, path)
        self.is_repeatable = self.is_repeatable and len(text) <= LARGEST
        return text

    def head(self, path: str, size: int) -> bytes:
        start: bytes = self._answer_of(self._files.head, path, size)
        self.is_repeatable = self.is_repeatable and size <= LARGEST
        return start

    def kind(self, path: str) -> Kind:
        kind: Kind = self._answer_of(self._files.kind, path)
        return kind

    def size(self, path: str) -> int:
        return int(self._answer_of(self._files.size, path))

    def allowed(self, path: str, mode: int) -> bool:
        return bool(self._answer_of(self._files.allowed, path, mode))

    def closed_above(self, path: str) -> str | None:
        directory: str | None = self._answer_of(self._files.closed_above, path)
        return directory

    def matching(self, pattern: str) -> list[str]:
        return list(self._answer_of(self._files.matching, pattern))

    def run(self, command: str, folder: str) -> str:
        self.is_repeatable = False
        return self._files.run(command, folder)

    def answer_the_same(self) -> bool:
        """Whether each question has the same answer now."""
        try:
            return all(question(*about) == answer for question, about, answer in self._asked)
        except OSError:
            return False

    def _answer_of(self, question: Callable[..., Any], *about: Any) -> Any:
        try:
            answer = question(*about)
        except OSError:
            self.is_repeatable = False
            raise
        self._asked.append((question, about, answer))
        return answer


class NotedChance(random.Random):
    """A random number generator that notes whether it was used."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(0)
        self.was_asked = False
        self._chance = chance

    def random(self) -> float:
        self.was_asked = True
        return self._chance.random()

    def getrandbits(self, k: int, /) -> int:
        self.was_asked = True
        return self._chance.getrandbits(k)


#: Reads a description with these files and this random number generator.
Read = Callable[[DescriptionFiles, random.Random], Description]


@dataclass(frozen=True, slots=True)
class _KnownDescription:
    environ: Mapping[str, str]
    files: RememberedFiles
    description: Description


class KnownDescriptions:
    """The descriptions that were read last. They are shared, so nobody may change them."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _KnownDescription] = {}

    def read(self, key: Hashable, environ: Mapping[str, str], chance: random.Random, read: Read) -> Description:
        """A description: a remembered one if reading it would give the same, else read now.

        Args:
            key: all that the description depends on, except the environment, the files and chance.
        """
        known, environ = self._known.get(key), dict(environ)
        if known is not None and known.environ == environ and known.files.answer_the_same():
            return known.description
        files, noted = RememberedFiles(), NotedChance(chance)
        description = read(files, noted)
        self._known.pop(key, None)
        if files.is_repeatable and not noted.was_asked:
            self._known[key] = _KnownDescription(environ, files, description)
            if len(self._known) > MOST:
                del self._known[next(iter(self._known))]
        return description

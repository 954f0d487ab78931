"""The look-alike `Submit` and what a submit returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from pool.compat.bindings.ads import LookAd
from pool.compat.bindings.connections import LookProblem, unable
from pool.decimals import has_digits_only


class LookSubmit(MutableMapping[str, str]):
    """A description: commands by name without regard to case, and the arguments of its queue statement; `Submit`.

    Args:
        input: its text, or its commands. queue: the arguments of the queue statement.
    """

    def __init__(self, input: Any = None, queue: str | None = None, **commands: Any) -> None:
        self._commands: dict[str, tuple[str, str]] = {}
        self._queue: str | None = None
        self._method = 2
        if isinstance(input, str):
            self._read(input)
        elif isinstance(input, Mapping):
            for name, value in input.items():
                if not isinstance(name, str):
                    raise TypeError("key must be a string")
                if name.lower() == "queue":
                    raise ValueError("the queue statement can not be specified in a dictionary")
                self[name] = _text(value)
        elif input is not None:
            raise TypeError("input must be a dictionary mapping string to strings, a string, or None")
        for name, value in commands.items():
            self[name] = _text(value)
        if queue is not None:
            self.setQArgs(queue)

    def _read(self, text: str) -> None:
        lines = iter(text.replace("\\\n", " ").splitlines())
        for line in lines:
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if words[0].lower() == "queue":
                rest = line.split(None, 1)[1] if len(words) > 1 else ""
                if rest.rstrip().endswith("("):  # items follow, a line each
                    body = []
                    for item in lines:
                        body.append(item)
                        if item.strip() == ")":
                            break
                    rest = "\n".join([rest, *body])
                self._queue = rest
                continue
            name, equals, value = line.partition("=")
            if not equals or not name.strip():
                raise LookProblem(f"'{line}' is no line of a description")
            self[name.strip()] = value.strip()

    def __getitem__(self, key: str) -> str:
        return self._commands[_key(key)][1]

    def __setitem__(self, key: str, value: str) -> None:
        if not isinstance(key, str):
            raise TypeError("key must be a string")
        if not isinstance(value, str):
            raise TypeError("value must be a string")
        folded = _key(key)
        before = self._commands.get(folded)
        self._commands[folded] = (before[0] if before else key, value)

    def __delitem__(self, key: str) -> None:
        del self._commands[_key(key)]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._commands.values())

    def __len__(self) -> int:
        return len(self._commands)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and _key(key) in self._commands

    def __str__(self) -> str:
        return self.text("queue" + (f" {self._queue}" if self._queue else ""))

    def __repr__(self) -> str:
        return f"Submit({self})"

    def text(self, statement: str) -> str:
        """The description with a queue statement."""
        return "".join(f"{name} = {value}\n" for name, value in self._commands.values()) + statement + "\n"

    def getQArgs(self) -> str | None:
        return self._queue

    def setQArgs(self, args: str) -> None:
        if not isinstance(args, str):
            raise TypeError("args must be a string")
        self._queue = args[6:] if args.lower().startswith("queue ") else args

    def expand(self, attr: str) -> str:
        """A command's value with its macros replaced."""
        from pool.client.descriptions import describe

        found = describe(self.text("") + f'executable = /bin/true\n+LookExpanded = "{self[attr]}"\nqueue\n')
        return str(found.clusters[0].ad.value("LookExpanded"))

    def itemdata(self, qargs: str | None = None) -> Iterator[Any] | None:
        """The items of the queue statement, None where it has none.

        Raises:
            LookProblem: they are more than words in the statement itself.
        """
        words = (qargs if qargs is not None else self._queue or "").replace(",", " ").split()
        if len(words) < 2:
            return None
        raise unable("itemdata()", "give the items to Schedd.submit(itemdata=...)")

    def setSubmitMethod(self, method_value: int = -1, allow_reserved_values: bool = False) -> None:
        if 0 <= int(method_value) < 100 and not allow_reserved_values:
            raise ValueError("Submit method value must be 100 or greater, or allowed_reserved_values must be True.")
        self._method = int(method_value)

    def getSubmitMethod(self) -> int:
        return self._method

    def issue_credentials(self) -> None:
        """Nothing is to be issued."""

    @staticmethod
    def from_dag(filename: str, options: Mapping[str, Any] | None = None) -> LookSubmit:
        raise unable("from_dag()", f"poolnode dag submit {filename}")

    def queue(self, txn: Any, count: int = 0, ad_results: Any = None) -> int:
        """Queue the jobs in a transaction of the older module; returns the cluster."""
        return int(txn.submit(self, count, ad_results=ad_results).cluster())

    def queue_with_itemdata(self, txn: Any, count: int = 1, itemdata: Any = None) -> LookSubmitResult:
        """As `queue`, with items."""
        result: LookSubmitResult = txn.submit(self, count, itemdata=itemdata)
        return result


def _key(name: str) -> str:
    folded = name.lower()
    return f"my.{folded[1:]}" if folded.startswith("+") else folded


def _text(value: Any) -> str:
    if isinstance(value, LookAd):
        return repr(value)
    if isinstance(value, bool | int | float | Path):
        return str(value)
    if isinstance(value, bytes):  # as the older module took them, and Toil gives them
        return os.fsdecode(value)
    if not isinstance(value, str):
        raise TypeError("value must be a string")
    return value


def statement(count: int, itemdata: Iterable[Any] | None, own: str | None) -> str:
    """The queue statement: the description's own, a count, or one with items.

    Raises:
        LookProblem: an item cannot be a line.
    """
    if itemdata is None:
        if count:
            first, _, rest = (own or "").partition(" ")
            return f"queue {count} {rest if has_digits_only(first) else own or ''}".rstrip()
        return f"queue {own}" if own else "queue"
    rows = list(itemdata)
    if not rows:
        raise LookProblem("itemdata is empty: it queues no jobs")
    if isinstance(rows[0], str):
        lines = rows
        head = f"queue {count or 1} item from ("
    else:
        if isinstance(rows[0], Mapping):
            names = [str(name) for name in rows[0]]
            values = [[str(row[name]) for name in rows[0]] for row in rows]
        else:
            names = [f"item{number}" if number else "item" for number in range(len(rows[0]))]
            values = [[str(cell) for cell in row] for row in rows]
        head = f"queue {count or 1} {','.join(names)} from ("
        lines = ["\x1f".join(row) for row in values]
    for line in lines:
        if "\n" in line or line.strip() == ")":
            raise LookProblem(f"an item cannot be a line of a queue statement: {line!r}")
    return "\n".join([head, *lines, ")"])


class LookSubmitResult:
    """The outcome of a submit; `SubmitResult`."""

    def __init__(self, cluster: int, count: int, ad: Callable[[], LookAd]) -> None:
        self._cluster = cluster
        self._count = count
        self._ad = ad

    def cluster(self) -> int:
        return self._cluster

    def clusterad(self) -> LookAd:
        return self._ad()

    def first_proc(self) -> int:
        return 0

    def num_procs(self) -> int:
        return self._count

    def __int__(self) -> int:
        return self._cluster

    def __str__(self) -> str:
        return f"Submitted {self._count} jobs into cluster {self._cluster},0 :\n{self._ad()}"

    def __repr__(self) -> str:
        return f"SubmitResult(cluster={self._cluster}, first_proc=0, num_procs={self._count})"

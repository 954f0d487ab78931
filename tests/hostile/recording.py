"""The calls of real callers to real roles: hostile calls are made from them."""

from __future__ import annotations

import contextlib
import copy
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pool.wire.dispatch import Dispatcher
from pool.wire.stream import Stream

#: Of one method, and of the values under one name: more would only be more of the same.
MOST = 60


class Record:
    """Calls, items of streams, and every value by the name that it had.

    Args:
        secret: is left out, so that nobody who comes to hear it has said it before.

    Attributes:
        calls: parameters, by method. items: what was sent in its streams, either way.
        known: values by the name under which they were said, wherever.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self.calls: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.items: dict[str, list[Any]] = defaultdict(list)
        self.known: dict[str, list[Any]] = defaultdict(list)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Record all calls that nodes of this process serve meanwhile."""
        find, fed = Dispatcher.find, Stream.item_received
        record = self

        def found(self: Dispatcher, name: str, identity: Any, params: object, *, streaming: bool) -> Any:
            if isinstance(params, dict):
                record.said(record.calls[name], params)
            return find(self, name, identity, params, streaming=streaming)

        def heard(self: Stream, item: object, size: int) -> None:
            record.said(record.items[self.method], item)
            fed(self, item, size)

        Dispatcher.find, Stream.item_received = found, heard  # type: ignore[method-assign]
        try:
            yield
        finally:
            Dispatcher.find, Stream.item_received = find, fed  # type: ignore[method-assign]

    def said(self, kept: list[Any], value: Any) -> None:
        """Keep a value, and what is in it, by name."""
        if len(kept) < MOST:
            value = self._without_secret(value)
            kept.append(value)
            self._learn(value, 0)

    def _without_secret(self, value: Any) -> Any:
        """A copy."""
        if isinstance(value, dict):
            return {name: self._without_secret(one) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._without_secret(one) for one in value]
        if isinstance(value, bytes):
            return value.replace(self._secret.encode(), b"")
        return value.replace(self._secret, "") if isinstance(value, str) else copy.deepcopy(value)

    def _learn(self, value: Any, depth: int) -> None:
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, one in inner:
            if isinstance(name, str) and len(self.known[name]) < MOST and one not in self.known[name]:
                self.known[name].append(copy.deepcopy(one))
            if depth < 6:
                self._learn(one, depth + 1)

"""Pickled functions, arguments and results of an executor's calls, on the side of the program that calls."""

from __future__ import annotations

import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pool.client.workers.worker import pack, unpack
from pool.errors import PoolError

#: Functions that are remembered by their bytes, so that workers get them once.
FUNCTIONS = 128
_SIMPLE = (int, float, str, bytes, bool, type(None))


class RemoteTraceback(Exception):
    """The traceback of a call's exception, where it was raised: the exception's `__cause__`."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def _cloudpickle() -> Any:
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None
    return cloudpickle


def pickler_class() -> Any:
    """The class of picklers that take most: cloudpickle's where it is installed."""
    cloud = _cloudpickle()
    return cloud.CloudPickler if cloud is not None else pickle.Pickler


class CallPacker:
    """Pickles calls; one for each executor. Functions of modules are pickled once, by their names."""

    def __init__(self) -> None:
        self._named: dict[Any, bytes] = {}
        self._cloud = _cloudpickle()

    def function(self, function: Callable[..., Any]) -> bytes:
        """The bytes of a function.

        Raises:
            PoolError: it cannot be pickled; cloudpickle may be missing.
        """
        try:
            known = self._named.get(function)
        except TypeError:  # it has no hash
            known = None
        if known is not None:
            return known
        if _is_named(function):
            if len(self._named) >= FUNCTIONS:
                self._named.clear()
            data = self._named[function] = pickle.dumps(function, protocol=5)
            return data
        if self._cloud is None and getattr(function, "__module__", "") == "__main__":
            raise _cannot_send(function, "it is a function of the program itself", self._cloud)
        try:
            return bytes((self._cloud or pickle).dumps(function, protocol=5))
        except Exception as error:
            raise _cannot_send(function, error, self._cloud) from error

    def values(self, function: Callable[..., Any], values: Any) -> tuple[bytes, list[memoryview]]:
        """The pickle of arguments, and the large buffers beside it.

        Raises:
            PoolError: they cannot be pickled.
        """
        try:
            if _is_simple(values):
                return pickle.dumps(values, protocol=5), []
            return pack(values, (self._cloud or pickle).dumps)
        except Exception as error:
            raise _cannot_send(function, error, self._cloud) from error


def _is_named(function: Any) -> bool:
    """Whether the function is found by its name where its module can be imported."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not isinstance(module, str) or module == "__main__" or "." in name:
        return False
    return getattr(sys.modules.get(module), name, None) is function


def _is_simple(values: Any) -> bool:
    """Whether plain pickle does, which is quicker: numbers and texts."""
    if not isinstance(values, tuple) or len(values) != 2:
        return False
    given, named = values
    return not named and all(type(value) in _SIMPLE for value in given)


def _cannot_send(function: Any, error: object, cloud: Any) -> PoolError:
    way = "" if cloud is not None else "install cloudpickle, or put the function into a module of its own"
    return PoolError(f"cannot send {getattr(function, '__qualname__', function)!r} to a worker: {error}", hint=way)


def read_value(data: bytes, sizes: Sequence[int], blob: memoryview | None) -> Any:
    """The value of a call, as the worker sent it."""
    return unpack(data, sizes, blob)


def read_error(data: bytes, text: str) -> BaseException:
    """The exception of a call, with the worker's traceback as its cause."""
    try:
        error: BaseException = pickle.loads(data)
        if not isinstance(error, BaseException):
            raise TypeError(type(error).__name__)
    except Exception:
        error = RuntimeError(text.strip().splitlines()[-1] if text.strip() else "the call failed")
    error.__cause__ = RemoteTraceback(text)
    return error


class FunctionTable:
    """The functions that were called lately, by their bytes. Each has a number, which is never used again."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._next = 0

    def number(self, data: bytes) -> tuple[int, int | None]:
        """The function's number, and the number of one that is forgotten for it."""
        known = self._numbers.get(data)
        if known is not None:
            self._numbers.move_to_end(data)
            return known, None
        self._next += 1
        self._numbers[data] = self._next
        dropped = self._numbers.popitem(last=False)[1] if len(self._numbers) > FUNCTIONS else None
        return self._next, dropped


def chunks(columns: Mapping[int, Any] | Sequence[Any], size: int) -> list[list[tuple[Any, ...]]]:
    """Arguments of calls in lists of `size`."""
    rows = list(zip(*columns, strict=False))
    return [rows[at : at + size] for at in range(0, len(rows), size)]

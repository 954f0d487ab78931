"""Keeps a command's start light: what is plain text, or not given, needs no library to be understood.

Typer (from 0.20 on) has every value looked at by pydantic, whose import takes a tenth of a second: more than
most commands need for everything else, and 5 MB in a node. Here what needs no conversion goes past it, as do paths
and plain whole numbers. What is left, such as a number that is not allowed, goes typer's own way. With another typer,
whose parameters look different, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pool.decimals import whole_number


class _Light:
    """Stands in for typer's coercion of one parameter until that is needed."""

    def __init__(self, descriptor: Any, whole: Callable[[], Any]) -> None:
        self._annotation = descriptor.annotation
        self._limits = descriptor.parameter_info
        self._whole = whole

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if several:
            plain = self._annotation == list[str] and isinstance(value, list | tuple)
            if plain and all(type(item) is str for item in value):
                return value
        elif type(value) is self._annotation and isinstance(value, str | bool | int):
            return value
        elif self._annotation is Path and type(value) is str:  # none of ours has typer look at the file
            return Path(value)
        elif self._annotation is int and type(value) is str and self._allows(number := whole_number(value)):
            return number
        return self._whole().coerce(value, param=param, ctx=ctx)

    def _allows(self, number: int | None) -> bool:
        """Whether it is a number, within the limits of the parameter."""
        least, most = self._limits.min, self._limits.max
        return number is not None and (least is None or least <= number) and (most is None or number <= most)


def use_light_parameters(parameters: Iterable[Any]) -> None:
    """Makes the parameters of one command light, where they are typer's and of the kind known here."""
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)
        if descriptor is None or getattr(parameter, "_runtime_param", 0) is not None:
            continue
        parameter._runtime_param = _Light(descriptor, _whole_of(parameter))


def _whole_of(parameter: Any) -> Callable[[], Any]:
    def make_full() -> Any:
        parameter._runtime_param = None
        return parameter.get_runtime_param()

    return make_full

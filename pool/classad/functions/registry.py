"""How a family declares its functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pool.classad.nodes import ExprNode
from pool.classad.scope import Scope

MANY = 10_000
"""More arguments than anybody writes."""

Compiled = Callable[[Scope], Any]
Binder = Callable[[tuple[ExprNode, ...], tuple[Compiled, ...]], Compiled]


class RegisteredFunction:
    """A function and how many arguments it takes."""

    __slots__ = ("least", "most")

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most


class Strict(RegisteredFunction):
    """`apply(scope, *values)`: all arguments are evaluated first, from the left."""

    __slots__ = ("apply",)

    def __init__(self, least: int, most: int, apply: Callable[..., Any]) -> None:
        super().__init__(least, most)
        self.apply = apply


class Lazy(RegisteredFunction):
    """`bind(trees, compiled)` gives the function of a scope; it evaluates what it needs."""

    __slots__ = ("bind",)

    def __init__(self, least: int, most: int, bind: Binder) -> None:
        super().__init__(least, most)
        self.bind = bind


class Family:
    """The functions of one module by their lower-case names."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, RegisteredFunction] = {}

    def strict(self, name: str, least: int, most: int | None = None) -> Callable[..., Any]:
        """Decorator: the function is called with the scope and the values of its arguments."""

        def add(apply: Callable[..., Any]) -> Callable[..., Any]:
            self.entries[name.lower()] = Strict(least, least if most is None else most, apply)
            return apply

        return add

    def lazy(self, name: str, least: int, most: int | None = None) -> Callable[[Binder], Binder]:
        """Decorator: the function is given its arguments' trees and compiled forms."""

        def add(bind: Binder) -> Binder:
            self.entries[name.lower()] = Lazy(least, least if most is None else most, bind)
            return bind

        return add

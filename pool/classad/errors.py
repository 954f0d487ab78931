"""The errors of the language, split by whose fault they are.

    PoolError
    `- ParseError            the text is not an expression or an ad; `position` is where
    EvaluationFailed         an evaluation ran out of depth, steps or memory; becomes the value ERROR at the top

`EvaluationFailed` never leaves this room: `evaluate` turns it into the value ERROR. An expression that merely
makes no sense (a string times two) raises nothing at all, it has the value ERROR.
"""

from __future__ import annotations

from pool.errors import PoolError


class ParseError(PoolError):
    """The text cannot be read.

    Args:
        message: one line that says what was expected and what was found.
        position: index of the offending character in the text, 0 based.
    """

    def __init__(self, message: str, position: int = 0, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.position = position


class EvaluationFailed(Exception):
    """The whole evaluation is given up: too deep, too many steps, too large a value, or a function that
    fails rather than returns ERROR. Unlike ERROR it cannot be caught by isError() or ?: in an expression.
    """

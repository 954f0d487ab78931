"""The error that people see.

    PoolError                 something the caller can understand and act upon
    |- (each room derives its own: ParseError, StoreError, StartFailed, ...)

A `PoolError` travels over the wire as it is and is printed as one line, never as a stack trace. Anything
else that is raised is a defect of the program: it is logged with its trace and reported as such.
"""

from __future__ import annotations


class PoolError(Exception):
    """One line that names the operation and the thing, a hint at the way out, and whether it heals by itself.

    Args:
        message: what failed, naming the thing ("cannot read job file x.sub: no such file").
        hint: what to do about it; empty when there is nothing to add.
        retry: True when the same call may succeed later without anybody mending anything.
    """

    def __init__(self, message: str, *, hint: str = "", retry: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.retry = retry

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

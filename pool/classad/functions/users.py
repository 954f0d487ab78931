"""userHome and userMap: what a machine knows of its users.

userHome asks the machine's user database, which may be a slow directory somewhere else, so it answers only after
`allow_user_home`; until then nobody has a home. userMap knows no maps and gives its default.
"""

from __future__ import annotations

import pwd
from typing import Any

from pool.classad.functions.registry import Family
from pool.classad.scope import Scope
from pool.classad.values import ERROR, UNDEFINED

FUNCTIONS = Family()

_allowed = False


def allow_user_home(allowed: bool) -> None:
    """Whether userHome may ask the machine's user database."""
    global _allowed
    _allowed = allowed


@FUNCTIONS.strict("userHome", 1, 2)
def user_home(scope: Scope, name: Any, otherwise: Any = "") -> Any:
    """The home directory of a user; the second argument, or undefined, when there is none."""
    default = otherwise if type(otherwise) is str and otherwise else None
    if type(name) is not str:
        return default or (UNDEFINED if name is UNDEFINED else ERROR)
    if _allowed:
        try:
            return pwd.getpwnam(name).pw_dir
        except (KeyError, ValueError):
            pass
    return default or UNDEFINED


@FUNCTIONS.strict("userMap", 2, 4)
def user_map(scope: Scope, mapping: Any, user: Any, *rest: Any) -> Any:
    if mapping is ERROR or user is ERROR:
        return ERROR
    return rest[1] if len(rest) == 2 else UNDEFINED

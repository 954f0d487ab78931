"""The built-in functions, one module for each family; `TABLE` finds them by their lower-case name.

    types        isUndefined, isError, isString, ...
    control      ifThenElse, eval, debug, unparse, unresolved
    numbers      floor, ceiling, round, pow, quantize, random
    conversion   int, real, string, bool, absTime, relTime
    strings      strcat, join, substr, toUpper, toLower, strcmp, stricmp, size, split, splitUserName, ...
    versions     versioncmp, versionLE, ..., version_in_range
    lists        member, identicalMember, anyCompare, allCompare, sum, avg, min, max
    patterns     regexp, regexpMember, regexps, replace, replaceall
    stringlists  stringListSize, stringListSum, ..., stringList_regexpMember
    times        time, currentTime, getYear, ..., formatTime, splitTime, interval
    contexts     evalInEachContext, countMatches
    shell        envV1ToV2, mergeEnvironment, listToArgs, argsToList
    users        userHome, userMap

A function is called with the scope and its evaluated arguments (`Strict`), or is bound to its unevaluated
arguments when an expression is compiled (`Lazy`). A call of an unknown function, or with a wrong number of
arguments, is ERROR and evaluates nothing.
"""

from __future__ import annotations

from pool.classad.functions.contexts import FUNCTIONS as _contexts
from pool.classad.functions.control import FUNCTIONS as _control
from pool.classad.functions.conversion import FUNCTIONS as _conversion
from pool.classad.functions.lists import FUNCTIONS as _lists
from pool.classad.functions.numbers import FUNCTIONS as _numbers
from pool.classad.functions.patterns import FUNCTIONS as _patterns
from pool.classad.functions.registry import Lazy, RegisteredFunction, Strict
from pool.classad.functions.shell import FUNCTIONS as _shell
from pool.classad.functions.stringlists import FUNCTIONS as _stringlists
from pool.classad.functions.strings import FUNCTIONS as _strings
from pool.classad.functions.times import FUNCTIONS as _times
from pool.classad.functions.types import FUNCTIONS as _types
from pool.classad.functions.users import FUNCTIONS as _users
from pool.classad.functions.versions import FUNCTIONS as _versions

_FAMILIES = (
    _contexts,
    _control,
    _conversion,
    _lists,
    _numbers,
    _patterns,
    _shell,
    _stringlists,
    _strings,
    _times,
    _types,
    _users,
    _versions,
)

TABLE: dict[str, RegisteredFunction] = {name: entry for family in _FAMILIES for name, entry in family.entries.items()}

__all__ = ["TABLE", "RegisteredFunction", "Lazy", "Strict"]

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

from pool.classad.functions import (
    contexts,
    control,
    conversion,
    lists,
    numbers,
    patterns,
    shell,
    stringlists,
    strings,
    times,
    types,
    users,
    versions,
)
from pool.classad.functions.registry import Entry, Lazy, Strict

TABLE: dict[str, Entry] = {}
for _family in (
    contexts,
    control,
    conversion,
    lists,
    numbers,
    patterns,
    shell,
    stringlists,
    strings,
    times,
    types,
    users,
    versions,
):
    TABLE.update(_family.FUNCTIONS.entries)

__all__ = ["TABLE", "Entry", "Lazy", "Strict"]

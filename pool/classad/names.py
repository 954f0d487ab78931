"""Attribute names: looked up without regard to case, printed as they were first spelled.

Ads key their attributes by the folded name. The spelling is kept once for the whole process, because a pool's
ads share a few hundred names; only an ad that spells a name otherwise than it was first seen carries its own
spelling. Both tables are bounded, so that nobody can fill a daemon's memory with invented names.
"""

from __future__ import annotations

from pool.classad.errors import ParseError

_LIMIT = 50_000

_folded: dict[str, str] = {}
_spelled: dict[str, str] = {}

USUAL: dict[str, str] = {}
"""The keys of names that are written as they were first seen, and that cannot mean an ad: nearly all of those sent."""

SCOPE_NAMES = frozenset({"my", "self", "target", "other", "parent", "root", "toplevel", "ad", "left", "right"})
"""Names that mean an ad rather than an attribute, unless an ad has an attribute of that name."""

SHADOWED: set[str] = set()
"""Those of SCOPE_NAMES that some ad has used as an attribute. While it is empty nobody asks an ad whether it has; else
each ad is asked for itself, so that the ads of one user make the others' no slower."""


def fold(name: str) -> str:
    """The key of an attribute name."""
    key = _folded.get(name)
    if key is not None:
        return key
    if not isinstance(name, str):
        raise ParseError(f"{name!r} is no attribute name")
    key = name.lower()
    if len(_folded) < _LIMIT and len(name) < 256:
        _folded[name] = key
        if _spelled.setdefault(key, name) == name and key not in SCOPE_NAMES:
            USUAL[name] = key
    return key


def defined(key: str) -> None:
    """Note that an ad has an attribute of this folded name."""
    if key in SCOPE_NAMES:
        SHADOWED.add(key)


def usual_spelling(key: str) -> str:
    """How the process first saw this key spelled; the key itself when it was never noted."""
    return _spelled.get(key, key)

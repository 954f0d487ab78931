"""`classad2`, and `classad` for older programs."""

from __future__ import annotations

from pool.compat import settings as _settings
from pool.compat.bindings import ads as _ads

__version__ = _settings.FOLLOWED
ClassAd = _ads.LookAd
ExprTree = _ads.LookExpr
Value = _ads.LookValue
Parser = ParserType = _ads.LookParserType
ClassAdException = _ads.LookAdProblem
ClassAdParseError = ClassAdValueError = _ads.LookParseProblem
ClassAdEvaluationError = ClassAdInternalError = ClassAdTypeError = _ads.LookAdProblem
parseOne = _ads.parse_one
parseAds = _ads.parse_ads
parseNext = _ads.parse_next
quote = _ads.quote
unquote = _ads.unquote
Attribute = _ads.attribute
Function = _ads.function
Literal = _ads.make_literal


def version() -> str:
    """The release that the module follows."""
    return __version__


def lastError() -> str:
    """Nothing: errors are raised."""
    return ""


__all__ = [
    "Attribute",
    "ClassAd",
    "ClassAdEvaluationError",
    "ClassAdException",
    "ClassAdInternalError",
    "ClassAdParseError",
    "ClassAdTypeError",
    "ClassAdValueError",
    "ExprTree",
    "Function",
    "Literal",
    "Parser",
    "ParserType",
    "Value",
    "lastError",
    "parseAds",
    "parseNext",
    "parseOne",
    "quote",
    "unquote",
    "version",
]

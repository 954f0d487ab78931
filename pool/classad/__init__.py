"""ClassAds: the language in which jobs and machines say what they are and what they want.

    parse_expr(text) -> Expr          parse_ad(text) -> ClassAd
    ClassAd                           attributes; chained, sent, printed
    evaluate(expr, my, target, now)   the value, never an exception
    symmetric_match, requirements_accept, rank
    references.internal, references.external, flattening.flatten

The language is the one that pools of today use (the reference's pool mode: unscoped names fall through to
TARGET). It knows nothing of jobs or machines, reads no clock and draws no random number: time() is the `now` of
the evaluation, and undefined without it. Where it differs from the reference on purpose:

- depth, steps and sizes are bounded (`scope`, `lexer`, `parser`, `patterns`); beyond the bounds a text is refused
  with a ParseError and an evaluation is ERROR, where the reference stalls or is killed by its stack;
- a regular expression that needs backtracking and may take forever is ERROR (`patterns`);
- hexadecimal integers are refused with a sign too (the reference reads `-0x10` as 0);
- userMap knows no maps, userHome asks for no user unless it is allowed to, debug logs nothing;
- `parent` in the outermost ad is undefined during a match too.
"""

from __future__ import annotations

from pool.classad.ad import ClassAd, evaluate, parse_ad
from pool.classad.errors import ParseError
from pool.classad.expr import Expr, literal, parse_expr
from pool.classad.match import accepts, rank, requirements_accept, symmetric_match
from pool.classad.values import ERROR, UNDEFINED, AbsTime, Error, RelTime, Undefined

__all__ = [
    "ERROR",
    "UNDEFINED",
    "AbsTime",
    "ClassAd",
    "Error",
    "Expr",
    "ParseError",
    "RelTime",
    "Undefined",
    "accepts",
    "evaluate",
    "literal",
    "parse_ad",
    "parse_expr",
    "rank",
    "requirements_accept",
    "symmetric_match",
]

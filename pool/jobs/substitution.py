"""`$$(Name)` and `$$([expression])`: what a job takes from the machine that it starts on.

Filled in when a job is started, from the slot's ad: in its program's name, arguments, environment and files. An
attribute that the slot does not have takes its default (`$$(Name:default)`); without one the job cannot be started.
"""

from __future__ import annotations

import re

from pool.classad import ClassAd, ParseError, evaluate, parse_expr
from pool.errors import PoolError

#: The attributes in which it is looked for.
FILLED = (
    *("Cmd", "Arguments", "Args", "Environment", "Env", "In", "Out", "Err", "Iwd", "JavaVMArguments", "JavaVMArgs"),
    *("TransferInput", "TransferOutput", "TransferOutputRemaps", "JarFiles"),
)
#: Before the name, or the expression, of what is taken.
MARK = "$$("
_REFERENCE = re.compile(
    r"\$\$\((?:\[(?P<expression>.*?)\]|(?P<name>[A-Za-z_][A-Za-z0-9_.]*)(?::(?P<default>[^)]*))?)\)"
)


class CannotFill(PoolError):
    """A slot does not have what a job takes from it."""


def needs_filling(ad: ClassAd) -> bool:
    """Whether anything in a job is to be taken from its machine."""
    return any(isinstance(value := ad.value(name), str) and MARK in value for name in FILLED)


def fill(ad: ClassAd, slot: ClassAd, now: float) -> ClassAd:
    """The job's ad with what it takes from a slot filled in.

    Raises:
        CannotFill: the slot does not have it, or an expression has no value there.
    """
    for name in FILLED:
        value = ad.value(name)
        if isinstance(value, str) and MARK in value:
            ad[name] = _REFERENCE.sub(lambda found: _text(found, ad, slot, now), value)
    return ad


def _text(found: re.Match[str], job: ClassAd, slot: ClassAd, now: float) -> str:
    if (text := found["expression"]) is not None:
        try:
            value = evaluate(parse_expr(text, syntax="old"), job, slot, now)
        except ParseError as error:
            raise CannotFill(f"$$([{text}]) is no expression: {error}") from error
    else:
        name = found["name"]
        if name.upper() == "DOLLARDOLLAR":
            return "$$"
        value = slot.value(name.rpartition(".")[2] if "." in name else name, found["default"], job, now)
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise CannotFill(f"{found[0]} has no value on its machine", hint="write $$(NAME:DEFAULT) if it may lack")
    return str(value)

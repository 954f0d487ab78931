"""Perl-compatible patterns to a small tree, bytes only.

Case, `.` and `$` are settled while reading, so that the tree needs no flags. Reading refuses what the reference's
library refuses, and besides recursion, conditions and Unicode properties, which nobody uses on host names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pool.classad.patterns.tree import (
    ALL,
    BLANK,
    DIGITS,
    LOWER,
    PRINTED,
    SPACE,
    UPPER,
    VERTICAL,
    WORD,
    Assert,
    Atomic,
    Back,
    Bytes,
    CaptureGroup,
    Either,
    Lookaround,
    PatternError,
    PatternNode,
    Repeat,
    Sequence,
)
from pool.decimals import clipped_number, has_digits_only

_SETS: Final = {
    "d": DIGITS,
    "D": ALL - DIGITS,
    "w": WORD,
    "W": ALL - WORD,
    "s": SPACE,
    "S": ALL - SPACE,
    "h": BLANK | {0xA0},
    "H": ALL - BLANK - {0xA0},
    "v": VERTICAL | {0x85},
    "V": ALL - VERTICAL - {0x85},
    "N": ALL - {10},
}
_POSIX: Final = {
    "alpha": LOWER | UPPER,
    "digit": DIGITS,
    "alnum": LOWER | UPPER | DIGITS,
    "upper": UPPER,
    "lower": LOWER,
    "space": SPACE,
    "blank": BLANK,
    "punct": PRINTED - WORD - {32} | frozenset(b"_"),
    "print": PRINTED,
    "graph": PRINTED - {32},
    "cntrl": frozenset(range(32)) | {127},
    "xdigit": DIGITS | frozenset(b"abcdefABCDEF"),
    "word": WORD,
    "ascii": frozenset(range(128)),
}
_CONTROLS: Final = {"n": 10, "t": 9, "r": 13, "f": 12, "e": 27, "a": 7}
_ASSERTS: Final = {"A": "begin", "z": "very_end", "Z": "end", "b": "word", "B": "not_word"}
_MOST_NESTED = 60
_MOST_REPEATED = 65535


def both_cases(members: frozenset[int]) -> frozenset[int]:
    """The set with the other case of every letter A to Z in it."""
    return members | {b - 32 for b in members & LOWER} | {b + 32 for b in members & UPPER}


def read(pattern: bytes, flags: str) -> tuple[PatternNode, int]:
    """The tree and the number of groups.

    Args:
        pattern: the pattern.
        flags: any of "i", "m", "s", "x".

    Raises:
        PatternError: saying why.
    """
    return _PatternReader(pattern.decode("latin-1"), frozenset(flags)).whole()


class _PatternReader:
    __slots__ = ("at", "flags", "groups", "highest", "names", "nested", "text")

    def __init__(self, text: str, flags: frozenset[str]) -> None:
        self.text = text
        self.at = 0
        self.flags = flags
        self.groups = 0
        self.highest = 0
        self.names: dict[str, int] = {}
        self.nested = 0

    def whole(self) -> tuple[PatternNode, int]:
        part = self.either()
        if self.at < len(self.text):
            raise PatternError("unmatched )")
        if self.highest > self.groups:
            raise PatternError("reference to a group that is not there")
        return part, self.groups

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def accept(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def until(self, end: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise PatternError(f"missing {end}")
        found = self.text[self.at : stop]
        self.at = stop + len(end)
        return found

    def bytes(self, *members: int) -> PatternNode:
        found = frozenset(members)
        return Bytes(both_cases(found) if "i" in self.flags else found)

    def either(self) -> PatternNode:
        self.nested += 1
        if self.nested > _MOST_NESTED:
            raise PatternError("nested too deeply")
        flags = self.flags
        choices = [self.sequence()]
        while self.accept("|"):
            choices.append(self.sequence())
        self.flags = flags
        self.nested -= 1
        return choices[0] if len(choices) == 1 else Either(tuple(choices))

    def sequence(self) -> PatternNode:
        parts: list[PatternNode] = []
        while self.at < len(self.text) and self.peek() not in ("|", ")"):
            if "x" in self.flags and self.skip_comment():
                continue
            if self.accept("(?#"):
                self.until(")")
                continue
            if self.accept("\\Q"):
                stop = self.text.find("\\E", self.at)
                quoted = self.text[self.at :] if stop < 0 else self.text[self.at : stop]
                self.at = len(self.text) if stop < 0 else stop + 2
                parts.extend(self.bytes(ord(letter)) for letter in quoted)
                if not quoted:
                    continue
                parts.append(self.repeated(parts.pop()))
                continue
            if self.accept("\\E"):
                continue
            part = self.atom()
            if part is not None:
                parts.append(self.repeated(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def skip_comment(self) -> bool:
        if self.peek() in (" ", "\t", "\n", "\v", "\f", "\r"):
            self.at += 1
            return True
        if self.peek() == "#":
            stop = self.text.find("\n", self.at)
            self.at = len(self.text) if stop < 0 else stop + 1
            return True
        return False

    def repeated(self, part: PatternNode) -> PatternNode:
        while "x" in self.flags and self.skip_comment():
            pass
        bounds = self.quantifier()
        if bounds is None:
            return part
        greedy = possessive = False
        if self.accept("+"):
            greedy = possessive = True
        elif not self.accept("?"):
            greedy = True
        part = Repeat(part, bounds[0], bounds[1], greedy, possessive)
        if self.peek() in ("*", "+", "?") and self.peek():
            raise PatternError("quantifier does not follow a repeatable item")
        return part if self.brace() is None else self.repeated(part)

    def quantifier(self) -> tuple[int, int | None] | None:
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self.accept(sign):
                return least, most
        found = self.brace()
        if found is None:
            return None
        self.at = self.text.index("}", self.at) + 1
        return found

    def brace(self) -> tuple[int, int | None] | None:
        """The bounds of `{n}`, `{n,}`, `{n,m}` here; None when it is no quantifier."""
        if self.peek() != "{":
            return None
        stop = self.text.find("}", self.at)
        inside = self.text[self.at + 1 : stop] if stop > 0 else ""
        least, comma, most = inside.partition(",")
        if not has_digits_only(least) or (most and not has_digits_only(most)):
            return None
        low = clipped_number(least)
        high = low if not comma else clipped_number(most) if most else None
        if low > _MOST_REPEATED or (high is not None and (high > _MOST_REPEATED or high < low)):
            raise PatternError("numbers out of order or too big in {} quantifier")
        return low, high

    def atom(self) -> PatternNode | None:
        letter = self.peek()
        self.at += 1
        if letter == "(":
            return self.group()
        if letter == "[":
            return self.byte_set()
        if letter == ".":
            return Bytes(ALL if "s" in self.flags else ALL - {10})
        if letter == "^":
            return Assert("line_begin" if "m" in self.flags else "begin")
        if letter == "$":
            return Assert("line_end" if "m" in self.flags else "end")
        if letter in ("*", "+", "?"):
            raise PatternError("quantifier does not follow a repeatable item")
        if letter == "\\":
            return self.escape()
        return self.bytes(ord(letter))

    def group(self) -> PatternNode | None:
        if not self.accept("?"):
            if self.peek() == "*":
                raise PatternError("verbs are not supported")
            return self.captured(None)
        if self.accept(":"):
            return self.closed()
        for sign, build in _GROUPS:
            if self.accept(sign):
                return build(self.closed())
        for opening, closing in (("P<", ">"), ("<", ">"), ("'", "'")):
            if self.accept(opening):
                return self.captured(self.until(closing))
        return self.flag_group()

    def captured(self, name: str | None) -> PatternNode:
        self.groups += 1
        number = self.groups
        if name is not None:
            if not name.isidentifier() or name in self.names:
                raise PatternError("bad or repeated group name")
            self.names[name] = number
        return CaptureGroup(self.closed(), number)

    def closed(self) -> PatternNode:
        part = self.either()
        if not self.accept(")"):
            raise PatternError("missing )")
        return part

    def flag_group(self) -> PatternNode | None:
        on, off, minus = set[str](), set[str](), False
        while self.peek() and self.peek() not in (")", ":"):
            letter = self.peek()
            self.at += 1
            if letter == "-" and not minus:
                minus = True
            elif letter in "imsx":
                (off if minus else on).add(letter)
            else:
                raise PatternError("unrecognised character after (?")
        flags = (self.flags | on) - off
        if self.accept(")"):
            self.flags = flags
            return None
        self.at += 1
        before, self.flags = self.flags, flags
        part = self.closed()
        self.flags = before
        return part

    def escape(self) -> PatternNode:
        letter = self.peek()
        if not letter:
            raise PatternError("\\ at end of pattern")
        if letter in _SETS:
            self.at += 1
            return Bytes(_SETS[letter])
        if letter in _ASSERTS:
            self.at += 1
            return Assert(_ASSERTS[letter])
        if self.accept("R"):
            newline = Sequence((Bytes(frozenset({13})), Bytes(frozenset({10}))))
            return Atomic(Either((newline, Bytes(VERTICAL | {0x85}))))
        if letter in "123456789":
            return self.back_reference()
        for opening, closing in (("k<", ">"), ("k{", "}"), ("k'", "'"), ("g{", "}")):
            if self.accept(opening):
                return self.named_reference(self.until(closing))
        if letter == "g" and has_digits_only(self.text[self.at + 1 : self.at + 2]):
            self.at += 1
            return self.back_reference()
        return self.bytes(self.escaped_byte())

    def back_reference(self) -> PatternNode:
        begin = self.at
        digits = ""
        while has_digits_only(self.peek()):
            digits += self.peek()
            self.at += 1
        number = clipped_number(digits)
        if number < 10 or number <= self.groups:
            self.highest = max(self.highest, number)
            return Back(number, "i" in self.flags)
        self.at = begin
        if digits[0] in "89":
            raise PatternError("reference to a group that is not there")
        return self.bytes(self.octal())

    def named_reference(self, name: str) -> PatternNode:
        if has_digits_only(name.removeprefix("-")):
            number = clipped_number(name)
            number = self.groups + 1 + number if number < 0 else number
        else:
            number = self.names.get(name, 0)
        if number < 1:
            raise PatternError("reference to a group that is not there")
        self.highest = max(self.highest, number)
        return Back(number, "i" in self.flags)

    def octal(self) -> int:
        digits = ""
        while len(digits) < 3 and self.peek() and self.peek() in "01234567":
            digits += self.peek()
            self.at += 1
        value = int(digits, 8)
        if value > 255:
            raise PatternError("octal value too big")
        return value

    def escaped_byte(self) -> int:
        letter = self.peek()
        if letter == "0":
            return self.octal()
        self.at += 1
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "x":
            return self.hexadecimal()
        if letter == "c":
            control = self.peek()
            self.at += 1
            if not control or not " " <= control <= "~":
                raise PatternError("\\c at end of pattern")
            return ord(control.upper()) ^ 64
        if letter.isalnum() and letter.isascii():
            raise PatternError(f"unrecognised escape \\{letter}")
        return ord(letter)

    def hexadecimal(self) -> int:
        if self.accept("{"):
            digits = self.until("}")
        else:
            digits = ""
            while len(digits) < 2 and self.peek() and self.peek() in "0123456789abcdefABCDEF":
                digits += self.peek()
                self.at += 1
        try:
            value = int(digits or "0", 16)
        except ValueError:
            raise PatternError("bad \\x escape") from None
        if value > 255:
            raise PatternError("character value too big")
        return value

    def byte_set(self) -> PatternNode:
        negative = self.accept("^")
        members: set[int] = set()
        first = True
        while True:
            letter = self.peek()
            if not letter:
                raise PatternError("missing ]")
            if letter == "]" and not first:
                self.at += 1
                break
            first = False
            low = self.set_item(members)
            if low is None or self.peek() != "-" or self.peek(2) in ("-]", "-"):
                if low is not None:
                    members.add(low)
                continue
            self.at += 1
            high = self.set_item(members)
            if high is None:
                members |= {low, ord("-")}
                continue
            if high < low:
                raise PatternError("range out of order in character class")
            members.update(range(low, high + 1))
        found = frozenset(members)
        if "i" in self.flags:
            found = both_cases(found)
        return Bytes(ALL - found if negative else found)

    def set_item(self, members: set[int]) -> int | None:
        """One member of a set: its byte, or None when it was a whole class, already added."""
        if self.peek(2) == "[:":
            stop = self.text.find(":]", self.at)
            name = self.text[self.at + 2 : stop].removeprefix("^") if stop > 0 else ""
            if name.isalpha():
                if name not in _POSIX:
                    raise PatternError("unknown POSIX class name")
                found = _POSIX[name]
                members |= ALL - found if self.text[self.at + 2] == "^" else found
                self.at = stop + 2
                return None
        if not self.accept("\\"):
            byte = ord(self.peek())
            self.at += 1
            return byte
        letter = self.peek()
        if not letter:
            raise PatternError("\\ at end of pattern")
        if letter == "b":
            self.at += 1
            return 8
        if letter in _SETS and letter != "N":
            self.at += 1
            members |= _SETS[letter]
            return None
        if letter in "1234567":
            return self.octal()
        return self.escaped_byte()


_GROUPS: tuple[tuple[str, Callable[[PatternNode], PatternNode]], ...] = (
    ("<=", lambda part: Lookaround(part, False, False)),
    ("<!", lambda part: Lookaround(part, False, True)),
    ("=", lambda part: Lookaround(part, True, False)),
    ("!", lambda part: Lookaround(part, True, True)),
    (">", Atomic),
)

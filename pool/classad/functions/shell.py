"""envV1ToV2, mergeEnvironment, argsToList, listToArgs: command lines and environments in their written forms.

In form 2 words are separated by white space and quoted with single quotes, a quote within quotes doubled; an
environment is such words `NAME=value`. In form 1 arguments are split at white space and environment entries at
semicolons, or at another sign when the text begins with that.
"""

from __future__ import annotations

from typing import Any

from pool.classad.functions.registry import MANY, Family
from pool.classad.scope import ListValue, Scope, made
from pool.classad.values import ERROR, UNDEFINED

FUNCTIONS = Family()

_SPACE = " \t\n\r"
_DELIMITERS = "!#$%&*+,-/:;<>?@^`|~"


def split_words(text: str) -> list[str] | None:
    """The words of form 2; None when a quote is never closed."""
    words: list[str] = []
    word: list[str] = []
    begun = quoted = False
    at = 0
    while at < len(text):
        letter = text[at]
        at += 1
        if quoted:
            if letter != "'":
                word.append(letter)
            elif text[at : at + 1] == "'":
                word.append("'")
                at += 1
            else:
                quoted = False
        elif letter == "'":
            begun = quoted = True
        elif letter in _SPACE:
            if begun:
                words.append("".join(word))
                word, begun = [], False
        else:
            begun = True
            word.append(letter)
    if quoted:
        return None
    if begun:
        words.append("".join(word))
    return words


def join_words(words: list[str]) -> str:
    """The words in form 2, quoting only the characters that need it."""
    parts: list[str] = []
    for word in words:
        output = "" if word else "''"
        for letter in word:
            if letter in _SPACE or letter == "'":
                output = output[:-1] if output.endswith("'") else output + "'"
                output += (letter * 2 if letter == "'" else letter) + "'"
            else:
                output += letter
        parts.append(output)
    return " ".join(parts)


def _entry(entries: dict[str, str | None], text: str) -> bool:
    name, equals, value = text.partition("=")
    if not equals and "$$" in text:
        entries[text] = None
        return True
    if not equals or not name:
        return False
    entries[name] = value
    return True


def _environment(entries: dict[str, str | None]) -> str:
    return join_words([name if value is None else f"{name}={value}" for name, value in sorted(entries.items())])


@FUNCTIONS.strict("envV1ToV2", 1)
def environment_to_form_2(scope: Scope, text: Any) -> Any:
    if text is UNDEFINED:
        return UNDEFINED
    if type(text) is not str:
        return ERROR
    scope.spend(len(text) // 8)
    delimiter = ";"
    if text and text[0] in _DELIMITERS:
        delimiter, text = text[0], text[1:]
    entries: dict[str, str | None] = {}
    for part in text.replace("\n", delimiter).split(delimiter):
        entry = part.lstrip(_SPACE)
        if entry and not _entry(entries, entry):
            return ERROR
    return _environment(entries)


@FUNCTIONS.strict("mergeEnvironment", 0, MANY)
def merge_environment(scope: Scope, *texts: Any) -> Any:
    """Environments in form 2 as one, later entries over earlier ones; undefined arguments are skipped."""
    entries: dict[str, str | None] = {}
    for text in texts:
        if text is UNDEFINED:
            continue
        if type(text) is not str:
            return ERROR
        scope.spend(len(text) // 8)
        words = split_words(text)
        if words is None or not all(_entry(entries, word) for word in words):
            return ERROR
    return _environment(entries)


@FUNCTIONS.strict("argsToList", 1, 2)
def args_to_list(scope: Scope, text: Any, form: Any = 2) -> Any:
    if type(text) is not str or type(form) is not int or form not in (1, 2):
        return ERROR
    scope.spend(len(text) // 8)
    words = split_words(text) if form == 2 else text.split()
    return ERROR if words is None else made(words)


@FUNCTIONS.strict("listToArgs", 1, 2)
def list_to_args(scope: Scope, items: Any, form: Any = 2) -> Any:
    if type(items) is not ListValue or type(form) is not int or form not in (1, 2):
        return ERROR
    words = list(items.items(scope))
    if not all(type(word) is str for word in words):
        return ERROR
    scope.spend(sum(len(word) for word in words) // 8)
    if form == 2:
        return join_words(words)
    if any(not word or any(letter in word for letter in _SPACE) for word in words):
        return ERROR
    return " ".join(words)

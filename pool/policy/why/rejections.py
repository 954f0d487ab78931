"""What a cycle's rejections say to the people whose jobs they are, and which of them are news."""

from __future__ import annotations

from collections.abc import Mapping

from pool.policy.negotiation import Rejection

#: The same is told again after so many seconds, so that a job's ad says when it was last looked at.
AGAIN = 60.0


def said(rejection: Rejection) -> str:
    """A rejection in one line: LastRejMatchReason."""
    text = str(rejection.why)
    if rejection.limit:
        text += f" ({rejection.limit})"
    elif rejection.matching:
        text += f" ({rejection.matching:,} match{'es' if rejection.matching == 1 else ''})"
    return text


class News:
    """What was told of whom and when, so that schedds hear only what is new to them."""

    def __init__(self) -> None:
        self._told: dict[str, dict[int, tuple[str, float]]] = {}

    def of(self, submitter: str, texts: Mapping[int, str], now: float) -> list[tuple[int, str]]:
        """The requests to tell a submitter of, with what to tell; they then count as told.

        Args:
            texts: what was said of each of its requests that were left over.
            now: wall seconds.
        """
        before = self._told.get(submitter, {})
        told: dict[int, tuple[str, float]] = {}
        fresh: list[tuple[int, str]] = []
        for number, text in texts.items():
            known = before.get(number)
            if known is not None and known[0] == text and 0 <= now - known[1] < AGAIN:
                told[number] = known
            else:
                told[number] = (text, now)
                fresh.append((number, text))
        self._told[submitter] = told
        return fresh

    def forget(self, submitter: str) -> None:
        """It was not to be told, or is not there any more."""
        self._told.pop(submitter, None)

"""A cycle's rejections in words for the owners of the jobs, and which of them are news."""

from __future__ import annotations

from collections.abc import Mapping

from pool.policy.negotiation import Rejection

#: A rejection is repeated after so many seconds, so that a job's ad says when it was last looked at.
AGAIN = 60.0


def rejection_text(rejection: Rejection) -> str:
    """A rejection in one line: LastRejMatchReason."""
    text = str(rejection.why)
    if rejection.limit:
        text += f" ({rejection.limit})"
    elif rejection.matching:
        text += f" ({rejection.matching:,} match{'es' if rejection.matching == 1 else ''})"
    return text


class RejectionNotices:
    """The last notice to each submitter and its time, so that schedds hear only news."""

    def __init__(self) -> None:
        self._reported: dict[str, dict[int, tuple[str, float]]] = {}

    def notices_for(self, submitter: str, texts: Mapping[int, str], now: float) -> list[tuple[int, str]]:
        """The requests to notify a submitter of, with the notice; they then count as notified.

        Args:
            texts: what was said of each of its requests that were left over.
            now: wall seconds.
        """
        before = self._reported.get(submitter, {})
        reported: dict[int, tuple[str, float]] = {}
        fresh: list[tuple[int, str]] = []
        for number, text in texts.items():
            known = before.get(number)
            if known is not None and known[0] == text and 0 <= now - known[1] < AGAIN:
                reported[number] = known
            else:
                reported[number] = (text, now)
                fresh.append((number, text))
        self._reported[submitter] = reported
        return fresh

    def forget(self, submitter: str) -> None:
        """The notice was not delivered, or its jobs are gone."""
        self._reported.pop(submitter, None)

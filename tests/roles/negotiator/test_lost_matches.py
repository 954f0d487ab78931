"""Matches that come to nothing: the jobs that they were for do not wait for the next regular cycle."""

from __future__ import annotations

import pytest

from pool.roles.negotiator.match_delivery import MatchDelivery
from pool.testing import run_virtual
from pool.testing.pool import SimPool


def test_a_match_that_its_startd_does_not_hear_of_is_soon_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its slot is kept back for half a minute. Nothing else changes in the pool that would begin a cycle."""
    tell = MatchDelivery._startd
    lost: list[str] = []

    async def loses_the_first(self: MatchDelivery, address: str, matches: list) -> None:  # type: ignore[type-arg]
        if lost:
            await tell(self, address, matches)
        else:
            lost.extend(matches)

    monkeypatch.setattr(MatchDelivery, "_startd", loses_the_first)

    async def work() -> None:
        async with SimPool(3, settings={"NEGOTIATION_INTERVAL": "300", "UPDATE_INTERVAL": "900"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd")
            await pool.submit("head")
            await pool.run_until(lambda: bool(pool.witness.ends), within=60.0)
        assert lost

    run_virtual(work())

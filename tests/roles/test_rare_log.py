"""Lines about what another pool does: at once, and then one a minute."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pool.roles.world.rare_log import EACH, MOST, RareLog
from pool.testing import run_virtual


def test_one_line_a_minute_of_each_pool_and_thing(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        log = RareLog(logging.getLogger("pool.test"))
        for _ in range(1000):
            log.warning("it lies", {"pool": "evil"})
        log.warning("it lies", {"pool": "worse"})
        log.warning("it cheats", {"pool": "evil"})
        assert [record.getMessage() for record in caplog.records] == ["it lies", "it lies", "it cheats"]
        await asyncio.sleep(EACH)
        log.warning("it lies", {"pool": "evil"})
        assert (len(caplog.records), caplog.records[-1].__dict__["more"]) == (4, 999)
        for number in range(2 * MOST):
            log.warning("it lies", {"pool": str(number)})
        assert len(log._last) == MOST

    with caplog.at_level(logging.WARNING, "pool.test"):
        run_virtual(work())

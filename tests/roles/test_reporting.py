"""Notices: their content is in the event of every end, and nothing a mail system does reaches the queue."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pool.errors import PoolError
from pool.roles.base import Surroundings
from pool.roles.schedd.ledger import Ledger
from pool.roles.schedd.reporting import Reporting
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking


@pytest.mark.parametrize("trouble", [BrokenPipeError(32, "Broken pipe"), PoolError("it ended with status 75")])
async def test_a_mail_system_that_fails_does_not_fail_the_schedd(
    trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    async def tell(*event: Any) -> None:
        told.append(event)

    async def mail(to: str, subject: str, text: str) -> bool:
        raise trouble

    ledger = cast(Ledger, SimpleNamespace(tell=tell))
    given = cast(Surroundings, SimpleNamespace(mail=mail))
    reporting = Reporting(ledger, given, logging.getLogger("test"))
    reporting.finished({"ClusterId": 1, "ProcId": 0, "Owner": "me", "JobStatus": 4, "JobNotification": 2})
    await reporting.flush()
    assert len(told) == 1, "the notice is in the event log in any case"
    assert "a notice could not be mailed" in caplog.text


def test_every_end_has_the_notices_content_whether_it_is_wished_or_not() -> None:
    """A10, VS 6.3.3: cause, times, use, leverage, image size, in the event log."""

    async def work() -> None:
        async with SimPool(1, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(20.0, 3, rss=4096))
            await pool.submit("head")
            await pool.until(lambda: pool.queued("head") == 0, within=60)
            held = await pool.submit("head", ad={"JobStatus": 5})
            await pool.act("head", "alice", action="remove", ids=[[held]])
            async with asking(pool) as user:
                ends = []
                async for batch in user.events():
                    ends += [event["data"] for event in batch if event["kind"] in ("TERMINATED", "ABORTED")]
                    if len(ends) == 2:
                        break
            (ad, _) = sorted(await pool.ended("head"), key=lambda ad: ad["ClusterId"])
            by_itself, removed = ends
            assert by_itself["cause"] == "exited with status 3."
            assert by_itself["total_user_cpu"] == ad["RemoteUserCpu"] == 20.0
            assert by_itself["image_size"] == ad["ImageSize"] == 4096
            assert by_itself["real"] == pytest.approx(by_itself["ended"] - ad["QDate"])
            assert by_itself["real"] >= 20.0
            assert "leverage" in by_itself
            assert removed["cause"] == "was removed: by alice"
            pool.sound()

    run_virtual(work())

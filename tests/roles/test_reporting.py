"""Notices: nothing a mail system does reaches the queue."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pool.errors import PoolError
from pool.roles.base import Surroundings
from pool.roles.schedd.ledger import Ledger
from pool.roles.schedd.reporting import Reporting


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

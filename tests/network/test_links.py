"""Callers that lie: links and forwarded ports of jobs that are not theirs, or not there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pool.pipes.bulk import PATIENCE
from pool.roles.startd.running.networks import NetworkLinks, forward_to
from pool.roles.startd.slots.records import SlotRefused
from pool.testing import run_virtual

KNOWN = {"gang": "secret", "run": 1, "ticket": "t", "key": bytes(64)}
UNKNOWN: list[dict[str, Any]] = [KNOWN | {"gang": "another"}, KNOWN | {"run": 2}, KNOWN | {"run": -1, "gang": ""}]


class LocalEnd:
    """A connection that is no socket."""

    def __init__(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True


def links(monkeypatch: pytest.MonkeyPatch) -> NetworkLinks:
    """A node on which one job has a part."""
    made = NetworkLinks("one", cast(Any, None), lambda size: "x" * size, Path("relay"))
    monkeypatch.setattr(made.networks, "has_part", lambda params: (params["gang"], params["run"]) == ("secret", 1))
    return made


@pytest.mark.parametrize("params", [*UNKNOWN, KNOWN])
def test_a_connection_of_another_job_or_kind_is_closed(monkeypatch: pytest.MonkeyPatch, params: dict[str, Any]) -> None:
    """The last one is of the right job, and comes over a connection that has no socket of its own."""

    async def work() -> None:
        end = LocalEnd()
        with pytest.raises(SlotRefused, match="waits for this link"):
            await links(monkeypatch).join(cast(Any, SimpleNamespace(connection=end)), params)
        assert end.closed

    run_virtual(work())


def test_a_link_that_was_never_made_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        made, loop = links(monkeypatch), asyncio.get_running_loop()
        for params in UNKNOWN:
            with pytest.raises(SlotRefused, match="waits for this link"):
                await made.joined(params)
        assert loop.time() == 0.0
        waits = [made.joined(KNOWN | {"ticket": f"guess {number}"}) for number in range(100)]
        answers = await asyncio.gather(*waits, return_exceptions=True)
        assert {type(answer) for answer in answers} == {SlotRefused}
        assert loop.time() == PATIENCE
        await asyncio.sleep(PATIENCE)
        assert not made._joined, "nothing is kept of tickets that were guessed"

    run_virtual(work())


@pytest.mark.parametrize(
    ("job", "params", "why"),
    [
        (None, {"run": 1, "port": 80}, "no such job runs"),
        ({"run": 2}, {"run": 1, "port": 80}, "no such job runs"),
        ({"ended": True}, {"run": 1, "port": 80}, "no such job runs"),
        ({"setup": ""}, {"run": 1, "port": 80}, "the job has its machine's network"),
        ({}, {"run": 1, "port": -1}, "there is no port -1"),
        ({}, {"run": 1, "port": -80}, "there is no port -80"),
        ({}, {"run": 1, "port": 65536}, "there is no port 65536"),
    ],
)
def test_a_port_that_nobody_may_have(job: dict[str, Any] | None, params: dict[str, Any], why: str) -> None:
    async def work() -> None:
        running = None
        if job is not None:
            ended = asyncio.get_running_loop().create_future()
            if job.get("ended"):
                ended.set_result(None)
            keeper = SimpleNamespace(ended=ended, spec=SimpleNamespace(network_setup=job.get("setup", "eth0")))
            start = SimpleNamespace(run=job.get("run", 1))
            running = SimpleNamespace(starter=SimpleNamespace(keeper=keeper), start=start)
        slot, claim = SimpleNamespace(name="slot1"), SimpleNamespace(running=running)
        with pytest.raises(SlotRefused, match=why):
            await forward_to(cast(Any, slot), cast(Any, claim), params, cast(Any, None))

    run_virtual(work())

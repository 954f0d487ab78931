"""A run that nobody waits for any more, and the scratch directory that has become the next job's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pool.shadow.shadow import Shadow
from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK


def seconds_of(spec: KeeperSpec) -> Behaviour:
    return Behaviour(2.0 if spec.claim["node"] == "s1" else 400.0)


def test_outputs_that_hang_until_the_lease_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot went to another job meanwhile, and its files were removed when the stream to the first schedd broke."""
    hangs, plain = asyncio.Event(), Shadow.store_outputs

    async def bring(self: Shadow, params: object, stream: object) -> None:
        if not hangs.is_set():
            hangs.set()
            await asyncio.Event().wait()
        await plain(self, params, stream)  # type: ignore[arg-type]

    monkeypatch.setattr(Shadow, "store_outputs", bring)

    async def work() -> None:
        settings = {**QUICK, "SLOTS": "1", "CLAIM_LEASE": "20"}
        async with SimPool(6, settings=settings, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("s1", "schedd")
            await pool.add("s2", "schedd")
            await pool.add("m1", "startd", behave=seconds_of)
            wish = {"ShouldTransferFiles": "YES", "TransferExecutable": False, "Iwd": str(tmp_path), "Out": "out"}
            await pool.submit("s1", ad=wish)
            await hangs.wait()
            pool.network.drop_silently("s1", "m1")
            await pool.submit("s2", ad=wish)
            await pool.run_until(
                lambda: any(job.status == 2 for job in pool.role("s2", "schedd").queue.jobs()), within=200
            )
            await asyncio.sleep(1.0)
            made = pool.role("m1", "startd").execute / "slot1" / "made"
            made.write_text("by the second job")
            pool.network.cut("s1", "m1")
            await asyncio.sleep(60.0)
            assert made.exists()
            pool.network.restore_links()
            await pool.run_until(lambda: not pool.queued("s1") and not pool.queued("s2"), within=3000)
            pool.assert_sound()

    run_virtual(work())

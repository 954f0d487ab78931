"""Jobs of two schedds on one machine: each schedd counts its jobs from 1, so that their ids are the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pool.images import ImageStore
from pool.roles.startd.images.image_stores import ImageStores
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK

SETTINGS = QUICK | {"SLOTS": "2", "CHECKPOINT_FIRST": "10 h"}
CARRIED = {"ShouldTransferFiles": "YES", "WantCheckpoint": True}


def test_checkpoints_of_jobs_with_one_id_are_told_apart() -> None:
    async def work() -> None:
        async with SimPool(4, settings=SETTINGS, stateful=True) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("away", "schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(3000.0, saving=0.5))
            assert [await pool.submit("head", owner="ann"), await pool.submit("away", owner="bob")] == [1, 1]
            await pool.run_until(lambda: len(pool.witness.starts) == 2, 120)
            m1 = pool.role("m1", "startd")
            jobs = {slot.claim.node: slot.claim.running for slot in m1.claims.values()}
            assert set(jobs) == {"head", "away"}
            await asyncio.sleep(1000)
            for node, owner in (("head", "ann"), ("away", "bob")):
                acted = await pool.act(node, owner, action="checkpoint", ids=[[1]])
                assert acted["done"] == 1, acted
            # Both are offered to the machine that comes next, each for a ticket of its own.
            offers = m1.peers._offers
            assert set(offers) == {("head", "1.0"), ("away", "1.0")}
            assert len({offer.ticket for offer in offers.values()}) == 2
            assert m1.images("head") is not m1.images("away")
            # One goes for good, and takes nothing of the other with it.
            await pool.act("head", "ann", action="remove", ids=[[1]])
            await pool.run_until(lambda: pool.queued("head") == 0, 120)
            await asyncio.sleep(500)
            acted = await pool.act("away", "bob", action="vacate", ids=[[1]])
            assert acted["done"] == 1, acted
            began = asyncio.get_running_loop().time()
            await pool.run_until(lambda: pool.queued("away") == 0, 5000)
            assert asyncio.get_running_loop().time() - began < 1600, "it went on from its last checkpoint"
            assert not pool.nodes["m1"].failures
            (ad,) = await pool.ended("away")
            assert ad["NumCkpts"] == 2

    run_virtual(work())


def test_stores_are_found_again_and_share_one_quota(tmp_path: Path) -> None:
    stores = ImageStores(tmp_path / "images", 100_000)
    image = tmp_path / "image"
    image.mkdir()
    (image / "pages").write_bytes(bytes(range(256)) * 16)
    for schedd in ("head", "away", "../x"):
        stores.store_of(schedd).store_image("1.0", image, 1.0)
    stores.store_of("head").store_image("2.0", image, 1.0)
    assert len({store.quota_used for store in map(stores.store_of, ("head", "away"))}) == 1
    assert stores.store_of("head").quota_used > stores.store_of("head").used
    ImageStore(tmp_path / "images" / "jobs")  # what an earlier version left
    later = ImageStores(tmp_path / "images", 100_000)
    later.drop_all_but({("head", "1.0"), ("../x", "7.0")})
    assert [later.store_of(schedd).jobs() for schedd in ("head", "../x", "away")] == [["1.0"], [], []]
    assert not (tmp_path / "images" / "jobs").exists()
    assert [path.name for path in tmp_path.iterdir()].count("images") == 1

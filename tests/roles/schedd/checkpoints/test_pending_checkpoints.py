"""Checkpoints made while their checkpoint server is away: they wait on the submit side, and none is lost (C4, A15)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.images import ImageStore, NoRoom
from pool.images.manifest import CHUNK
from pool.policy.queue import IDLE
from pool.roles.images.remote import place_for
from pool.roles.schedd.checkpoints import checkpoint_server
from pool.roles.schedd.checkpoints.pending_checkpoints import PendingCheckpoints
from pool.roles.schedd.core.ledger import Ledger
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.images.test_store import contents, image
from tests.roles.schedd.checkpoints.test_restoring import done, ran, the_job, vacate
from tests.roles.support import QUICK

#: Of the jobs here, which are short.
HOUR = 600.0
SAVABLE = Behaviour(2 * HOUR, saving=1.0, rss=1000)


class Story:
    """A schedd whose checkpoints lie in a directory that can be taken away, and one job on one of two machines."""

    def __init__(self, pool: SimPool, mount: Path) -> None:
        self.pool = pool
        self._mount = mount

    @property
    def place(self) -> Any:
        return self.pool.role("head", "schedd").checkpoint_place

    def goes_away(self) -> None:
        self._mount.rename(self._mount.with_name("elsewhere"))
        self._mount.touch()

    def answers_again(self) -> None:
        self._mount.unlink()
        self._mount.with_name("elsewhere").rename(self._mount)

    async def comes_back(self) -> None:
        self.answers_again()
        await self.pool.run_until(lambda: self.place.away is None, within=100)

    def there(self) -> list[int]:
        """The job's checkpoints where they belong."""
        return list(ImageStore(self._mount / "store" / "head").generations("1.0"))


@pytest.fixture(autouse=True)
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound is waited for by a thread, and in virtual time there is but one."""
    monkeypatch.setattr(checkpoint_server, "place_for", lambda *whose: place_for(*whose[:4]))


def play(tmp_path: Path, story: Callable[[Story], Coroutine[Any, Any, None]], behaviour: Behaviour = SAVABLE) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    settings = {**QUICK, "CHECKPOINT_FIRST": "0", "CHECKPOINT_SERVER": str(mount / "store")}

    async def work() -> None:
        async with SimPool(7, settings=settings, directory=tmp_path, stateful=True) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for name in ("m1", "m2"):
                await pool.add(name, "startd", behave=lambda spec: behaviour)
            await pool.submit("head")
            await pool.run_until(lambda: bool(pool.witness.running), within=200)
            await story(Story(pool, mount))
            pool.assert_sound()

    run_virtual(work())


async def leaves_while_it_is_away(it: Story) -> None:
    await asyncio.sleep(HOUR)
    it.goes_away()
    await vacate(it.pool)
    await asyncio.sleep(HOUR)
    assert (the_job(it.pool).status, the_job(it.pool).get("NumCkpts")) == (IDLE, 1)
    assert it.place.waiting.jobs() == ["1.0"]


def test_a_last_checkpoint_waits_for_the_server_and_the_job_for_both(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        await leaves_while_it_is_away(it)
        await it.comes_back()
        ad = await done(it.pool)
        assert ran(it.pool) == pytest.approx(2 * HOUR, abs=10)
        assert (ad["NumCkpts"], ad.get("WorkLost", 0)) == (1, pytest.approx(0, abs=10))
        assert it.place.waiting.jobs() == []

    play(tmp_path, story)


def test_the_schedd_may_die_meanwhile(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        await leaves_while_it_is_away(it)
        await it.pool.kill("head")
        await it.pool.restart("head")
        await asyncio.sleep(HOUR)
        assert it.place.waiting.jobs() == ["1.0"]
        await it.comes_back()
        await done(it.pool)
        assert ran(it.pool) == pytest.approx(2 * HOUR, abs=10)

    play(tmp_path, story)


def test_a_server_that_answers_while_the_queue_is_read_keeps_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedd with a large queue reads it for longer than its server takes to answer: no job is known by then."""

    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        await vacate(it.pool)
        await it.pool.run_until(lambda: it.there() == [1], within=HOUR)
        await it.pool.kill("head")
        it.goes_away()
        load, known = Ledger.load, list[list[int]]()

        async def slow(ledger: Ledger) -> list[Any]:
            it.answers_again()
            await asyncio.sleep(60.0)
            known.append(it.there())
            return await load(ledger)

        monkeypatch.setattr(Ledger, "load", slow)
        await it.pool.restart("head")
        assert known == [[1]]
        await done(it.pool)
        assert ran(it.pool) < 2.5 * HOUR, "it did not begin from its beginning"

    play(tmp_path, story)


def test_one_that_is_removed_takes_what_waits_with_it(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        await leaves_while_it_is_away(it)
        await it.pool.role("head", "schedd").acts.act({"action": "remove", "ids": [[1, 0]]}, None, "root")
        it.pool.role("head", "schedd").tidy()
        await it.pool.run_until(lambda: not it.place.waiting.jobs(), within=100)
        await it.comes_back()
        assert it.there() == []

    play(tmp_path, story)


def test_checkpoints_beside_its_run_wait_too_and_the_newest_counts(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR / 2)
        (machine,) = it.pool.witness.running.values()
        running = it.pool.role(machine, "startd").slots["slot1"].claim.running
        await running.saving.save_running()
        assert it.there() == [1]
        it.goes_away()
        with pytest.raises(PoolError, match="not a directory"):
            await running.saving.save_running()
        for _ in range(2):
            await asyncio.sleep(HOUR / 4)
            await running.saving.save_running()
        assert it.place.waiting.jobs() == ["1.0"]
        await it.comes_back()
        await it.pool.run_until(lambda: not it.place.waiting.jobs(), within=100)
        await running.saving.save_running()
        assert it.there()[-1] == 3
        await done(it.pool)

    play(tmp_path, story)


# -- what waits, by itself -----------------------------------------------------------------------------------


def test_what_waits_goes_where_it_belongs_unless_something_newer_is_there(tmp_path: Path) -> None:
    store, waiting = ImageStore(tmp_path / "store"), PendingCheckpoints(tmp_path / "waiting", None)
    assert (waiting.jobs(), (tmp_path / "waiting").exists()) == ([], False)
    store.store_image("1.0", image(tmp_path / "a", 1), 1.0)
    waiting.store.store_image("1.0", image(tmp_path / "b", 2, 40 * CHUNK), 2.0)
    waiting.store.store_image("2.0", image(tmp_path / "c", 3), 3.0, kind="keeper")
    store.store_image("3.0", image(tmp_path / "d", 4), 5.0)
    waiting.store.store_image("3.0", image(tmp_path / "e", 5), 4.0)
    waiting = PendingCheckpoints(tmp_path / "waiting", None)
    assert waiting.jobs() == ["1.0", "2.0", "3.0"]
    waiting.deliver(store)
    assert (waiting.jobs(), waiting.store.used) == ([], 0)
    assert [store.generations(job) for job in ("1.0", "2.0", "3.0")] == [[1, 2], [1], [1]]
    assert dict(store.manifest("2.0").facts) == {"kind": "keeper"}
    for job, source in (("1.0", "b"), ("2.0", "c"), ("3.0", "d")):
        store.restore(store.manifest(job), tmp_path / f"back{job}")
        assert contents(tmp_path / f"back{job}") == contents(tmp_path / source)


def test_what_has_no_room_there_goes_on_waiting_and_its_quota_holds_here(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store", quota=5 * CHUNK)
    waiting = PendingCheckpoints(tmp_path / "waiting", 8 * CHUNK)
    store.store_image("9.0", image(tmp_path / "other", 9), 1.0)
    waiting.store.store_image("1.0", image(tmp_path / "a", 1), 2.0)
    with pytest.raises(NoRoom):
        waiting.deliver(store)
    assert waiting.jobs() == ["1.0"]
    with pytest.raises(NoRoom):
        waiting.store.store_image("2.0", image(tmp_path / "b", 2, 6 * CHUNK), 3.0)
    store.drop("9.0")
    waiting.deliver(store)
    assert (waiting.jobs(), store.generations("1.0")) == ([], [1])

"""Changes of accounts that come at once: each is on disk when it is answered, or said not to be."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from pool.config import Settings
from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.roles.negotiator.accounting import Accounting
from pool.store.accounts import AccountStore

COUNT = 400


def accounting(path: Path) -> Accounting:
    settings = Settings.load(None, sets={}, environ={}, files=False)
    return Accounting(settings, OutsideWorld(), AccountStore.open(str(path)), logging.getLogger("test"))


def on_disk(path: Path) -> dict[str, float]:
    """The file as another process finds it now."""
    store = AccountStore.open(str(path))
    accounts, _ = store.load()
    store.close()
    return {wire["name"]: wire["factor"] for wire in accounts}


async def test_changes_made_at_once_are_all_on_disk_when_they_are_answered(tmp_path: Path) -> None:
    """The threads of the loop's own executor, as in a node."""
    path = tmp_path / "accounts.db"
    accounts = accounting(path)
    answered: list[str] = []

    async def change(number: int) -> None:
        for _ in range(number % 7):
            await asyncio.sleep(0)  # some come while others are being written
        accounts.accounts.set(f"user{number}", factor=number + 1.0)
        await accounts.keep_changes()
        answered.append(f"user{number}")
        if not number % 50:
            assert on_disk(path).keys() >= set(answered)

    await asyncio.gather(*(change(number) for number in range(COUNT)))
    assert on_disk(path) == {f"user{number}": number + 1.0 for number in range(COUNT)}
    await accounts.close()


async def test_a_change_that_is_given_up_does_not_disturb_the_others(tmp_path: Path) -> None:
    path = tmp_path / "accounts.db"
    accounts = accounting(path)
    accounts.accounts.set("ann", factor=2.0)
    first = asyncio.create_task(accounts.keep_changes())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    accounts.accounts.set("ben", factor=3.0)
    await accounts.keep_changes()
    assert on_disk(path) == {"ann": 2.0, "ben": 3.0}
    await accounts.close()


async def test_what_is_not_kept_is_said_so_and_kept_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "accounts.db"
    accounts = accounting(path)
    calls = 0
    save = AccountStore.save

    def refuse(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        raise PoolError("cannot write: the disk is full")

    monkeypatch.setattr(AccountStore, "save", refuse)
    for number in range(50):
        accounts.accounts.set(f"user{number}", factor=2.0)
    outcomes = await asyncio.gather(*(accounts.keep_changes() for _ in range(50)), return_exceptions=True)
    assert all(isinstance(outcome, PoolError) for outcome in outcomes)
    assert calls <= 2
    monkeypatch.setattr(AccountStore, "save", save)
    await accounts.save()
    assert len(on_disk(path)) == 50
    await accounts.close()


async def test_a_write_under_way_ends_before_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that stops cancels who waits for a write; the thread that writes goes on."""
    path = tmp_path / "accounts.db"
    accounts = accounting(path)
    entered, released = threading.Event(), threading.Event()
    save = AccountStore.save

    def save_slowly(*arguments: Any) -> None:
        entered.set()
        assert released.wait(60)
        save(*arguments)

    monkeypatch.setattr(AccountStore, "save", save_slowly)
    accounts.accounts.set("ann", factor=2.0)
    change = asyncio.create_task(accounts.keep_changes())
    await asyncio.to_thread(entered.wait, 60)
    change.cancel()
    await asyncio.wait([change])
    closing = asyncio.create_task(accounts.close())
    await asyncio.sleep(0)
    released.set()
    await closing
    assert on_disk(path) == {"ann": 2.0}


async def test_an_error_that_nobody_waits_for_is_no_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = accounting(tmp_path / "accounts.db")
    troubles: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    entered, released = threading.Event(), threading.Event()

    def refuse_slowly(*arguments: object) -> None:
        entered.set()
        assert released.wait(60)
        raise PoolError("cannot write: the disk is full")

    monkeypatch.setattr(AccountStore, "save", refuse_slowly)
    accounts.accounts.set("ann", factor=2.0)
    change = asyncio.create_task(accounts.keep_changes())
    await asyncio.to_thread(entered.wait, 60)
    change.cancel()
    released.set()
    await asyncio.wait([change])
    await accounts.close()
    del accounts, change
    gc.collect()
    assert troubles == []

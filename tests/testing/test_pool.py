"""Simulated pools: where their nodes' files are, and that this changes nothing of what happens in them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pool.testing import disks, run_virtual
from pool.testing import pool as simulation
from pool.testing.disks import memory_directory
from pool.testing.keepers import Behaviour, Witness
from pool.testing.pool import SimPool


async def _work() -> tuple[Path, Witness]:
    """Twenty jobs of chance lengths on three machines, of which one dies; a node's disk, and what the witness saw."""
    lengths = random.Random(7)
    async with SimPool(7) as pool:
        await pool.add("head", "collector,negotiator,schedd")
        for name in ("m0", "m1", "m2"):
            await pool.add(name, "startd", behave=lambda spec: Behaviour(lengths.uniform(10.0, 900.0)))
        await pool.submit("head", count=20)
        await pool.run_until(lambda: len(pool.witness.ends) == 5)
        await pool.kill("m1")
        await pool.run_until(lambda: not pool.queued("head"), within=86400.0)
        return pool.nodes["head"].disk.path, pool.witness


def test_files_in_memory_change_nothing_of_what_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(simulation, "memory_directory", lambda: tmp_path)
    near, seen = run_virtual(_work())
    monkeypatch.setattr(simulation, "memory_directory", lambda: None)
    far, again = run_virtual(_work())
    assert near.is_relative_to(tmp_path)
    assert not far.is_relative_to(tmp_path)
    assert len(seen.starts) >= 20
    assert seen == again


def test_a_machine_without_memory_to_share_has_no_such_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(disks, "SHARED_MEMORY", tmp_path)
    assert memory_directory() == tmp_path
    monkeypatch.setattr(disks, "SHARED_MEMORY", tmp_path / "none")
    assert memory_directory() is None


async def _disk(directory: Path | None) -> Path:
    async with SimPool(directory=directory, stateful=True) as pool:
        return (await pool.add("head", "collector")).disk.path


def test_checkpoints_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(simulation, "memory_directory", lambda: tmp_path / "memory")
    assert not run_virtual(_disk(None)).is_relative_to(tmp_path)
    (tmp_path / "given").mkdir()
    assert run_virtual(_disk(tmp_path / "given")).is_relative_to(tmp_path / "given")


def test_a_simulated_machine_has_no_program_of_the_machine_that_tests_run_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = tmp_path / "java"
    java.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    async def work() -> dict[str, Any]:
        async with SimPool(1) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd")
            await pool.run_until(lambda: ("Machine", "slot1@m1") in pool.role("head", "collector")._registry.entries)
            ad: dict[str, Any] = pool.role("head", "collector")._registry.entries["Machine", "slot1@m1"].ad
            return ad

    ad = run_virtual(work())
    assert ad["Machine"] == "m1"
    assert "HasJava" not in ad

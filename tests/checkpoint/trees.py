"""Random trees of processes with random state, moved again and again.

    python -m tests.checkpoint.trees --seed N --seconds N

Each seed is a tree (programs/tree.py) and a way: images beside it that it runs on after, or goes back to, and last
ones, whole or on top of each other. After each step all its processes and threads look at what they have. The first
seed that fails is named, with what it said.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from pool.checkpoint.build import build
from pool.starter.keeper import KeeperSpec, NativeKeeper, NativeKeepers
from tests.checkpoint.conftest import SOURCES
from tests.starter.support import PYTHON, opened, soon, spec, until

STEPS = 6


class Wrong(Exception):
    """The lines of a tree's output that differ from before."""


async def wander(keepers: NativeKeepers, place: Path, seed: int, steps: int = STEPS) -> str:
    """One tree through its steps; what was refused of it, or "" where it was all moved.

    Raises:
        Wrong: something in it is not as it was.
    """
    chance = random.Random(seed)
    scratch = place / f"tree{seed}"
    await asyncio.to_thread(scratch.mkdir)
    images: list[Path] = []
    program = (SOURCES / "tree.py").read_text()
    isolation = chance.choice(["full", "shared"])
    wanted = spec(scratch, PYTHON, "-c", program, str(seed), isolation=isolation)
    keeper = await soon(keepers.start(wanted))
    try:
        everybody = await settled(keeper, scratch)
        previous: Path | None = None
        for step in range(steps):
            image = place / f"image{seed}.{step}"
            images.append(image)
            stop, stays = chance.random() < 0.5, chance.random() < 0.3
            report = await soon(keeper.checkpoint(image, stop=stop, parent=previous))
            if report.refused:
                return ", ".join(report.refused)
            if stop or not stays:
                keeper = await goes_on(keepers, keeper, wanted, image, stop)
            previous = None if stop or not stays else image
            await looked(keeper, scratch, everybody, step)
        await asyncio.to_thread((scratch / "end").touch)
        end = await soon(keeper.ended)
        if end.code != 0 or said(scratch):
            raise Wrong(f"it ended with {end.code}, {end.signal}: {said(scratch)}")
        return ""
    finally:
        if not keeper.ended.done():
            await keeper.kill()
            await soon(keeper.ended)
        await keeper.forget()
        for path in [scratch, *images]:
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


async def settled(keeper: NativeKeeper, scratch: Path) -> set[str]:
    """Waits until the tree has grown; the names of its processes and threads."""
    ready, known = scratch / "ready", -1
    while True:
        await until(lambda: keeper.ended.done() or (ready / "p").exists())
        now = len(os.listdir(ready)) if ready.exists() else 0
        pids = (await soon(keeper.usage())).processes if not keeper.ended.done() else 0
        if keeper.ended.done() or said(scratch):
            raise Wrong(f"it ended before it was moved: {said(scratch)}")
        if now == known and pids:
            return set(os.listdir(ready))
        known = now
        await asyncio.sleep(0.2)


async def goes_on(
    keepers: NativeKeepers, keeper: NativeKeeper, wanted: KeeperSpec, image: Path, stop: bool
) -> NativeKeeper:
    if not stop:
        await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    started: NativeKeeper = await soon(keepers.start(wanted, image=image))
    return started


async def looked(keeper: NativeKeeper, scratch: Path, everybody: set[str], step: int) -> None:
    """Has all of them look.

    Raises:
        Wrong: one did not, or saw what is wrong.
    """
    await asyncio.to_thread((scratch / f"check.{step}").touch)
    done = scratch / "done"
    missing = everybody

    def over() -> bool:
        nonlocal missing
        missing = {name for name in everybody if not (done / f"{step}.{name}").exists()}
        return not missing or keeper.ended.done() or bool(said(scratch))

    try:
        await until(over)
    except AssertionError:
        raise Wrong(f"step {step}: {sorted(missing)} did not look") from None
    if missing:
        raise Wrong(f"step {step}: {said(scratch) or sorted(missing)}")


def said(scratch: Path) -> str:
    err = scratch / "err"
    return err.read_text() if err.exists() else ""


async def search(first: int, seconds: float) -> int:
    began, moved = time.monotonic(), 0
    refused: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        await asyncio.to_thread(place.chmod, 0o755)
        async with opened(place, build(place / "keeper")) as keepers:
            seed = first
            while time.monotonic() - began < seconds or seed == first:
                try:
                    why = await wander(keepers, place, seed)
                except Exception as error:
                    print(f"seed {seed}: {error!r}")
                    return 1
                moved += not why
                if why:
                    refused[seed] = why
                seed += 1
    print(f"seeds {first} to {seed - 1}: {moved} trees were moved {STEPS} times each")
    for seed, why in refused.items():
        print(f"seed {seed} was refused: {why}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.checkpoint.trees", description="Move random process trees.")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long")
    given = parser.parse_args()
    return asyncio.run(search(given.seed, given.seconds))


if __name__ == "__main__":
    sys.exit(main())

"""Pages of docs/policies: their configuration taken out of the page, and run in a pool that does not exist."""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import Callable, Coroutine
from typing import Any

from pool.client.why import Explanation
from pool.config import Settings
from pool.policy.slots import SlotCondition
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.conftest import REPOSITORY
from tests.roles.support import asking

PAGES = REPOSITORY / "docs" / "policies"
MINUTE, HOUR = 60.0, 3600.0
#: Seconds within which what is looked at every five seconds has been seen and acted upon.
LOOK = 6.0
LONG = Behaviour(1_000_000.0)
#: Only what makes the simulation tell things quicker; nothing that a policy is about.
QUICK = {"UPDATE_INTERVAL": "30", "AD_LIFETIME": "100", "NEGOTIATION_INTERVAL": "60"}


def text_of(page: str) -> str:
    return (PAGES / f"{page}.md").read_text()


def configuration(page: str) -> str:
    """The first block of code below the heading of the configuration."""
    section = text_of(page).split("\n## The configuration\n", 1)[1].split("\n## ", 1)[0]
    lines = section.strip("\n").split("\n")
    end = next((number for number, line in enumerate(lines) if line and not line.startswith("    ")), len(lines))
    return textwrap.dedent("\n".join(lines[:end]))


def settings_of(page: str) -> Settings:
    """The page's configuration as a node reads it."""
    text = configuration(page)
    return Settings.load(PAGES / "pool.conf", sets={}, environ={}, opener=lambda path: text)


def run(
    page: str, story: Callable[[SimPool], Coroutine[Any, Any, None]], *, stateful: bool = False, **settings: str
) -> None:
    """Let a story happen in a pool with the page's configuration; its machines are the story's to add.

    Args:
        stateful: schedds keep checkpoints.
    """

    async def work() -> None:
        async with SimPool(11, config=configuration(page), settings={**QUICK, **settings}, stateful=stateful) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await story(pool)
            pool.assert_sound()

    run_virtual(work())


def slot(pool: SimPool, node: str) -> Any:
    """The slot of a machine that has a job: the first that was carved, or the machine's only one."""
    slots = pool.role(node, "startd").slots
    return next((slots[name] for name in sorted(slots) if "_" in name), slots["slot1"])


async def became(pool: SimPool, node: str, condition: SlotCondition, within: float = 86400.0) -> float:
    """Seconds until a machine's slot came into a condition."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    await pool.run_until(lambda: slot(pool, node).condition == condition, within=within, step=0.5)
    return loop.time() - before


async def why(pool: SimPool, job: str) -> Explanation:
    async with asking(pool) as asker:
        return await asker.why(job)


async def why_machine(pool: SimPool, name: str) -> Explanation:
    async with asking(pool) as asker:
        return (await asker.why_machine(name))[0]


def shown(page: str, command: str) -> list[str]:
    """The lines that a page shows under a command, from the first to the next empty one."""
    found = re.search(rf"\n    \$ {re.escape(command)}\n((?:    .*\n)+)", text_of(page))
    assert found, f"{page} does not show {command}"
    return [line[4:] for line in found[1].splitlines()]

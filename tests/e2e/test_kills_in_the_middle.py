"""kill -9 in the middle of a set, and of the way of its images there and back: the job goes on from its last committed
set, and every byte of its connections comes once (issue 14, 3).

`python -m tests.chaos.sets --seed 1 --rounds 3` plays the whole table of victims and moments, at random points of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import kills, support
from tests.e2e.kills import Kill, Struck
from tests.e2e.support import Nodes

pytestmark = pytest.mark.own_pool("it looks into the nodes' directories")


@pytest.fixture(scope="module")
def machines(whose_pool: object) -> Iterator[Nodes]:
    with support.running(kills.start) as nodes:
        yield nodes


@pytest.fixture
def home(machines: Nodes, request: pytest.FixtureRequest) -> Path:
    return machines.directory(support.directory_name(request))


#: Others of the table are in test_network_moving.py, at random moments; a restarted submit side does not know the set.
TABLE = [("submit side", "checkpoint"), ("keeper", "going"), ("node", "coming")]


@pytest.mark.parametrize(("victim", "moment"), TABLE)
async def test_the_job_goes_on_from_its_last_set(machines: Nodes, home: Path, victim: str, moment: str) -> None:
    await Struck(machines, home, 2).plays(Kill(victim, moment, 0.3))

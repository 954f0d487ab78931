"""Slots of which a part was given away: found by bounds on amounts, as the evaluator finds them for each job."""

from __future__ import annotations

import random

import pytest

from pool.policy.negotiation import Outcome, ResourceRequest
from pool.policy.negotiation.remainder import Remainder
from tests.policy.negotiation.support import Slot, negotiate, request, slot

OWN = [
    *["TARGET.Memory >= RequestMemory"] * 8,
    "RequestMemory <= TARGET.Memory",
    "TARGET.Cpus >= 2 * RequestCpus",
    "TARGET.Memory < 3000",
    "TARGET.Memory =!= 1000",
    "TARGET.Cpus != 3",
    "(TARGET.GPUs ?: 0) >= 1",
    "(TARGET.GPUs ?: 7) >= RequestGPUs",
    "TARGET.Cpus + TARGET.GPUs >= 3",
    "TARGET.Memory - 100 > 500",
    "!(TARGET.Disk < 2500)",
    "TARGET.Memory >= 2000 || TARGET.Cpus >= 3",
    "TARGET.Ratio > 100",
    "TARGET.Fast",
    "TARGET.Memory > RequestMemory + random(1)",
]
MACHINES = [
    *["(TARGET.RequestCpus ?: 1) <= MY.Cpus", "(TARGET.RequestMemory ?: 0) <= MY.Memory"] * 3,
    "(TARGET.RequestGPUs ?: 0) <= (MY.GPUs ?: 0)",
    "MY.Memory > 300",
    "START",
    "Cpus > 1 || TARGET.RequestCpus == 1",
    "WithinLimits",
]


def pool(chance: random.Random) -> tuple[dict[str, list[ResourceRequest]], list[Slot]]:
    """Submitters with their requests, and machines to be divided among them."""
    slots = []
    for number in range(25):
        clauses = chance.sample(MACHINES, chance.randrange(1, 4))
        ad: dict[str, object] = {
            "Requirements": [" && ".join(f"({clause})" for clause in clauses)],
            "Disk": chance.choice([1000, 5000, 9000.5]),
            "Start": [chance.choice(["true", "Memory > 500", "TARGET.RequestMemory < 700"])],
            "WithinLimits": [chance.choice(["MY.Cpus >= TARGET.RequestCpus", "MY.Memory * 2 > 900 && MY.Cpus > 0"])],
            "Ratio": [chance.choice(["Memory / Cpus", "150"])],
            "Fast": chance.random() < 0.7,
        }
        if chance.random() < 0.5:
            ad["GPUs"] = chance.randrange(4)
        if chance.random() < 0.15:
            ad["MachineResources"] = "Cpus Memory Disk GPUs Licences"
            ad["Licences"] = 3
        cpus, memory = chance.randrange(1, 9), chance.choice([800, 1000, 2100, 4000, 6000])
        slots.append(slot(f"slot{number}@m", cpus=cpus, memory=memory, partitionable=chance.random() < 0.8, **ad))
    requests: dict[str, list[ResourceRequest]] = {}
    for number in range(12):
        wish = " && ".join(f"({clause})" for clause in chance.sample(OWN, chance.randrange(1, 4)))
        asked: dict[str, object] = {
            "RequestCpus": chance.choice([1, 1, 2, 3]),
            "RequestMemory": chance.choice([100, 250, 600, ["300 + 50 * RequestCpus"]]),
            "RequestDisk": chance.choice([1, 700]),
            "RequestGPUs": chance.choice([0, 0, 1]),
            "Rank": chance.choice([0.0, ["TARGET.Memory"], ["-TARGET.Cpus"]]),
        }
        if chance.random() < 0.2:
            asked["RequestLicences"] = 1
        user = f"user{number % 3}@h"
        requests.setdefault(user, []).append(
            request(number, chance.randrange(1, 12), float(number), Requirements=[wish], **asked)  # type: ignore[arg-type]
        )
    return requests, slots


@pytest.mark.parametrize("seed", range(4))
def test_a_cycle_gives_what_the_evaluator_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bool | None] = []
    by_bounds = Remainder.matches

    def noted(self: Remainder, *known: object) -> bool | None:
        said.append(by_bounds(self, *known))  # type: ignore[arg-type]
        return said[-1]

    def outcomes() -> list[Outcome]:
        return [negotiate(*pool(random.Random(f"{seed} {number}"))) for number in range(10)]

    monkeypatch.setattr(Remainder, "matches", noted)
    quick = outcomes()
    monkeypatch.setattr(Remainder, "matches", lambda *_: None)
    assert quick == outcomes()
    assert min(said.count(True), said.count(False), said.count(None)) > 5

"""Requirements of which the machine's own parts are answered let in the same jobs of other pools as before."""

from __future__ import annotations

import random

import pytest

from pool.classad import ClassAd, parse_expr
from pool.classad.match import requirements_accept
from pool.policy.flock.partial_evaluation import LETS_NOBODY_IN, partially_evaluated
from tests.policy.matching.expressions import Ads

NOW = 1_700_000_000.0
IDLE = "KeyboardIdle > 900 && LoadAvg - CondorLoadAvg < 0.3"
LIMITS = "((TARGET.RequestCpus ?: 1) <= MY.Cpus) && ((TARGET.RequestGPUs ?: 0) <= (MY.GPUs ?: 0))"


def settled(requirements: str, **more: object) -> str:
    wire = {"Cpus": 4, "KeyboardIdle": 1000, "LoadAvg": 0.5, "CondorLoadAvg": 0.4, "Requirements": [requirements]}
    (text,) = partially_evaluated({**wire, **more})["Requirements"]
    return str(text)


def test_what_the_machine_settles_is_answered() -> None:
    owner = f'({IDLE}) || TARGET.Owner == "person7"'
    for start in (IDLE, owner, f"({IDLE}) && TARGET.User != MY.Nosuch"):
        parts = settled(f"({start}) && {LIMITS}")
        assert "KeyboardIdle" not in parts
        assert "MY.Cpus" in parts
        assert settled(f"({start}) && {LIMITS}", KeyboardIdle=3) == "false"
    assert [settled(owner)] == [settled("true")]
    assert [settled(f"START && {LIMITS}", Start=["KeyboardIdle < 5"])] == LETS_NOBODY_IN


def test_what_a_job_or_the_time_may_change_stays() -> None:
    for stays in ("time() - KeyboardIdle > 5", "TARGET.Cpus < 3", "Nosuch > 3", "random(9) > Cpus", "Since > 5"):
        assert stays in settled(f"{stays} && Cpus == 4", Since=["time() - LoadAvg"])
    assert settled('TARGET.Owner == "person7@chem" && Cpus == 4') == 'TARGET.Owner == "person7@chem"'
    assert partially_evaluated({"Requirements": True, "Cpus": 1}) == {"Requirements": True, "Cpus": 1}


def test_a_machine_that_uses_a_scopes_name_is_answered_by_itself() -> None:
    requirements = 'TARGET.Owner == "person7" || MY.Cpus == 4'
    ordinary = settled(requirements)
    assert ordinary == "true"
    assert (
        settled(requirements, My=["[Cpus = TARGET.n]"], Target=["[Owner = 1]"])
        == '(TARGET.Owner == "person7") || (MY.Cpus == 4)'
    )
    assert settled(requirements) == ordinary


@pytest.mark.parametrize("seed", range(12))
def test_the_same_jobs_are_let_in(seed: int) -> None:
    ads, chance = Ads(seed, naming=0.3 if seed >= 8 else 0.0), random.Random(seed)
    owners = ['TARGET.Owner == "al"', '"al" =!= TARGET.User', 'TARGET.Owner != "al@chem"', "TARGET.Owner == MY.s"]
    fewer = 0
    for _ in range(80):
        machine = ads.machine()
        if "Requirements" not in machine:
            continue
        if chance.random() < 0.6:
            more = f"({machine['Requirements']}) {chance.choice(['&&', '||'])} {chance.choice(owners)}"
            machine["Requirements"] = parse_expr(more)
        wire = partially_evaluated(machine.to_wire())
        answered = ClassAd.from_wire(wire)
        fewer += len(str(answered["Requirements"])) < len(str(machine["Requirements"]))
        for _ in range(6):
            job = ads.request()
            job["Owner"] = job["User"] = chance.choice(["al@chem", "bo@chem"])
            for now in (NOW, NOW + 7):
                assert requirements_accept(answered, job, now) == requirements_accept(machine, job, now), (
                    f"{machine['Requirements']} came to {answered['Requirements']}"
                )
    assert fewer > 10

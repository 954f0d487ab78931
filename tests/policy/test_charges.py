"""To whom a job is charged."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd
from pool.policy.charges import Charge, charge


@pytest.mark.parametrize(
    ("ad", "charged"),
    [
        ({}, Charge()),
        ({"AcctGroup": "Physics.Theory"}, Charge("physics.theory")),
        ({"AcctGroup": 7, "NiceUser": "true", "ConcurrencyLimits": ""}, Charge()),
        ({"NiceUser": True}, Charge("", True)),
        ({"AcctGroup": "nice-user"}, Charge("nice-user", True)),
        ({"AcctGroup": "nice-user.night"}, Charge("nice-user.night", True)),
        ({"AcctGroup": "physics", "NiceUser": True}, Charge("physics", True)),
        ({"ConcurrencyLimits": "Matlab:2, db"}, Charge("", False, "db,matlab:2")),
        ({"ConcurrencyLimits": "db,matlab:2"}, Charge("", False, "db,matlab:2")),
        ({"ConcurrencyLimits": ['strcat("x", Owner)'], "Owner": "ann"}, Charge("", False, "xann")),
        ({"ConcurrencyLimits": ["TARGET.Licence"]}, Charge("", False, "TARGET.Licence")),
    ],
)
def test_what_a_job_is_charged_as(ad: dict[str, Any], charged: Charge) -> None:
    assert charge(ClassAd.from_wire(ad)) == charged

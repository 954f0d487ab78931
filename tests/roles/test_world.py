"""The tables of what passes between two pools name methods that schedds and startds have, with the rights they ask."""

from __future__ import annotations

import pytest

from pool.roles.schedd.placement.direct_claims import DirectMethods
from pool.roles.schedd.placement.methods import StartdMethods
from pool.roles.startd import Startd
from pool.roles.world.relay import SCHEDD_CALLS, SCHEDD_STREAMS, STARTD_CALLS, STARTD_STREAMS
from pool.roles.world.role import ORDERS
from pool.wire import Right, Service
from pool.wire.dispatch import MARK, Declared


@pytest.mark.parametrize(
    ("service", "verbs", "right", "is_stream"),
    [
        (Startd, STARTD_CALLS, Right.SUBMIT, False),
        (Startd, STARTD_STREAMS, Right.SUBMIT, True),
        (StartdMethods, SCHEDD_CALLS[:-1], Right.EXECUTE, False),
        (DirectMethods, SCHEDD_CALLS[-1:], Right.EXECUTE, False),
        (StartdMethods, SCHEDD_STREAMS, Right.EXECUTE, True),
    ],
)
def test_each_verb_that_passes_is_a_method(
    service: type[Service], verbs: tuple[str, ...], right: Right, is_stream: bool
) -> None:
    for verb in verbs:
        declared = getattr(getattr(service, verb, None), MARK, None)
        assert isinstance(declared, Declared), verb
        assert (declared.right, declared.streaming) == (right, is_stream), verb


def test_orders_are_among_the_calls_that_pass() -> None:
    assert set(ORDERS) <= set(STARTD_CALLS)

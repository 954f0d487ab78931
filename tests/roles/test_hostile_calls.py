"""A share of `python -m tests.hostile`: every method of the wire, called in wrong ways by whoever can call."""

from __future__ import annotations

from pool.testing import run_virtual
from tests.hostile.simulated import attack


def test_hostile_calls_of_every_method_are_refused_in_words() -> None:
    run = run_virtual(attack(3, 5))
    assert run.made > 500
    assert not run.wrong

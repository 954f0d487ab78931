"""The names of slots: SLOT@MACHINE, and SLOT@MACHINE@POOL@NODE for one that another pool lends."""

from __future__ import annotations

#: How many @ the name of a lent machine has: it comes by this pool's world node NODE.
LENT = 3


def machine_of_slot(slot: str) -> str:
    """The machine that a slot is on, as `Machine` of its ad: MACHINE, or MACHINE@POOL for a lent one."""
    machine = slot.partition("@")[2]
    return machine.rpartition("@")[0] if slot.count("@") == LENT else machine


def pool_of_slot(slot: str) -> str:
    """The pool that lends a slot; empty for one of this pool."""
    return machine_of_slot(slot).partition("@")[2]


def parent_of(name: str) -> str:
    """`slot1@m` of `slot1_3@m`."""
    slot, at, machine = name.partition("@")
    return f"{slot.rpartition('_')[0]}{at}{machine}"

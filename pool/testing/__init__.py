"""Fakes that behave: time that jumps, a network in memory with faults. Users can test policies with them too.

Nothing in the package imports it.
"""

from pool.testing.loop import Deadlock, Livelock, VirtualLoop, run_virtual, virtual_outside
from pool.testing.network import MemoryHost, MemoryNetwork, MemoryServer

__all__ = [
    "Deadlock",
    "Livelock",
    "MemoryHost",
    "MemoryNetwork",
    "MemoryServer",
    "VirtualLoop",
    "run_virtual",
    "virtual_outside",
]

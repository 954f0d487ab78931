"""Fakes that behave: time that jumps, a network in memory with faults. Users can test their policies with them.


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

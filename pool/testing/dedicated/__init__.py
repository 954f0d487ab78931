"""The dedicated scheduler in virtual time: workloads, a pool of machines that do not exist, and the metrics.

The decisions are the real ones (`pool.policy.dedicated.decide`); only machines, jobs and time are simulated. Nothing
here measures real time, so that each run of the same workload gives the same figures.
"""

from __future__ import annotations

from pool.testing.dedicated.metrics import Metrics
from pool.testing.dedicated.simulation import Durations, SimulatedCosts, Simulation
from pool.testing.dedicated.workload import TraceJob, lublin, read_swf, scaled

__all__ = ["SimulatedCosts", "Durations", "Metrics", "Simulation", "TraceJob", "lublin", "read_swf", "scaled"]

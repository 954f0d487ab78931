"""All benchmarks: importing this enters them into the list, in the order in which they run."""

from __future__ import annotations

from importlib import import_module

#: The modules that hold them.
MODULES = (
    "accounts",
    "calls",
    "checkpoint",
    "connections",
    "dedicated",
    "dedicated_cycle",
    "fairness",
    "flock",
    "flock_credit",
    "flock_cycle",
    "flock_direct",
    "flock_far",
    "flock_guests",
    "flock_link",
    "flock_parts",
    "flock_private",
    "flock_roles",
    "flock_trace",
    "flock_trouble",
    "idle",
    "increments",
    "language",
    "large_queue",
    "latency",
    "listings",
    "many_nodes",
    "many_starts",
    "mapping",
    "memory",
    "moved_connections",
    "moving",
    "mpi",
    "negotiation",
    "network",
    "network_mpi",
    "network_third",
    "owner",
    "parallel",
    "pipes",
    "reclaim",
    "remote_names",
    "remoteio",
    "sets",
    "sets_network",
    "simulated",
    "spread",
    "starts",
    "submits",
    "throughput",
    "way_out",
    "workflows",
)

for module in MODULES:
    import_module(f"tests.benchmarks.{module}")

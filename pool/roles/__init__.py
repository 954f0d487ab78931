"""The roles a node can play: collector, negotiator, schedd, startd, world. Thin shells around `pool.policy`."""

"""The roles a node can play: collector, negotiator, schedd, startd. Thin shells around `pool.policy`."""

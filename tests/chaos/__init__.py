"""Faults at random against a whole pool, and the four rules of the start contract (docs/architecture.md) as a judge.

`faults` draws a plan from a seed: plain data. A pool carries it out and writes a `record` of what really happened:
`virtual` is the one of real roles on machines and a network that do not exist. `checker` holds a record to the rules.
"""

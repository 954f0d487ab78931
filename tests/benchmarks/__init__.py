"""The project's figures, for anyone to measure again: `python -m tests.benchmarks [NAME] [--json]`.

Not part of the test run. Peers (HyperQueue from PyPI, `xargs`) are measured in the same run, in turns with
us, so that a noisy machine is noisy for both.
"""

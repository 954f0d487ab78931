"""Calls of Python functions on workers that are jobs: the worker's program, the connections, and their bookkeeping."""

"""Hostile calls of every method of the wire, by a stranger, a user, a startd and a schedd, from the table of methods.

    python -m tests.hostile [--seed N] [--calls N] [--real]

Calls are drawn from what real callers said before (`recording`) and from what each method declares (`drawing`): mostly
right, with one thing wrong. A new method is called without anybody's thinking of it. Each call is answered or refused
in words: none ends in a stack trace, no role goes down, nothing is given to whoever has no right to it, and nothing of
another user's or node's is changed (`attack`). `simulated` has roles on a virtual clock, `real` a node as root runs it,
with keepers, files of two users, TLS and a unix socket.
"""

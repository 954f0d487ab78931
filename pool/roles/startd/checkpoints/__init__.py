"""Checkpoints of one running job: when one is made, a part's share in that of a parallel job, and what they cost.

Needs the room `slots`.
"""

"""One running job on this machine: its life from the start order to the acknowledged end, and its ways to other nodes.

Needs the rooms `slots`, `images` and `checkpoints`.
"""

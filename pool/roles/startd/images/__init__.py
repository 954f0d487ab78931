"""Checkpoint images that pass through this machine: their stores, and what one machine sends to the next directly.

Needs the room `slots`.
"""

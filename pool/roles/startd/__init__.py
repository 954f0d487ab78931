"""The startd: offers this machine's slots, guards its owner, runs the jobs of whoever holds a claim (A4, EV 3.2)."""

from pool.roles.startd.role import Startd

__all__ = ["Startd"]

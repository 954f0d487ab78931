"""The schedd: keeps the queue, claims slots for its users and looks after their running jobs (A3, EV 3.3)."""

from pool.roles.schedd.role import Schedd

__all__ = ["Schedd"]

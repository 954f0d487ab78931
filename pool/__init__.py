"""A pool of machines that runs whatever jobs people queue and gives each owner the machine back at once."""

__version__ = "0.1.0"

"""The sensors of a machine: its properties, its load, and whether its owner is at it (A4, A5)."""

from pool.machine.sensors import LinuxSensors, Sensors

__all__ = ["LinuxSensors", "Sensors"]

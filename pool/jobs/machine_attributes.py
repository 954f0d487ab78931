"""The attributes of a job's ad about the machines that ran it (`job_machine_attrs`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

#: Machines that an ad may tell of.
MOST = 100


def of_machine(get: Callable[[str], Any], machine: Callable[[str], Any]) -> dict[str, Any]:
    """The attributes that a start adds: of this machine, and of those before it one number further.

    Args:
        get: an attribute of the job in wire form, None where it has none.
        machine: the value of an attribute of its slot.
    """
    length = get("JobMachineAttrsHistoryLength")
    length = min(length, MOST) if isinstance(length, int) else 1
    found: dict[str, Any] = {}
    for name in re.findall(r"[A-Za-z_]\w*", str(get("JobMachineAttrs") or "")):
        for number in range(length - 1, 0, -1):
            if (before := get(f"MachineAttr{name}{number - 1}")) is not None:
                found[f"MachineAttr{name}{number}"] = before
        value = machine(name)
        found[f"MachineAttr{name}0"] = value if isinstance(value, (bool, int, float, str)) else ["undefined"]
    return found

"""The properties of each NVIDIA processor as NVIDIA's own tool reports them, by the names that HTCondor gives them.

`nvidia-smi` is asked once, at the node's start, where it is installed. Properties that it does not know, or reports in
another form than expected, are left out: a machine is not worse off for it than without the tool.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pool.decimals import has_digits_only

#: Seconds for one answer of the tool: a driver that hangs must not keep the node from starting.
MOMENT = 5.0
_FIELDS = ("index", "uuid", "name", "pci.bus_id", "memory.total", "compute_cap")
_CUDA = re.compile(r"CUDA Version\s*:\s*([0-9]+)\.([0-9]+)")
#: Digits of a device's identifier in the short form that CUDA takes, and HTCondor shows.
SHORT = len("GPU-") + 8


@dataclass(frozen=True, slots=True)
class Device:
    """One processor: its number and identifier, and its properties by their names in ads."""

    index: str
    uuid: str
    properties: dict[str, Any]


def ask_nvidia(environ: Mapping[str, str]) -> list[Device]:
    """The answer of `nvidia-smi` for each device; none where it is not installed, or does not answer."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return []
    for fields in (_FIELDS, _FIELDS[:-1]):  # an old one refuses to say the last
        said = _run_tool([program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"], environ)
        if said:
            break
    else:
        return []
    version = _CUDA.search(_run_tool([program], environ) or "")
    common = {}
    if version is not None:
        major, minor = int(version[1]), int(version[2])
        common = {"DriverVersion": major + minor / 10, "MaxSupportedVersion": major * 1000 + minor * 10}
    import csv

    rows = csv.reader(said.splitlines(), skipinitialspace=True)
    return [_device(dict(zip(fields, row, strict=True)), common) for row in rows if len(row) == len(fields)]


def _run_tool(command: list[str], environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=MOMENT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


def _device(row: dict[str, str], common: dict[str, Any]) -> Device:
    properties: dict[str, Any] = dict(common)
    for name, value in (
        ("DeviceName", row["name"].strip()),
        ("DeviceUuid", row["uuid"].strip().removeprefix("GPU-")),
        ("DevicePciBusId", row["pci.bus_id"].strip()),
    ):
        if value and not value.startswith("["):
            properties[name] = value
    if has_digits_only(row["memory.total"].strip()):
        properties["GlobalMemoryMb"] = int(row["memory.total"])
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", row.get("compute_cap", "").strip()):
        properties["Capability"] = float(row["compute_cap"])
    return Device(row["index"].strip(), row["uuid"].strip(), properties)

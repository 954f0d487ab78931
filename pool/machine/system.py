"""The machine's properties in the words that job descriptions use: architecture, system, and its version.

Names are those that batch systems have used for years (X86_64, LINUX, Debian12), so that requirements written
for one pool hold in another.
"""

from __future__ import annotations

import ipaddress
import platform
import re
from collections.abc import Iterable, Mapping
from typing import Any

Facts = dict[str, Any]

_ARCH = {"x86_64": "X86_64", "amd64": "X86_64", "i386": "INTEL", "i486": "INTEL", "i586": "INTEL", "i686": "INTEL"}
#: By ID in os-release. Any other gets a capital letter.
_SHORT = {
    "rhel": "RedHat",
    "centos": "CentOS",
    "almalinux": "AlmaLinux",
    "opensuse-leap": "openSUSE",
    "opensuse-tumbleweed": "openSUSE",
    "scientific": "SL",
    "amzn": "AmazonLinux",
    "linuxmint": "LinuxMint",
    "sles": "SLES",
}


def architecture(machine: str) -> str:
    """Arch, of the kernel's name for it."""
    return _ARCH.get(machine, machine)


#: The features of each level of x86-64 beyond the one before, by the kernel's names (the psABI's levels).
_STEPS = (
    "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3",
    "abm avx avx2 bmi1 bmi2 f16c fma movbe",
    "avx512bw avx512cd avx512dq avx512f avx512vl",
)


def microarchitecture(machine: str, flags: Iterable[str]) -> str:
    """Microarch: what programs choose their code by, in steps (`x86_64-v3`); empty where there are none.

    Args:
        machine: the kernel's name of the processor. flags: what /proc/cpuinfo says of it.
    """
    if machine != "x86_64":
        return ""
    has, level = frozenset(flags), 1
    for step in _STEPS:
        if not has.issuperset(step.split()):
            break
        level += 1
    return f"x86_64-v{level}"


def _flags() -> list[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    except OSError:
        return []


def operating_system(release: Mapping[str, str]) -> Facts:
    """The OpSys attributes.

    Args:
        release: os-release's fields; none where it is missing.
    """
    identity = release.get("ID", "linux")
    name = _SHORT.get(identity, identity.capitalize())
    numbers = [int(part) for part in re.findall(r"[0-9]+", release.get("VERSION_ID", ""))[:2]]
    major, minor = (*numbers, 0, 0)[:2]
    return {
        "OpSys": "LINUX",
        "OpSysName": name,
        "OpSysShortName": name,
        "OpSysLongName": release.get("PRETTY_NAME", name),
        "OpSysMajorVer": major,
        "OpSysVer": major * 100 + minor if minor < 100 else major * 100,
        "OpSysAndVer": f"{name}{major}" if numbers else name,
    }


def this_system() -> Facts:
    """Of the machine this runs on."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    names = platform.uname()
    return {
        "Arch": architecture(names.machine),
        "Microarch": microarchitecture(names.machine, _flags()),
        **operating_system(release),
        "KernelVersion": names.release,
        "UtsnameSysname": names.system,
        "UtsnameNodename": names.node,
        "UtsnameRelease": names.release,
        "UtsnameVersion": names.version,
        "UtsnameMachine": names.machine,
    }


def subnet(address: str, netmask: str) -> str:
    """The network an address is in, in dot notation (EV 3.2); empty where there is none."""
    try:
        return str(ipaddress.ip_network(f"{address}/{netmask}", strict=False).network_address)
    except ValueError:
        return ""

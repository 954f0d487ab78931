"""What this machine is, in the words that job descriptions use: architecture, system, and its version.

Names are those that batch systems have used for years (X86_64, LINUX, Debian12), so that requirements written
for one pool hold in another.
"""

from __future__ import annotations

import ipaddress
import platform
import re
from collections.abc import Mapping
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


def operating_system(release: Mapping[str, str]) -> Facts:
    """The OpSys attributes.

    Args:
        release: os-release's fields; none where it is missing.
    """
    identity = release.get("ID", "linux")
    name = _SHORT.get(identity, identity.capitalize())
    numbers = [int(part) for part in re.findall(r"\d+", release.get("VERSION_ID", ""))[:2]]
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

"""Names of architectures and systems, as requirements in other pools have them."""

from __future__ import annotations

import platform

import pytest

from pool.machine.system import architecture, operating_system, subnet, this_system


@pytest.mark.parametrize(("kernel", "name"), [("x86_64", "X86_64"), ("i686", "INTEL"), ("aarch64", "aarch64")])
def test_architectures(kernel: str, name: str) -> None:
    assert architecture(kernel) == name


@pytest.mark.parametrize(
    ("release", "name", "version", "both"),
    [
        ({"ID": "debian", "VERSION_ID": "12"}, "Debian", 1200, "Debian12"),
        ({"ID": "ubuntu", "VERSION_ID": "22.04"}, "Ubuntu", 2204, "Ubuntu22"),
        ({"ID": "rhel", "VERSION_ID": "9.3"}, "RedHat", 903, "RedHat9"),
        ({"ID": "almalinux", "VERSION_ID": "9.4"}, "AlmaLinux", 904, "AlmaLinux9"),
        ({"ID": "opensuse-tumbleweed", "VERSION_ID": "20240101"}, "openSUSE", 2024010100, "openSUSE20240101"),
        ({"ID": "arch"}, "Arch", 0, "Arch"),
        ({}, "Linux", 0, "Linux"),
    ],
)
def test_systems(release: dict[str, str], name: str, version: int, both: str) -> None:
    facts = operating_system(release)
    assert (facts["OpSys"], facts["OpSysName"]) == ("LINUX", name)
    assert (facts["OpSysVer"], facts["OpSysAndVer"]) == (version, both)


def test_this_machine_without_a_release_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> dict[str, str]:
        raise OSError

    monkeypatch.setattr(platform, "freedesktop_os_release", missing)
    assert this_system()["OpSysAndVer"] == "Linux"


def test_subnets() -> None:
    assert subnet("192.168.7.33", "255.255.255.0") == "192.168.7.0"
    assert subnet("10.1.2.3", "255.0.0.0") == "10.0.0.0"
    assert subnet("nonsense", "255.0.0.0") == ""

"""Names of architectures and systems, as requirements in other pools have them."""

from __future__ import annotations

import platform

import pytest

from pool.machine.system import architecture, microarchitecture, operating_system, subnet, this_system


@pytest.mark.parametrize(("kernel", "name"), [("x86_64", "X86_64"), ("i686", "INTEL"), ("aarch64", "aarch64")])
def test_architectures(kernel: str, name: str) -> None:
    assert architecture(kernel) == name


V2 = "fpu sse2 cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
V3 = f"{V2} abm avx avx2 bmi1 bmi2 f16c fma movbe"


@pytest.mark.parametrize(
    ("machine", "flags", "name"),
    [
        ("x86_64", "fpu sse2", "x86_64-v1"),
        ("x86_64", V2, "x86_64-v2"),
        ("x86_64", f"{V2} avx avx2", "x86_64-v2"),
        ("x86_64", V3, "x86_64-v3"),
        ("x86_64", f"{V3} avx512bw avx512cd avx512dq avx512f avx512vl", "x86_64-v4"),
        ("aarch64", "fp asimd", ""),
    ],
)
def test_steps_of_processors(machine: str, flags: str, name: str) -> None:
    assert microarchitecture(machine, flags.split()) == name


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

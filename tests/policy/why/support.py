"""Hand-made pools and jobs for explanations."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from pool.classad import ClassAd
from pool.policy.owner import OwnerPolicy, wire
from pool.policy.why.findings import Finding
from pool.policy.why.holding import run_all
from pool.policy.why.job import examine

NOW = 1_767_225_600.0
DESKTOP = wire(OwnerPolicy.from_shipped("desktop", {}))
DEDICATED = wire(OwnerPolicy.from_shipped("dedicated", {}))


def slot(name: str, **changes: Any) -> ClassAd:
    """The ad of a free slot, `slot1@m1`; expressions are one-element lists."""
    ad: dict[str, Any] = {
        "Name": name,
        "Machine": name.partition("@")[2],
        "Arch": "X86_64",
        "OpSys": "LINUX",
        "Cpus": 4,
        "Memory": 32768,
        "Disk": 10**7,
        "State": "Unclaimed",
        "Activity": "Idle",
        "EnteredCurrentState": int(NOW) - 600,
        "EnteredCurrentActivity": int(NOW) - 600,
        "KeyboardIdle": 10**6,
        "TotalLoadAvg": 0.0,
        "TotalCondorLoadAvg": 0.0,
        **DEDICATED,
        **changes,
    }
    return ClassAd.from_wire({name: value for name, value in ad.items() if value is not None})


def pool(*ads: ClassAd) -> dict[str, ClassAd]:
    return {str(ad.value("Name")): ad for ad in ads}


def alike(count: int, **changes: Any) -> dict[str, ClassAd]:
    """So many machines of one kind."""
    return pool(*[slot(f"slot1@m{number}", **changes) for number in range(count)])


def job(requirements: str = "true", **more: Any) -> ClassAd:
    """A request."""
    return ClassAd.from_wire(
        {
            "MyType": "Job",
            "Owner": "alice",
            "Requirements": [requirements],
            "RequestCpus": 1,
            "RequestMemory": 128,
            "RequestDisk": 1024,
            **more,
        }
    )


def found(slots: Mapping[str, ClassAd], request: ClassAd) -> list[Finding]:
    return run_all(examine(slots, request, NOW))[0]


def one(findings: list[Finding], kind: type[Any]) -> Any:
    """The one finding of a kind."""
    (finding,) = [finding for finding in findings if isinstance(finding, kind)]
    return finding


def some(chance: random.Random, count: int) -> dict[str, ClassAd]:
    """A mixed pool: desktops and servers, some busy, some carved, some with lying ads."""
    slots: list[ClassAd] = []
    for number in range(count):
        changes: dict[str, Any] = {
            "Memory": chance.choice([4096, 16384, 32768, "much", None]),
            "Cpus": chance.choice([1, 4, 8]),
            "OpSys": chance.choice(["LINUX", "LINUX", "MACOS"]),
            "HasTool": chance.choice([True, False, None, "yes", 1, 0.0, ["Memory > 5000"]]),
        }
        if chance.random() < 0.3:
            changes |= DESKTOP | {"KeyboardIdle": chance.choice([3, 100, 10**6])}
        if chance.random() < 0.1:
            lying = [None, ["undefined"], ["error"], True, ['"yes"'], ["1.5 && true"]]
            changes |= {"Requirements": chance.choice(lying)}
        if chance.random() < 0.3:
            changes |= {"State": "Claimed", "Activity": "Busy", "RemoteUser": chance.choice(["bob@a", "carol@b"])}
        slots.append(slot(f"slot1@m{number}", **changes))
        if chance.random() < 0.2:
            slots.append(slot(f"slot1_1@m{number}", DynamicSlot=True, Memory=1024, Cpus=1, RemoteUser="dave@c"))
    return pool(*slots)

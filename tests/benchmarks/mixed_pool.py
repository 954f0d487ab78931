"""A mixed pool for the matchmaker's figures, the same from the same seed.

Slots, of a pool of n: 45 % belong to desktops (four static slots each), whose owners want the keyboard idle and the
load low, half of them with an exception for themselves, and rank their own or their group's jobs first; 30 % are
carved out of a cluster's nodes and in use; 10 % are static slots of an older cluster, half of them in use; 15 % are
partitionable nodes of 16 to 256 processors, some with GPUs. Three architectures, seven systems, and values as they are
in the field: memory and processors from a short list, disk, speed, load and idle times different everywhere. Of the
desktops about a third have somebody at the keyboard.

Requests: fifty submitters with twenty autoclusters each (of 1,000). A request has the clauses that submitting adds
(architecture, system, disk, memory, processors, files) and, for three in five, one or two of those that users write: a
system version, CUDA capability, file systems, software, a machine to avoid, a pattern of names. One in four has a
Rank: memory, speed, group's own machines, an arithmetic of both.
"""

from __future__ import annotations

import random
from typing import Any

from pool.classad import ClassAd
from pool.policy.negotiation import ResourceRequest

NOW = 1_700_000_000
Wire = dict[str, Any]

SYSTEMS = [
    *(
        ("X86_64", "LINUX", name, major)
        for name, major in (("Debian", 12), ("RedHat", 9), ("RedHat", 8), ("AlmaLinux", 9))
    ),
    ("X86_64", "LINUX", "Ubuntu", 22),
    ("aarch64", "LINUX", "Debian", 12),
    ("ppc64le", "LINUX", "RedHat", 8),
]
GROUPS = [f"group_{name}" for name in ("physics", "biology", "chemistry", "cs", "economics", "astro", "stats", "hep")]
SUBMITTERS = 50
LIMITS = "((TARGET.RequestCpus ?: 1) <= MY.Cpus) && ((TARGET.RequestMemory ?: 0) <= MY.Memory)"
LIMITS += " && ((TARGET.RequestDisk ?: 0) <= MY.Disk) && ((TARGET.RequestGPUs ?: 0) <= (MY.GPUs ?: 0))"
IDLE = "KeyboardIdle > 900 && LoadAvg - CondorLoadAvg < 0.3"


def submitter(number: int) -> str:
    return f"user{number}@site.example"


class MixedPool:
    """A stream of slots and requests.

    Args:
        slots: how many there will be.
        requests: how many autoclusters.
        jobs: how many idle jobs stand behind them.
    """

    def __init__(self, slots: int, requests: int, jobs: int, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self.slots = slots
        self.requests = requests
        self.jobs = jobs

    # --- slots

    def slot(self, number: int) -> tuple[str, Wire]:
        """The name and the ad of one slot."""
        part = number / self.slots
        if part < 0.45:
            return self._desktop(number)
        if part < 0.75:
            return self._dynamic(number)
        if part < 0.85:
            return self._old(number)
        return self._partitionable(number)

    def _machine(self, number: int, host: int, kind: str) -> Wire:
        chance = random.Random(host)
        arch, opsys, name, major = chance.choices(SYSTEMS, (30, 25, 10, 15, 10, 8, 2))[0]
        node = f"{kind}{host}.site.example"
        return {
            "MyType": "Machine",
            "TargetType": "Job",
            "Name": f"slot{number}@{node}",
            "Machine": node,
            "Node": node,
            "SlotID": number % 4 + 1,
            "StartdAddress": f"10.{host >> 16 & 255}.{host >> 8 & 255}.{host & 255}:9618",
            "Arch": arch,
            "OpSys": opsys,
            "OpSysName": name,
            "OpSysShortName": name,
            "OpSysLongName": f"{name} {major}",
            "OpSysMajorVer": major,
            "OpSysVer": major * 100,
            "OpSysAndVer": f"{name}{major}",
            "KernelVersion": f"6.{chance.randrange(1, 9)}.0",
            "UtsnameSysname": "Linux",
            "UtsnameNodename": node,
            "UtsnameRelease": "6.1.0-18",
            "UtsnameMachine": arch.lower(),
            "Subnet": f"10.{host >> 8 & 255}.0.0",
            "FileSystemDomain": chance.choice(["site.example", "site.example", node]),
            "UidDomain": "site.example",
            "HasFileTransfer": True,
            "HasJava": chance.random() < 0.4,
            "HasDocker": chance.random() < 0.5,
            "HasSingularity": chance.random() < 0.6,
            "HAS_CVMFS_oasis": chance.random() < 0.5,
            "HAS_AVX2": chance.random() < 0.8,
            "CondorVersion": "$CondorVersion: 24.0.24 2026-09-24 $",
            "TotalCpus": 16,
            "TotalMemory": chance.choice([16384, 32768, 65536, 131072, 262144, 524288]),
            "Mips": chance.randrange(8000, 40000),
            "KFlops": chance.randrange(400_000, 3_000_000),
            "LoadAvg": round(self._chance.random() * 2, 2),
            "CondorLoadAvg": round(self._chance.random(), 2),
            "KeyboardIdle": self._chance.choice([0, 5, 60, 300, 1200]) + self._chance.randrange(90_000),
            "ConsoleIdle": self._chance.randrange(90_000),
            "DaemonStartTime": NOW - chance.randrange(10**7),
            "VirtualMemory": chance.randrange(10**6, 10**8),
            "Disk": self._chance.randrange(2 * 10**6, 2 * 10**9),
            "State": "Unclaimed",
            "Activity": "Idle",
            "EnteredCurrentState": NOW - self._chance.randrange(200_000),
            "EnteredCurrentActivity": NOW - self._chance.randrange(20_000),
            "SlotWeight": ["Cpus"],
            "Start": [LIMITS],
        }

    def _desktop(self, number: int) -> tuple[str, Wire]:
        host = number // 4
        wire = self._machine(number, host, "desk")
        owner = f"person{host % 300}"
        busy = self._chance.random() < 0.33
        start = f'({IDLE}) || TARGET.Owner == "{owner}"' if host % 2 else IDLE
        wire |= {
            "Cpus": 1,
            "Memory": wire["TotalMemory"] // 16,
            "SlotType": "Static",
            "Owner_": owner,
            "KeyboardIdle": self._chance.randrange(900) if busy else wire["KeyboardIdle"] + 900,
            "LoadAvg": 1.0 + wire["LoadAvg"] if busy else wire["CondorLoadAvg"] + 0.05,
            "Start": [start],
            "Requirements": [f"(START) && {LIMITS}"],
            "Rank": [f'TARGET.Owner == "{owner}"' if host % 3 else f'10 * (TARGET.AcctGroup == "{GROUPS[host % 8]}")'],
        }
        return wire["Name"], wire

    def _cluster(self, number: int, host: int, kind: str) -> Wire:
        wire = self._machine(number, host, kind)
        group = GROUPS[host % 8]
        return wire | {
            "Start": [True],
            "Requirements": [f"(true) && {LIMITS}"],
            "Rank": [f'10 * (TARGET.AcctGroup == "{group}")'] if host % 2 else 0.0,
            "OwnerGroup": group,
        }

    def _claimed(self, wire: Wire) -> None:
        user = self._chance.randrange(SUBMITTERS)
        began = NOW - self._chance.randrange(20_000)
        wire |= {
            "State": "Claimed",
            "Activity": "Busy",
            "RemoteUser": submitter(user),
            "RemoteOwner": f"user{user}",
            "JobId": f"{self._chance.randrange(10**6)}.{self._chance.randrange(100)}",
            "JobStart": began,
            "EnteredCurrentState": began,
            "CurrentRank": self._chance.choice([0.0, 0.0, 0.0, 10.0]),
        }

    def _dynamic(self, number: int) -> tuple[str, Wire]:
        wire = self._cluster(number, number // 16, "node")
        wire |= {
            "SlotType": "Dynamic",
            "DynamicSlot": True,
            "Cpus": self._chance.choice([1, 1, 1, 2, 4, 8]),
            "Memory": self._chance.choice([1024, 2048, 2048, 4096, 8192, 16384]),
            "Disk": self._chance.randrange(10**5, 10**8),
        }
        self._claimed(wire)
        return wire["Name"], wire

    def _old(self, number: int) -> tuple[str, Wire]:
        wire = self._cluster(number, number // 8, "old")
        wire |= {"SlotType": "Static", "Cpus": 2, "Memory": self._chance.choice([2048, 4096])}
        if self._chance.random() < 0.5:
            self._claimed(wire)
        return wire["Name"], wire

    def _partitionable(self, number: int) -> tuple[str, Wire]:
        wire = self._cluster(number, number, "big")
        cpus = self._chance.choice([16, 32, 64, 128, 256])
        wire |= {
            "SlotType": "Partitionable",
            "PartitionableSlot": True,
            "TotalCpus": cpus,
            "Cpus": self._chance.randrange(1, cpus // 2 + 1),
            "Memory": self._chance.randrange(2, 128) * 1024,
            "NumDynamicSlots": cpus // 4,
        }
        if self._chance.random() < 0.3:
            wire |= {
                "GPUs": self._chance.choice([1, 2, 4]),
                "CUDACapability": self._chance.choice([7.0, 8.0, 8.6, 9.0]),
            }
        return wire["Name"], wire

    # --- requests

    def request(self, number: int) -> tuple[str, ResourceRequest]:
        """A submitter and one of its requests."""
        chance = self._chance
        user = number % SUBMITTERS
        gpus = chance.random() < 0.08
        clauses = [f"({clause})" for clause in self._wishes()]
        clauses += ['(TARGET.Arch == "X86_64")'] if chance.random() < 0.9 else []
        clauses += ['(TARGET.OpSys == "LINUX")', "(TARGET.Disk >= RequestDisk)", "(TARGET.Memory >= RequestMemory)"]
        clauses += ["(TARGET.Cpus >= RequestCpus)"] if chance.random() < 0.5 else []
        clauses += ["(TARGET.GPUs >= RequestGPUs)"] if gpus else []
        clauses += ["((TARGET.FileSystemDomain == MY.FileSystemDomain) || (TARGET.HasFileTransfer))"]
        wire: Wire = {
            "MyType": "Job",
            "TargetType": "Machine",
            "ClusterId": number,
            "Owner": f"person{user * 5}" if user % 5 == 0 else f"user{user}",
            "User": submitter(user),
            "AcctGroup": GROUPS[user % 8],
            "JobUniverse": 5,
            "FileSystemDomain": "site.example",
            "ImageSize": chance.randrange(10**4, 10**6),
            "DiskUsage": chance.randrange(100, 10**6),
            "RequestCpus": chance.choices([1, 2, 4, 8, 16], (70, 10, 12, 6, 2))[0],
            "RequestMemory": chance.choice([128, 512, 1000, 1024, 1536, 2000, 2048, 2500, 4096, 8192, 16384, 32768]),
            "RequestDisk": ["DiskUsage"]
            if chance.random() < 0.5
            else chance.choice([1024, 10**5, 10**6, 10**7, 10**8]),
            "Requirements": [" && ".join(clauses)],
            "Rank": self._rank(user),
        }
        if gpus:
            wire["RequestGPUs"] = 1
        share, rest = divmod(self.jobs, self.requests)
        count = share + (number < rest)
        return submitter(user), ResourceRequest(number, ClassAd.from_wire(wire), count, NOW - chance.randrange(10**6))

    def _wishes(self) -> list[str]:
        chance = self._chance
        wishes = [
            f'OpSysAndVer == "{chance.choice(["Debian12", "RedHat9", "RedHat8", "AlmaLinux9", "Ubuntu22"])}"',
            "OpSysMajorVer >= 9",
            "TARGET.HasSingularity",
            "HasDocker =?= true",
            "HAS_CVMFS_oasis =?= TRUE",
            'HAS_AVX2 == True && KernelVersion > "6.2"',
            'Arch == "X86_64" && OpSys == "LINUX"',
            '(Arch == "X86_64" && OpSys == "LINUX") || (Arch == "aarch64" && OpSys == "LINUX")',
            f'Machine != "big{chance.randrange(1000)}.site.example"',
            'regexp("^(big|node)", TARGET.Machine)',
            f"TARGET.Memory > {chance.choice([1000, 3000, 10000])}",
            "(CUDACapability >= 8.0)",
            f'stringListMember(TARGET.OwnerGroup ?: "none", "{",".join(chance.sample(GROUPS, 2))}")',
            "TARGET.TotalCpus > 8",
        ]
        return chance.sample(wishes, chance.choices([0, 1, 2], (40, 40, 20))[0])

    def _rank(self, user: int) -> object:
        return self._chance.choices(
            [
                0.0,
                ["TARGET.Memory"],
                ["TARGET.KFlops"],
                [f'(TARGET.OwnerGroup == "{GROUPS[user % 8]}") * 100'],
                ["(TARGET.KFlops / 1000) + (TARGET.Memory / 1024) * 10"],
            ],
            (75, 8, 7, 6, 4),
        )[0]

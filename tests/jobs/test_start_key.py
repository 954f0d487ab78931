"""Jobs whose keys are equal start alike; a job whose start hangs on more than its ad's values has no key."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd
from pool.classad.names import fold
from pool.jobs.activation import activation
from pool.jobs.start_key import READ, start_key, touches_start
from pool.jobs.substitution import needs_filling

SLOT = ClassAd.from_wire({"FileSystemDomain": "here", "HasRemoteIO": True, "Machine": "m", "JavaPath": "/usr/bin/java"})
PLAIN = {"Cmd": "/bin/true", "Owner": "ann", "Iwd": "/home/ann", "FileSystemDomain": "here", "ProcId": 0}
PIPES = {
    "Processes": ['{ [ Name = "a"; Cmd = "/bin/a" ], [ Name = "b"; Cmd = "/bin/b" ] }'],
    "Pipes": ['{ [ From = "a"; To = "b" ] }'],
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "transferred": {"ShouldTransferFiles": "YES", "TransferInput": "a", "TransferOutput": "b", "ManifestDesired": True},
    "remote": {"RemoteIO": True, "FileSystemDomain": "there"},
    "remote or copies": {"RemoteIO": "auto", "FileSystemDomain": "there"},
    "Java": {"JobUniverse": 10, "Cmd": "Main.class", "JarFiles": "x.jar"},
    "an image": {"WantContainer": True, "ContainerImage": "/images/x.sif"},
    "an image that is there": {"WantContainer": True, "ContainerImage": "x", "ContainerImageSource": "local"},
    "docker": {"WantDocker": True, "DockerImage": "debian", "Cmd": ""},
    "docker, with a program": {"WantDocker": True, "DockerImage": "debian"},
    "pipes": PIPES,
    "MPI": {"MpiFamily": "mpich"},
    "checkpoints of its own": {"SuccessCheckpointExitCode": 85, "CheckpointSig": "SIGTERM", "NumCkpts": 1},
    "limits": {"CoreSize": 0, "StackSize": 8, "MaxTransferInputMB": 1, "NiceUser": True},
}


class Watched(ClassAd):
    """Notes each name that is asked for."""

    asked: set[str]

    def held(self, name: str) -> Any:
        self.asked.add(fold(name))
        return super().held(name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_goes_by_nothing_else(kind: str) -> None:
    ad = Watched.from_wire({**PLAIN, **KINDS[kind]})
    assert isinstance(ad, Watched)
    ad.asked = set()
    needs_filling(ad)
    activation(ad, SLOT, 1, None)
    assert ad.asked - READ <= {"clusterid", "procid"}


@pytest.mark.parametrize("name", ["Arguments", "iwd", "HugePages", "ENVIRONMENT", "numckpts"])
def test_another_value_is_another_key(name: str) -> None:
    keys = {start_key({**PLAIN, name: value}) for value in ("", "x", 1, True, 1.0)}
    assert len(keys) == 5
    assert None not in keys
    assert touches_start({name: 1})


@pytest.mark.parametrize("name", ["DAGNodeName", "QDate", "JobPrio", "Requirements", "RemoteHost", "LeaveJobInQueue"])
def test_what_no_start_goes_by_is_in_no_key(name: str) -> None:
    assert start_key({**PLAIN, name: ["anything"]}) == start_key(PLAIN)
    assert not touches_start({name: 1})


@pytest.mark.parametrize("value", [["ProcId"], "$$(Memory)", "a $$([ProcId]) b"])
def test_what_is_worked_out_at_the_start_has_no_key(value: Any) -> None:
    assert start_key({**PLAIN, "Arguments": value}) is None
    assert not touches_start(None)

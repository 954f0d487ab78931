"""The part of a job's ad that its start goes by: jobs that are equal in it start alike, also those of two clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from pool.classad.names import fold
from pool.jobs.substitution import FILLED, MARK

#: The attributes that `activation.activation` looks at, as they are compared. The ids are put in afterwards.
READ = frozenset(
    fold(name)
    for name in (
        *FILLED,
        *("AcctGroup", "AppendErr", "AppendOut", "CheckpointSig", "CommonInputFiles", "ContainerImage"),
        *("ContainerImageFullPath", "ContainerImageIsLayout", "ContainerImageSource", "CoreSize", "DockerImage"),
        *("DockerNetworkType", "DockerOverrideEntrypoint", "EnvDelim", "ErrToOut", "ExitCodesOK", "FileSystemDomain"),
        *("HugePages", "JobMaxVacateTime", "JobNetwork", "JobUniverse", "KillSig", "KillSigTimeout"),
        *("ManifestDesired", "ManifestDir", "MaxTransferInputMB", "MaxTransferOutputMB", "MpiFamily", "MpiRun"),
        *("NiceUser", "NumCkpts", "OnProcessFailure", "OutsideConnections", "Owner", "PipeBuffer", "Pipes"),
        *("PmixLibrary", "PreserveRelativePaths", "Processes", "ProcessEnvironments", "PublicInputFiles", "RemoteIO"),
        *("RemoteIwd", "ShouldTransferFiles", "StackSize", "SuccessCheckpointExitCode", "TransferCheckpoint"),
        *("TransferExecutable", "WantContainer", "WantDocker", "WantJobNetworking", "WhenToTransferOutput"),
    )
)
_packer = msgpack.Packer(unicode_errors="surrogateescape")


def start_key(wire: Mapping[str, Any]) -> bytes | None:
    """All that the start of a job goes by, beside its machine and its ids, of its whole ad in wire form.

    None where its start is its own: an expression, whose value may hang on anything, or what is taken from its machine.
    """
    read: list[Any] = []
    for name, value in wire.items():
        key = fold(name)
        if key in READ:
            if isinstance(value, (list, dict)) or (isinstance(value, str) and MARK in value):
                return None
            read += key, value
    packed: bytes = _packer.pack(read)
    return packed


def touches_start(changes: Mapping[str, Any] | None) -> bool:
    """Whether a start goes by any of these attributes."""
    return bool(changes) and any(fold(name) in READ for name in changes or ())

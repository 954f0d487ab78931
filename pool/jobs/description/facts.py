"""Facts that the submit side knows and a description cannot say itself, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

PROVISIONAL_CLUSTER = 9007199254740881
"""Stands for the cluster's number until the schedd gives one; no other number is likely to be it."""


@dataclass(frozen=True, slots=True)
class SubmitFacts:
    """Facts of the submitting machine and pool.

    Attributes:
        filesystem_domain: machines with the same domain see the same files.
        uid_domain: machines with the same domain know the same users.
        arch, opsys: what a job needs of a machine unless its requirements say otherwise (`X86_64`, `LINUX`).
        opsys_version, opsys_major: `$(OPSYSVER)` and `$(OPSYSMAJORVER)`.
        opsys_and_version: `$(OPSYSANDVER)`, such as `Debian12`.
        now: wall time of the submission, seconds since 1970.
        zone: offset of local time from UTC in seconds, for `$(Year)`, `$(Month)`, `$(Day)`.
        version: the language version that `if version >= ...` compares with.
        lease: seconds that a running job survives without word from the submit side, by default.
        memory, disk: expressions for `request_memory` (MiB) and `request_disk` (KiB) when they are not given.
        notification: what `notification` is when it is not given.
        shared_images: where container images begin that every machine has, so that they are not sent.
        as_reference: take all that the reference takes, also what no pool of this kind does: to compare the language.
        allow_commands: whether `include command` and `queue ... from command |` may run programs.
        name: what diagnostics about the description as a whole call it; set by the reader.
    """

    filesystem_domain: str
    uid_domain: str
    arch: str = "X86_64"
    opsys: str = "LINUX"
    opsys_version: str = ""
    opsys_major: str = ""
    opsys_and_version: str = ""
    now: float = 0.0
    zone: int = 0
    version: tuple[int, int, int] = (25, 14, 1)
    lease: int = 2400
    memory: str = "128"
    disk: str = "MAX({1024, (TransferInputSizeMB+1) * 1.25}) * 1024"
    notification: str = "never"
    shared_images: tuple[str, ...] = ("/cvmfs",)
    allow_commands: bool = False
    as_reference: bool = False
    name: str = "job.sub"

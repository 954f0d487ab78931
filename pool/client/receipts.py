"""This machine's record of jobs that it has sent elsewhere: where their outputs may be written when they come.

A schedd is not asked for that: it might name any file. A receipt is made at the submit, from the description.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.activation import NOTHING, Activation, activation
from pool.jobs.output_places import OutputPlaces, full_path
from pool.jobs.urls import is_fetched
from pool.policy.packed import pack, unpack

WireAd = dict[str, Any]
#: The attributes of a job's ad that name its files.
FILE_ATTRIBUTES = (
    *("Cmd", "Iwd", "In", "Out", "Err", "UserLog", "TransferExecutable", "TransferInput", "PublicInputFiles"),
    *("CommonInputFiles", "TransferOutput", "TransferOutputRemaps", "Processes", "Pipes", "JobUniverse", "JarFiles"),
    *("PreserveRelativePaths", "ManifestDir", "ManifestDesired"),
    *("EC2AccessKeyId", "EC2SecretAccessKey", "EC2SessionToken", "RegistryLogins"),
)
#: Files with keys, of which the schedd makes signed URLs, and with logins of registries.
KEY_FILES = ("EC2AccessKeyId", "EC2SecretAccessKey", "EC2SessionToken", "RegistryLogins")
_NAMES = frozenset(FILE_ATTRIBUTES)
_WRITTEN = frozenset({"Out", "Err", "UserLog"})
#: A machine on which any job starts, as far as its files go.
_ANY = ClassAd.from_wire({"JavaPath": "/usr/bin/java"})
#: Seconds after which a receipt is of no use: no schedd waits so long for outputs to be fetched.
KEPT_FOR = 400 * 86400.0
#: A file of this module's kind that is larger is none.
_LARGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class Receipt:
    """The files of one cluster.

    Attributes:
        shared: of the attributes in FILE_ATTRIBUTES what all its jobs have.
        deltas: the same for each job that differs in them.
    """

    cluster: int
    count: int
    shared: WireAd
    deltas: Mapping[int, WireAd]

    @classmethod
    def from_submit(cls, cluster: int, count: int, ad: WireAd, deltas: Sequence[WireAd | None] | None) -> Receipt:
        """The receipt of a submit."""
        own = {proc: found for proc, delta in enumerate(deltas or ()) if delta and (found := _only_files(delta))}
        return cls(cluster, count, _only_files(ad), own)

    def start(self, proc: int) -> tuple[Activation, str | None]:
        """A start of a job, as far as its files go, and its log.

        Raises:
            PoolError: the cluster has no such job, or its ad makes no sense.
        """
        if not 0 <= proc < self.count:
            raise PoolError(f"cluster {self.cluster} was submitted without a job {proc}")
        ad = self.shared | self.deltas.get(proc, {})
        facts = {"ClusterId": self.cluster, "ProcId": proc, "ShouldTransferFiles": "YES"}
        start = activation(ClassAd.from_wire(ad | facts), _ANY, 1, None)
        log = ad.get("UserLog")
        return start, full_path(start, log) if isinstance(log, str) and log else None

    def unlike(self) -> Iterator[int]:
        """Jobs whose inputs, or the directories of whose outputs, may be others than those of the jobs before."""
        known: set[str] = set()
        for proc in [0, *sorted(self.deltas.keys() - {0})]:
            own = self.deltas.get(proc, {})
            mark = {name: posixpath.dirname(str(own[name])) if name in _WRITTEN else own[name] for name in sorted(own)}
            if (text := repr(mark)) not in known:
                known.add(text)
                yield proc

    def key_files(self, proc: int) -> list[str]:
        """The files with keys that a job names."""
        ad = self.shared | self.deltas.get(proc, {})
        return [str(ad[name]) for name in KEY_FILES if isinstance(ad.get(name), str) and ad[name]]

    def output_places(self, proc: int) -> OutputPlaces:
        """Where a job's outputs belong. Raises PoolError."""
        return OutputPlaces(*self.start(proc))

    def save(self, address: str, environ: Mapping[str, str]) -> None:
        """Remember it. Raises OSError."""
        path = _path(address, self.cluster, environ)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        packed = pack([self.cluster, self.count, self.shared, dict(self.deltas)])
        aside.write_bytes(zlib.compress(packed))
        aside.replace(path)
        newest = path.stat().st_mtime
        for other in path.parent.iterdir():
            if other.stat().st_mtime < newest - KEPT_FOR:
                other.unlink(missing_ok=True)

    @classmethod
    def find(cls, address: str, cluster: int, environ: Mapping[str, str]) -> Receipt | None:
        """The receipt of a cluster that was submitted to a schedd from here; None where there is none."""
        try:
            raw = _path(address, cluster, environ).read_bytes()
            number, count, shared, deltas = unpack(zlib.decompress(raw, bufsize=min(len(raw) * 4, _LARGEST)))
        except (OSError, zlib.error, ValueError, TypeError):
            return None
        return cls(int(number), int(count), shared, deltas)


def inputs_of(start: Activation) -> list[str]:
    """The files and directories that a job needs, absolute."""
    paths = [start.executable] if start.carries_executable else []
    paths += [full_path(start, path) for path in start.inputs if not is_fetched(path)]
    if start.stdin != NOTHING:
        paths.append(full_path(start, start.stdin))
    layout = start.layout
    for process in start.processes:
        if layout.program(process) is not None:
            paths.append(full_path(start, process.cmd))
    if start.processes:
        paths += [carried.submit_path for carried in layout.inputs()]
    return [path.rstrip("/") or "/" for path in paths]


def appended_by(start: Activation) -> list[str]:
    """Files that a job adds to, if they are there."""
    return [one.submit_path for one in start.layout.streams.values() if one.append] if start.processes else []


def directories_of(start: Activation, log: str | None) -> list[str]:
    """The directories in which a job leaves something."""
    written = [full_path(start, path) for path in (start.stdout, start.stderr) if path != NOTHING]
    written += [full_path(start, path) for path in start.remaps.values()]
    written += [one.submit_path for one in start.layout.streams.values()] if start.processes else []
    above = [os.path.dirname(path) for path in (*written, *([log] if log else []))]
    return [start.iwd, *(process.iwd for process in start.processes), *above]


def _only_files(ad: Mapping[str, Any]) -> WireAd:
    return {name: value for name, value in ad.items() if name in _NAMES}


def _path(address: str, cluster: int, environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME") or "~", ".local", "state")
    schedd = hashlib.sha256(address.encode()).hexdigest()[:16]
    return Path(home).expanduser() / "poolnode" / "spooled" / f"{schedd}.{cluster}"

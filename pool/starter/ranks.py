"""The ranks of one node of an MPI job: how its ranker is started, and what it says about them.

The ranker (`pool.mpi`) is copied into the job's scratch directory, since a job sees neither the node's files nor always
those of the installation. While it runs it writes the state of each rank to a small file beside it. The job's user may
write there, too; what is read is checked, and used for words only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from pool.errors import PoolError
from pool.jobs.activation import Activation
from pool.jobs.mpi import MPICH, OPENMPI, PMIX, RANKER, ranker_options
from pool.mpi import pmix_server, program
from pool.safe_directory import SafeDirectory, copy_data
from pool.starter.scratch import remove
from pool.starter.spec import KeeperSpec, Member

#: Names in the scratch directory: the copy of the ranker, its report, and the copy of its helper for PMIx.
COPY, STATUS, PMIX_COPY = ".poolnode.ranker", ".poolnode.ranks", ".poolnode.pmix_server"
#: Bytes of the status that are read.
_MOST = 64 * 1024
_NUMBERS = re.compile(r"([0-9]{1,9}) ([0-9]{1,9}) ([0-9]{1,9})")
_END = re.compile(r"(well|code|signal) ([0-9]{1,3}) (.{0,500})")
#: The letters of a rank that has not called MPI_Init, and of one that has ended without it: pool/mpi/ranker/outcome.c.
_SILENT, _SILENT_AT_END, _IN_BARRIER = ".", "e", "b"
#: So many ranks are named, and then their number.
_NAMED = 8


@dataclass(frozen=True, slots=True)
class RanksStatus:
    """The report of a ranker on its ranks.

    Attributes:
        first, size: the number of its first rank, and of all ranks of the job.
        states: a letter for each of its ranks (pool/mpi/ranker/outcome.c).
        below: a letter for each link to a node below.
        end: why the job ends, in the ranker's words; empty where every rank ended well.
    """

    first: int
    size: int
    states: str
    below: str = ""
    end: str = ""

    @property
    def singletons(self) -> bool:
        """Whether all ranks have ended well, and none has found the others: each ran a job of one rank."""
        return self.size > 1 and set(self.states) == {_SILENT_AT_END}

    def waits_for(self) -> str:
        """Which ranks wait for which, in words: those that did not call MPI_Init, or are in no barrier; else empty. The
        ranks of one node may be all that the others wait for."""
        waiting, silent = self._with(_IN_BARRIER), self._with(_SILENT)
        missing = f"{'has' if len(silent) == 1 else 'have'} not called MPI_Init"
        if not waiting:
            return f"{_ranks(silent)} {missing}" if silent else ""
        if silent:
            return f"{_waiting(waiting)} for {_ranks(silent)}, which {missing}"
        others = [self.first + at for at, letter in enumerate(self.states) if letter in "if"]
        if others:
            return f"{_waiting(waiting)} in a barrier for {_ranks(others)}"
        return f"{_waiting(waiting)} for ranks on other machines"

    def _with(self, letter: str) -> list[int]:
        return [self.first + at for at, one in enumerate(self.states) if one == letter]


def _ranks(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_NAMED]))
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"rank {shown}" if len(numbers) == 1 else f"ranks {shown}{more}"


def _waiting(numbers: list[int]) -> str:
    return f"{_ranks(numbers)} {'waits' if len(numbers) == 1 else 'wait'}"


def place_ranker(scratch: Path, owner: tuple[int, int] | None, family: str = MPICH) -> None:
    """Put the ranker, what it needs for that MPI, and an empty status into a scratch directory. Blocks on the disk.

    Args:
        owner: user and group of the files; None: the node's.

    Raises:
        OSError: the disk does not take it, or this installation has no ranker.
    """
    copies = {COPY: program()} | ({PMIX_COPY: pmix_server()} if family == PMIX else {})
    with SafeDirectory(scratch, owner) as safe:
        for name, path in copies.items():
            target = safe.create_file(name, 0o755)
            try:
                with path.open("rb") as source:
                    copy_data(source.fileno(), target)
            finally:
                os.close(target)
        os.close(safe.create_file(STATUS, 0o600))


def with_ranker(spec: KeeperSpec, activation: Activation, own: str) -> KeeperSpec:
    """The keeper's orders for a node of an MPI job: the ranker in place of the program, which it starts for each rank.

    Args:
        own: the scratch directory as the job sees it.
    """
    copy = os.path.join(own, COPY)
    words = [
        *ranker_options(activation.part, activation.parts, activation.ranks, activation.application),
        "--status",
        os.path.join(own, STATUS),
    ]
    if activation.mpi == OPENMPI:
        words += ["--mpirun", activation.mpirun or "auto"]
    if activation.mpi == PMIX:
        words += ["--pmix", os.path.join(own, PMIX_COPY), "--pmix-library", activation.pmix_library or "auto"]
    argv = (copy, *words, "--", *spec.argv)
    env = {**spec.env, "POOLNODE_MPI_NAME": store_name(activation), "POOLNODE_MPI_CPUS": str(spec.cpus or 0)}
    if activation.mpi == PMIX:
        env["POOLNODE_MPI_SHARED"] = str(shared_directory(activation))
    ranker = Member(
        name=RANKER,
        argv=argv,
        env=env,
        cwd=spec.cwd,
        stdin=spec.stdin,
        stdout=spec.stdout,
        stderr=spec.stderr,
        append_stdout=spec.append_output,
        append_stderr=spec.append_output,
        stderr_to_stdout=spec.stdout == spec.stderr and spec.stdout != "/dev/null",
        fails=frozenset(range(1, 256)),
    )
    return replace(spec, members=(ranker,))


def store_name(activation: Activation) -> str:
    """The name of the job's key-value store: the same on all nodes, and never used before. MPICH names its shared
    memory after it."""
    secret = hashlib.sha256(activation.gang.encode()).hexdigest()[:16]
    return f"{activation.name}-{activation.run}-{secret}"


def shared_directory(activation: Activation) -> Path:
    """The directory of a part's ranks for shared memory under PMIx. Everybody can list the one above it: so its name
    does not give away the job's."""
    name = hashlib.sha256(f"{store_name(activation)}/{activation.part}".encode()).hexdigest()[:24]
    return Path("/dev/shm", f"poolnode-pmix-{name}")


def remove_shared(activation: Activation, owner: tuple[int, int] | None) -> None:
    """Remove that directory where the PMIx server, killed with its job, could not. Blocks; never raises.

    Args:
        owner: user and group of the job; None: the node's. A directory of anybody else's stays.
    """
    path = shared_directory(activation)
    with contextlib.suppress(OSError), SafeDirectory(path) as safe:
        if os.fstat(safe.fd).st_uid == (owner[0] if owner is not None else os.geteuid()):
            remove(path)


def read_status(scratch: Path, owner: tuple[int, int] | None) -> RanksStatus | None:
    """The ranker's last report in a scratch directory; None where there is none that can be read."""
    try:
        with SafeDirectory(scratch, owner) as safe, os.fdopen(safe.open_file(STATUS), "rb") as file:
            text = file.read(_MOST).decode(errors="replace")
    except (OSError, PoolError):
        return None
    return status_of(text)


def status_of(text: str) -> RanksStatus | None:
    """A status as the ranker writes it; None for any other text."""
    lines: dict[str, str] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        lines.setdefault(word, rest)
    numbers = _NUMBERS.fullmatch(lines.get("ranks", ""))
    states, below = lines.get("states", ""), lines.get("below", "")
    if lines.get("ranker") != "1" or numbers is None or not re.fullmatch(r"[.ibfeEX]{1,4096}", states):
        return None
    first, count, size = map(int, numbers.groups())
    if len(states) != count or not re.fullmatch(r"[.wx]{0,1024}", below):
        return None
    end = _END.fullmatch(lines.get("end", ""))
    words = "".join(letter if letter.isprintable() else " " for letter in end[3]) if end else ""
    return RanksStatus(first, size, states, below, words)


def singletons_in_words(activation: Activation, status: RanksStatus) -> str:
    """Why a job is held whose ranks did not find each other."""
    count = status.size
    other = "openmpi" if activation.mpi == MPICH else "mpich"
    what = f"its {count} ranks ended without a call of MPI_Init that this pool could see: "
    if activation.mpi != OPENMPI:
        return f"{what}the program uses no MPI, or one of another family (mpi = {other}), and ran {count} times alone"
    return f"{what}the program uses no MPI, or one of another family (mpi = {other})"

"""Which trees of the submit side the execute machine sees for itself, whatever they are called there (B2; TS 5, figure
3).

Names prove nothing: two machines have a /data each, and one disk is /u2 here and /usr1 there. So the submit side puts a
*probe*, a file of fresh random content, into a directory that the job uses. The execute side looks for it under the
same name, and below everything that is mounted there. If it finds that content, it sees that file system. It looks with
the rights that the job will have, so that a tree is never used directly by a user that is a stranger to it.
"""

from __future__ import annotations

import ctypes
import os
import posixpath
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pool.remoteio.path_lookup import PROBE, Places
from pool.remoteio.trees import is_below

_PROBE = PROBE.decode()
#: File systems of one machine's own, which no other can have mounted.
_ALONE = frozenset(
    [
        "autofs",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "fusectl",
        "hugetlbfs",
        "mqueue",
        "nsfs",
        "proc",
        "pstore",
        "ramfs",
        "securityfs",
        "sysfs",
        "tracefs",
    ]
)
_libc = ctypes.CDLL(None, use_errno=True)


class Mount(NamedTuple):
    """A line of the kernel's table."""

    point: str
    kind: str
    source: str


class Direct(NamedTuple):
    """A directory of this machine that is a tree of the submit side."""

    here: str
    home: str


def mounts_of(table: str) -> list[Mount]:
    """The mounts that a /proc/PID/mountinfo lists, without what is not files."""
    found = []
    for line in table.splitlines():
        left, _, right = line.partition(" - ")
        words, kinds = left.split(), right.split()
        if len(words) >= 5 and len(kinds) >= 2 and kinds[0] not in _ALONE:
            found.append(Mount(_plain(words[4]), kinds[0], _plain(kinds[1])))
    return found


def _plain(word: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, sign)
    return word


def candidates(probe: dict[str, Any], mounts: Iterable[Mount]) -> Iterator[Direct]:
    """Where a tree may be on this machine: pairs of a directory here and what it would be on the submit side, the
    widest first.
    """
    directory, tree = str(probe["directory"]), str(probe["tree"])
    yield Direct(tree, tree)
    inner = posixpath.relpath(directory, tree)
    suffixes = [inner] if inner != "." else [""]
    parts = directory.split("/")[1:]
    suffixes += ["/".join(parts[place:]) for place in range(1, len(parts))] + [""]
    seen = set()
    for mount in mounts:
        for suffix in suffixes:
            here = mount.point
            home = directory[: len(directory) - len(suffix)].rstrip("/") if suffix else directory
            if is_below(home, tree) and (here, home) not in seen:
                seen.add((here, home))
                yield Direct(here, home)


def place_probes(places: Places, named: Iterable[str], nonce: str) -> list[dict[str, Any]]:
    """Lay a probe on each file system that a job names files on, where its owner may; this is the submit side's part.

    A tree that holds something that may only be read has none: a machine that opens it directly could write there.

    Args:
        nonce: random, new for each start.
    """
    with open("/proc/self/mountinfo") as handle:
        points = sorted((mount.point for mount in mounts_of(handle.read())), key=len, reverse=True)
    found: dict[str, dict[str, Any]] = {}
    for number, path in enumerate(dict.fromkeys(named)):
        directory = path if os.path.isdir(path) else posixpath.dirname(path)
        if not places.contains(os.fsencode(directory)):
            continue
        point = next((point for point in points if is_below(directory, point)), "/")
        roots = [tree.path for tree in places.trees if is_below(directory, tree.path)]
        tree = max([point, *roots], key=len)
        if places.has_readonly(os.fsencode(tree)):
            continue
        name = f"{_PROBE}{nonce[:12]}.{number}"
        if tree in found:
            continue
        try:
            with places.open_parent(os.fsencode(f"{directory}/{name}"), write=True) as place:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with open(os.open(place.name, flags, 0o600, dir_fd=place.directory), "w") as file:
                    file.write(nonce)
        except OSError:
            continue
        found[tree] = {"tree": tree, "directory": directory, "name": name, "nonce": nonce}
    return list(found.values())


def remove_probes(probes: Iterable[dict[str, Any]]) -> None:
    """Remove probes again."""
    for probe in probes:
        try:
            os.unlink(f"{probe['directory']}/{probe['name']}")
        except OSError:
            continue


def find(probes: Iterable[dict[str, Any]], uid: int, gid: int) -> list[Direct]:
    """The trees that this machine sees, looked at as a user who may be another than this process; blocks on disks.

    Raises:
        OSError: this process may not look as that user.
    """
    with open("/proc/self/mountinfo") as handle:
        mounts = mounts_of(handle.read())
    found: list[Direct] = []

    def find_probes() -> None:
        for probe in probes:
            if "/" in str(probe["name"]) or not str(probe["name"]).startswith(_PROBE):
                continue
            for candidate in candidates(probe, mounts):
                if _is_there(candidate, probe):
                    found.append(candidate)
                    break

    _as_user(uid, gid, find_probes)
    return found


def _is_there(candidate: Direct, probe: dict[str, Any]) -> bool:
    inner = posixpath.relpath(str(probe["directory"]), candidate.home)
    if inner.startswith(".."):
        return False
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        path = posixpath.normpath(posixpath.join(candidate.here, inner, str(probe["name"])))
        with open(os.open(path, flags), "rb") as file:
            return file.read(256) == str(probe["nonce"]).encode()
    except OSError:
        return False


def _as_user(uid: int, gid: int, look: Callable[[], None]) -> None:
    """Do something with a user's rights to files, in a thread that is nobody else's."""
    if uid == os.geteuid():
        look()
        return
    if os.geteuid() != 0:
        raise PermissionError(1, os.strerror(1))

    def run() -> None:
        _libc.setfsgid(gid)
        _libc.setfsuid(uid)
        if _libc.setfsuid(-1) == uid:
            look()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

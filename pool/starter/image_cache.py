"""Unpacked images that a machine keeps, so that the next job of the same user does not fetch them again.

    cached-images/records/USER.DIGEST.json     the node's own: what is there, how large it is; changed when it is used
    cached-images/USER/DIGEST/                 the image, unpacked; USER is a directory that belongs to the job's user

An image is kept by what it is: the digest of its manifest in the registry, of the archive, or of the layout's index. It
is kept for one owner of jobs under one account, and no job sees the directory: a job that names the same image
asks the registry with its own login first. Jobs that start at once wait for one fetch. The images used longest ago go
first; one that a job runs in stays. Images kept before the machine restarted are not trusted, because their
files may not be on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import re
import stat
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from pool.starter import unpacking
from pool.starter.place import UnixAccount
from pool.starter.unpacking import GONE, CannotUnpack, ImageConfig

RECORDS = "records"
_RECORD = re.compile(r"([0-9]+-[0-9a-f]{16})\.([0-9a-f]{64})\.json")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
Key = tuple[str, str]


@dataclass(slots=True)
class _Kept:
    config: ImageConfig
    bytes: int
    used: int


class ImageCache:
    """The images that one machine keeps.

    Args:
        directory: where; it is made when it is needed.
        most: bytes that all images may take; 0 to keep none.
    """

    def __init__(self, directory: Path, most: int, log: logging.Logger) -> None:
        self.directory = Path(os.path.realpath(directory))
        self.most = most
        self._log = log
        self._held: Counter[Path] = Counter()
        self._fetching: dict[Key, asyncio.Lock] = {}
        self._wanting: Counter[Key] = Counter()
        self._cleaning: set[asyncio.Task[None]] = set()
        self._kept = self._read_records()

    # -- one job's image -------------------------------------------------------------------------------------------

    async def acquire(
        self, image: str, scratch: Path, account: UnixAccount, owner: str, login: str, leaves: asyncio.Event
    ) -> tuple[Path | None, ImageConfig]:
        """The image, unpacked, and held for a job until it is released; no path where it is not kept by this cache.

        Args:
            image: a URL, or a file or OCI layout whose relative name begins in `scratch`.
            owner: whose job it is, in the pool.

        Raises:
            CannotUnpack: it cannot be fetched or unpacked.
        """
        digest = await unpacking.name(image, scratch, account, login, leaves) if self.most else ""
        if not digest:
            return None, (await unpacking.unpack(image, scratch, account, leaves, login=login)).config
        user = _user(owner, account)
        root = self.directory / user / digest
        async with self._lock_image((user, digest), leaves):
            kept = self._kept.get((user, digest))
            if kept is None or not _is_there(root, account):
                source = image if "://" in image else os.path.join(scratch, image)
                kept = await self._fetch(source, (user, digest), account, login, leaves)
            self._record_use((user, digest), kept)
            self._held[root] += 1
        self._trim(self.most)
        return root, kept.config

    def holds(self, root: str) -> Path | None:
        """Hold the image that is the root of a job that was found again; None when it is none of these."""
        if not root:
            return None
        path = Path(root)
        if path.parent.parent != self.directory:
            return None
        self._held[path] += 1
        return path

    def release(self, root: Path) -> None:
        """A job runs in it no more."""
        self._held[root] -= 1
        if self._held[root] <= 0:
            del self._held[root]
            self._trim(self.most)

    async def removals_done(self) -> None:
        """Until what was to be removed is gone."""
        while self._cleaning:
            await asyncio.wait(self._cleaning)

    # -- below -----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lock_image(self, key: Key, leaves: asyncio.Event) -> AsyncIterator[None]:
        """Alone with an image, which another job may be fetching now."""
        lock = self._fetching.setdefault(key, asyncio.Lock())
        self._wanting[key] += 1
        coming, leaving = asyncio.ensure_future(lock.acquire()), asyncio.ensure_future(leaves.wait())
        try:
            await asyncio.wait((coming, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise CannotUnpack("the job was stopped while its image was unpacked", retry=True)
            yield
        finally:
            leaving.cancel()
            if coming.done():
                lock.release()
            else:
                coming.cancel()
            self._wanting[key] -= 1
            if not self._wanting[key]:
                del self._wanting[key], self._fetching[key]

    async def _fetch(self, source: str, key: Key, account: UnixAccount, login: str, leaves: asyncio.Event) -> _Kept:
        user, digest = key
        place = self._user_directory(user, account)
        taken = sum(kept.bytes for kept in self._kept.values())
        free = os.statvfs(place)
        most = min(self.most, taken + free.f_bavail * free.f_frsize // 2)
        self._trim(most)
        self._forget(key)
        try:
            done = await unpacking.unpack(source, place, account, leaves, into=digest, login=login, most=most)
            if "://" in source:  # its name may mean something else since it was asked for
                now = await unpacking.name(source, place, account, login, leaves)
                if now != digest:
                    raise CannotUnpack(f"the image {source} was changed while it was fetched", retry=True)
        except BaseException:
            self._clean(user)
            raise
        kept = self._kept[key] = _Kept(done.config, done.bytes, 0)
        return kept

    def _user_directory(self, user: str, account: UnixAccount) -> Path:
        """The directory of a user's images. The node's own directory is around it, so that its name stays."""
        self.directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        place = self.directory / user
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
            if account.owner is not None:
                os.chown(place, *account.owner)
        return place

    def _record_use(self, key: Key, kept: _Kept) -> None:
        """Write down that an image is there and was used now."""
        record = self._record(key)
        said = {"boot": _boot(), "bytes": kept.bytes, "config": kept.config.to_wire()}
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = record.with_suffix(".new")
        aside.write_text(json.dumps(said))
        os.replace(aside, record)
        kept.used = max((one.used for one in self._kept.values()), default=0) + 1

    def _record(self, key: Key) -> Path:
        return self.directory / RECORDS / f"{key[0]}.{key[1]}.json"

    def _forget(self, key: Key) -> None:
        self._kept.pop(key, None)
        with contextlib.suppress(FileNotFoundError):
            self._record(key).unlink()

    def _trim(self, most: int) -> None:
        """Give up the images that were used longest ago, until all take no more than this."""
        total = sum(kept.bytes for kept in self._kept.values())
        users = set()
        for key in sorted(self._kept, key=lambda one: self._kept[one].used):
            if total <= most:
                break
            if self._held.get(self.directory / key[0] / key[1]) or key in self._fetching:
                continue
            total -= self._kept[key].bytes
            self._forget(key)
            users.add(key[0])
        for user in users:
            self._clean(user)

    def _clean(self, user: str) -> None:
        """Remove in the background what of a user's images is not kept. A process that became the user does it.

        It removes what was renamed here: another image may get the name at any moment.
        """
        place = self.directory / user
        try:
            fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            found = os.fstat(fd)
            for name in os.listdir(fd):
                key, root = (user, name), place / name
                if not (name.startswith(".") or key in self._kept or root in self._held or key in self._fetching):
                    with contextlib.suppress(OSError):  # its user may do anything there
                        number = os.stat(name, dir_fd=fd, follow_symlinks=False).st_ino  # no two have the same
                        os.rename(name, f"{GONE}{number}", src_dir_fd=fd, dst_dir_fd=fd)
        finally:
            os.close(fd)
        account = UnixAccount(found.st_uid, found.st_gid, (), "", "", found.st_uid != os.geteuid())
        task = asyncio.get_running_loop().create_task(self._remove(place, account))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)

    async def _remove(self, place: Path, account: UnixAccount) -> None:
        try:
            await unpacking.remove_gone(place, account)
        except (CannotUnpack, OSError) as error:
            self._log.warning("images that are not kept any more are still there: %s", error)

    def _read_records(self) -> dict[Key, _Kept]:
        """The images that earlier runs of this node left, in the order of their last use."""
        found: list[tuple[float, Key, _Kept]] = []
        records = self.directory / RECORDS
        for path in records.iterdir() if records.is_dir() else ():
            name = _RECORD.fullmatch(path.name)
            try:
                said = json.loads(path.read_text())
                if name is None or said["boot"] != _boot():
                    raise ValueError
                kept = _Kept(ImageConfig.from_wire(said["config"]), int(said["bytes"]), 0)
                found.append((path.stat().st_mtime, (name[1], name[2]), kept))
            except (OSError, ValueError, KeyError, TypeError):
                with contextlib.suppress(OSError):
                    path.unlink()
        result: dict[Key, _Kept] = {}
        for number, (_, key, kept) in enumerate(sorted(found, key=lambda one: one[:2])):
            kept.used = number + 1
            result[key] = kept
        return result

    def begin(self) -> None:
        """Remove what an earlier run left unfinished, or was about to remove. The jobs that run are known by now."""
        if self.directory.is_dir():
            for place in self.directory.iterdir():
                if place.name != RECORDS and place.is_dir():
                    self._clean(place.name)
            self._trim(self.most)


def _user(owner: str, account: UnixAccount) -> str:
    """The name of the directory for one owner of jobs under one account."""
    return f"{account.uid}-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"


def _is_there(root: Path, account: UnixAccount) -> bool:
    try:
        found = root.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == account.uid


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""

"""The layers of an image, laid one over the other in a directory: from an archive or from an OCI layout.

Runs in the process that became the job's user. The image is somebody else's word: no name in it leads out of the
directory, devices are left out, no file keeps a set-user-id bit, holes stay holes, and what it may take is bounded.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import re
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import zstandard

from pool.safe_directory import SafeDirectory
from pool.starter import scratch

#: Links that one name leads through at most, bytes of a description, and entries of all layers together.
MOST_LINKS, MOST_TEXT, MOST_ENTRIES = 40, 4 << 20, 2_000_000
#: Indexes of an OCI layout that name each other.
MOST_INDEXES = 4
CHUNK = 1 << 20
#: Bytes that an entry counts for beside its contents.
ENTRY = 512
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ZSTD = b"\x28\xb5\x2f\xfd"
#: The names of processors in images.
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "riscv64": "riscv64", "s390x": "s390x"}
_LATEST = 1 << 33


class Room:
    """The bytes and entries that may still be written."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.written = 0
        self._entries = 0

    def count_bytes(self, size: int) -> None:
        """Count bytes that are about to be written. Raises ValueError when they are too many."""
        self.written += size
        if self.most is not None and self.written > self.most:
            raise ValueError(
                f"it unpacks to more than {self.most >> 20} MB, which is all that IMAGE_CACHE and the disk allow"
            )

    def count_entry(self) -> None:
        """Count an entry."""
        self._entries += 1
        if self._entries > MOST_ENTRIES:
            raise ValueError(f"it has more than {MOST_ENTRIES} entries")
        self.count_bytes(ENTRY)


class _Files(Protocol):
    """Where the parts of an image lie."""

    def names(self) -> set[str]: ...
    def open(self, name: str) -> IO[bytes]: ...


class _Archive:
    def __init__(self, whole: tarfile.TarFile) -> None:
        self._whole = whole

    def names(self) -> set[str]:
        return set(self._whole.getnames())

    def open(self, name: str) -> IO[bytes]:
        found = self._whole.extractfile(name)
        if found is None:
            raise ValueError(f"{name} in it is no file")
        return found


class _Directory:
    def __init__(self, safe: SafeDirectory) -> None:
        self._safe = safe

    def names(self) -> set[str]:
        return {name for name in ("index.json", "manifest.json") if self._safe.exists(name)}

    def open(self, name: str) -> IO[bytes]:
        return os.fdopen(self._safe.open_file(name), "rb")


def unpack(image: str, root: str, room: Room) -> dict[str, Any]:
    """Unpack the layers of an archive, or of a directory that is an OCI layout; what the image says of itself.

    Args:
        root: the directory to make.

    Raises:
        OSError, ValueError, KeyError, TarError: it is no image, or cannot be written.
    """
    os.mkdir(root)
    with contextlib.ExitStack() as stack:
        if os.path.isdir(image):
            files: _Files = _Directory(stack.enter_context(SafeDirectory(os.path.realpath(image))))
        else:
            files = _Archive(stack.enter_context(tarfile.open(image)))
        safe = stack.enter_context(SafeDirectory(root))
        config, layers = _described(files)
        for layer in layers:
            with files.open(layer) as data:
                _unpack_layer(layer, data, safe, room)
    return config


def digest_of(image: str) -> str:
    """The kind of an archive or an OCI layout, by its contents; the layout's index names the digests of all the
    rest.
    """
    path = os.path.join(image, "index.json") if os.path.isdir(image) else image
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- what an image says of itself ----------------------------------------------------------------------------------


def _described(files: _Files) -> tuple[dict[str, Any], list[str]]:
    """The configuration of the image, and its layers from the lowest."""
    names = files.names()
    if "manifest.json" in names:
        found = _json(files, "manifest.json")
        if not isinstance(found, list) or len(found) != 1:
            raise ValueError("its manifest.json does not describe one image")
        return _checked(_json(files, str(found[0]["Config"]))), [str(name) for name in found[0]["Layers"]]
    if "index.json" in names:
        manifest = _manifest(files, _json(files, "index.json"), MOST_INDEXES)
        return _checked(_json(files, _blob(manifest["config"]))), [_blob(layer) for layer in manifest["layers"]]
    raise ValueError("it is no image: it has neither manifest.json nor index.json")


def _manifest(files: _Files, index: Any, deeper: int) -> dict[str, Any]:
    """The manifest of the one image in an index that is for this machine's processor."""
    entries = [one for one in _checked(index)["manifests"] if isinstance(one, dict)]
    fitting = [one for one in entries if _is_for_this_machine(one)]
    if len(fitting) != 1:
        what = "several images" if fitting else "no image for this machine's processor"
        raise ValueError(f"its index.json names {what}")
    found = _checked(_json(files, _blob(fitting[0])))
    if "manifests" not in found:
        return found
    if not deeper:
        raise ValueError("its indexes name each other too deeply")
    return _manifest(files, found, deeper - 1)


def _is_for_this_machine(entry: dict[str, Any]) -> bool:
    wanted = entry.get("platform")
    if not isinstance(wanted, dict) or "architecture" not in wanted:
        return True
    own = _PROCESSORS.get(platform.machine(), platform.machine())
    return bool(wanted["architecture"] == own and wanted.get("os", "linux") == "linux")


def _checked(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("its description is no mapping")
    return value


def _blob(description: Any) -> str:
    kind, _, digest = str(_checked(description)["digest"]).partition(":")
    if kind != "sha256" or not _SHA256.fullmatch(digest):
        raise ValueError(f"it names {str(description['digest'])[:80]!r}, which is no SHA-256 digest")
    return f"blobs/{kind}/{digest}"


def _json(files: _Files, name: str) -> Any:
    with files.open(name) as data:
        text = data.read(MOST_TEXT)
    _check(name, hashlib.sha256(text).hexdigest())
    return json.loads(text)


def _check(name: str, found: str) -> None:
    """A part that is named by its digest must have it: it may have been cut short, or changed."""
    kind, _, digest = name.rpartition("/")
    if kind == "blobs/sha256" and _SHA256.fullmatch(digest) and found != digest:
        raise ValueError(f"its part {digest[:12]} is damaged")


# -- one layer over the others -------------------------------------------------------------------------------------


class _Hashed(io.RawIOBase):
    """Reads on, and keeps the digest of what was read."""

    def __init__(self, data: IO[bytes]) -> None:
        self._data = data
        self._sum = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        some = self._data.read(len(buffer))
        buffer[: len(some)] = some
        self._sum.update(some)
        return len(some)

    def finish(self) -> str:
        while self.read(CHUNK):
            pass
        return self._sum.hexdigest()


def _unpack_layer(name: str, data: IO[bytes], safe: SafeDirectory, room: Room) -> None:
    hashed = _Hashed(data)
    source = io.BufferedReader(hashed, CHUNK)
    plain: Any = source
    if source.peek(4)[:4] == _ZSTD:
        plain = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(source)
    with tarfile.open(fileobj=plain, mode="r|*", errorlevel=2) as entries:
        for entry in entries:
            room.count_entry()
            _unpack_entry(entries, entry, safe, room)
            entries.members = []  # type: ignore[attr-defined] # it would keep all of them
    while source.read(CHUNK):
        pass
    _check(name, hashed.finish())


def _unpack_entry(entries: tarfile.TarFile, entry: tarfile.TarInfo, safe: SafeDirectory, room: Room) -> None:
    """Put one entry of a layer in its place; devices and the like are left out, a job may have none."""
    name = _scoped(safe, entry.name)
    above, _, last = name.rpartition("/")
    if not last:
        return
    try:
        if last == _OPAQUE:
            for inner in list(_inside(safe, above)):
                _remove(safe, os.path.join(above, inner))
        elif last.startswith(_WHITEOUT):
            _hide(safe, above, last.removeprefix(_WHITEOUT))
        elif entry.isdir():
            if not _is_directory(safe, name):
                _remove(safe, name)
            safe.make_directory(name, entry.mode | 0o700)
        elif entry.isreg() or entry.issym() or entry.islnk():
            target = _scoped(safe, entry.linkname) if entry.islnk() else ""
            if target == name and entry.islnk():
                return
            _remove(safe, name)
            if above and not _is_directory(safe, above):
                safe.make_directory(above, 0o755)
            if entry.issym():
                safe.make_link(os.fsencode(entry.linkname), name)
            elif entry.islnk():
                safe.give_second_name(target, name)
            else:
                _write(entries, entry, safe.create_file(name, entry.mode & 0o777 | 0o400), room)
    except OSError as error:
        raise ValueError(f"{entry.name[:200]} in it: {error.strerror or error}") from error


def _hide(safe: SafeDirectory, above: str, name: str) -> None:
    if name not in ("", ".", ".."):
        _remove(safe, os.path.join(above, name))


def _write(entries: tarfile.TarFile, entry: tarfile.TarInfo, fd: int, room: Room) -> None:
    """The contents of a file; what the archive leaves out of a sparse one stays a hole."""
    data = entries.fileobj
    assert data is not None
    sparse: Any = entry.sparse  # which is no number, whatever its stub says
    parts: list[tuple[int, int]] = sparse if sparse is not None else [(0, entry.size)]
    with os.fdopen(fd, "wb", buffering=0) as file:
        data.seek(entry.offset_data)
        for offset, left in parts:
            file.seek(offset)
            while left:
                some = data.read(min(left, CHUNK))
                if not some:
                    raise ValueError(f"{entry.name[:200]} in it is cut short")
                room.count_bytes(len(some))
                file.write(some)
                left -= len(some)
        os.ftruncate(fd, entry.size)
        moment = min(max(int(entry.mtime), 0), _LATEST)
        os.utime(fd, (moment, moment))


def _scoped(safe: SafeDirectory, name: str) -> str:
    """A name of an image with the links in its directories followed, none of which leads out of the image."""
    found: list[str] = []
    left, links = [part for part in name.split("/") if part not in ("", ".")], 0
    while left:
        part = left.pop(0)
        if part == "..":
            found = found[:-1]
            continue
        target = _link(safe, "/".join((*found, part))) if left else None
        if target is None:
            found.append(part)
            continue
        links += 1
        if links > MOST_LINKS:
            raise ValueError(f"{name} in it leads through too many links")
        if target.startswith("/"):
            found = []
        left = [one for one in target.split("/") if one not in ("", ".")] + left
    return "/".join(found)


def _link(safe: SafeDirectory, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=safe.fd)
    except OSError:
        return None


def _inside(safe: SafeDirectory, name: str) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for inner, _, _ in safe.entries(name):
            yield os.fsdecode(inner)


def _is_directory(safe: SafeDirectory, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(name, dir_fd=safe.fd).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _remove(safe: SafeDirectory, name: str) -> None:
    if _is_directory(safe, name):
        scratch.remove(Path(f"/proc/self/fd/{safe.fd}", name))  # however deep it is
    else:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(name, dir_fd=safe.fd)

"""Images that are no directories yet: unpacked into the job's scratch directory by a process that became its user.

An archive (`docker save`, `podman save`, an OCI archive) is unpacked here, layer by layer. An image of a registry is
fetched as such an archive by `skopeo` or `podman`, or unpacked by `apptainer`, which unpacks SIF files, too. The result
is the job's root like any other directory; no tool runs while the job does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any

from pool.errors import PoolError
from pool.jobs.activation import UNPACKED_IMAGE
from pool.safe_directory import SafeDirectory
from pool.starter import user_process
from pool.starter.place import Account

#: What the unpacked image, the archive that was fetched, and the tools' own files are called in the scratch directory.
ROOT, FETCHED, TOOLS = UNPACKED_IMAGE, ".image.tar", ".image.tools"
#: The programs that fetch images of registries, and those that read SIF files.
FETCHING, SIF = ("skopeo", "podman", "apptainer", "singularity"), ("apptainer", "singularity")
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
#: Links that one name leads through at most, characters of what a tool says that are kept, and bytes of a description.
MOST_LINKS, MOST_SAID, MOST_TEXT = 40, 1000, 4 << 20
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


class CannotUnpack(PoolError):
    """An image that cannot be fetched or unpacked."""


def abilities() -> dict[str, bool]:
    """What this machine says of the images that its tools can read."""
    found = {name for name in {*FETCHING, *SIF} if shutil.which(name, path=PATH)}
    said = {"HasDocker": bool(found), "HasDockerURL": bool(found), "HasSIF": bool(found & set(SIF))}
    return {name: True for name, has in said.items() if has}


async def unpack(image: str, scratch: Path, account: Account, leaves: asyncio.Event) -> dict[str, str]:
    """Unpack an image, a URL or a file in the scratch directory, into ROOT there; its environment.

    Args:
        leaves: set when the job is not wanted here any more.

    Raises:
        CannotUnpack: with the image, and what is wrong.
    """
    directory = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        answer = await user_process.ask(__name__, {"image": image}, directory, account, PATH, leaves)
    except user_process.Stopped:
        raise CannotUnpack("the job was stopped while its image was unpacked", retry=True) from None
    except user_process.Died:
        raise CannotUnpack(f"the process that unpacks {image} died", retry=True) from None
    finally:
        os.close(directory)
    if "error" in answer:
        raise CannotUnpack(f"cannot unpack the image {image}: {answer['error']}"[: 2 * MOST_SAID])
    return {str(name): str(value) for name, value in answer["environment"].items() if "\0" not in f"{name}{value}"}


# -- the process that unpacks ------------------------------------------------------------------------------------


def main() -> None:
    """Unpack what standard input names, in the directory whose descriptor is given."""
    work = user_process.take_work()
    answer: dict[str, Any]
    try:
        answer = {"environment": _unpacked(work["image"])}
    except (OSError, ValueError, KeyError, tarfile.TarError, EOFError) as error:
        answer = {"error": getattr(error, "strerror", None) or str(error) or type(error).__name__}
    json.dump(answer, sys.stdout)


def _unpacked(image: str) -> dict[str, str]:
    if "://" not in image and not image.endswith(".sif"):
        return unpack_archive(image, ROOT)
    os.makedirs(TOOLS, exist_ok=True)
    try:
        return _by_tool(image)
    finally:
        shutil.rmtree(TOOLS, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(FETCHED)


def _by_tool(image: str) -> dict[str, str]:
    wanted = FETCHING if "://" in image else SIF
    tool = next((name for name in wanted if shutil.which(name)), None)
    if tool is None:
        raise OSError(f"this machine has none of {', '.join(wanted)}")
    if tool == "skopeo":
        _run(tool, "--insecure-policy", "copy", "-q", image, f"docker-archive:{FETCHED}")
    elif tool == "podman":
        name = image.removeprefix("docker://")
        with tempfile.TemporaryDirectory(prefix="image-", dir="/tmp") as run:  # its path may have 50 characters
            own = (tool, "--root", os.path.abspath(f"{TOOLS}/storage"), "--runroot", run, "--storage-driver", "vfs")
            try:
                _run(*own, "--storage-opt", "vfs.ignore_chown_errors=true", "pull", "-q", name)
                _run(*own, "save", "-q", "--format", "docker-archive", "-o", FETCHED, name)
            finally:
                _end_pause()
    else:
        _run(tool, "build", "--sandbox", ROOT, image)
        return {}
    return unpack_archive(FETCHED, ROOT)


def _end_pause() -> None:
    """End the process with which podman keeps its user namespace for a next time: nothing stays behind a job.

    Its number is looked for in podman's own file only: other files below TOOLS are the image's, which may say anything.
    """
    with contextlib.suppress(OSError, ValueError):
        pid = int(Path(TOOLS, "libpod", "tmp", "pause.pid").read_text())
        if pid > 1 and Path(f"/proc/{pid}/comm").read_text().startswith("podman"):
            os.kill(pid, signal.SIGKILL)


def _run(*command: str) -> None:
    here = os.path.abspath(TOOLS)
    environ = {**os.environ, "HOME": here, "XDG_RUNTIME_DIR": here, "TMPDIR": here, "APPTAINER_CACHEDIR": here}
    done = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise OSError(f"{command[0]} says: {said[-1][:MOST_SAID] if said else f'status {done.returncode}'}")


# -- archives ----------------------------------------------------------------------------------------------------


def unpack_archive(archive: str, root: str) -> dict[str, str]:
    """Unpack the layers of an archive, one over the other; the environment that the image names.

    Raises:
        OSError, ValueError, KeyError, TarError: it is no archive of an image, or cannot be written.
    """
    os.mkdir(root)
    with tarfile.open(archive) as whole, SafeDirectory(root) as safe:
        config, layers = _described(whole)
        for layer in layers:
            with _member(whole, layer) as data, tarfile.open(fileobj=data, mode="r|*") as entries:
                for entry in entries:
                    _place(entries, entry, safe)
    environment = (config.get("config") or {}).get("Env") or []
    return dict(one.split("=", 1) for one in environment if isinstance(one, str) and "=" in one)


def _described(whole: tarfile.TarFile) -> tuple[dict[str, Any], list[str]]:
    """The configuration of the first image of an archive, and its layers from the lowest."""
    names = set(whole.getnames())
    if "manifest.json" in names:
        (first, *_) = _json(whole, "manifest.json")
        return _json(whole, str(first["Config"])), [str(name) for name in first["Layers"]]
    if "index.json" in names:
        manifest = _json(whole, _blob(_json(whole, "index.json")["manifests"][0]))
        return _json(whole, _blob(manifest["config"])), [_blob(layer) for layer in manifest["layers"]]
    raise ValueError("it is no archive of an image: it has neither manifest.json nor index.json")


def _blob(description: dict[str, Any]) -> str:
    kind, _, digest = str(description["digest"]).partition(":")
    return f"blobs/{kind}/{digest}"


def _json(whole: tarfile.TarFile, name: str) -> Any:
    with _member(whole, name) as data:
        return json.loads(data.read(MOST_TEXT))


def _member(whole: tarfile.TarFile, name: str) -> IO[bytes]:
    found = whole.extractfile(name)
    if found is None:
        raise ValueError(f"{name} in it is no file")
    return found


def _place(entries: tarfile.TarFile, entry: tarfile.TarInfo, safe: SafeDirectory) -> None:
    """Put one entry of a layer in its place; devices and the like are left out, a job may have none."""
    name = _scoped(safe, entry.name)
    above, _, last = name.rpartition("/")
    if not last:
        return
    if last == _OPAQUE:
        for inner, _, _ in list(safe.entries(above)):
            _remove(safe, os.path.join(above, os.fsdecode(inner)))
    elif last.startswith(_WHITEOUT):
        _remove(safe, os.path.join(above, last.removeprefix(_WHITEOUT)))
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
            data = entries.extractfile(entry)
            assert data is not None
            with os.fdopen(safe.create_file(name, entry.mode & 0o777 | 0o400), "wb") as file:
                shutil.copyfileobj(data, file)


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


def _is_directory(safe: SafeDirectory, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(name, dir_fd=safe.fd).st_mode)
    except FileNotFoundError:
        return False


def _remove(safe: SafeDirectory, name: str) -> None:
    if _is_directory(safe, name):
        shutil.rmtree(name, dir_fd=safe.fd)
    else:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(name, dir_fd=safe.fd)


if __name__ == "__main__":
    main()

"""The programs that fetch images of registries and read SIF files: skopeo, podman, apptainer.

Runs in the process that became the job's user, in a directory of its own that is removed behind it. A login is handed
to a program as a file without a name, which is on no disk; no program runs while the job does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: The directory of the tools' own files, and the archive that they make, in the working directory.
TOOLS, FETCHED = ".image.tools", ".image.tar"
#: The programs that fetch images of registries, and those that read SIF files.
FETCHING, SIF = ("skopeo", "podman", "apptainer", "singularity"), ("apptainer", "singularity")
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_PAUSES = ("podman", "catatonit")
#: Characters of what a tool says that are kept.
MOST_SAID = 1000
#: How references of images begin that a tool is asked for: names in a registry, and SIF files in one.
REGISTRY, SIF_REGISTRY = "docker://", "oras://"


def abilities() -> dict[str, bool]:
    """The images that this machine's tools can read, as its ad says."""
    found = {name for name in {*FETCHING, *SIF} if shutil.which(name, path=PATH)}
    said = {"HasDocker": bool(found), "HasDockerURL": bool(found), "HasSIF": bool(found & set(SIF))}
    return {name: True for name, has in said.items() if has}


def is_tools(image: str) -> bool:
    """Whether a tool is needed to read an image."""
    return "://" in image or image.endswith(".sif")


def digest_of(image: str, login: str) -> str:
    """The present meaning of a name in its registry: the digest of its manifest. Empty where no tool can tell.

    Raises:
        OSError: the registry does not answer, or refuses.
    """
    if not image.startswith(REGISTRY):
        return ""
    with _workplace() as own, _authority(login) as (given, fds):
        if _tool(image) == "skopeo":
            command = ["skopeo", "--insecure-policy", "inspect", "--raw", *given, image]
            return hashlib.sha256(_run(command, fds)).hexdigest()
        if _tool(image) == "podman":
            if given:  # it has no argument for that: it looks where docker keeps its logins
                os.makedirs(f"{TOOLS}/.docker", exist_ok=True)
                os.symlink(given[1], f"{TOOLS}/.docker/config.json")
            asked = [*own, "manifest", "inspect", "--", image.removeprefix(REGISTRY)]
            return hashlib.sha256(_run(asked, fds)).hexdigest()
    return ""


def fetch(image: str, root: str, login: str) -> bool:
    """Bring an image here: as FETCHED, an archive (True), or unpacked in `root` (False).

    Raises:
        OSError: with the tool, and the last line it said.
    """
    with _workplace() as own, _authority(login) as (given, fds):
        tool = _tool(image)
        if tool == "skopeo":
            _run([tool, "--insecure-policy", "copy", "-q", *given, image, f"docker-archive:{FETCHED}"], fds)
            return True
        if tool == "podman":
            pulled = _run([*own, "pull", "-q", *given, image], fds).decode().split()
            _run([*own, "save", "-q", "--format", "docker-archive", "-o", FETCHED, pulled[-1]])
            return True
        _run([tool, "build", "--sandbox", root, image])
        return False


def _tool(image: str) -> str:
    if "://" in image and not image.startswith((REGISTRY, SIF_REGISTRY)):
        raise OSError(f"its name begins with none of {REGISTRY}, {SIF_REGISTRY}")
    wanted = FETCHING if image.startswith(REGISTRY) else SIF
    tool = next((name for name in wanted if shutil.which(name)), None)
    if tool is None:
        raise OSError(f"this machine has none of {', '.join(wanted)}")
    return tool


@contextlib.contextmanager
def _workplace() -> Iterator[list[str]]:
    """A directory for the tools' own files; podman is made to keep all of its files there."""
    os.makedirs(TOOLS, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="image-", dir="/tmp") as run:  # its path may have 50 characters
        own = ["podman", "--root", os.path.abspath(f"{TOOLS}/storage"), "--runroot", run, "--storage-driver", "vfs"]
        try:
            yield [*own, "--storage-opt", "vfs.ignore_chown_errors=true"]
        finally:
            end_pause()
            shutil.rmtree(TOOLS, ignore_errors=True)


@contextlib.contextmanager
def _authority(login: str) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """The arguments with which a tool finds a login, and the descriptors it needs for that."""
    if not login:
        yield [], ()
        return
    fd = os.memfd_create("login", 0)
    try:
        os.write(fd, login.encode())
        yield ["--authfile", f"/proc/self/fd/{fd}"], (fd,)
    finally:
        os.close(fd)


def end_pause(directory: str = TOOLS) -> None:
    """End the process with which podman keeps its user namespace for a next time: nothing stays behind a job.

    Its number is looked for in podman's own file only: other files below TOOLS are the image's, which may say anything.
    The process is podman itself, or catatonit where that is installed.
    """
    with contextlib.suppress(OSError, ValueError):
        pid = int(Path(directory, "libpod", "tmp", "pause.pid").read_text())
        if pid > 1 and Path(f"/proc/{pid}/comm").read_text().startswith(_PAUSES):
            os.kill(pid, signal.SIGKILL)


def _run(command: list[str], fds: tuple[int, ...] = ()) -> bytes:
    here = os.path.abspath(TOOLS)
    environ = {**os.environ, "HOME": here, "XDG_RUNTIME_DIR": here, "TMPDIR": here, "APPTAINER_CACHEDIR": here}
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False, pass_fds=fds
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise OSError(f"{command[0]} says: {said[-1][:MOST_SAID] if said else f'status {done.returncode}'}")
    return done.stdout

"""The programs that fetch images of registries and read SIF files: skopeo, podman, apptainer.

Runs in the process that became the job's user, in a directory of its own that is removed behind it. A login is handed
to a program as a file without a name, which is on no disk; no program runs while the job does.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pool.decimals import has_digits_only
from pool.starter import scratch, user_process

#: The directory of the tools' own files, and the archive that they make, in the working directory.
TOOLS, FETCHED = ".image.tools", ".image.tar"
#: The programs that fetch images of registries, and those that read SIF files.
FETCHING, SIF = ("skopeo", "podman", "apptainer", "singularity"), ("apptainer", "singularity")
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_PAUSES = ("podman", "catatonit")
#: The directories that need a short path.
SHORT_IN, SHORT = "/tmp", "poolnode-image-"
#: The variable by which the processes of a fetch are known; its value is the short directory.
MARK = "POOLNODE_IMAGE"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
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
    with _workplace() as (own, mark), _authority(login) as (given, fds):
        if _tool(image) == "skopeo":
            command = ["skopeo", "--insecure-policy", "inspect", "--raw", *given, image]
            return hashlib.sha256(_run(command, fds, mark)).hexdigest()
        if _tool(image) == "podman":
            if given:  # it has no argument for that: it looks where docker keeps its logins
                os.makedirs(f"{TOOLS}/.docker", exist_ok=True)
                os.symlink(given[1], f"{TOOLS}/.docker/config.json")
            asked = [*own, "manifest", "inspect", "--", image.removeprefix(REGISTRY)]
            return hashlib.sha256(_run(asked, fds, mark)).hexdigest()
    return ""


def fetch(image: str, root: str, login: str) -> bool:
    """Bring an image here: as FETCHED, an archive (True), or unpacked in `root` (False).

    Raises:
        OSError: with the tool, and the last line it said.
    """
    with _workplace() as (own, mark), _authority(login) as (given, fds):
        tool = _tool(image)
        if tool == "skopeo":
            _run([tool, "--insecure-policy", "copy", "-q", *given, image, f"docker-archive:{FETCHED}"], fds, mark)
            return True
        if tool == "podman":
            pulled = _run([*own, "pull", "-q", *given, image], fds, mark).decode().split()
            _run([*own, "save", "-q", "--format", "docker-archive", "-o", FETCHED, pulled[-1]], (), mark)
            return True
        _run([tool, "build", "--sandbox", root, image], (), mark)
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
def _workplace() -> Iterator[tuple[list[str], str]]:
    """Podman, made to keep all of its files in a directory for the tools' own, and the mark of the tools' processes."""
    os.makedirs(TOOLS, exist_ok=True)
    with _short_directory() as run:
        own = ["podman", "--root", os.path.abspath(f"{TOOLS}/storage"), "--runroot", run, "--storage-driver", "vfs"]
        try:
            yield [*own, "--storage-opt", "vfs.ignore_chown_errors=true"], run
        finally:
            end_pause()
            _kill_marked(run, os.getuid())
            shutil.rmtree(TOOLS, ignore_errors=True)


@contextlib.contextmanager
def _short_directory() -> Iterator[str]:
    """A directory for podman's `--runroot`, whose path may have 50 characters: a scratch directory's may be longer.

    It is locked (flock) as long as this process lives, so that `remove_left` knows one that a killed process left.
    """
    while True:
        path = tempfile.mkdtemp(prefix=SHORT, dir=SHORT_IN)
        lock = os.open(path, _DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(lock)):
                break
        os.close(lock)  # it was taken for a left one before it was locked
    try:
        yield path
    finally:
        scratch.remove(Path(path))
        os.close(lock)


def remove_left() -> None:
    """Remove the directories that killed processes left in SHORT_IN: those of this process's user, or of all for root;
    and kill the tools that worked there.

    Blocks. Nothing in them is followed: a user may have put anything below such a name.
    """
    with contextlib.suppress(OSError), os.scandir(SHORT_IN) as entries:
        for entry in entries:
            if entry.name.startswith(SHORT) and entry.is_dir(follow_symlinks=False):
                _remove_if_left(entry.path)


def _remove_if_left(path: str) -> None:
    with contextlib.suppress(OSError):
        lock = os.open(path, _DIRECTORY)
        try:
            owner = os.fstat(lock).st_uid
            if os.geteuid() in (0, owner):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _kill_marked(path, owner)
                scratch.remove(Path(path))
        finally:
            os.close(lock)


def _kill_marked(mark: str, owner: int) -> None:
    """Kill the processes of a user's that have a mark in their environment: podman's second process, which it starts in
    a user namespace, outlives the first.
    """
    wanted = f"{MARK}={mark}".encode()
    for name in filter(has_digits_only, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid != owner:
                continue
            process = os.pidfd_open(int(name))
            try:
                if wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)


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


def _run(command: list[str], fds: tuple[int, ...], mark: str) -> bytes:
    here = os.path.abspath(TOOLS)
    environ = {**os.environ, "HOME": here, "XDG_RUNTIME_DIR": here, "TMPDIR": here, "APPTAINER_CACHEDIR": here}
    with tempfile.TemporaryFile(dir=here) as out, tempfile.TemporaryFile(dir=here) as errors:
        done = subprocess.run(
            command,
            env={**environ, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            check=False,
            pass_fds=fds,
            preexec_fn=functools.partial(user_process.die_with, os.getpid()),  # this process has one thread
        )
        out.seek(0)
        errors.seek(0)
        if done.returncode:
            said = errors.read().decode(errors="replace").strip().splitlines()
            raise OSError(f"{command[0]} says: {said[-1][:MOST_SAID] if said else f'status {done.returncode}'}")
        return out.read()

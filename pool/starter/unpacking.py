"""Images that are no directories yet: fetched and unpacked by a process that became the job's user.

An archive (`docker save`, `podman save`, an OCI archive) and a directory that is an OCI layout are unpacked layer by
layer (`layers.py`). An image of a registry is fetched as such an archive by `skopeo` or `podman`, or unpacked by
`apptainer`, which unpacks SIF files, too (`image_tools.py`). The result is the job's root like any other directory.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import resource
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pool.errors import PoolError
from pool.jobs.activation import UNPACKED_IMAGE
from pool.starter import image_tools, layers, scratch, user_process
from pool.starter.image_tools import MOST_SAID, PATH
from pool.starter.place import UnixAccount

#: The name of the unpacked image in the scratch directory of a job whose machine keeps no images.
ROOT = UNPACKED_IMAGE
#: The prefix of a directory in which an image is not whole yet.
UNFINISHED = ".new-"
#: The prefix of an image that was given up.
GONE = ".gone-"
#: Bytes of address space in which an image is read: descriptions that want more are no images.
MEMORY = 2 << 30


class CannotUnpack(PoolError):
    """An image that cannot be fetched or unpacked."""


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """The program of an image, by its configuration.

    Attributes:
        environment: what its programs have in the environment, where the job says nothing else.
        entrypoint, command: the words of its own program, and those that a job's arguments take the place of.
    """

    environment: dict[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, wire: Any) -> ImageConfig:
        """As another process says it; what is not as it should be is left out."""
        said = wire if isinstance(wire, dict) else {}
        variables = said.get("environment")
        found = variables.items() if isinstance(variables, dict) else ()
        return cls(
            {str(name): str(value) for name, value in found if name and "\0" not in f"{name}{value}"},
            _command_words(said.get("entrypoint")),
            _command_words(said.get("command")),
        )

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An image that lies in a directory now.

    Attributes:
        bytes: that its files were written with.
    """

    config: ImageConfig
    bytes: int


async def name(image: str, directory: Path, account: UnixAccount, login: str, leaves: asyncio.Event) -> str:
    """The digest of what an image is now; empty where that cannot be known without fetching it.

    Args:
        image: a URL, or a file or OCI layout whose relative name begins in `directory`.
        login: what the registry is shown, as podman's file of logins; empty for none.
        leaves: set when the job is not wanted here any more.

    Raises:
        CannotUnpack: with the image, and what is wrong.
    """
    answer = await _run_as_user("name", image, directory, account, leaves, {"login": login})
    return str(answer["digest"])


async def unpack(
    image: str,
    directory: Path,
    account: UnixAccount,
    leaves: asyncio.Event,
    *,
    into: str = ROOT,
    login: str = "",
    most: int | None = None,
) -> Unpacked:
    """Unpack an image into a new directory `into` in `directory`; what was there is replaced.

    Args:
        most: bytes that it may take.

    Raises:
        CannotUnpack: with the image, and what is wrong; nothing is left of it.
    """
    more = {"into": into, "login": login, "most": most}
    answer = await _run_as_user("unpack", image, directory, account, leaves, more)
    size = answer.get("bytes")
    return Unpacked(ImageConfig.from_wire(answer.get("config")), size if type(size) is int and size > 0 else 0)


async def remove_gone(directory: Path, account: UnixAccount) -> None:
    """Remove from a directory of the user's the images that were given up, and those that were never finished."""
    await _run_as_user("remove", "", directory, account, asyncio.Event(), {})


async def _run_as_user(
    what: str, image: str, directory: Path, account: UnixAccount, leaves: asyncio.Event, more: dict[str, Any]
) -> dict[str, Any]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        answer = await user_process.run_module(
            __name__, {"do": what, "image": image, **more}, fd, account, PATH, leaves
        )
    except user_process.Stopped:
        raise CannotUnpack("the job was stopped while its image was unpacked", retry=True) from None
    except user_process.Died as death:
        raise CannotUnpack(f"the process that unpacks {image} {death}", retry=True) from None
    finally:
        os.close(fd)
        if image_tools.is_tools(image):
            await asyncio.to_thread(image_tools.remove_left)
    if "error" in answer:
        raise CannotUnpack(f"cannot unpack the image {image}: {answer['error']}"[: 2 * MOST_SAID])
    return answer


# -- the process that unpacks ------------------------------------------------------------------------------------


def main() -> None:
    """Do what standard input says, in the directory whose descriptor is given."""
    work = user_process.read_work()
    answer: dict[str, Any]
    try:
        answer = _DONE[work["do"]](work)
    except Exception as error:  # an image may say anything, and break any rule of its formats
        reason = getattr(error, "strerror", None) or str(error)
        answer = {"error": reason or type(error).__name__}
    json.dump(answer, sys.stdout)


def _name(work: dict[str, Any]) -> dict[str, Any]:
    if image_tools.is_tools(work["image"]) and "://" in work["image"]:
        return {"digest": image_tools.digest_of(work["image"], work["login"])}
    return {"digest": layers.digest_of(work["image"])}


def _unpack(work: dict[str, Any]) -> dict[str, Any]:
    image, here = os.path.abspath(work["image"]) if "://" not in work["image"] else work["image"], os.getcwd()
    unfinished = f"{UNFINISHED}{os.getpid()}"
    if os.path.lexists(unfinished) and _is_left(unfinished):
        scratch.remove(Path(unfinished))
    os.mkdir(unfinished, 0o700)
    mark = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(mark, fcntl.LOCK_EX)  # it is being worked on as long as this process lives
    try:
        os.chdir(unfinished)
        before = _state(image)
        archive, room = image, layers.Room(work["most"])
        if image_tools.is_tools(image):
            archive = image_tools.FETCHED if image_tools.fetch(image, ROOT, work["login"]) else ""
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        said = layers.unpack(archive, ROOT, room) if archive else {}
        if _state(image) != before:
            raise ValueError("it was changed while it was unpacked")
        config = _config_of(said, ROOT)
        scratch.remove(Path(here, work["into"]))
        os.rename(ROOT, os.path.join(here, work["into"]))
    finally:
        os.chdir(here)
        scratch.remove(Path(unfinished))
    return {"config": config.to_wire(), "bytes": room.written}


def _remove(work: dict[str, Any]) -> dict[str, Any]:
    for one in os.listdir("."):
        if one.startswith(GONE) or (one.startswith(UNFINISHED) and _is_left(one)):
            image_tools.end_pause(f"{one}/{image_tools.TOOLS}")
            scratch.remove(Path(one))
    return {}


def _is_left(unfinished: str) -> bool:
    """Whether nobody works on an image any more that is not whole."""
    try:
        fd = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


_DONE = {"name": _name, "unpack": _unpack, "remove": _remove}


def _state(image: str) -> tuple[int, ...]:
    """The properties that change when a file is changed; of a directory only itself."""
    if "://" in image:
        return ()
    found = os.stat(image)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _config_of(said: dict[str, Any], root: str) -> ImageConfig:
    """The words in the configuration of an image; relative words of its own program become files of its directory.

    A job begins in its own directory, the image's author had WorkingDir in mind: `python app.py` there is
    `python /app/app.py` here.
    """
    found = said.get("config")
    config = found if isinstance(found, dict) else {}
    listed = config.get("Env")
    variables = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    start = config.get("WorkingDir")
    start = start if isinstance(start, str) else ""

    def placed(word: str) -> str:
        inner = os.path.normpath(os.path.join("/", start, word))
        if not start.strip("/") or word.startswith(("/", "-")) or not os.path.isfile(f"{root}{inner}"):
            return word
        return inner

    entrypoint, command = _command_words(config.get("Entrypoint")), _command_words(config.get("Cmd"))
    whole = (*entrypoint, *command)
    words = tuple(word if not number and "/" not in word else placed(word) for number, word in enumerate(whole))
    return ImageConfig(
        dict(one.split("=", 1) for one in variables if "=" in one and not one.startswith("=")),
        words[: len(entrypoint)],
        words[len(entrypoint) :],
    )


def _command_words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return ("/bin/sh", "-c", value)
    listed = value if isinstance(value, (list, tuple)) else ()
    return tuple(word for word in listed if isinstance(word, str) and "\0" not in word)


if __name__ == "__main__":
    main()

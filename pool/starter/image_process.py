"""The process that fetches and unpacks images, as the job's user (`unpacking` starts it)."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from pool.starter import image_tools, layers, scratch, user_process
from pool.starter.unpacking import GONE, ROOT, ImageConfig, command_words

#: The prefix of a directory in which an image is not whole yet.
UNFINISHED = ".new-"
#: Bytes of address space in which an image is read: descriptions that want more are no images.
MEMORY = 2 << 30


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

    entrypoint, command = command_words(config.get("Entrypoint")), command_words(config.get("Cmd"))
    whole = (*entrypoint, *command)
    words = tuple(word if not number and "/" not in word else placed(word) for number, word in enumerate(whole))
    return ImageConfig(
        dict(one.split("=", 1) for one in variables if "=" in one and not one.startswith("=")),
        words[: len(entrypoint)],
        words[len(entrypoint) :],
    )


if __name__ == "__main__":
    main()

"""Images that are no directories yet: fetched and unpacked by a process that became the job's user.

Its program is `image_process`: a node needs no module that reads archives. An archive (`docker save`, `podman save`, an
OCI archive) and a directory that is an OCI layout are unpacked layer by layer (`layers.py`). An image of a registry is
fetched as such an archive by `skopeo` or `podman`, or unpacked by `apptainer`, which unpacks SIF files, too
(`image_tools.py`). The result is the job's root like any other directory.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pool.errors import PoolError
from pool.jobs.activation import UNPACKED_IMAGE
from pool.starter import image_tools, user_process
from pool.starter.image_tools import MOST_SAID, PATH
from pool.starter.place import UnixAccount

#: The name of the unpacked image in the scratch directory of a job whose machine keeps no images.
ROOT = UNPACKED_IMAGE
#: The prefix of an image that was given up.
GONE = ".gone-"
#: The program that fetches and unpacks.
_PROCESS = "pool.starter.image_process"


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
            command_words(said.get("entrypoint")),
            command_words(said.get("command")),
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
            _PROCESS, {"do": what, "image": image, **more}, fd, account, PATH, leaves
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


def command_words(value: Any) -> tuple[str, ...]:
    """The words of a program as an image has them; a text is one for the shell."""
    if isinstance(value, str):
        return ("/bin/sh", "-c", value)
    listed = value if isinstance(value, (list, tuple)) else ()
    return tuple(word for word in listed if isinstance(word, str) and "\0" not in word)

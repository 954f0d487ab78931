"""From what a user hands in to a description that was understood.

Text, the path of a file, or a dict of commands; read on this machine, with this user's environment. It
decides nothing about the language: that is `pool.jobs.description`.
"""

from __future__ import annotations

import functools
import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pool.client.commands import from_commands
from pool.decimals import has_digits_only
from pool.errors import PoolError

if TYPE_CHECKING:
    import random

    from pool.client.known_descriptions import KnownDescriptions
    from pool.jobs.description import Description, DescriptionFiles, SubmitFacts
    from pool.outside import OutsideWorld

    What: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Description


class DescriptionWarning(UserWarning):
    """A description can be queued, and something in it has hardly the meaning that its author had in mind."""


BIGGEST = 16 * 1024 * 1024  # bytes; nobody writes a longer description by hand or by program


def describe(
    what: What,
    *,
    iwd: str | os.PathLike[str] | None = None,
    name: str | None = None,
    extra: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    outside: OutsideWorld | None = None,
    known: KnownDescriptions | None = None,
) -> Description:
    """Reads a description.

    Args:
        what: text (anything with a line end or `=` in it), a path, a dict of commands, or a `Description`.
        iwd: the directory relative names start from; the current one by default.
        name: what errors call the text.
        extra: further commands, `name = value` each, that come before the text's own.
        environ: the environment `getenv` takes from; this process's by default.
        known: descriptions that were read before, one of which may be the result, and is not to be changed then.

    Raises:
        PoolError: the file cannot be read, or the description is wrong; the message names file and line.
    """
    from pool.jobs.description import Description, read_description

    if isinstance(what, Description):
        return what
    from pool.outside import OutsideWorld

    outside = outside or OutsideWorld()
    where = os.path.abspath(iwd or os.getcwd())
    if isinstance(what, Mapping):
        text, called = from_commands(what), "the given commands"
    elif isinstance(what, str) and ("\n" in what or "=" in what):
        text, called = what, "the given text"
    elif not isinstance(what, (str, os.PathLike)):
        raise PoolError(
            f"cannot read a description from a {type(what).__name__}",
            hint="give the path of a file, its text, or a dictionary of commands",
        )
    else:
        path = Path(where, what)
        text, called = read_file(path), os.fspath(what)
    called = name or called
    given, user, facts = os.environ if environ is None else environ, user_name(), local_facts(outside, called)

    def read(files: DescriptionFiles | None, chance: random.Random) -> Description:
        return read_description(
            text,
            name=called,
            iwd=where,
            environ=given,
            user=user,
            facts=facts,
            files=files,
            extra=tuple(extra),
            chance=chance,
        )

    if known is None:
        return read(None, outside.chance)
    key = (text, called, where, user, tuple(extra), replace(facts, now=int(facts.now)))
    return known.read(key, given, outside.chance, read)


def read_file(path: Path) -> str:
    """The text of a description file.

    Raises:
        PoolError: it is missing, not a file, not readable, too long, or not text.
    """
    try:
        if path.is_dir():
            raise PoolError(f"cannot read job file {path}: it is a directory", hint="name the file in it")
        with path.open("rb") as file:
            raw = file.read(BIGGEST + 1)
    except OSError as error:
        raise PoolError(f"cannot read job file {path}: {(error.strerror or str(error)).lower()}") from error
    if len(raw) > BIGGEST:
        raise PoolError(f"cannot read job file {path}: longer than {BIGGEST >> 20} MiB", hint="is it the right file?")
    if b"\0" in raw:
        raise PoolError(f"cannot read job file {path}: it is not text", hint="is it the executable instead?")
    return raw.decode("utf-8", "surrogateescape")


def user_name() -> str:
    """The name of the user this process runs as; its number where it has none."""
    return _name_of(os.getuid())


@functools.cache
def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def domain_here() -> str:
    """The names of this machine's file system and user domain where no node says otherwise."""
    return socket.gethostname()


def local_facts(outside: OutsideWorld, called: str = "job.sub") -> SubmitFacts:
    """The facts that a description takes from the machine it is submitted on.

    Args:
        called: what is said about the description as a whole names it so.
    """
    import time

    from pool.jobs.description import SubmitFacts

    system = os.uname()
    name, version = distribution()
    major, _, minor = version.partition(".")
    now = outside.wall()
    domain = domain_here()
    return SubmitFacts(
        filesystem_domain=domain,
        uid_domain=domain,
        arch="X86_64" if system.machine == "x86_64" else system.machine,
        opsys=system.sysname.upper(),
        opsys_version=f"{major}{int(minor or 0):02d}" if has_digits_only(minor or "0") else major,
        opsys_major=major,
        opsys_and_version=f"{name}{major}",
        now=now,
        zone=time.localtime(now).tm_gmtoff,
        allow_commands=True,  # the user's own file, read with the user's own rights
        name=called,
    )


# As batch systems have spelled them in OpSysAndVer for years; others get a capital letter.
_SPELLED = {"rhel": "RedHat", "centos": "CentOS", "almalinux": "AlmaLinux", "opensuse-leap": "openSUSE"}


def distribution() -> tuple[str, str]:
    """Name and version of this Linux (`Debian`, `12`); `Linux` and nothing where it does not say."""
    import platform

    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "Linux", ""
    name = release.get("ID", "linux")
    return _SPELLED.get(name, name.capitalize()), release.get("VERSION_ID", "")

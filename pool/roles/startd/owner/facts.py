"""The facts of the machine for its slots' ads: what the sensors read, what settings and keepers can do, the clock.

Reads only; `pool.roles.startd.owner.judge` decides what follows from them.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pool.classad import ParseError, parse_expr
from pool.config import Settings
from pool.jobs import network
from pool.machine import Sensors
from pool.machine.clock import clock_facts
from pool.policy.shipped import PolicyError
from pool.roles.base import LANGUAGE
from pool.roles.startd.slots.records import Wire
from pool.starter import image_tools, urls
from pool.starter.spec import Abilities

#: Seconds after which it is looked again whether there is a Java.
JAVA_LOOKED_FOR = 300.0
_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class HasAbilities(Protocol):
    """The keepers: what they can do, known after they are opened."""

    abilities: Abilities


def own_attributes(settings: Settings) -> Wire:
    """The attributes that the administrator adds to a machine's ads (STARTD_ATTRS).

    Raises:
        PolicyError: a name is none, or what it stands for is no expression.
    """
    found: Wire = {}
    for name in settings.text("STARTD_ATTRS").replace(",", " ").split():
        text = settings.text(name)
        if not _ATTRIBUTE.fullmatch(name) or not text:
            raise PolicyError(f"STARTD_ATTRS names {name}, and there is no such macro", hint=f"write {name} = ...")
        try:
            value = literal_of(text)
        except ParseError as error:
            raise PolicyError(f"{name}, which STARTD_ATTRS names, is no expression: {error}") from error
        found[name] = value
    return found


def literal_of(text: str) -> Any:
    """An expression's text in wire form: a plain value where it is one."""
    expression = parse_expr(text, syntax="old")
    value = expression.value
    return value if type(value) in (bool, int, float, str) else [expression.text]


class MachineFacts:
    """The facts of one machine.

    Args:
        settings: those in force.
        plugins: the transfer program of each scheme of URLs that is not the machine's own.
        why_no_way_out: why jobs' own networks have no way out here; empty where they may have one.

    Attributes:
        wire: the facts as they were read last, empty before; another object after each reading.
    """

    def __init__(
        self,
        sensors: Sensors,
        keepers: HasAbilities,
        settings: Callable[[], Settings],
        wall: Callable[[], float],
        plugins: Mapping[str, str],
        why_no_way_out: Callable[[], str],
        find_program: Callable[[str], str | None],
    ) -> None:
        self._sensors = sensors
        self._keepers = keepers
        self._settings = settings
        self._wall = wall
        self._plugins = plugins
        self._why_no_way_out = why_no_way_out
        self._find_program = find_program
        self._read_at = -math.inf
        self._same: tuple[Abilities, Wire] | None = None
        self._java: tuple[float, str | None] = (-math.inf, None)
        self.wire: Wire = {}
        self.reload()

    def reload(self) -> None:
        """Take in the settings.

        Raises:
            PolicyError: STARTD_ATTRS cannot be read; the attributes before stay in force.
        """
        self._own = own_attributes(self._settings())
        self._same = None

    def read(self) -> None:
        """Read the facts again."""
        self.wire = self.now()

    def freshen(self, age: float | None = None) -> None:
        """Read the facts again if the last reading is older than so many seconds, or than EVALUATE_INTERVAL."""
        if age is None:
            age = self._settings().number("EVALUATE_INTERVAL")
        if asyncio.get_running_loop().time() >= self._read_at + age:
            self.read()

    def now(self) -> Wire:
        """The machine's facts at this moment."""
        wall = self._wall()
        self._read_at = now = asyncio.get_running_loop().time()
        facts = self._own | self._sensors.read(wall) | clock_facts(wall) | self._abilities()
        if now >= self._java[0] + JAVA_LOOKED_FOR:
            self._java = (now, self._find_program("java"))
        if (java := self._java[1]) is not None:
            facts |= {"HasJava": True, "JavaPath": java}
        return facts

    def _abilities(self) -> Wire:
        """The abilities that settings and keepers give the machine; they seldom change."""
        able, settings = self._keepers.abilities, self._settings()
        if self._same is not None and self._same[0] is able:
            return self._same[1]
        facts: Wire = {
            "FileSystemDomain": settings.text("FILESYSTEM_DOMAIN"),
            "UidDomain": settings.text("UID_DOMAIN"),
            "HasFileTransfer": True,
            "HasSelfCheckpointTransfers": True,
            "HasJobDeferral": True,
            "HasFileTransferPluginMethods": ",".join(dict.fromkeys((*urls.OWN, *urls.SIGNED, *self._plugins))),
            "HasPerFileEncryption": True,  # all that goes between nodes is encrypted
            "HasCheckpoint": able.checkpoint,
            "CondorVersion": LANGUAGE,
        }
        if able.full:
            facts |= {"HasContainer": True, "HasSandboxImage": True, **image_tools.abilities()}
        if able.saving:
            facts["CheckpointLacks"] = "; ".join(able.saving)
        facts |= _remote_io(able)
        facts |= network.offered(able.private_network_why, settings.text("JOB_NETWORK"), self._why_no_way_out())
        self._same = (able, facts)
        return facts


def _remote_io(able: Abilities) -> Wire:
    """Whether and how jobs here can be shown the submit machine's files."""
    why = {"RemoteIOWhy": able.remote_why} if able.remote_why else {}
    return ({"HasRemoteIO": True, "RemoteIOHow": able.remote} if able.remote else {}) | why

"""`condor_version` and `condor_config_val`."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pool.compat.asking import ask_pool, print_error
from pool.compat.options import Option, parse
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool

#: The release whose commands, modules and formats the drop-ins follow. Tools choose their options by it.
FOLLOWED = "25.14.1"
FOLLOWED_DATE = "2026-09-10"

CONFIG_VAL = (
    Option("name", 1, 1),
    Option("pool", 1, 1),
    Option("address", 1, 1, key="pool"),
    Option("verbose", 1),
    Option("dump", 1),
    Option("config", 1),
    Option("schedd", 3),
    Option("startd", 3),
    Option("collector", 3),
    Option("negotiator", 3),
    Option("master", 3),
    Option("set", 3, 1, refused="change the node's configuration file, then `poolnode reload`"),
    Option("rset", 4, 1, refused="change the node's configuration file, then `poolnode reload`"),
    Option("help", 2),
    Option("version", 3),
)


def version_text() -> str:
    """`$CondorVersion: 25.14.1 2026-09-10 BuildID: poolnode-N.N $`."""
    from pool import __version__

    return f"$CondorVersion: {FOLLOWED} {FOLLOWED_DATE} BuildID: poolnode-{__version__} PackageID: {FOLLOWED}-1 $"


def platform_text() -> str:
    """`$CondorPlatform: x86_64_Debian12 $`."""
    from pool.client.descriptions import distribution

    name, number = distribution()
    return f"$CondorPlatform: {platform.machine()}_{name}{number.partition('.')[0]} $"


def version(words: Sequence[str]) -> int:
    """Run `condor_version`; returns its exit status."""
    for word in words:
        if word not in ("-version", "-syntax", "-arch", "-opsys", "-help"):
            raise PoolError(f"unrecognized argument {word}")
    print(version_text())
    print(platform_text())
    return 0


def config_val(words: Sequence[str]) -> int:
    """Run `condor_config_val`; returns its exit status: 1 if a name is not defined."""
    given = parse(CONFIG_VAL, words)
    if given.has("help") or given.has("version"):
        from pool.compat.actions import help_or_version

        return help_or_version("condor_config_val", CONFIG_VAL, given, "NAME ...")
    if not (given.words or given.has("dump") or given.has("config")):
        raise PoolError("no name of a setting", hint="condor_config_val NAME, or -dump")
    found = settings_here(given.value("pool"))
    if given.has("config"):
        files = sorted({value[1] for value in found.values() if value[1] and value[1] != "default"})
        print("Configuration source:\n" + "".join(f"\t{name}\n" for name in files), end="")
        return 0
    if given.has("dump"):
        chosen = [name for name in sorted(found) if not given.words or any(one.upper() in name for one in given.words)]
        sys.stdout.write("".join(f"{name} = {found[name][0]}\n" for name in chosen))
        return 0
    missing = False
    for name in given.words:
        value = found.get(name.upper())
        if value is None:
            print_error(f"Not defined: {name}")
            missing = True
        elif given.has("verbose"):
            print(f"{name.upper()} = {value[0]}\n # at: {value[1] or 'default'}")
        else:
            print(value[0])
    return int(missing)


def settings_here(address: str | None = None) -> dict[str, tuple[str, str]]:
    """Settings of the node by name, also by HTCondor's names of them: (value, where it was set)."""

    async def question(pool: Pool) -> tuple[Any, dict[str, Any]]:
        return await pool.call("node.settings"), await pool.info()

    rows, info = ask_pool(address, question)
    found = {str(row["name"]).upper(): (str(row["value"]), str(row.get("where") or "")) for row in _rows(rows)}
    for name, value in _usual(found, info).items():
        found.setdefault(name, (value, "default"))
    return found


def _rows(rows: Any) -> list[dict[str, Any]]:
    if isinstance(rows, dict):
        return [
            {"name": name, **(value if isinstance(value, dict) else {"value": value})} for name, value in rows.items()
        ]
    return [row if isinstance(row, dict) else dict(zip(("name", "value", "where"), row, strict=False)) for row in rows]


def _usual(found: dict[str, tuple[str, str]], info: dict[str, Any]) -> dict[str, str]:
    from pool.client.descriptions import distribution, local_facts, user_name
    from pool.outside import OutsideWorld

    facts = local_facts(OutsideWorld())
    name, number = distribution()
    host = os.uname().nodename
    address = str(info.get("address") or "").partition("://")[2]
    collector = str(info.get("collector") or "").partition("://")[2] or address
    domain = str(info.get("filesystem_domain") or facts.filesystem_domain)
    return {
        "ARCH": facts.arch,
        "COLLECTOR_HOST": collector,
        "CONDOR_HOST": collector.rpartition(":")[0] or host,
        "CONDOR_VERSION": FOLLOWED,
        "CONDORVERSION": version_text(),
        "FILESYSTEM_DOMAIN": domain,
        "FULL_HOSTNAME": host,
        "HOSTNAME": host.partition(".")[0],
        "OPSYS": facts.opsys,
        "OPSYSANDVER": f"{name}{number.partition('.')[0]}",
        "OPSYSMAJORVER": number.partition(".")[0],
        "SCHEDD_HOST": str(info.get("node") or host),
        "SCHEDD_NAME": str(info.get("node") or host),
        "UID_DOMAIN": domain,
        "USERNAME": user_name(),
    }

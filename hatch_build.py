"""The package's build hook: compiles the C programs into the wheel, and in place for an editable installation.

They are programs and no extension modules, so one wheel serves every Python 3: its tag is
py3-none with the platform of this machine. What goes wrong is one line, not a trace.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KeeperHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds keeper (pool/checkpoint/bin), ranker and pmix_server (pool/mpi/bin), what is in pool/network/bin."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are gathered; `version` is 'standard' or 'editable'."""
        if self.target_name != "wheel":
            return
        builder = _builder(Path(self.root))
        try:
            program = builder.build()
            ranker = builder.build(builder.RANKER, sources=builder.RANKER_SOURCES)
            pmix = builder.build(builder.PMIX_SERVER, sources=builder.PMIX_SOURCES)
            relay = builder.build(builder.RELAY, sources=builder.RELAY_SOURCES)
            static_relay = builder.build(builder.STATIC_RELAY, sources=builder.RELAY_SOURCES, static=True)
            way_out = builder.build(builder.WAY_OUT, sources=builder.WAY_OUT_SOURCES)
        except builder.CannotBuild as error:
            print(f"\nerror: {error}\n", file=sys.stderr, flush=True)
            sys.exit(1)
        if version != "editable":
            build_data["force_include"][str(program)] = "pool/checkpoint/bin/keeper"
            build_data["force_include"][str(ranker)] = "pool/mpi/bin/ranker"
            build_data["force_include"][str(pmix)] = "pool/mpi/bin/pmix_server"
            build_data["force_include"][str(relay)] = "pool/network/bin/relay"
            build_data["force_include"][str(static_relay)] = "pool/network/bin/relay_static"
            build_data["force_include"][str(way_out)] = "pool/network/bin/way_out"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"


def _platform() -> str:
    """linux_x86_64 and the like: the machine that the compiler makes programs for is taken to be this one."""
    return f"linux_{os.uname().machine}"


def _builder(root: Path) -> ModuleType:
    """pool/checkpoint/build.py, by its path: the package's own dependencies are not here during a build."""
    spec = importlib.util.spec_from_file_location("keeper_build", root / "pool" / "checkpoint" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

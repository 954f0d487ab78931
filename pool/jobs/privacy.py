"""The parts of a job's ad that only its owner and administrators may see: its environment, and keys in URLs.

People put passwords and tokens there. They go to the machine that runs the job and to nobody else: not to the
negotiator or the collector, and not into what others list. Names are as the schedd spells them (`canonical`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pool.jobs.urls import without_secrets

ENVIRONMENT = ("Environment", "Env", "ProcessEnvironments")
#: The attributes that may hold URLs with a user and a password: of a job, and of the processes of a job of several.
URLS = (
    *("TransferInput", "PublicInputFiles", "CommonInputFiles", "JarFiles", "TransferOutputRemaps", "Processes"),
    *("Args", "Arguments"),
)
_SPELLED = {name.lower(): name for name in (*ENVIRONMENT, *URLS)}


def canonical(name: str) -> str:
    """A private attribute's name as it is spelled here, however its writer did; any other name as it is."""
    return _SPELLED.get(name.lower(), name)


def public(wire: Mapping[str, Any]) -> dict[str, Any]:
    """A job's ad, in wire form, as everybody may see it."""
    seen = {name: value for name, value in wire.items() if name not in ENVIRONMENT}
    for name in URLS:
        if name in seen:
            seen[name] = _without_secrets(seen[name])
    return seen


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, (list, tuple)):
        return [_without_secrets(one) for one in value]
    return {name: _without_secrets(one) for name, one in value.items()} if isinstance(value, dict) else value


def may_see(viewer: str | None, owner: object) -> bool:
    """Whether a viewer sees all of an owner's jobs. None is an administrator; a node is "" and sees nobody's."""
    return viewer is None or viewer == owner

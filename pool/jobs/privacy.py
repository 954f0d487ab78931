"""What of a job's ad is nobody's business but its owner's and the administrators': its environment.

People put passwords and tokens there. It goes to the machine that runs the job and to nobody else: not to the
negotiator or the collector, and not into what others list. Names are as the schedd spells them (`canonical`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENVIRONMENT = ("Environment", "Env", "ProcessEnvironments")
_SPELLED = {name.lower(): name for name in ENVIRONMENT}


def canonical(name: str) -> str:
    """A private attribute's name as it is spelled here, however its writer did; any other name as it is."""
    return _SPELLED.get(name.lower(), name)


def public(wire: Mapping[str, Any]) -> dict[str, Any]:
    """A job's ad, in wire form, as everybody may see it."""
    return {name: value for name, value in wire.items() if name not in ENVIRONMENT}


def may_see(viewer: str | None, owner: object) -> bool:
    """Whether a viewer sees all of an owner's jobs. None is an administrator; a node is "" and sees nobody's."""
    return viewer is None or viewer == owner

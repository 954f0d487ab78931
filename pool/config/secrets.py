"""Settings that are shown to people without the secrets in them.

No setting of the table is a secret, but administrators keep passwords and tokens in macros of their own and use them in
settings. The value of a macro with such a name is never shown, neither by itself nor inside another value.
"""

from __future__ import annotations

import re
from typing import Any

from pool.config.settings import Settings
from pool.jobs.urls import HIDDEN, without_secrets

#: Names of macros that hold secrets.
SECRET = re.compile(r"PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|CREDENTIAL|(^|_)(API_?|PRIVATE_)?KEY$", re.IGNORECASE)
#: A shorter text than this is found in too much that is none.
SHORTEST = 4


def shown(settings: Settings, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `Settings.describe` as they may be shown."""
    secrets = {settings.text(name) for name in settings.values if SECRET.search(name)}
    secrets = {text for text in secrets if len(text) >= SHORTEST}
    return [{**row, "value": _hide(str(row["name"]), row["value"], secrets)} for row in rows]


def _hide(name: str, value: Any, secrets: set[str]) -> Any:
    if isinstance(value, str):
        value = without_secrets(value)
    if SECRET.search(name) and value:
        return HIDDEN
    if isinstance(value, str):
        for secret in sorted(secrets, key=len, reverse=True):
            value = value.replace(secret, HIDDEN)
    return value


def hidden(settings: Settings, name: str, value: str) -> str:
    """One setting's value as it may be shown."""
    return str(shown(settings, [{"name": name, "value": value}])[0]["value"])

"""Logins of image registries: which entry of a file of logins is for an image.

The file is podman's and docker's (containers-auth.json(5)): {"auths": {NAME: {"auth": base64 of user:password}}}.
NAME is a registry, or one of its namespaces or repositories; the longest that an image is in counts.
"""

from __future__ import annotations

import json
from typing import Any

#: The registry of names that name none, and what its logins are kept under.
_DEFAULT, _DEFAULT_NAMES = "docker.io", ("docker.io", "index.docker.io", "registry-1.docker.io")
_SECRETS = ("auth", "identitytoken")


class NoLogin(ValueError):
    """A file has no login for an image; says why."""


def registry_of(image: str) -> tuple[str, str]:
    """The registry of an image (HOST or HOST:PORT), and its repository there without tag and digest."""
    name = image.removeprefix("docker://").partition("@")[0]
    first, found, rest = name.partition("/")
    if not found or not ("." in first or ":" in first or first == "localhost"):
        first, rest = _DEFAULT, name
    path, _, last = rest.rpartition("/")
    last = last.partition(":")[0]
    if first == _DEFAULT and not path:
        path = "library"
    return first, f"{path}/{last}" if path else last


def login_for(image: str, text: str) -> str:
    """Of a file of logins only what an image needs, as such a file: its registry's name and the login.

    Raises:
        NoLogin: the file has none for it.
    """
    registry, repository = registry_of(image)
    try:
        said = json.loads(text)
        auths = said.get("auths") or {}
        entries = {_plain(str(name)): value for name, value in auths.items() if isinstance(value, dict)}
    except (ValueError, AttributeError, RecursionError):
        raise NoLogin("it is no file of logins") from None
    hosts = _DEFAULT_NAMES if registry == _DEFAULT else (registry,)
    parts = repository.split("/")
    for length in range(len(parts), -1, -1):
        for host in hosts:
            entry: Any = entries.get("/".join((host, *parts[:length])))
            secrets = {key: entry[key] for key in _SECRETS if isinstance(entry.get(key), str)} if entry else {}
            if secrets:
                return json.dumps({"auths": {registry: secrets}})
    helpers = said.get("credHelpers") or {}
    if said.get("credsStore") or (isinstance(helpers, dict) and any(host in helpers for host in hosts)):
        raise NoLogin(f"the login for {registry} is kept by a helper program, which does not work on other machines")
    raise NoLogin(f"it has no login for {registry}")


def _plain(name: str) -> str:
    """docker writes some names as URLs."""
    bare = name.removeprefix("https://").removeprefix("http://").rstrip("/")
    return bare.removesuffix("/v1").removesuffix("/v2")

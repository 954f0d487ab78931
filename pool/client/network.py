"""The network of a user's tool: unix sockets by the kernel's word, TCP with a token or a certificate.

A caller from another machine identifies itself by the first of these: the user's token, from `$POOLNODE_TOKEN` or from
the file `poolnode/token` in the user's configuration directory; the certificate of the node whose state directory this
user may read. No TLS module is loaded for a unix socket, which nearly every command uses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pool.client.addresses import NoPool, state_directory
from pool.wire import Connection, Dispatcher, Listening, RealNetwork


class NothingToShow(NoPool):
    """This user has neither a token nor a certificate for another machine."""


TRUST = ("trust", ".")  # where below its state directory a node keeps what it proves itself with


class UserNetwork:
    """Connects as this user.

    Args:
        environ: where tokens and directories are named; this process's by default.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._local = RealNetwork()
        self._remote: RealNetwork | None = None

    async def connect(self, address: str, dispatcher: Dispatcher | None = None) -> Connection:
        """Connect.

        Raises:
            CannotConnect: nobody answers there.
            PoolError: nothing is here to show to another machine, or what is here is no good.
        """
        if not address.startswith("tcp:"):
            return await self._local.connect(address, dispatcher)
        if self._remote is None:
            self._remote = await self._with_credentials(address)
        return await self._remote.connect(address, dispatcher)

    async def listen(self, address: str, dispatcher: Dispatcher) -> Listening:
        """As the real network without credentials does: on unix sockets only."""
        return await self._local.listen(address, dispatcher)

    async def _with_credentials(self, address: str) -> RealNetwork:
        token = user_token(self._environ)
        if token is not None:
            from pool.wire.join import user_credentials

            return RealNetwork(credentials=(await user_credentials(token))[1])
        from pool.wire.credentials import Credentials

        state = state_directory(self._environ, os.getuid())
        for directory in (state / name for name in TRUST):
            if os.access(directory, os.X_OK) and Credentials.exist(directory):
                return RealNetwork(credentials=Credentials.load(directory))
        raise NothingToShow(
            f"cannot use {address}: there is nothing here to show to another machine",
            hint=f"put a user's token into $POOLNODE_TOKEN or {token_file(self._environ)}",
        )


def token_file(environ: Mapping[str, str]) -> Path:
    """Where a user keeps a token."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or "~", ".config")
    return Path(home).expanduser() / "poolnode" / "token"


def user_token(environ: Mapping[str, str]) -> str | None:
    """The user's token, if there is one.

    Raises:
        NoPool: there is a file for it that cannot be read.
    """
    if environ.get("POOLNODE_TOKEN"):
        return environ["POOLNODE_TOKEN"]
    file = token_file(environ)
    try:
        return file.read_text(encoding="ascii").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise NoPool(f"cannot read the token in {file}: {getattr(error, 'strerror', None) or error}") from error


def user_network() -> UserNetwork:
    """The network of this user's tools."""
    return UserNetwork()

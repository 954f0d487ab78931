"""A node's membership in its pool: its lasting instance, its certificate, and how others come in.

A node that nobody else talks to has its unix socket and nothing more. Trust is made when it is first needed: the first
token makes the pool's certificate authority on the node that has the collector, and from then on that node listens on
the network. Every other node joins with a token, gets its certificate there, and listens from its first start.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.config import Settings
from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy.user_map import account_of, read_user_map
from pool.wire import Identity, own_identity
from pool.wire.errors import CallRefused
from pool.wire.identity import AUTHORITY_ROLE, PEER_POOL, user_name

if TYPE_CHECKING:
    from pool.wire.authority import Authority, JoinService
    from pool.wire.credentials import Credentials
    from pool.wire.tokens import TokenStore

INSTANCE, TRUST, TOKENS = "instance", "trust", "tokens.json"
#: A place on the network that does not exist, to learn which of our addresses leads outside. Nothing is sent.
NOWHERE = ("192.0.2.1", 9)
DAY = 86400.0
#: Seconds for which a token may be good.
LONGEST_LIFE = 36525 * DAY


class NotInAPool(PoolError):
    """The node is not part of a pool of several nodes, and what was asked for needs that."""


class NoSubmitterAccount(PoolError):
    """A user has no account on this machine that his jobs' files could belong to."""


class Enrolment:
    """One node's place in its pool.

    Attributes:
        instance: drawn at the first start and kept.
        credentials: what the node proves itself with; None for one that is alone.
        collector: the address of the pool's collector as far as joining gave it; empty when that is this node.
        settings: those in force; new certificates and announced addresses go by them.
    """

    def __init__(
        self, state: Path, name: str, roles: tuple[str, ...], settings: Settings, outside: OutsideWorld
    ) -> None:
        self.instance = _instance(state, outside)
        self.identity: Identity = own_identity(name, roles)
        self.credentials: Credentials | None = None
        self.collector = ""
        self._name = name
        self._roles = roles
        self.settings = settings
        self._outside = outside
        self._trust = state / TRUST
        self._authority: Authority | None = None
        self._tokens: TokenStore | None = None

    @classmethod
    async def open(
        cls,
        state: Path,
        name: str,
        roles: tuple[str, ...],
        settings: Settings,
        outside: OutsideWorld,
        join: str | None,
    ) -> Enrolment:
        """The content of the state directory; with a token the pool is joined first.

        Raises:
            PoolError: the token is refused, or there is no pool for roles that need one.
        """
        read_user_map(settings.text("MAP_USERS"))
        found = cls(state, name, roles, settings, outside)
        if join is not None:
            from pool.wire.join import join as join_pool
            from pool.wire.tokens import Token

            if PEER_POOL in Token.read(join).roles:
                hint = "`poolnode flock accept POOL FILE` takes it"
                raise NotInAPool("this token invites another pool, and lets no machine in", hint=hint)
            found.credentials = await join_pool(join, name, found._trust)
        elif (found._trust / "node.crt").exists():
            from pool.wire.credentials import Credentials

            found.credentials = Credentials.load(found._trust)
            if found.is_authority and AUTHORITY_ROLE not in found.credentials.roles:  # of an earlier version
                found.credentials = await asyncio.to_thread(found._create)
        elif "collector" in roles and settings.is_set("LISTEN") and settings.text("LISTEN"):
            await found.found_pool()
        elif "collector" not in roles and not settings.text("COLLECTOR"):
            raise NotInAPool(
                f"a node with the roles {','.join(roles)} needs a pool to be part of",
                hint="join one with --join FILE (`poolnode token` there makes it), or add the role collector",
            )
        if found.credentials is not None:
            found.collector = found.credentials.address
            missing = set(roles) - set(found.credentials.roles) if found.collector else set()
            if missing:
                raise NotInAPool(
                    f"this node's certificate is not for {', '.join(sorted(missing))}",
                    hint="join again with a token for these roles",
                )
        return found

    @property
    def is_authority(self) -> bool:
        """Whether this node has the pool's authority."""
        from pool.wire.authority import Authority

        return self._authority is not None or Authority.exists(self._trust)

    @property
    def listens(self) -> bool:
        """Whether other nodes have to reach this one over the network."""
        return self.credentials is not None

    async def found_pool(self) -> None:
        """Make the pool's authority, or open it, and this node's own certificate."""
        if self.credentials is None:
            self.credentials = await asyncio.to_thread(self._create)

    def _create(self) -> Credentials:
        from pool.wire.authority import Authority
        from pool.wire.credentials import Credentials

        self._authority = Authority.open(self._trust, self._name, self._outside)
        self._signer()
        return Credentials.create(self._trust, self._authority, self._name, (*self._roles, AUTHORITY_ROLE))

    def join_service(self) -> JoinService | None:
        """The service that lets others in: on the node that has the authority."""
        from pool.wire.authority import Authority, JoinService

        if self._authority is None and Authority.exists(self._trust):
            self._authority = Authority.open(self._trust, self._name, self._outside)
        if self._authority is None:
            return None
        self._authority.life = timedelta(seconds=self.settings.number("CERTIFICATE_LIFE"))
        return JoinService(self._authority, self.tokens())

    def tokens(self) -> TokenStore:
        """The tokens this node has made."""
        if self._tokens is None:
            from pool.wire.tokens import TokenStore

            self._tokens = TokenStore(self._trust / TOKENS, self._outside)
        return self._tokens

    @property
    def fingerprint(self) -> str:
        """Of the pool's authority; empty where this node does not have it."""
        return self._signer().fingerprint if self.is_authority else ""

    # -- other pools -------------------------------------------------------------------------------------

    def pools(self) -> list[str]:
        """The other pools that have a certificate of this pool's authority."""
        if not self.is_authority:
            return []
        return sorted(name for name, known in self._signer().nodes().items() if PEER_POOL in known["roles"])

    def withdraw_invitations(self, pool: str) -> int:
        """Make another pool's tokens worthless that it has not used; how many there were."""
        return self.tokens().revoke_unused_for(pool) if self.is_authority else 0

    def _check_pool(self, pool: object) -> None:
        """Refuse a name for another pool that one of ours has. Raises CallRefused, BadRequest."""
        from pool.wire.certificates import check_name

        if not pool:
            raise CallRefused("an invitation is for one pool", hint="`poolnode flock invite POOL`")
        check_name(pool, ())
        if pool in (self._name, self.settings.text("POOL_NAME")):
            raise CallRefused(f"{pool} is this pool itself", hint="name the other pool otherwise here")
        nodes = self._signer().nodes()
        machines = {name.lower(): name for name, about in nodes.items() if PEER_POOL not in about["roles"]}
        if (machine := machines.get(str(pool).lower())) is not None:
            raise CallRefused(f"{machine} is a machine of this pool", hint="choose another name for the other pool")

    # -- belonging ---------------------------------------------------------------------------------------

    def revoke(self, name: str) -> None:
        """Remove a node from the pool; its name is free for whoever joins next.

        Raises:
            NotInAPool: this node does not have the pool's authority, or the pool has no such node.
        """
        authority, credentials = self._signer(), self.credentials
        assert credentials is not None
        assert credentials.revocations is not None
        if name == self._name:
            raise NotInAPool("a node cannot put itself out of its pool", hint="stop it instead")
        known = authority.nodes()
        if name not in known:
            hint = f"there are {', '.join(sorted(set(known) - {self._name})[:20]) or 'no others'}"
            raise NotInAPool(f"the pool has no node {name}", hint=hint)
        credentials.revocations.replace({name: self._outside.wall()})
        # A revoked node still has the token, with its uses left: it is worth nothing from now on.
        self.tokens().revoke_used_by(str(known[name]["key"]))
        authority.forget(name)

    def revoked(self) -> dict[str, float]:
        """When which nodes were removed from the pool."""
        found = self.credentials.revocations if self.credentials is not None else None
        return dict(found.since) if found is not None else {}

    def exclude(self, since: dict[str, float]) -> set[str]:
        """Take over the authority's list; the names that are new on it."""
        found = self.credentials.revocations if self.credentials is not None else None
        return found.replace(since) if found is not None else set()

    def sign_anew(self, request: str, name: str, roles: Iterable[str]) -> str:
        """A new certificate for a node's own key. Raises NotInAPool, NodeNameTaken, BadRequest."""
        return self._signer().issue_node(request, name, roles)

    def sign_own(self, request: str) -> str:
        """A new certificate for the node that has the authority."""
        return self._signer().issue_node(request, self._name, (*self._roles, AUTHORITY_ROLE), replace=True)

    def request(self) -> str:
        """The request to have this node's certificate renewed."""
        from pool.wire.certificates import new_request
        from pool.wire.credentials import pending_key

        return new_request(pending_key(self._trust), self._name)

    def renewed(self, certificate: str) -> None:
        """Use a new certificate from now on."""
        assert self.credentials is not None
        self.credentials.renewed(certificate)

    def time_to_renewal(self) -> float:
        """Seconds until a third of the certificate's life is left; not positive when that is over."""
        from pool.wire.certificates import renewal_time

        return renewal_time((self._trust / "node.crt").read_text()) - self._outside.wall()

    def _signer(self) -> Authority:
        if self._authority is None:
            self.join_service()
        if self._authority is None:
            raise NotInAPool(
                "only the node with the pool's authority can do that", hint="ask the node with the collector"
            )
        self._authority.life = timedelta(seconds=self.settings.number("CERTIFICATE_LIFE"))
        return self._authority

    def user_of(self, proof: str) -> Identity:
        """The user whom a token stands for, under the name of the account that MAP_USERS gives this user here."""
        found = self.tokens().user(proof)
        account = account_of(found.name, read_user_map(self.settings.text("MAP_USERS")), self._is_served)
        return replace(found, name=account) if account is not None else found

    def _is_served(self, name: str) -> bool:
        """Whether this machine has an account of that name, and this node may work for it."""
        if os.geteuid() != 0:
            return name == user_name(os.geteuid())
        try:
            pwd.getpwnam(name)
        except KeyError:
            return False
        return True

    def _check_account(self, name: str) -> None:
        """Refuse a token for a user whose jobs would never run here. Raises NoSubmitterAccount."""
        if account_of(name, read_user_map(self.settings.text("MAP_USERS")), self._is_served) is not None:
            return
        if os.geteuid() == 0:
            why, account = f"this machine has no user {name}", "ACCOUNT"
        else:
            account = user_name(os.geteuid())
            why = f"this node runs as {account} and serves nobody else"
        hint = f"make the account, or map the user to another one here: MAP_USERS = {name} = {account}"
        raise NoSubmitterAccount(f"cannot make a token for {name}: {why}", hint=hint)

    def token(self, address: str, params: dict[str, Any], caller: str) -> dict[str, Any]:
        """Make a token: {roles, lifetime, uses, node, user, administer} -> {token, expires}

        Raises:
            NotInAPool: this node does not have the pool's authority. CallRefused: no token can have such a role.
        """
        if (self._authority is None and self.join_service() is None) or self._authority is None:
            raise NotInAPool("tokens are made where the pool's authority is", hint="ask the node with the collector")
        roles = [str(role) for role in params.get("roles") or ()]
        asked = params.get("lifetime")
        lifetime = DAY if asked is None else float(asked)
        if not 0 < lifetime <= LONGEST_LIFE:
            raise CallRefused(f"a token cannot be good for {lifetime:g} seconds", hint="from a second to 100 years")
        if roles == ["user"]:
            name = str(params.get("user") or caller)
            if "schedd" in self._roles:
                self._check_account(name)
            made = self.tokens().issue_user(
                address,
                self._authority.fingerprint,
                name,
                lifetime,
                administer=bool(params.get("administer")),
            )
        elif PEER_POOL in roles and roles != [PEER_POOL]:
            raise CallRefused("another pool is no machine of this one", hint="`poolnode flock invite POOL`")
        elif AUTHORITY_ROLE in roles:
            raise CallRefused(f"no token gives the role {AUTHORITY_ROLE}", hint="only the pool's first node has it")
        else:
            if roles == [PEER_POOL]:
                self._check_pool(params.get("node"))
            made = self.tokens().issue_join(
                address,
                self._authority.fingerprint,
                roles,
                lifetime,
                uses=int(params.get("uses") or 1),
                node=params.get("node"),
            )
        return {"token": made.text, "expires": made.expires}

    def public_address(self, bound: str) -> str:
        """The address that others get, for the one that was bound."""
        public = self.settings.text("PUBLIC_ADDRESS")
        if public:
            return public if "://" in public else f"tcp://{public}"
        host, _, port = bound.removeprefix("tcp://").rpartition(":")
        if host.strip("[]") not in ("0.0.0.0", "::", ""):
            return bound
        return f"tcp://{own_host()}:{port}"


def own_host() -> str:
    """This machine's address as others most likely reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(NOWHERE)
            host: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
        return host


def _instance(state: Path, outside: OutsideWorld) -> str:
    path = state / INSTANCE
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        made = outside.secret(8)
        aside = path.with_name(f"{INSTANCE}.{os.getpid()}")
        aside.write_text(made)
        os.replace(aside, path)
        return made

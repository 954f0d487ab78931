"""Tokens: a text that lets a machine join the pool once, or a user in from elsewhere for a while.

The text carries the address, the authority's fingerprint (so that its bearer knows the pool before the pool knows the
bearer), an id and a secret. Only a hash of the secret is kept. The store decides what a token grants; the text's own
words about that are for people. A used or expired token is remembered for a while, so that it can be refused by its
name instead of as a wrong one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgpack

from pool.outside import OutsideWorld
from pool.wire.certificates import check_name, check_user
from pool.wire.errors import WireError
from pool.wire.identity import Identity, user_identity
from pool.wire.trust_files import kept_map, write_map

PREFIXES = {"join": "pooljoin-", "user": "pooluser-"}
REMEMBERED = 30 * 86400.0  # seconds after its end


class WrongToken(WireError):
    """It was never made here, or is damaged, or is for something else."""


class ExpiredToken(WireError):
    """Its time is over."""


class UsedToken(WireError):
    """It was used as often as it may be."""


@dataclass(frozen=True, slots=True)
class Token:
    """The content of a token's text.

    Attributes:
        kind: "join" for machines, "user" for people.
        address: the node that made it.
        fingerprint: of the pool's authority, SHA-256 in hexadecimal.
        id, secret: hexadecimal.
        roles: what a machine may be (join). name: who the user is (user).
        expires: wall time.
    """

    kind: Literal["join", "user"]
    address: str
    fingerprint: str
    id: str
    secret: str
    roles: tuple[str, ...] = ()
    name: str = ""
    expires: float = 0.0

    @property
    def text(self) -> str:
        """The token as it is handed over."""
        packed: bytes = msgpack.packb(
            [
                self.address,
                bytes.fromhex(self.fingerprint),
                bytes.fromhex(self.id),
                bytes.fromhex(self.secret),
                list(self.roles),
                self.name,
                round(self.expires),
            ]
        )
        whole = packed + zlib.crc32(packed).to_bytes(4, "big")
        return PREFIXES[self.kind] + base64.urlsafe_b64encode(whole).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> Token:
        """Reads the text of a token.

        Raises:
            WrongToken: it is none, or not whole.
        """
        text = "".join(text.split())
        prefix, dash, body = text.partition("-")
        kind = next((kind for kind, known in PREFIXES.items() if known == prefix + dash), None)
        if kind is None:
            raise WrongToken("this is not a token", hint="`poolnode token` on a node of the pool makes one")
        try:
            whole = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            packed, sum_ = whole[:-4], whole[-4:]
            if zlib.crc32(packed).to_bytes(4, "big") != sum_:
                raise ValueError("sum")
            address, print_, id_, secret, roles, name, expires = msgpack.unpackb(packed)
            return cls(
                "join" if kind == "join" else "user",
                str(address),
                bytes.hex(print_),
                bytes.hex(id_),
                bytes.hex(secret),
                tuple(map(str, roles)),
                str(name),
                float(expires),
            )
        except (ValueError, TypeError, binascii.Error, msgpack.UnpackException) as error:
            raise WrongToken("this token is not whole", hint="copy all of it, from the prefix to the end") from error

    @property
    def proof(self) -> str:
        """The token that a user's tool sends to be let in."""
        return f"{self.id}.{self.secret}"


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """The rights of a checked token.

    Attributes:
        node: the one name it is for, None for any that is free.
    """

    id: str
    roles: tuple[str, ...]
    node: str | None


class TokenStore:
    """The tokens that a node has made.

    Args:
        path: a file; what is in it is no secret that opens anything.
    """

    def __init__(self, path: Path, outside: OutsideWorld) -> None:
        self._path = path
        self._outside = outside
        self._tokens: dict[str, dict[str, Any]] = kept_map(path)

    # -- making ----------------------------------------------------------------------------------------------

    def issue_join(
        self,
        address: str,
        fingerprint: str,
        roles: Iterable[str],
        lifetime: float,
        *,
        uses: int = 1,
        node: str | None = None,
    ) -> Token:
        """A token with which machines join.

        Args:
            roles: what their certificates will name.
            lifetime: seconds.
            uses: how many machines.
            node: the one name it is for, which may be taken over from a machine that had it.
        """
        roles = tuple(sorted(set(roles)))
        check_name(node or "any", roles)
        record = {"kind": "join", "roles": list(roles), "uses": uses, "keys": [], "node": node}
        return self._issue(Token("join", address, fingerprint, "", "", roles), record, lifetime)

    def issue_user(
        self, address: str, fingerprint: str, name: str, lifetime: float, *, administer: bool = False
    ) -> Token:
        """A token with which a user comes in from elsewhere, as often as they like until it expires."""
        check_user(name)
        record = {"kind": "user", "name": name, "administer": administer}
        return self._issue(Token("user", address, fingerprint, "", "", (), name), record, lifetime)

    def _issue(self, draft: Token, record: dict[str, Any], lifetime: float) -> Token:
        now = self._outside.wall()
        number, secret = self._outside.secret(8), self._outside.secret(24)
        expires = int(now + lifetime)  # not later than was asked
        self._forget_old(now)
        self._tokens[number] = {**record, "hash": _hash(secret), "made": round(now), "expires": expires}
        self._save()
        return Token(draft.kind, draft.address, draft.fingerprint, number, secret, draft.roles, draft.name, expires)

    # -- using -----------------------------------------------------------------------------------------------

    def peek_grant(
        self, number: object, secret: object, *, key: str | None = None, node: str | None = None
    ) -> TokenGrant:
        """The rights of a join token; nothing is used up.

        Args:
            key: fingerprint of the key that it is to be used for; one that has used it already may again.
            node: the name that it is to be used for.

        Raises:
            WrongToken, ExpiredToken, UsedToken
        """
        record = self._find(number, secret, "join")
        if record["node"] is not None and node is not None and record["node"] != node:
            raise WrongToken(f"this token is for the node {record['node']}, not for {node}")
        if key is not None and key not in record["keys"] and len(record["keys"]) >= record["uses"]:
            raise UsedToken("this token was used already", hint="have a new one made: `poolnode token`")
        return TokenGrant(str(number), tuple(record["roles"]), record["node"])

    def use(self, grant: TokenGrant, key: str) -> None:
        """Count a use; on disk when this returns."""
        record = self._tokens[grant.id]
        if key not in record["keys"]:
            record["keys"].append(key)
            self._save()

    def user(self, proof: str) -> Identity:
        """The user whom a token's proof stands for.

        Raises:
            WrongToken, ExpiredToken
        """
        number, _, secret = proof.partition(".")
        record = self._find(number, secret, "user")
        who = user_identity(record["name"], administer=bool(record["administer"]))
        return replace(who, token=number, seconds=record["expires"] - self._outside.wall())

    def revoke(self, number: str) -> bool:
        """Make a token worthless; returns whether there was one."""
        found = self._tokens.pop(number, None)
        if found is not None:
            self._save()
        return found is not None

    def revoke_used_by(self, key: str) -> list[str]:
        """Make the join tokens worthless that a key has used; their ids."""
        used = [number for number, record in self._tokens.items() if key in record.get("keys", ())]
        for number in used:
            del self._tokens[number]
        if used:
            self._save()
        return used

    def revoke_unused_for(self, node: str) -> int:
        """Make the join tokens worthless that are for this name and that nobody has used; how many there were."""
        found = [
            number
            for number, record in self._tokens.items()
            if record["kind"] == "join" and record["node"] == node and not record["keys"]
        ]
        for number in found:
            del self._tokens[number]
        if found:
            self._save()
        return len(found)

    def listed(self) -> list[dict[str, Any]]:
        """The tokens there are, without what opens anything."""
        return [
            {
                "id": number,
                **{name: value for name, value in record.items() if name not in ("hash", "keys")},
                "used": len(record.get("keys", ())),
            }
            for number, record in sorted(self._tokens.items(), key=lambda item: item[1]["made"])
        ]

    def _find(self, number: object, secret: object, kind: str) -> dict[str, Any]:
        record = self._tokens.get(number) if isinstance(number, str) else None
        given = _hash(secret) if isinstance(secret, str) else ""
        if not hmac.compare_digest(given, record["hash"] if record is not None else _hash("")) or record is None:
            raise WrongToken("this token is not known here", hint="is it of this pool, and was it revoked?")
        if record["kind"] != kind:
            raise WrongToken(f"this token is for a {record['kind']}, not for a {kind}")
        if record["expires"] <= self._outside.wall():
            raise ExpiredToken("this token has expired", hint="have a new one made: `poolnode token`")
        return record

    def _forget_old(self, now: float) -> None:
        for number in [n for n, record in self._tokens.items() if record["expires"] + REMEMBERED < now]:
            del self._tokens[number]

    def _save(self) -> None:
        write_map(self._path, self._tokens)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()

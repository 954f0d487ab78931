"""Signatures that outlive a connection: Ed25519. `cryptography` is imported when it is first used.

A world signs entries of a ledger with a key of its own, not with the key of its certificate: the other pool keeps the
entries for years, and a certificate may be issued anew. Each world tells its public key on the connection on which
certificates have proved who it is.
"""

from __future__ import annotations

from pathlib import Path

from pool.wire.trust_files import TrustError, read_private, write_private


class SigningKey:
    """A private key.

    Attributes:
        public: the public key, hexadecimal.
    """

    def __init__(self, secret: bytes) -> None:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        raw = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.public = self._key.public_key().public_bytes(*raw).hex()

    @classmethod
    def open(cls, path: Path) -> SigningKey:
        """The key in a file, made where there is none.

        Raises:
            TrustError: the file is damaged.
        """
        if not path.exists():
            write_private(path, cls.new_secret().hex())
        try:
            return cls(bytes.fromhex(read_private(path).strip()))
        except ValueError as error:
            raise TrustError(f"{path} holds no signing key", hint="ledgers begin anew without the file") from error

    @staticmethod
    def new_secret() -> bytes:
        """A new private key."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        raw = (serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption())
        return Ed25519PrivateKey.generate().private_bytes(*raw)

    def sign(self, text: bytes) -> str:
        """The signature of a text, hexadecimal."""
        return self._key.sign(text).hex()


def is_signed(text: bytes, signature: str, public: str) -> bool:
    """Whether a signature is that of a text by a public key; both are hexadecimal and not trusted."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True

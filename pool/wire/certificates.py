"""Keys and certificates: the only module that knows X.509. `cryptography` is imported when it is first used.

A node's certificate says who it is in one alternative name, `poolnode:node/NAME?roles=A,B`, which Python's
own TLS can read. Keys are P-256, which every TLS library has. Lifetimes are long: a pool must not stop one
night because nobody thought of a date; a node that should not be in the pool is kept out by other means than
time.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from pool.wire.errors import WireError
from pool.wire.trust_files import TrustError

if TYPE_CHECKING:
    from cryptography import x509

SCHEME = "poolnode:node/"
#: A node's name holds no `@`: THING@NODE is what slots and submitters are called.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,199}")
ROLE = re.compile(r"[a-z][a-z0-9_-]{0,39}")
AUTHORITY_DAYS = 365 * 50
NODE_DAYS = 365 * 20
CLOCK_SLACK = timedelta(days=2)  # how far behind the clock of another machine may be


class BadRequest(WireError):
    """A request for a certificate that cannot be granted."""


class NotOfThisPool(WireError):
    """A certificate that says nothing about a node."""


def check_name(name: object, roles: Iterable[object]) -> None:
    """Raises BadRequest when the name of a node or a role has letters it cannot have."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadRequest(
            f"'{str(name)[:60]}' cannot be the name of a node", hint="letters, digits and . _ -, up to 200"
        )
    for role in roles:
        if not isinstance(role, str) or not ROLE.fullmatch(role):
            raise BadRequest(f"'{str(role)[:60]}' is not a role")


def check_user(name: object) -> None:
    """Raises BadRequest when the name of a user has letters it cannot have."""
    if not isinstance(name, str) or not USER.fullmatch(name):
        raise BadRequest(
            f"'{str(name)[:60]}' cannot be the name of a user", hint="letters, digits and . _ - @, up to 200"
        )


def fingerprint(pem: str) -> str:
    """SHA-256 of a certificate, in hexadecimal.

    Raises:
        TrustError: the text is no certificate.
    """
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.strip())).hexdigest()
    except ValueError as error:
        raise TrustError("this is not a certificate in PEM form") from error


def read_identity(certificate: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    """The name and the roles in a certificate, as `ssl` gives it after it has been verified.

    Raises:
        NotOfThisPool: there is none, or it is not one of a node.
    """
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "URI" and value.startswith(SCHEME):
            name, _, query = value.removeprefix(SCHEME).partition("?roles=")
            return unquote(name), frozenset(role for role in query.split(",") if role)
    raise NotOfThisPool("the other side has no certificate of a node", hint="is it a poolnode?")


def new_key() -> str:
    """A private key, PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return (
        ec.generate_private_key(ec.SECP256R1())
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode()
    )


def new_request(key: str, name: str) -> str:
    """A request for a certificate for this key, PEM; it proves that the asker has the key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    return builder.sign(_key(key), hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def new_authority(key: str, pool: str, now: float) -> str:
    """The certificate of a pool's authority, signed by itself, PEM."""
    from cryptography import x509

    private = _key(key)
    subject = _subject(f"authority of {pool}")
    builder = _builder(subject, subject, private.public_key(), private.public_key(), now, timedelta(AUTHORITY_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return _sign(builder.add_extension(_usage(authority=True), critical=True), private)


def sign_request(
    authority_key: str,
    authority: str,
    request: str,
    name: str,
    roles: Iterable[str],
    now: float,
    life: timedelta = timedelta(days=NODE_DAYS),
) -> tuple[str, str]:
    """A node's certificate (PEM) for the key of a request, and the fingerprint of that key.

    Raises:
        BadRequest: the request is none, is not signed with its own key, or the name is not allowed.
    """
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    roles = sorted(set(roles))
    check_name(name, roles)
    asked = _request(request)
    private = _key(authority_key)
    issuer = x509.load_pem_x509_certificate(authority.encode())
    public: Any = asked.public_key()
    uri = f"{SCHEME}{quote(name)}?roles={','.join(roles)}"
    builder = _builder(_subject(name), issuer.subject, public, private.public_key(), now, life)
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False)
    )
    return _sign(builder, private), key_fingerprint(request)


def life_of(certificate: str) -> tuple[float, float]:
    """When a certificate (PEM) was issued and when it ends, wall seconds."""
    from cryptography import x509

    found = x509.load_pem_x509_certificate(certificate.encode())
    begins = found.not_valid_before_utc + CLOCK_SLACK
    return begins.timestamp(), found.not_valid_after_utc.timestamp()


def renewal_time(certificate: str) -> float:
    """When a certificate (PEM) is to be renewed: a third of its life is left then; wall seconds."""
    issued, ends = life_of(certificate)
    return ends - (ends - issued) / 3


def key_fingerprint(request: str) -> str:
    """SHA-256 of the public key in a request, in hexadecimal.

    Raises:
        BadRequest: the request is none.
    """
    from cryptography.hazmat.primitives import serialization

    public = _request(request).public_key()
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _request(text: str) -> x509.CertificateSigningRequest:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        request = x509.load_pem_x509_csr(text.encode())
        sound = request.is_signature_valid
        public = request.public_key()
    except Exception as error:  # the library raises many kinds, all of which mean the same here
        raise BadRequest("this is not a request for a certificate") from error
    if not sound:
        raise BadRequest("the request for a certificate is not signed with its own key")
    if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name != "secp256r1":
        raise BadRequest("the request for a certificate is for a key of another kind", hint="P-256 is taken")
    return request


def _key(pem: str) -> Any:
    from cryptography.hazmat.primitives import serialization

    try:
        return serialization.load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError) as error:
        raise TrustError("the private key is damaged", hint="restore it from a copy") from error


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, public: Any, signer: Any, now: float, life: timedelta
) -> x509.CertificateBuilder:
    from cryptography import x509

    moment = datetime.fromtimestamp(now, UTC).replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - CLOCK_SLACK)
        .not_valid_after(moment + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(builder: x509.CertificateBuilder, private: Any) -> str:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

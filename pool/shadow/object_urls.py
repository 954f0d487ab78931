"""Inputs in object stores (`s3://`, `gs://`): signed on the submit side, fetched by https where the job runs.

The keys stay here, in their owner's files. A URL signed by version 4 of Amazon's signatures lets whoever has it read
that one object for an hour, and goes to the job's machine alone. So every machine can fetch it, without a library.
"""

from __future__ import annotations

import hashlib
import hmac
import urllib.parse
from dataclasses import dataclass
from datetime import UTC, datetime

from pool.errors import PoolError
from pool.jobs.urls import scheme_of

SCHEMES = frozenset({"s3", "gs"})
#: Seconds for which a signed URL is good: inputs before it may take long, and a machine's clock may be off.
GOOD_FOR = 3600
#: The region of a store that names none, and Google's host, which takes the same signatures.
_REGION, _GOOGLE = "us-east-1", "storage.googleapis.com"
_PLAIN = "-_.~"


class CannotSign(PoolError):
    """A URL of an object store that cannot be signed."""


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """The keys that a job's owner signs with; `token` goes with keys that were lent for a while."""

    id: str
    secret: str
    token: str = ""
    region: str = ""


def signed(url: str, keys: SigningKeys, now: float) -> str:
    """The https URL that reads an object, signed at this wall time.

    `s3://BUCKET/KEY` is Amazon's, in the region of the keys; `s3://HOST/BUCKET/KEY` is of any store, whose HOST has a
    dot or a port; `gs://BUCKET/KEY` is Google's.

    Raises:
        CannotSign: it names no object.
    """
    parts = urllib.parse.urlsplit(url)
    host, path = parts.netloc, urllib.parse.unquote(parts.path)
    region = keys.region or _region_in(host) or _REGION
    if not host or path in ("", "/") or "@" in host:
        raise CannotSign(f"{url} names no object of a store", hint="write s3://BUCKET/KEY or s3://HOST/BUCKET/KEY")
    if scheme_of(url) == "gs":
        host, path = _GOOGLE, f"/{host}{path}"
    elif "." not in host and ":" not in host:
        host = f"{host}.s3.{region}.amazonaws.com" if keys.region else f"{host}.s3.amazonaws.com"
    when = datetime.fromtimestamp(now, UTC)
    scope = f"{when:%Y%m%d}/{region}/s3/aws4_request"
    query = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
    query += [
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        ("X-Amz-Credential", f"{keys.id}/{scope}"),
        ("X-Amz-Date", f"{when:%Y%m%dT%H%M%SZ}"),
        ("X-Amz-Expires", str(GOOD_FOR)),
        ("X-Amz-SignedHeaders", "host"),
        *([("X-Amz-Security-Token", keys.token)] if keys.token else []),
    ]
    asked = "&".join(sorted(f"{_quoted(name)}={_quoted(value)}" for name, value in query))
    canonical = "\n".join(("GET", _quoted(path, "/"), asked, f"host:{host}", "", "host", "UNSIGNED-PAYLOAD"))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", f"{when:%Y%m%dT%H%M%SZ}", scope, digest))
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return f"https://{host}{_quoted(path, '/')}?{asked}&X-Amz-Signature={signature}"


def _quoted(text: str, safe: str = "") -> str:
    return urllib.parse.quote(text, safe=_PLAIN + safe)


def _region_in(host: str) -> str:
    """The region that a host of Amazon's names: BUCKET.s3.REGION.amazonaws.com, s3.REGION.amazonaws.com."""
    name = host.removesuffix(".amazonaws.com")
    if name == host:
        return ""
    _, found, region = f".{name}".rpartition(".s3.")
    return region if found and "." not in region else ""

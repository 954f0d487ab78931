"""URLs of object stores, signed as Amazon's own library signs them."""

from __future__ import annotations

from typing import Any

import pytest

from pool.shadow.object_urls import CannotSign, SigningKeys, signed

NOW = 1767225600.0


@pytest.mark.parametrize(
    ("url", "region", "asked"),
    [
        ("s3://bucket/key", "", "https://bucket.s3.amazonaws.com/key"),
        ("s3://bucket/a b/ü+~!.txt", "eu-west-1", "https://bucket.s3.eu-west-1.amazonaws.com/a b/ü+~!.txt"),
        ("s3://b.s3.eu-north-1.amazonaws.com/key", "", "https://b.s3.eu-north-1.amazonaws.com/key"),
        ("s3://store.example.org:9000/bucket/a%20b?versionId=x+y", "", "https://store.example.org:9000/bucket/a b"),
        ("gs://bucket/key", "", "https://storage.googleapis.com/bucket/key"),
    ],
)
@pytest.mark.parametrize("token", ["", "to/ken="])
def test_it_is_signed_as_the_library_signs_it(
    monkeypatch: pytest.MonkeyPatch, url: str, region: str, asked: str, token: str
) -> None:
    auth = pytest.importorskip("botocore.auth", reason="needs botocore, of the package's extra 'test'")
    from urllib.parse import parse_qsl, quote, urlsplit

    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    found = signed(url, SigningKeys("AKID", "secret", token, region), NOW)
    parts = urlsplit(found)
    query = dict(parse_qsl(parts.query))
    plain = {name: value for name, value in query.items() if not name.startswith("X-Amz-")}
    own: Any = auth.S3SigV4QueryAuth(Credentials("AKID", "secret", token or None), "s3", query_region(query), 3600)
    address = quote(asked, safe=":/~") + ("?versionId=x%20y" if plain else "")
    request = AWSRequest("GET", address)
    request.context["timestamp"] = query["X-Amz-Date"]
    own._modify_request_before_signing(request)
    text = own.string_to_sign(request, own.canonical_request(request))
    assert query["X-Amz-Signature"] == own.signature(text, request)
    assert query["X-Amz-Date"] == "20260101T000000Z"
    assert found.partition("?")[0] == address.partition("?")[0]


def query_region(query: dict[str, str]) -> str:
    return query["X-Amz-Credential"].split("/")[2]


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3:///key", "s3://user:x@host.org/bucket/key"])
def test_what_names_no_object_is_refused(url: str) -> None:
    with pytest.raises(CannotSign):
        signed(url, SigningKeys("AKID", "secret"), NOW)

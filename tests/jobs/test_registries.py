"""Logins of registries: only the one that an image needs leaves its owner's file."""

from __future__ import annotations

import json

import pytest

from pool.jobs.registries import NoLogin, login_for, registry_of


@pytest.mark.parametrize(
    ("image", "registry", "repository"),
    [
        ("docker://debian", "docker.io", "library/debian"),
        ("docker://debian:12", "docker.io", "library/debian"),
        ("docker://lab/fit:2", "docker.io", "lab/fit"),
        ("docker://localhost/fit", "localhost", "fit"),
        ("docker://example.org:5000/lab/fit:2@sha256:ab", "example.org:5000", "lab/fit"),
        ("docker://localhost:5000/fit", "localhost:5000", "fit"),
    ],
)
def test_the_registry_of_an_image(image: str, registry: str, repository: str) -> None:
    assert registry_of(image) == (registry, repository)


FILE = {
    "auths": {
        "example.org": {"auth": "host", "email": "ann@example.org"},
        "example.org/lab": {"auth": "lab"},
        "example.org/lab/secret": {"auth": "secret"},
        "https://index.docker.io/v1/": {"auth": "hub"},
        "token.example": {"identitytoken": "long"},
        "helped.example": {},
        "wrong.example": {"auth": 5},
    },
    "credHelpers": {"helped.example": "secretservice"},
}


@pytest.mark.parametrize(
    ("image", "login"),
    [
        ("docker://example.org/other/fit", {"auth": "host"}),
        ("docker://example.org/lab/fit:1", {"auth": "lab"}),
        ("docker://example.org/lab/secret:1", {"auth": "secret"}),
        ("docker://example.org/laboratory/fit", {"auth": "host"}),
        ("docker://debian", {"auth": "hub"}),
        ("docker://token.example/fit", {"identitytoken": "long"}),
    ],
)
def test_the_login_of_an_image_and_no_other(image: str, login: dict[str, str]) -> None:
    assert json.loads(login_for(image, json.dumps(FILE))) == {"auths": {registry_of(image)[0]: login}}


@pytest.mark.parametrize(
    ("image", "text", "why"),
    [
        ("docker://none.example/fit", json.dumps(FILE), "no login for none.example"),
        ("docker://wrong.example/fit", json.dumps(FILE), "no login for wrong.example"),
        ("docker://helped.example/fit", json.dumps(FILE), "kept by a helper program"),
        ("docker://example.org/fit", json.dumps({"credsStore": "pass"}), "kept by a helper program"),
        ("docker://example.org/fit", "[]", "no file of logins"),
        ("docker://example.org/fit", '{"auths": [5]}', "no file of logins"),
        ("docker://example.org/fit", "not JSON", "no file of logins"),
        ("docker://example.org/fit", "[" * 100_000, "no file of logins"),
    ],
)
def test_why_there_is_no_login(image: str, text: str, why: str) -> None:
    with pytest.raises(NoLogin, match=why):
        login_for(image, text)

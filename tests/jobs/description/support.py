"""Helpers for the tests of the description language: facts, and reading a text with files in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pool.jobs.description import Description, DescriptionError, SubmitFacts, read_description
from pool.jobs.description.check import IWD, Fixtures

FACTS = SubmitFacts(filesystem_domain="example.org", uid_domain="example.org", now=1e9, allow_commands=True)
ENVIRON = {"HOME": "/home/alice", "USER": "alice", "LANG": "C"}


def read(text: str, files: Mapping[str, str] | None = None, **options: Any) -> Description:
    """Read a description whose files are only in memory."""
    options.setdefault("facts", FACTS)
    options.setdefault("environ", ENVIRON)
    options.setdefault("check_files", False)
    return read_description(text, iwd=IWD, user="alice", files=Fixtures(files or {}), **options)


def attributes(text: str, index: int = 0, **options: Any) -> dict[str, Any]:
    """The wire form of one process."""
    draft = read(text, **options).clusters[0]
    return {**draft.attributes, **draft.delta(index)}


def refusal(text: str, **options: Any) -> DescriptionError:
    """The error that a text deserves."""
    with pytest.raises(DescriptionError) as caught:
        read(text, **options)
    return caught.value

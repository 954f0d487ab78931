"""The relay, built from these sources, and a variant that stops at the first error in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.checkpoint.build import RELAY_SOURCES, CannotBuild
from tests.conftest import Built


@pytest.fixture(scope="session")
def relay(built: Built) -> Path:
    """The relay of these sources; root's relay runs as nobody, who has to find it."""
    return built("relay", sources=RELAY_SOURCES)


@pytest.fixture(scope="session")
def sanitized_relay(built: Built) -> Path:
    try:
        return built("sanitized_relay", sanitize=True, sources=RELAY_SOURCES)
    except CannotBuild as error:
        pytest.skip(f"needs the sanitizers ({error})")

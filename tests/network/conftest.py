"""The relay, built from these sources, and a variant that stops at the first error in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.checkpoint.build import RELAY_SOURCES, CannotBuild, build


@pytest.fixture(scope="session")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The relay of these sources; root's relay runs as nobody, who has to find it."""
    return build(tmp_path_factory.mktemp("relay") / "relay", sources=RELAY_SOURCES)


@pytest.fixture(scope="session")
def sanitized_relay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build(tmp_path_factory.mktemp("relay") / "relay", sanitize=True, sources=RELAY_SOURCES)
    except CannotBuild as error:
        pytest.skip(f"needs the sanitizers ({error})")

"""System V message queues, semaphores and shared memory go with the job, under their ids and keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers
from tests.checkpoint.conftest import Compile
from tests.checkpoint.test_descriptors import lives
from tests.checkpoint.test_signalling import as_user


@pytest.mark.parametrize("other", [False, True], ids=["own", "other"])
async def test_system_v_objects(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile, other: bool
) -> None:
    await lives(keepers, tmp_path, as_user(other, tmp_path, scratch, compiled("objects")))
    assert (scratch / "out").read_text() == "ready\n0 wrong\n"

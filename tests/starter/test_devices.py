"""GPUs of a slot: the job's environment, the device files it sees, and that it sees no others."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC240

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pool.starter import devices
from pool.starter.keeper import NativeKeepers
from tests.starter.support import opened, shell, to_end


def machine(root: Path, *names: str) -> Path:
    for name in names:
        (root / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "dev" / name).touch()
    return root


def test_the_environment_names_what_the_job_can_open() -> None:
    shared = devices.variables(("2", "5"), own_files=False)
    assert shared["CUDA_VISIBLE_DEVICES"] == shared["ROCR_VISIBLE_DEVICES"] == "2,5"
    own = devices.variables(("2", "5"), own_files=True)
    assert own["CUDA_VISIBLE_DEVICES"] == own["GPU_DEVICE_ORDINAL"] == "0,1"
    assert own["_CONDOR_AssignedGPUs"] == "2,5"
    assert devices.variables(("GPU-1a",), own_files=True)["CUDA_VISIBLE_DEVICES"] == "GPU-1a"
    assert set(devices.variables((), own_files=False).values()) == {""}


def test_only_the_slots_own_files_are_shown(tmp_path: Path) -> None:
    machine(tmp_path, *(f"nvidia{n}" for n in range(4)), "nvidiactl", "nvidia-uvm", "dri/renderD130", "dri/card0")
    assert devices.files((), tmp_path) == ()
    assert set(devices.files(("2",), tmp_path)) == {
        "/dev/nvidia2",
        "/dev/dri/renderD130",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
    }
    assert "/dev/nvidia0" in devices.files(("MIG-unknown",), tmp_path)


def test_names_are_looked_up_with_the_driver(tmp_path: Path) -> None:
    machine(tmp_path, "nvidia0", "nvidia1")
    for minor in (0, 1):
        place = tmp_path / f"proc/driver/nvidia/gpus/0000:0{minor}"
        place.mkdir(parents=True)
        (place / "information").write_text(f"Model: \tX\nGPU UUID: \tGPU-{minor}abc-d\nDevice Minor: \t{minor}\n")
    assert devices.files(("GPU-1abc",), tmp_path) == ("/dev/nvidia1",)


async def test_a_full_job_sees_the_assigned_devices_only(best: NativeKeepers, place: Path, scratch: Path) -> None:
    if not best.abilities.full or os.getuid() != 0:
        pytest.skip("needs the ability full and root")
    there = [path for path in (Path("/dev/kfd"), Path("/dev/nvidia0")) if path.exists()]
    script = "for d in /dev/nvidia* /dev/kfd /dev/dri/*; do test -c $d && echo $d; done; exit 0"
    await to_end(best, shell(scratch, script))
    assert (scratch / "out").read_text() == ""
    shown = tuple(str(path) for path in there)
    wanted = (*shown, "/dev/mem", "/dev/kmsg", "/dev/nvidia-no-such", "/etc/shadow", "/dev/../dev/kmsg")
    end = await to_end(best, shell(scratch, script + "; test -e /dev/kmsg -o -e /dev/mem && exit 9", devices=wanted))
    assert end.code == 0
    assert tuple((scratch / "out").read_text().split()) == shown


@pytest.fixture
def accelerator() -> Path | None:
    """A device that is called like one and is none, where this test may make it."""
    path = Path("/dev/nvidia-poolnode-test")
    return path if os.getuid() == 0 else None


async def test_a_device_that_is_assigned_can_be_used(
    accelerator: Path | None, place: Path, program: Path, scratch: Path
) -> None:
    if accelerator is None:
        pytest.skip("needs a device that can be assigned")
    try:
        os.mknod(accelerator, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # as /dev/zero
    except OSError as error:
        pytest.skip(f"needs a device that can be assigned: {error.strerror}")
    try:
        async with opened(place, program) as keepers:
            if not keepers.abilities.full:
                pytest.skip("needs the ability full")
            script = f"head -c 4 {accelerator} | wc -c"
            await to_end(keepers, shell(scratch, script, devices=(str(accelerator),)))
            assert (scratch / "out").read_text() == "4\n"
            await to_end(keepers, shell(scratch, script))
            assert (scratch / "out").read_text() == "0\n"
    finally:
        accelerator.unlink()

"""Graphics processors by what drivers show, in containers and under other batch systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.machine.gpus import Gpu, find_gpus


@pytest.fixture
def nvidia(tmp_path: Path) -> Path:
    for number, model in enumerate(["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"]):
        information = tmp_path / f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information"
        information.parent.mkdir(parents=True)
        information.write_text(f"Model: \t\t {model}\nIRQ:   \t\t 1\n")
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / f"dev/nvidia{number}").touch()
    for other in ("nvidiactl", "nvidia-uvm", "nvidia-modeset"):
        (tmp_path / "dev" / other).touch()
    return tmp_path


A100 = Gpu("NVIDIA", "NVIDIA A100-SXM4-40GB")


def test_nvidias(nvidia: Path) -> None:
    assert find_gpus({}, nvidia) == [A100, A100]
    assert [gpu.id for gpu in find_gpus({}, nvidia)] == ["0", "1"]


def test_a_container_has_only_the_devices_it_was_given(nvidia: Path) -> None:
    (nvidia / "dev/nvidia0").unlink()
    assert find_gpus({}, nvidia) == [A100]


def test_without_device_files_the_drivers_list_counts(nvidia: Path) -> None:
    for number in (0, 1):
        (nvidia / f"dev/nvidia{number}").unlink()
    assert find_gpus({}, nvidia) == [A100, A100]


@pytest.mark.parametrize(
    ("allowed", "number"),
    [("0", 1), ("0,1", 2), ("GPU-abc,GPU-def", 2), ("", 0), ("-1", 0), ("1,-1,0", 1), ("0,1,2", 2)],
)
def test_another_batch_system_may_have_given_us_some(nvidia: Path, allowed: str, number: int) -> None:
    found = find_gpus({"CUDA_VISIBLE_DEVICES": allowed}, nvidia)
    assert [gpu.id for gpu in found] == allowed.split(",")[:number]


def test_amds(tmp_path: Path) -> None:
    for number, simd in enumerate((0, 240)):
        node = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 8\nsimd_count {simd}\n")
        (node / "name").write_text("gfx90a\n")
    assert find_gpus({}, tmp_path) == [Gpu("AMD", "gfx90a")]
    assert find_gpus({"ROCR_VISIBLE_DEVICES": ""}, tmp_path) == []


def test_a_display_is_no_compute_device(tmp_path: Path) -> None:
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/renderD128").touch()
    assert find_gpus({}, tmp_path) == []

"""Graphics processors by what drivers show, in containers and under other batch systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.classad import ClassAd, evaluate, parse_expr
from pool.machine.gpus import Gpu, facts_of, find_gpus
from pool.policy.carve import available, suitable


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


#: A tool as NVIDIA's: an old one knows no compute_cap, and one that fails says nothing.
TOOL = """#!/bin/sh
case "$*" in
*compute_cap*) [ "$KIND" = new ] || exit 6
    echo "0, GPU-c4a646d7-aaaa-bbbb-cccc-000000000000, Tesla T4, 00000000:3B:00.0, 15360, 7.5"
    echo "1, GPU-6a96bd13-aaaa-bbbb-cccc-000000000000, NVIDIA A100-SXM4-40GB, 00000000:AF:00.0, 40960, 8.0";;
*query*) [ "$KIND" = old ] || exit 6
    echo "0, GPU-c4a646d7-aaaa-bbbb-cccc-000000000000, Tesla T4, 00000000:3B:00.0, [N/A]";;
*) echo "| NVIDIA-SMI 535.54.03    Driver Version: 535.54.03    CUDA Version: 12.2     |";;
esac
"""


def told_by(tool: str, directory: Path) -> dict[str, str]:
    """The environment of a node that finds such a tool."""
    path = directory / "bin" / "nvidia-smi"
    path.parent.mkdir(exist_ok=True)
    path.write_text(TOOL)
    path.chmod(0o755)
    return {"PATH": f"{path.parent}:/usr/bin:/bin", "KIND": tool}


def test_a_machine_says_what_its_gpus_are(tmp_path: Path) -> None:
    facts = facts_of(find_gpus(told_by("new", tmp_path), tmp_path / "nothing"))
    assert (facts["GPUs"], facts["DetectedGPUs"]) == (2, "GPU-c4a646d7,GPU-6a96bd13")
    assert facts["GPUs_DriverVersion"] == 12.2
    assert facts["CUDAMaxSupportedVersion"] == 12020
    assert "GPUs_Capability" not in facts
    ad = ClassAd.from_wire(facts)
    wanted = {"Capability": 8.0, "GlobalMemoryMb": 40960, "DevicePciBusId": "00000000:AF:00.0", "Id": "GPU-6a96bd13"}
    for name, value in wanted.items():
        assert evaluate(parse_expr(f"GPUs_GPU_6a96bd13.{name}"), ad) == value
    both = ("GPU-c4a646d7", "GPU-6a96bd13")
    machine = ClassAd.from_wire({"AvailableGPUs": available(facts, both)})
    job = ClassAd.from_wire({"RequireGPUs": ["Capability >= 7.8 && GlobalMemoryMb > 20000"]})
    assert evaluate(parse_expr("countMatches(MY.RequireGPUs, TARGET.AvailableGPUs)"), job, machine) == 1
    assert suitable(facts, both, 1, job, 0.0) == ("GPU-6a96bd13",)
    assert suitable(facts, both, 1, ClassAd(), 0.0) == ("GPU-c4a646d7",)


def test_only_those_that_the_node_was_given_are_described(tmp_path: Path) -> None:
    environ = told_by("new", tmp_path) | {"CUDA_VISIBLE_DEVICES": "GPU-6a96bd13"}
    (gpu,) = find_gpus(environ, tmp_path / "nothing")
    assert (gpu.id, gpu.properties["Capability"]) == ("GPU-6a96bd13", 8.0)


@pytest.mark.parametrize(("tool", "known"), [("old", {"DeviceName": "Tesla T4"}), ("broken", {})])
def test_a_tool_that_knows_less_costs_nothing(nvidia: Path, tool: str, known: dict[str, str]) -> None:
    found = find_gpus(told_by(tool, nvidia), nvidia)
    assert len(found) == 2
    assert "Capability" not in found[0].properties
    assert {name: found[0].properties.get(name) for name in known} == known
    assert facts_of(found)["GPUs"] == 2

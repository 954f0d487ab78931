"""Which graphics processors jobs could be given, from what the kernel's drivers show, and what each of them is.

Where NVIDIA's own tool is installed, it describes NVIDIA's devices (`gpu_properties`). NVIDIA's and AMD's compute
devices count. The starter of this node may itself have been given only some (by a container, or another batch system):
CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES bound the number. A desktop's own display adapter, which only shows a
render node under /dev/dri, is no compute device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pool.classad import ClassAd
from pool.machine.gpu_properties import SHORT, Device, ask_nvidia
from pool.policy.carve import property_name

#: Properties that tell devices apart.
_OF_ONE = frozenset({"DeviceUuid", "DevicePciBusId"})
_DEVICE = re.compile(r"nvidia[0-9]+")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device.

    Attributes:
        model: what its driver calls it; empty where it does not say.
        properties: what is known of it, by HTCondor's names: Capability, GlobalMemoryMb ...
        id: what CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES names it by, for a job that may use it alone.
    """

    vendor: str
    model: str
    id: str = field(default="", compare=False)
    properties: dict[str, Any] = field(default_factory=dict, compare=False)


def find_gpus(environ: Mapping[str, str], root: Path = Path("/")) -> list[Gpu]:
    """The devices that this process may use."""
    reported = ask_nvidia(environ)
    nvidia = _nvidia(root) or [Gpu("NVIDIA", "") for _ in reported]
    return [
        *(_described(gpu, reported) for gpu in _visible(nvidia, environ.get("CUDA_VISIBLE_DEVICES"))),
        *_visible(_amd(root), environ.get("ROCR_VISIBLE_DEVICES")),
    ]


def _described(gpu: Gpu, reported: list[Device]) -> Gpu:
    """With what NVIDIA's tool says of it, and the short form of its identifier, which CUDA takes for a number."""
    by_name = len(gpu.id) > len("GPU-")
    device = next((one for one in reported if gpu.id == one.index or (by_name and one.uuid.startswith(gpu.id))), None)
    if device is None:
        return gpu
    short = device.uuid[:SHORT]
    alone = device.uuid.startswith("GPU-") and [one.uuid[:SHORT] for one in reported].count(short) == 1
    name = device.properties.get("DeviceName", gpu.model)
    return replace(gpu, model=name, id=short if alone else gpu.id, properties=device.properties)


def facts_of(gpus: list[Gpu]) -> dict[str, Any]:
    """The attributes of a machine's ad about them: all together, what they have in common, and each by itself."""
    if not gpus:
        return {}
    facts: dict[str, Any] = {"GPUs": len(gpus), "DetectedGPUs": ",".join(gpu.id for gpu in gpus)}
    each = [{"DeviceName": gpu.model or gpu.vendor, **gpu.properties} for gpu in gpus]
    for name, value in each[0].items():
        if name == "DeviceName" or (name not in _OF_ONE and all(one.get(name) == value for one in each)):
            facts[f"GPUs_{name}"] = value
    if "MaxSupportedVersion" in each[0]:
        facts["CUDAMaxSupportedVersion"] = each[0]["MaxSupportedVersion"]
    for gpu, properties in zip(gpus, each, strict=True):
        facts[property_name(gpu.id)] = [ClassAd({"Id": gpu.id, **properties}).to_new()]
    return facts


def _visible(found: list[Gpu], allowed: str | None) -> list[Gpu]:
    """As many as are listed: `0,2`, names, or nothing for none. Which they are is the driver's business."""
    if allowed is None:
        return [replace(gpu, id=str(number)) for number, gpu in enumerate(found)]
    listed: list[str] = []
    for one in allowed.split(","):
        if not one.strip() or one.strip().startswith("-"):
            break  # the driver, too, ignores what follows an entry that is none
        listed.append(one.strip())
    return [replace(gpu, id=name) for gpu, name in zip(found, listed, strict=False)]


def _nvidia(root: Path) -> list[Gpu]:
    """Device files, which a container has only of its own; the driver's list names the models."""
    models = [_model(each) for each in _listed(root / "proc/driver/nvidia/gpus")]
    devices = [path for path in _listed(root / "dev") if _DEVICE.fullmatch(path.name)]
    if not devices:
        return [Gpu("NVIDIA", model) for model in models]
    model = models[0] if len(set(models)) == 1 else ""
    return [Gpu("NVIDIA", models[n] if len(models) == len(devices) else model) for n, _ in enumerate(devices)]


def _model(directory: Path) -> str:
    for line in _text(directory / "information").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "Model":
            return value.strip()
    return ""


def _amd(root: Path) -> list[Gpu]:
    found = []
    for node in _listed(root / "sys/class/kfd/kfd/topology/nodes"):
        properties = dict(line.split()[:2] for line in _text(node / "properties").splitlines() if " " in line)
        if properties.get("simd_count", "0") != "0":
            found.append(Gpu("AMD", _text(node / "name").strip()))
    return found


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""

"""Which graphics processors jobs could be given, from what the kernel's drivers show. No vendor's tool is run.

NVIDIA's and AMD's compute devices count. Whoever started this node may have been given only some (a container,
another batch system): CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES bound the number. A desktop's own display
adapter, which only shows a render node under /dev/dri, is no compute device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

_DEVICE = re.compile(r"nvidia\d+")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device.

    Attributes:
        model: what its driver calls it; empty where it does not say.
        id: what CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES names it by, for a job that may use it alone.
    """

    vendor: str
    model: str
    id: str = field(default="", compare=False)


def find_gpus(environ: Mapping[str, str], root: Path = Path("/")) -> list[Gpu]:
    """The devices that this process may use."""
    return [
        *_visible(_nvidia(root), environ.get("CUDA_VISIBLE_DEVICES")),
        *_visible(_amd(root), environ.get("ROCR_VISIBLE_DEVICES")),
    ]


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
    return [
        Gpu("NVIDIA", models[n] if len(models) == len(devices) else model) for n, _ in enumerate(devices)
    ]


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

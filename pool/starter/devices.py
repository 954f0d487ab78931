"""The GPUs of a job's slot: what its environment says of them, and which device files a job of isolation 'full' sees.

A driver numbers the devices that a process can open, from 0. So a job that sees its own device files only has them
under the first numbers, while one that sees the whole machine needs the machine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pool.decimals import has_digits_only, whole_number

#: The device files that CUDA, ROCm and OpenCL open.
VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
#: Device files that every user of a GPU needs, whichever it is.
CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "kfd")
#: The number of the first render node.
FIRST_RENDER = 128


def variables(gpus: Sequence[str], *, own_files: bool) -> dict[str, str]:
    """The environment of a job that has these GPUs and no others; none at all hides every one.

    Args:
        gpus: numbers or names, as the machine's owner or driver gives them.
        own_files: it sees the device files of these only.
    """
    numbered = own_files and all(has_digits_only(name) for name in gpus)
    names = [str(number) for number in range(len(gpus))] if numbered else list(gpus)
    return dict.fromkeys(VARIABLES, ",".join(names)) | {"_CONDOR_AssignedGPUs": ",".join(gpus)}


def files(gpus: Sequence[str], root: Path = Path("/")) -> tuple[str, ...]:
    """The device files of GPUs; all there are when one cannot be told by its name, whose variable limits it then."""
    if not gpus:
        return ()
    everything = sorted(path for pattern in ("nvidia[0-9]*", "dri/renderD*") for path in (root / "dev").glob(pattern))
    minors = _minors(root)
    found: list[Path] = []
    for name in gpus:
        number = whole_number(name)
        if number is None:
            number = next((minors[own] for own in minors if own.startswith(name)), None)
        own = [path for path in everything if number is not None and _number(path) == number]
        if not own:
            found = everything
            break
        found += own
    control = [path for path in (root / "dev" / name for name in CONTROL) if path.exists()]
    return tuple(f"/{path.relative_to(root)}" for path in dict.fromkeys([*found, *control]))


def _number(path: Path) -> int | None:
    digits = path.name.removeprefix("nvidia").removeprefix("renderD")
    number = whole_number(digits)
    if number is None:
        return None
    return number - (FIRST_RENDER if path.name.startswith("renderD") else 0)


def _minors(root: Path) -> dict[str, int]:
    """The number of each NVIDIA device by its UUID."""
    found = {}
    for information in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        facts = {}
        try:
            lines = information.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = line.partition(":")
            facts[name.strip()] = value.strip()
        if (minor := whole_number(facts.get("Device Minor", ""))) is not None:
            found[facts.get("GPU UUID", "")] = minor
    return found

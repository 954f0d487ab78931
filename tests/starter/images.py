"""A small tree of files that a shell can live in: made of this machine's own programs and their libraries."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

#: Programs of an image, which lie in its /bin.
PROGRAMS = ("sh", "cat", "ls", "id", "touch", "mkdir", "env", "sleep", "echo")


def make_image(root: Path, *programs: str) -> Path:
    """An unpacked image with a mark of its own, /etc/image; returns its directory."""
    for name in ("bin", "etc", "data"):
        (root / name).mkdir(parents=True)
    for name in programs or PROGRAMS:
        program = shutil.which(name, path="/usr/bin:/bin")
        assert program is not None
        copy(Path(program), root / "bin" / name)
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", said):
            copy(Path(library), root / library.lstrip("/"))
    (root / "etc" / "image").write_text("the image's own\n")
    (root / "etc" / "hosts").write_text("\n")
    (root / "link").symlink_to("/etc/image")
    root.chmod(0o755)
    return root


def copy(source: Path, target: Path) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.resolve(), target)

"""Archives and layouts of images, as `docker save` and OCI tools write them: layer by layer, never beside it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
import zstandard

from pool.starter import image_tools, layers
from pool.starter.layers import Room

Entry = tuple[str, str, str]
LOWER: list[Entry] = [
    ("d", "./", ""),
    ("d", "usr", ""),
    ("d", "usr/bin", ""),
    ("l", "bin", "usr/bin"),
    ("f", "usr/bin/old", "old"),
    ("f", "keep", "kept"),
    ("d", "emptied", ""),
    ("f", "emptied/one", "1"),
    ("l", "out", "/outside"),
    ("h", "second", "keep"),
]
UPPER: list[Entry] = [
    ("f", "bin/new", "by way of a link"),
    ("f", "usr/bin/.wh.old", ""),
    ("f", "emptied/.wh..wh..opq", ""),
    ("f", "emptied/two", "2"),
    ("f", "out/file", "stays inside"),
    ("f", "../../above", "stays inside, too"),
    ("c", "null", ""),
]


def layer(entries: list[Entry]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for kind, name, text in entries:
            entry = tarfile.TarInfo(name)
            entry.type = {"d": tarfile.DIRTYPE, "l": tarfile.SYMTYPE, "h": tarfile.LNKTYPE, "c": tarfile.CHRTYPE}.get(
                kind, tarfile.REGTYPE
            )
            entry.mode = 0o755
            entry.linkname = text if kind in "lh" else ""
            entry.size = len(text) if kind == "f" else 0
            tar.addfile(entry, io.BytesIO(text.encode()) if kind == "f" else None)
    return data.getvalue()


CONFIG = {"Env": ["COLOUR=green", "wrong"]}


def archive(path: Path, form: str, *layers: bytes, config: dict[str, object] | None = None) -> Path:
    """An archive, or with `layout` a directory, of an image of these layers, which names an environment."""
    files: dict[str, bytes] = {}
    said = _blob(files, json.dumps({"config": CONFIG if config is None else config}).encode())
    if form in ("oci", "layout"):
        packed = [{"digest": _blob(files, _packed(data, number))} for number, data in enumerate(layers)]
        manifest = {"config": {"digest": said}, "layers": packed}
        files["index.json"] = json.dumps(
            {"manifests": [{"digest": _blob(files, json.dumps(manifest).encode())}]}
        ).encode()
        files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    elif form == "docker":
        names = [_name(_blob(files, data)) for data in layers]
        files["manifest.json"] = json.dumps([{"Config": _name(said), "Layers": names}]).encode()
    if form == "layout":
        for name, data in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
        return path
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def _packed(data: bytes, number: int) -> bytes:
    """Layers are packed in one way or the other."""
    return zstandard.compress(data) if number % 2 else gzip.compress(data)


def _blob(files: dict[str, bytes], data: bytes) -> str:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    files[_name(digest)] = data
    return digest


def _name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


@pytest.mark.parametrize("form", ["docker", "oci", "layout"])
def test_layers_lie_one_over_the_other_and_inside(tmp_path: Path, form: str) -> None:
    root = tmp_path / "inner" / "root"
    root.parent.mkdir()
    image = archive(tmp_path / "image.tar", form, layer(LOWER), layer(UPPER))
    assert layers.unpack(str(image), str(root), Room(None))["config"] == CONFIG
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    inside = ["above", "bin", "emptied", "emptied/two", "keep", "out", "outside", "outside/file", "second", "usr"]
    assert found == [*inside, "usr/bin", "usr/bin/new"]
    assert (root / "usr/bin/new").read_text() == "by way of a link"
    assert os.readlink(root / "out") == "/outside"
    assert (root / "second").stat().st_ino == (root / "keep").stat().st_ino
    assert sorted(path.name for path in tmp_path.rglob("above")) == ["above"]


def test_links_that_lead_in_a_circle_are_an_error(tmp_path: Path) -> None:
    image = archive(tmp_path / "image.tar", "docker", layer([("l", "a", "b"), ("l", "b", "a"), ("f", "a/x", "")]))
    with pytest.raises(ValueError, match="too many links"):
        layers.unpack(str(image), str(tmp_path / "root"), Room(None))


def test_what_is_no_archive_of_an_image_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither manifest"):
        layers.unpack(str(archive(tmp_path / "image.tar", "none")), str(tmp_path / "root"), Room(None))


@pytest.mark.parametrize("said", ["-1", "0", "1", "{shell}", "nonsense"])
def test_a_process_that_an_image_names_is_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """An image holds a file of podman's name, or says in it what is no process of podman's."""
    killed: list[int] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    for place in ("libpod/tmp", "storage/vfs/dir/layer"):
        directory = tmp_path / image_tools.TOOLS / place
        directory.mkdir(parents=True)
        (directory / "pause.pid").write_text(said.format(shell=os.getpid()))
    image_tools.end_pause()
    assert killed == []


def test_files_keep_their_times(tmp_path: Path) -> None:
    """Python compares the time of a module with the one that its compiled form was made of."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, moment in (("module", 1_500_000_000.0), ("early", -5.0), ("late", 1e18)):
            entry = tarfile.TarInfo(name)
            entry.mtime = moment
            tar.addfile(entry)
    image = archive(tmp_path / "image.tar", "docker", data.getvalue())
    layers.unpack(str(image), str(tmp_path / "root"), Room(None))
    times = [(tmp_path / "root" / name).stat().st_mtime for name in ("module", "early", "late")]
    assert times == [1_500_000_000, 0, 1 << 33]

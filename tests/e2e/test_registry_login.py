"""An image of a registry that asks for a login, end to end: Debian's docker-registry, a node, and a job of a user's."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.starter.image_tools import FETCHING, PATH
from tests.e2e import support
from tests.e2e.support import ALL, Node, Nodes, client
from tests.e2e.test_fetching import own_certificate
from tests.e2e.test_images import able
from tests.ordinary_user import as_root
from tests.starter.images import make_image
from tests.starter.test_registries import CONFIG as OF_CONFIG
from tests.starter.test_registries import LAYER as OF_LAYER
from tests.starter.test_registries import MANIFEST

USER, PASSWORD = "ann", "rosebud-of-ann"
#: Of htpasswd's kind, as `htpasswd -nbB -C 4` makes it.
HASHED = "$2b$04$IEHuPXYvpl1pbTxIaEatd.6H41HdCYXollqyUbT1.PmK3VRsO21k2"
CONFIG = """
version: 0.1
log: {{level: info}}
storage: {{filesystem: {{rootdirectory: {place}/blobs}}}}
auth: {{htpasswd: {{realm: tests, path: {place}/htpasswd}}}}
http: {{addr: "127.0.0.1:0", tls: {{certificate: {certificate}, key: {certificate}}}}}
"""
LISTENS = re.compile(r"listening on 127\.0\.0\.1:([0-9]+)")


def encoded(password: str) -> str:
    return base64.b64encode(f"{USER}:{password}".encode()).decode()


@pytest.fixture
def registry(nodes: Nodes) -> Iterator[tuple[str, Path]]:
    """Its host with one image, `mine:1`, and its certificate."""
    program = shutil.which("docker-registry")
    if program is None or shutil.which("skopeo", path=PATH) is None:
        pytest.skip("needs the Debian packages docker-registry and skopeo")
    place = nodes.directory("registry")
    certificate = own_certificate(place)
    (place / "htpasswd").write_text(f"{USER}:{HASHED}\n")
    (place / "config.yml").write_text(CONFIG.format(place=place, certificate=certificate))
    server = subprocess.Popen(
        [program, "serve", str(place / "config.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        host = next(f"127.0.0.1:{found[1]}" for line in server.stderr if (found := LISTENS.search(line)))
        threading.Thread(target=server.stderr.read, daemon=True).start()
        push(place, host, certificate)
        yield host, certificate
    finally:
        server.kill()
        server.wait()


def push(place: Path, host: str, certificate: Path) -> None:
    """Put the image into the registry, from a directory in skopeo's own form (`dir:`)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(make_image(place / "tree"), ".")
    layer, image = data.getvalue(), place / "image"
    image.mkdir()
    config = {
        **{"architecture": "amd64", "os": "linux", "config": {}, "history": [{}]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }

    def part(kind: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (image / digest).write_bytes(content)
        return {"mediaType": kind, "size": len(content), "digest": f"sha256:{digest}"}

    manifest = {
        **{"schemaVersion": 2, "mediaType": MANIFEST, "config": part(OF_CONFIG, json.dumps(config).encode())},
        "layers": [part(OF_LAYER, layer)],
    }
    (image / "manifest.json").write_text(json.dumps(manifest))
    (image / "version").write_text("Directory Transport Version: 1.1\n")
    logins = auth_file(place / "push.json", host, PASSWORD)
    subprocess.run(
        [
            *("skopeo", "--insecure-policy", "copy", "-q", "--dest-authfile", str(logins)),
            *(f"dir:{image}", f"docker://{host}/mine:1"),
        ],
        env={**os.environ, "SSL_CERT_FILE": str(certificate)},
        check=True,
    )


def auth_file(path: Path, host: str, password: str) -> Path:
    path.touch(0o600)
    path.write_text(json.dumps({"auths": {host: {"auth": encoded(password)}}}))
    return path


class Watcher:
    """Reads the command lines of all processes, again and again, as another user of the machine could."""

    def __init__(self, marks: tuple[str, ...], reference: str) -> None:
        self.seen: list[str] = []
        self.fetches: set[str] = set()
        self._marks, self._reference = marks, reference
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._over.wait(0.002):
            for directory in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    self.seen += [line for mark in self._marks if mark in line]
                    if self._reference in line and line.startswith(FETCHING):
                        self.fetches.add(line)


async def test_a_login_is_shown_to_the_registry_and_to_nobody_else(nodes: Nodes, registry: tuple[str, Path]) -> None:
    host, certificate = registry
    home = nodes.directory("home")
    whole: Node = nodes.start("whole", ALL, environ={"SSL_CERT_FILE": str(certificate)}).ready()
    image = f"docker://{host}/mine:1"
    (home / "job.sub").write_text(
        f"container_image = {image}\ndocker_send_credentials = true\nexecutable = cat\ntransfer_executable = false\n"
        "arguments = /etc/image\noutput = out\nlog = log\nqueue\n"
    )

    def submit(password: str) -> int:
        logins = auth_file(home / "logins.json", host, password)
        said = support.poolnode(*("submit", "-A", whole.address, "job.sub"), cwd=home, REGISTRY_AUTH_FILE=str(logins))
        assert said.returncode == 0, said.stderr
        found = re.search(r"cluster ([0-9]+)", said.stdout)
        assert found is not None, said.stdout
        return int(found[1])

    wrong = "not-rosebud-either"
    marks = (PASSWORD, encoded(PASSWORD), wrong, encoded(wrong))
    async with client(whole) as pool:
        await able(pool)
        with Watcher(marks, image) as watcher:
            (refused,) = await pool.cluster(submit(wrong)).wait(support.PATIENCE, until_stuck=True)
            (done,) = await pool.cluster(submit(PASSWORD)).wait(support.PATIENCE, until_stuck=True)
        assert refused.state == "held", refused
        assert "cannot unpack the image" in refused.reason
        assert "unauthorized" in refused.reason.lower() or "authentication required" in refused.reason.lower()
        assert done.ok, done
        assert (home / "out").read_text() == "the image's own\n"
    assert watcher.fetches, "no fetch was seen, so that nothing is shown"
    assert watcher.seen == []
    listings = [support.poolnode(*words, "-A", whole.address) for words in (("q", "--long"), ("history", "--long"))]
    places = [whole.text, (home / "log").read_text(), *(one.stdout + one.stderr for one in listings)]
    assert [mark for mark in marks for text in places if mark in text] == []
    with as_root():
        kept = [path for path in whole.state.rglob("*") if path.is_file() and holds(path, marks)]
    assert kept == []


def holds(path: Path, marks: tuple[str, ...]) -> bool:
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        return any(mark.encode() in data for mark in marks)
    return False

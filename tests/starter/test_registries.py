"""Images of a registry, fetched by the tools that this machine has, from a registry of the test's own."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import json
import os
import shutil
import ssl
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pool.starter.place import Account
from pool.starter.unpacking import PATH, ROOT, CannotUnpack, unpack
from tests.e2e.test_fetching import own_certificate
from tests.starter.test_unpacking import LOWER, UPPER, layer

SOMEBODY = 61235
MANIFEST, CONFIG, LAYER = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar",
)


def blobs() -> dict[str, tuple[str, bytes]]:
    """What a registry has of one image: by path the kind and the bytes."""
    layers = [layer([entry for entry in entries if entry[0] != "c"]) for entries in (LOWER[:8], UPPER[:1])]
    named = {_digest(data): data for data in layers}
    config = {
        **{"architecture": "amd64", "os": "linux", "config": {"Env": ["COLOUR=green"]}},
        **{"rootfs": {"type": "layers", "diff_ids": list(named)}, "history": [{}, {}]},
    }
    own = json.dumps(config).encode()
    manifest = {
        **{"schemaVersion": 2, "mediaType": MANIFEST},
        "config": {"mediaType": CONFIG, "size": len(own), "digest": _digest(own)},
        "layers": [{"mediaType": LAYER, "size": len(data), "digest": name} for name, data in named.items()],
    }
    said = json.dumps(manifest).encode()
    found = {f"/v2/mine/blobs/{name}": (LAYER, data) for name, data in {**named, _digest(own): own}.items()}
    return found | {"/v2/": ("text/plain", b"")} | {
        f"/v2/mine/manifests/{name}": (MANIFEST, said) for name in ("1", _digest(said))
    }


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Registry(http.server.BaseHTTPRequestHandler):
    """Gives one image to anybody."""

    protocol_version = "HTTP/1.1"
    have = blobs()

    def do_GET(self) -> None:
        """One thing of the image, or 404."""
        kind, data = self.have.get(self.path, ("", None))
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", _digest(data))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is said."""


@pytest.fixture
def common() -> Iterator[Path]:
    """A directory that every user may enter; pytest's own are closed."""
    path = Path(tempfile.mkdtemp(prefix="poolnode-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def registry(common: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its host, whose certificate the tools take."""
    certificate = own_certificate(common)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(
    not any(shutil.which(tool, path=PATH) for tool in ("skopeo", "podman")), reason="needs skopeo or podman"
)
@pytest.mark.parametrize("user", ["own", "another"])
async def test_an_image_of_a_registry_is_unpacked(registry: str, common: Path, user: str) -> None:
    if user == "another" and os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    uid = os.getuid() if user == "own" else SOMEBODY
    account = Account(uid, uid, (), "", "", switch=user == "another")
    scratch, other = common / "scratch", common / "other"
    for directory in (scratch, other):
        directory.mkdir()
        os.chown(directory, uid, uid if user == "another" else -1)
    environment = await unpack(f"docker://{registry}/mine:1", scratch, account, asyncio.Event())
    assert environment == {"COLOUR": "green"}
    assert (scratch / ROOT / "usr" / "bin" / "new").read_text() == "by way of a link"
    assert [path.name for path in scratch.iterdir()] == [ROOT]
    with pytest.raises(CannotUnpack, match=r"mine:2: (podman|skopeo) says"):
        await unpack(f"docker://{registry}/mine:2", other, account, asyncio.Event())
    left = [one for one in psutil.process_iter(["name", "status", "uids"]) if one.info["name"] == "podman"]
    assert [one for one in left if one.info["status"] != "zombie" and one.info["uids"].real == uid] == []

"""Images of a registry, fetched by the tools that this machine has, from a registry of the test's own."""

from __future__ import annotations

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC220, ASYNC240
import asyncio
import base64
import contextlib
import hashlib
import http.server
import json
import logging
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from pool.starter import image_tools, unpacking
from pool.starter.image_cache import ImageCache
from pool.starter.image_tools import FETCHING, PATH
from pool.starter.place import UnixAccount
from pool.starter.unpacking import ROOT, CannotUnpack, ImageConfig, unpack
from tests.conftest import REPOSITORY
from tests.e2e.support import until
from tests.e2e.test_fetching import own_certificate
from tests.starter.test_unpacking import LOWER, UPPER, Entry, layer

SOMEBODY = 61235
TOKEN = "a-token-for-a-while"
LOG = logging.getLogger("tests.images")
MANIFEST, CONFIG, LAYER = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar",
)


def blobs(more: list[Entry] | None = None) -> dict[str, tuple[str, bytes]]:
    """A registry's content for one image: by path the kind and the bytes."""
    given = (LOWER[:8], UPPER[:1], *([] if more is None else [more]))
    layers = [layer([entry for entry in entries if entry[0] != "c"]) for entries in given]
    named = {_digest(data): data for data in layers}
    config = {
        **{"architecture": "amd64", "os": "linux"},
        "config": {"Env": ["COLOUR=green"], "Entrypoint": ["/bin/new"], "Cmd": ["one"]},
        **{"rootfs": {"type": "layers", "diff_ids": list(named)}, "history": [{} for _ in named]},
    }
    own = json.dumps(config).encode()
    manifest = {
        **{"schemaVersion": 2, "mediaType": MANIFEST},
        "config": {"mediaType": CONFIG, "size": len(own), "digest": _digest(own)},
        "layers": [{"mediaType": LAYER, "size": len(data), "digest": name} for name, data in named.items()],
    }
    said = json.dumps(manifest).encode()
    found = {f"/v2/mine/blobs/{name}": (LAYER, data) for name, data in {**named, _digest(own): own}.items()}
    return (
        found
        | {"/v2/": ("text/plain", b"")}
        | {f"/v2/mine/manifests/{name}": (MANIFEST, said) for name in ("1", _digest(said))}
    )


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Registry(http.server.BaseHTTPRequestHandler):
    """Gives one image to anybody, or to those who have a login."""

    protocol_version = "HTTP/1.1"
    have: ClassVar[dict[str, tuple[str, bytes]]] = {}
    login: ClassVar[str] = ""
    #: The realm of tokens: with one a login is taken there only, and gives a token for everything else.
    tokens: ClassVar[str] = ""
    #: Paths that were asked for, and one at which an answer waits until it is let go.
    asked: ClassVar[list[str]] = []
    gate: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        """One thing of the image, or 401 or 404."""
        kind, data = self.have.get(self.path, ("", None))
        wanted, asks = f"Basic {self.login}", 'Basic realm="tests"'
        if self.path.startswith("/token?"):
            kind, data = "application/json", json.dumps({"token": TOKEN, "access_token": TOKEN}).encode()
        elif self.tokens:
            wanted = f"Bearer {TOKEN}"
            asks = f'Bearer realm="{self.tokens}",service="tests",scope="repository:mine:pull"'
        if self.login and self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", asks)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if data is None:
            self.send_error(404)
            return
        self.asked.append(self.path)
        if kind == LAYER:
            self.gate.wait(60)
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
    monkeypatch.setattr(Registry, "have", blobs())
    monkeypatch.setattr(Registry, "asked", [])
    monkeypatch.setattr(Registry, "login", "")
    monkeypatch.setattr(Registry, "tokens", "")
    Registry.gate.set()
    certificate = own_certificate(common)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    Registry.gate.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["skopeo", "podman"])
def tool(request: pytest.FixtureRequest, common: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The one program for registries that this machine seems to have."""
    tool = str(request.param)
    if shutil.which(tool, path=PATH) is None:
        pytest.skip(f"needs {tool}")
    programs = common / "programs"
    programs.mkdir()
    for directory in PATH.split(":"):
        for path in Path(directory).glob("*"):
            if path.name == tool or path.name not in FETCHING:
                with contextlib.suppress(FileExistsError):
                    (programs / path.name).symlink_to(path)
    monkeypatch.setattr(unpacking, "PATH", str(programs))
    return tool


def account_for(user: str) -> UnixAccount:
    if user == "another" and os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    uid = os.getuid() if user == "own" else SOMEBODY
    return UnixAccount(uid, uid if user == "another" else os.getgid(), (), "", "", switch=user == "another")


def directory(common: Path, name: str, account: UnixAccount) -> Path:
    path = common / name
    path.mkdir(mode=0o700)
    os.chown(path, account.uid, account.gid)
    return path


def login(host: str, text: str = "ann:secret") -> str:
    return json.dumps({"auths": {host: {"auth": base64.b64encode(text.encode()).decode()}}})


def contents(common: Path) -> list[bytes]:
    return [path.read_bytes() for path in common.rglob("*") if path.is_file() and path.parent.name != "programs"]


def left_of(common: Path) -> list[str]:
    """Processes of the tools that worked in this test's directory; other tests may run the same tools now."""
    left = []
    for one in psutil.process_iter(["name", "status"]):
        with contextlib.suppress(psutil.Error):
            if one.info["status"] != "zombie" and one.environ().get("HOME", "").startswith(f"{common}/"):
                left.append(one.info["name"])
    return left


@pytest.mark.parametrize("user", ["own", "another"])
async def test_an_image_of_a_registry_is_unpacked(tool: str, registry: str, common: Path, user: str) -> None:
    account = account_for(user)
    scratch, other = directory(common, "scratch", account), directory(common, "other", account)
    done = await unpack(f"docker://{registry}/mine:1", scratch, account, asyncio.Event())
    assert done.config == ImageConfig({"COLOUR": "green"}, ("/bin/new",), ("one",))
    assert (scratch / ROOT / "usr" / "bin" / "new").read_text() == "by way of a link"
    assert [path.name for path in scratch.iterdir()] == [ROOT]
    with pytest.raises(CannotUnpack, match=rf"mine:2: {tool} says"):
        await unpack(f"docker://{registry}/mine:2", other, account, asyncio.Event())
    assert list(other.iterdir()) == []
    assert left_of(common) == []


@pytest.mark.parametrize("protocol", ["basic", "token"])
@pytest.mark.parametrize("user", ["own", "another"])
async def test_a_registry_is_shown_the_login_of_its_job(
    tool: str, registry: str, common: Path, user: str, protocol: str
) -> None:
    """At once, or at the place that gives tokens, as the large public registries have it."""
    Registry.login = base64.b64encode(b"ann:secret").decode()
    Registry.tokens = f"https://{registry}/token" if protocol == "token" else ""
    account, image = account_for(user), f"docker://{registry}/mine:1"
    scratch = directory(common, "scratch", account)
    for wrong in ("", login(registry, "ann:wrong"), login("other.example")):
        with pytest.raises(CannotUnpack, match=f"{tool} says"):
            await unpack(image, scratch, account, asyncio.Event(), login=wrong)
    await unpack(image, scratch, account, asyncio.Event(), login=login(registry))
    assert (scratch / ROOT / "keep").read_text() == "kept"
    assert not any(b"YW5uOnNlY3JldA" in data for data in contents(common))


# -- images that are kept ----------------------------------------------------------------------------------------


async def test_an_image_is_fetched_once_for_jobs_that_start_at_once(tool: str, registry: str, common: Path) -> None:
    account, image = account_for("another"), f"docker://{registry}/mine:1"
    cache = ImageCache(common / "kept", 1 << 30, LOG)
    Registry.gate.clear()
    jobs = [
        asyncio.create_task(
            cache.acquire(image, directory(common, str(number), account), account, "ann", "", asyncio.Event())
        )
        for number in range(3)
    ]
    await until(lambda: any("/blobs/" in path for path in Registry.asked), "the first of its parts is asked for")
    Registry.gate.set()
    roots = {root for root, _ in await asyncio.gather(*jobs)}
    assert len(roots) == 1
    (root,) = roots
    assert root is not None
    assert (root / "keep").read_text() == "kept"
    layers = [path for path in Registry.asked if "/blobs/" in path]
    assert len(layers) == len(set(layers)), layers
    before = len(layers)
    again = await cache.acquire(image, common / "0", account, "ann", "", asyncio.Event())
    assert again == (root, ImageConfig({"COLOUR": "green"}, ("/bin/new",), ("one",)))
    assert len([path for path in Registry.asked if "/blobs/" in path]) == before
    later = ImageCache(common / "kept", 1 << 30, LOG)  # of a node that was started again
    assert await later.acquire(image, common / "1", account, "ann", "", asyncio.Event()) == again
    assert len([path for path in Registry.asked if "/blobs/" in path]) == before


async def test_a_name_that_means_another_image_is_fetched_again(tool: str, registry: str, common: Path) -> None:
    account, image = account_for("own"), f"docker://{registry}/mine:1"
    cache, scratch = ImageCache(common / "kept", 1 << 30, LOG), directory(common, "scratch", account)
    first, _ = await cache.acquire(image, scratch, account, "ann", "", asyncio.Event())
    Registry.have = blobs([("f", "keep", "another")])
    second, _ = await cache.acquire(image, scratch, account, "ann", "", asyncio.Event())
    assert first is not None
    assert second is not None
    assert [(root / "keep").read_text() for root in (first, second)] == ["kept", "another"]


async def test_another_owner_needs_a_login_of_his_own(tool: str, registry: str, common: Path) -> None:
    """Under one account, too: all jobs of strangers may run as nobody."""
    Registry.login = base64.b64encode(b"ann:secret").decode()
    account, image = account_for("own"), f"docker://{registry}/mine:1"
    cache, scratch = ImageCache(common / "kept", 1 << 30, LOG), directory(common, "scratch", account)
    own, _ = await cache.acquire(image, scratch, account, "ann", login(registry), asyncio.Event())
    for owner in ("ann", "bob"):
        with pytest.raises(CannotUnpack, match=f"{tool} says"):
            await cache.acquire(image, scratch, account, owner, "", asyncio.Event())
    others, _ = await cache.acquire(image, scratch, account, "bob", login(registry), asyncio.Event())
    assert own is not None
    assert others is not None
    assert own.parent != others.parent
    assert (common / "kept").stat().st_mode & 0o777 == 0o711
    assert own.parent.stat().st_mode & 0o777 == 0o700


async def test_a_fetch_that_breaks_leaves_nothing(tool: str, registry: str, common: Path) -> None:
    account, image = account_for("another"), f"docker://{registry}/mine:1"
    cache, scratch = ImageCache(common / "kept", 1 << 30, LOG), directory(common, "scratch", account)
    Registry.gate.clear()
    leaves = asyncio.Event()
    waits = directory(common, "waits", account)
    first = asyncio.create_task(cache.acquire(image, scratch, account, "ann", "", leaves))
    await until(lambda: any("/blobs/" in path for path in Registry.asked), "the first of its parts is asked for")
    second = asyncio.create_task(cache.acquire(image, waits, account, "ann", "", asyncio.Event()))
    leaves.set()
    with pytest.raises(CannotUnpack, match="stopped"):
        await first
    Registry.gate.set()  # the one that waited fetches it now
    root, _ = await second
    await cache.removals_done()
    assert root is not None
    assert [path.name for path in root.parent.iterdir()] == [root.name]
    Registry.have = {path: (kind, data[:-1] if kind == LAYER else data) for path, (kind, data) in blobs([]).items()}
    with pytest.raises(CannotUnpack, match=f"{tool} says"):
        await cache.acquire(image, scratch, account, "ann", "", asyncio.Event())
    await cache.removals_done()
    assert [path.name for path in root.parent.iterdir()] == [root.name]
    assert list(scratch.iterdir()) == []
    assert left_of(common) == []


@pytest.mark.parametrize("name", ["--root=/tmp/x", "--help", "-v"])
async def test_a_name_is_no_option(tool: str, common: Path, name: str) -> None:
    account = account_for("own")
    scratch = directory(common, "scratch", account)
    with pytest.raises(CannotUnpack, match=f"{tool} says: .*(invalid reference|parsing|error)"):
        await unpack(f"docker://{name}", scratch, account, asyncio.Event())
    with pytest.raises(CannotUnpack, match=f"{tool} says: .*(invalid reference|parsing|error)"):
        await unpacking.name(f"docker://{name}", scratch, account, "", asyncio.Event())


NODE = """
import asyncio, json, sys
from pathlib import Path
from pool.starter import unpacking
from pool.starter.place import UnixAccount
unpacking.PATH, image, scratch, uid, gid, switch = json.loads(sys.argv[1])
account = UnixAccount(uid, gid, (), "", "", switch=switch)
asyncio.run(unpacking.unpack(image, Path(scratch), account, asyncio.Event()))
"""


@pytest.mark.parametrize("tool", ["podman"], indirect=True)
@pytest.mark.parametrize("user", ["own", "another"])
@pytest.mark.parametrize("killed", ["node", "fetch", "tool"])
async def test_a_killed_fetch_leaves_nothing_in_tmp(
    tool: str, registry: str, common: Path, user: str, killed: str
) -> None:
    """With the node its fetch and the tool die; the next start of a node, or the next fetch, removes the rest."""
    account = account_for(user)
    given = [
        *(str(common / "programs"), f"docker://{registry}/mine:1", str(directory(common, "scratch", account))),
        *(account.uid, account.gid, account.switch),
    ]
    Registry.gate.clear()
    node = subprocess.Popen([sys.executable, "-c", NODE, json.dumps(given)], cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    try:
        await until(lambda: any("/blobs/" in path for path in Registry.asked), "the first of its parts is asked for")
        (fetch,) = psutil.Process(node.pid).children()
        works = next(one for one in fetch.children(recursive=True) if "--runroot" in one.cmdline())
        words = works.cmdline()
        run = Path(words[words.index("--runroot") + 1])
        assert run.stat().st_uid == account.uid
        image_tools.remove_left()
        assert run.is_dir(), "a fetch that goes on keeps its directory"
        os.kill({"node": node.pid, "fetch": fetch.pid, "tool": works.pid}[killed], signal.SIGKILL)
        node.wait(30)
    finally:
        Registry.gate.set()
        node.kill()
        node.wait()

    def gone() -> bool:
        image_tools.remove_left()
        return not run.exists() and left_of(common) == []

    await until(gone, "the directory and the tools are gone")


def test_only_left_directories_of_that_name_are_removed(common: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_tools, "SHORT_IN", str(common))
    (common / "kept").mkdir()
    (common / "kept" / "file").touch()
    (common / "poolnode-image-link").symlink_to(common / "kept")
    (common / "poolnode-image-file").touch()
    (common / "poolnode-image-left").mkdir()
    (common / "poolnode-image-left" / "out").symlink_to(common / "kept")
    with image_tools._short_directory() as used:
        image_tools.remove_left()
        assert Path(used).is_dir()
    assert not Path(used).exists()
    assert sorted(path.name for path in common.iterdir()) == ["kept", "poolnode-image-file", "poolnode-image-link"]
    assert (common / "kept" / "file").exists()

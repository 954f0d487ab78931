"""Inputs that are URLs, and jobs of the java universe, on a real node."""

from __future__ import annotations

import email.message
import errno
import http.server
import ipaddress
import re
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.error
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pool.errors import PoolError
from pool.shadow.object_urls import SigningKeys, signed
from pool.starter import url_process
from tests.e2e.support import ALL, Nodes, client, outcome, program


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a directory without a word.

    Attributes:
        in_trouble: so many requests are answered with 503 before that.
    """

    in_trouble = 0

    def do_GET(self) -> None:
        """As asked, unless there is trouble."""
        if Quiet.in_trouble:
            Quiet.in_trouble -= 1
            self.send_error(503)
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is said."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory and the URL that it is served under."""
    directory = tmp_path / "served"
    directory.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield directory, f"http://user:secret@127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


async def test_inputs_are_fetched_sent_and_told_apart(nodes: Nodes, served: tuple[Path, str]) -> None:
    directory, url = served
    home = nodes.directory("home")
    (directory / "far").write_text("from afar\n")
    (home / "near").write_text("from here\n")
    (home / "named").write_text("by its URL\n")
    whole = nodes.start("whole", ALL).ready()
    inputs = f"{url}/far?x=1, near, file://{home}/named"
    async with client(whole) as pool:
        result = await outcome(
            pool,
            home,
            executable=program(home, "cat far near named; echo made > made"),
            transfer_input_files=inputs,
            output="out",
        )
    assert result.ok, result
    assert (home / "out").read_text() == "from afar\nfrom here\nby its URL\n"
    assert (home / "made").read_text() == "made\n"
    assert not (home / "far").exists()


@pytest.mark.parametrize(
    ("name", "most", "code", "said"),
    [("missing", "-1", 13, "answered 404"), ("large", "1", 32, "max_transfer_input_mb")],
)
async def test_one_that_cannot_be_fetched_holds_its_job(
    nodes: Nodes, served: tuple[Path, str], name: str, most: str, code: int, said: str
) -> None:
    directory, url = served
    home = nodes.directory("home")
    (directory / "large").write_bytes(bytes(2 << 20))
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        inputs = {"transfer_input_files": f"{url}/{name}", "max_transfer_input_mb": most}
        result = await outcome(pool, home, executable=program(home, "touch ran"), **inputs)
        (ad,) = await pool.cluster(result.cluster, 1).ads(["HoldReason", "HoldReasonCode", "ClusterId", "ProcId"])
    assert (result.state, ad.value("HoldReasonCode")) == ("held", code)
    assert said in ad.value("HoldReason")
    assert "secret" not in ad.value("HoldReason")
    assert not (home / "ran").exists()


PLUGIN = """#!/usr/bin/env python3
import re, sys
if sys.argv[1:] == ["-classad"]:
    print('PluginType = "FileTransfer"\\nSupportedMethods = "box,crate"\\nMultipleFileSupport = true')
    sys.exit(0)
asked = open(sys.argv[sys.argv.index("-infile") + 1]).read()
url, name = re.search(r'Url = "([^"]*)"', asked)[1], re.search(r'LocalFileName = "([^"]*)"', asked)[1]
if "empty" in url:
    said = '[ TransferSuccess = false; TransferError = "it is empty" ]'
    open(sys.argv[sys.argv.index("-outfile") + 1], "w").write(said)
    sys.exit(1)
open(name, "w").write("out of " + url + "\\n")
"""


async def test_other_schemes_are_fetched_by_a_program(nodes: Nodes) -> None:
    home = nodes.directory("home")
    plugin = home / "plugin"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    whole = nodes.start("whole", ALL, TRANSFER_PLUGINS=str(plugin)).ready()
    script = program(home, "cat thing")
    async with client(whole) as pool:
        with pytest.warns(UserWarning, match="box:// inputs need machines"):
            result = await outcome(
                pool, home, executable=script, transfer_input_files="box://shelf/thing", output="out"
            )
        assert result.ok, result
        assert (home / "out").read_text() == "out of box://shelf/thing\n"
        with pytest.warns(UserWarning, match="crate:// inputs need machines"):
            result = await outcome(pool, home, executable=script, transfer_input_files="crate://empty/thing")
        (ad,) = await pool.cluster(result.cluster, 1).ads(["HoldReason", "ClusterId", "ProcId"])
        assert "it is empty" in ad.value("HoldReason")


MAIN = """
public class Main {
    public static void main(String[] a) {
        System.out.println(a[0] + " " + System.getProperty("said") + " " + Other.word());
    }
}
"""
OTHER = 'public class Other { static String word() { return "from the jar"; } }'


def compile_classes(home: Path) -> None:
    (home / "Main.java").write_text(MAIN)
    (home / "Other.java").write_text(OTHER)
    subprocess.run(["javac", "Main.java", "Other.java"], cwd=home, check=True, timeout=60)
    subprocess.run(["jar", "cf", "other.jar", "Other.class"], cwd=home, check=True, timeout=60)
    (home / "Other.class").unlink()


@pytest.mark.skipif(
    not (shutil.which("javac") and shutil.which("jar")), reason="needs the Debian package default-jdk-headless"
)
@pytest.mark.parametrize("transfer", ["IF_NEEDED", "YES"])
async def test_a_java_job_runs_its_classes(nodes: Nodes, transfer: str) -> None:
    home = nodes.directory("home")
    compile_classes(home)
    whole = nodes.start("whole", ALL).ready()
    commands = {
        "universe": "java",
        "executable": "Main.class",
        "arguments": "Main argument",
        "jar_files": "other.jar",
        "java_vm_arguments": "-Dsaid=said",
        "should_transfer_files": transfer,
        "output": "out",
        "error": "err",
    }
    async with client(whole) as pool:
        result = await outcome(pool, home, **commands)
    assert result.ok, (result, (home / "err").read_text())
    assert (home / "out").read_text() == "argument said from the jar\n"


class Store(Quiet):
    """An object store that gives an object to whoever's URL is signed by its one key."""

    def do_GET(self) -> None:
        """One object, or 403."""
        path, _, query = self.path.partition("?")
        asked, _, signature = query.rpartition("&X-Amz-Signature=")
        given = dict(parse_qsl(asked))
        when = datetime.strptime(given.get("X-Amz-Date", "20000101T000000Z"), "%Y%m%dT%H%M%S%z").timestamp()
        own = signed(f"s3://{self.headers['Host']}{path}", SigningKeys("AKID", "very secret"), when)
        if own.rpartition("=")[2] != signature:
            self.send_error(403, "Forbidden")
            return
        super().do_GET()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[Path, str, Path]]:
    """Its directory, its host, and the certificate that it shows."""
    directory = tmp_path / "store"
    (directory / "bucket").mkdir(parents=True)
    certificate = own_certificate(tmp_path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Store, directory=str(directory)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield directory / "bucket", f"127.0.0.1:{server.server_address[1]}", certificate
    server.shutdown()
    server.server_close()


def own_certificate(directory: Path) -> Path:
    """A certificate for this machine's own address, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / "certificate.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


async def test_objects_of_a_store_are_signed_at_home(nodes: Nodes, store: tuple[Path, str, Path]) -> None:
    directory, host, certificate = store
    home = nodes.directory("home")
    (directory / "a b").write_text("an object\n")
    (home / "id").write_text("AKID\n")
    (home / "secret").write_text("very secret\n")
    (home / "wrong").write_text("another\n")
    whole = nodes.start("whole", ALL, environ={"SSL_CERT_FILE": str(certificate)}).ready()
    commands = {
        "executable": program(home, "cat 'a b'; env | grep -c secret"),
        "transfer_input_files": f"s3://{host}/bucket/a%20b",
        "aws_access_key_id_file": "id",
        "output": "out",
    }
    async with client(whole) as pool:
        await outcome(pool, home, **commands, aws_secret_access_key_file="secret")
        assert (home / "out").read_text() == "an object\n0\n"
        result = await outcome(pool, home, **commands, aws_secret_access_key_file="wrong")
        assert result.state == "held"
        assert "cannot fetch s3://" in result.reason
        assert "403" in result.reason
        assert "Amz" not in result.reason
        with pytest.raises(PoolError, match="keys"):
            await pool.submit(commands, iwd=str(home))


async def test_a_server_in_trouble_is_asked_again(nodes: Nodes, served: tuple[Path, str]) -> None:
    """The first answer is 503: the job waits for a moment, is not held, and says why."""
    directory, url = served
    home = nodes.directory("home")
    (directory / "far").write_text("from afar\n")
    Quiet.in_trouble = 1
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        script = program(home, "cat far")
        inputs = {"transfer_input_files": f"{url}/far", "output": "out", "log": "log"}
        result = await outcome(pool, home, executable=script, **inputs)
    assert result.ok, result
    assert (home / "out").read_text() == "from afar\n"
    assert "answered 503" in (home / "log").read_text()
    assert re.search(r"it is tried again in 1[01] s", (home / "log").read_text()), "10 s, from whole seconds"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (urllib.error.HTTPError("http://x", 503, "", email.message.Message(), None), True),
        (urllib.error.HTTPError("http://x", 429, "", email.message.Message(), None), True),
        (urllib.error.HTTPError("http://x", 404, "", email.message.Message(), None), False),
        (urllib.error.HTTPError("http://x", 501, "", email.message.Message(), None), False),
        (urllib.error.URLError(ConnectionRefusedError()), True),
        (urllib.error.URLError(socket.gaierror(socket.EAI_AGAIN, "later")), True),
        (urllib.error.URLError(socket.gaierror(socket.EAI_NONAME, "no such name")), False),
        (urllib.error.URLError(ssl.SSLCertVerificationError()), False),
        (TimeoutError(), True),
        (OSError(errno.ENETUNREACH, "no way"), True),
        (OSError(errno.ENOSPC, "full"), False),
        (ValueError("not a URL"), False),
    ],
)
def test_causes_that_may_pass(error: Exception, expected: bool) -> None:
    assert url_process.is_temporary(error) is expected

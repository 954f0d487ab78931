"""An object store as S3 has them, over a directory: what fsspec's s3fs asks for, each object a file. In a process of
its own (`python -m tests.images.s3 DIRECTORY`), which says the port it listens at. It believes whoever signs."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import os
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from email.utils import formatdate
from hashlib import md5
from pathlib import Path
from xml.sax.saxutils import escape

from tests.conftest import REPOSITORY

#: Objects in an answer to a listing; the next ones have to be asked for.
MOST = 5


class Store(http.server.BaseHTTPRequestHandler):
    """One request after the other of a connection."""

    protocol_version = "HTTP/1.1"
    root = Path()
    uploads = itertools.count(1)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        bucket, key, asked = self._asked()
        if not key:
            self._list(bucket, asked)
            return
        try:
            data = self._file(bucket, key).read_bytes()
        except FileNotFoundError:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        status = 200
        if span := self.headers.get("Range"):
            first, _, last = span.removeprefix("bytes=").partition("-")
            data, status = data[int(first) : int(last) + 1 if last else None], 206
        self._answer(status, data, ETag=f'"{md5(data).hexdigest()}"', kind="binary/octet-stream")

    def do_PUT(self) -> None:
        bucket, key, asked = self._asked()
        data = self._body()
        path = self._file(bucket, key) if key else self.root / bucket
        if not key:
            path.mkdir(exist_ok=True)
            self._answer(200)
            return
        if "uploadId" in asked:
            path = self.root / f".upload{asked['uploadId']}" / f"{int(asked['partNumber']):05}"
        self._write(path, data)
        self._answer(200, ETag=f'"{md5(data).hexdigest()}"')

    def do_POST(self) -> None:
        bucket, key, asked = self._asked()
        self._body()
        if "uploads" in asked:
            number = next(self.uploads)
            (self.root / f".upload{number}").mkdir()
            text = f"<UploadId>{number}</UploadId>"
            self._answer(200, f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>".encode())
            return
        parts = sorted((self.root / f".upload{asked['uploadId']}").iterdir())
        self._write(self._file(bucket, key), b"".join(part.read_bytes() for part in parts))
        self._answer(200, b"<CompleteMultipartUploadResult><ETag>whole</ETag></CompleteMultipartUploadResult>")

    def do_DELETE(self) -> None:
        bucket, key, _ = self._asked()
        self._file(bucket, key).unlink(missing_ok=True)
        self._answer(204)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""

    def _asked(self) -> tuple[str, str, dict[str, str]]:
        path, _, query = self.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        return bucket, key, dict(urllib.parse.parse_qsl(query, keep_blank_values=True))

    def _file(self, bucket: str, key: str) -> Path:
        return self.root / bucket / urllib.parse.quote(key, safe="")

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return data
        whole = b""
        while data:
            head, _, data = data.partition(b"\r\n")
            size = int(head.partition(b";")[0], 16)
            if not size:
                break
            whole, data = whole + data[:size], data[size + 2 :]
        return whole

    def _write(self, path: Path, data: bytes) -> None:
        """Whole, or not at all."""
        with tempfile.NamedTemporaryFile(dir=self.root, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)

    def _list(self, bucket: str, asked: dict[str, str]) -> None:
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        after = asked.get("continuation-token", "")
        found, folders = [], set()
        for name in sorted(urllib.parse.unquote(path.name) for path in (self.root / bucket).iterdir()):
            if not name.startswith(prefix) or name <= after:
                continue
            inner, within, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if within:
                folders.add(prefix + inner + within)
            else:
                found.append(name)
        more = found[MOST:]
        text = "".join(self._entry(bucket, name) for name in found[:MOST])
        text += "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders))
        text += f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated>"
        text += f"<NextContinuationToken>{escape(found[MOST - 1])}</NextContinuationToken>" if more else ""
        self._answer(200, f"<ListBucketResult>{text}</ListBucketResult>".encode())

    def _entry(self, bucket: str, name: str) -> str:
        size = self._file(bucket, name).stat().st_size
        when = "2026-01-01T00:00:00.000Z"
        return f"<Contents><Key>{escape(name)}</Key><Size>{size}</Size><LastModified>{when}</LastModified></Contents>"

    def _answer(self, status: int, data: bytes = b"", *, kind: str = "application/xml", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Last-Modified", formatdate(usegmt=True))
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextlib.contextmanager
def served(directory: Path) -> Iterator[dict[str, str]]:
    """A store with an empty bucket named `bucket`, for as long as it is entered; gives the options for s3fs."""
    (directory / "bucket").mkdir()
    command = [sys.executable, "-m", "tests.images.s3", str(directory)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip()
            yield {"endpoint_url": f"http://127.0.0.1:{port}", "key": "key", "secret": "secret"}
        finally:
            process.kill()


if __name__ == "__main__":
    Store.root = Path(sys.argv[1])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()

"""Starts the server that is named, is its clients in rounds, prints a checksum for each round, and ends it."""

import hashlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

kind, rounds = sys.argv[1], int(sys.argv[2])
PORT = 6399
NGINX = """
daemon off; user root root; worker_processes 2; pid nginx.pid; error_log /dev/null;
events { worker_connections 64; }
http { access_log off; client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp;
       scgi_temp_path tmp; server { listen 127.0.0.1:6399; root served; } }
"""
NODE = """
const http = require('http'), crypto = require('crypto');
http.createServer((request, answer) => {
  const hash = crypto.createHash('sha256').update(request.url);
  request.on('data', data => hash.update(data));
  request.on('end', () => setTimeout(() => answer.end(hash.digest('hex').repeat(500)), 2));
}).listen(6399, '127.0.0.1');
"""


def start() -> list[str]:
    """The server's command, after what it needs was written."""
    if kind == "redis":
        return ["redis-server", "--port", str(PORT), "--bind", "127.0.0.1", "--save", "", "--logfile", "/dev/null"]
    if kind == "node":
        return ["node", "-e", NODE]
    os.makedirs("served")
    os.makedirs("tmp")
    served()
    if kind == "requests":
        return [sys.executable, "-m", "http.server", "-b", "127.0.0.1", "-d", "served", str(PORT)]
    with open("nginx.conf", "w") as file:
        file.write(NGINX)
    return ["/usr/sbin/nginx", "-p", os.getcwd(), "-e", "/dev/null", "-c", "nginx.conf"]


def served() -> None:
    for number in range(8):
        with open(f"served/{number}", "wb") as file:
            file.write(bytes([number]) * (number * 40000 + 1))


class Redis:
    """A connection that speaks Redis's protocol."""

    def __init__(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", PORT))
        self.file = self.socket.makefile("rb")

    def ask(self, *words: object) -> bytes:
        texts = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(t), t) for t in texts))
        return self.answer()

    def answer(self) -> bytes:
        line = self.file.readline()
        if line[:1] == b"$" and line != b"$-1\r\n":
            return self.file.read(int(line[1:]) + 2)
        if line[:1] == b"*":
            return b"".join(self.answer() for _ in range(int(line[1:])))
        assert line[:1] != b"-", line
        return line


def redis_round(number: int) -> bytes:
    first, second, heard = lines
    heard.ask("SUBSCRIBE", "news") if number == 0 else None
    got = first.ask("INCR", "count") + second.ask("RPUSH", "list", "x" * (number * 977 % 60000))
    got += second.ask("PUBLISH", "news", number) + heard.answer()
    got += first.ask("BLPOP", "list", 5)
    return got + subprocess.run(["redis-cli", "-p", str(PORT), "get", "count"], capture_output=True, check=True).stdout


def http_round(number: int) -> bytes:
    url = f"http://127.0.0.1:{PORT}/{number % 8}"
    web.request("GET", f"/{number * 3 % 8}")
    got: bytes = web.getresponse().read()
    with urllib.request.urlopen(url) as answer:
        got += answer.read()
    if shutil.which("curl") and number % 4 == 0:
        got += subprocess.run(["curl", "-s", url], capture_output=True, check=True).stdout
    elif number % 4 == 0:
        got += urllib.request.urlopen(url).read()
    return got


def requests_round(number: int) -> bytes:
    with session.get(f"http://127.0.0.1:{PORT}/{number % 8}", stream=True) as answer:
        parts = list(answer.iter_content(7000))
    others = [session.get(f"http://127.0.0.1:{PORT}/{name}") for name in (number * 3 % 8, "none")]
    return b"".join(parts) + b"".join(answer.content + b"%d" % answer.status_code for answer in others)


def reach() -> None:
    """Waits until the server listens."""
    for _ in range(3000):
        try:
            socket.create_connection(("127.0.0.1", PORT)).close()
            return
        except OSError:
            time.sleep(0.01)


server = subprocess.Popen(start(), stderr=subprocess.DEVNULL)
reach()
lines = [Redis() for _ in range(3)] if kind == "redis" else []
if kind == "requests":
    import requests

    session = requests.Session()
web = http.client.HTTPConnection("127.0.0.1", PORT)
one_round = {"redis": redis_round, "requests": requests_round}.get(kind, http_round)
total = hashlib.sha256()
for turn in range(rounds):
    total.update(one_round(turn))
    print(turn, total.hexdigest(), flush=True)
server.send_signal(signal.SIGTERM)
server.wait()
for name in ("served", "tmp"):
    # rmtree gives up where a directory has another number than a moment before: it may have been moved meanwhile.
    while os.path.exists(name):
        shutil.rmtree(name, ignore_errors=True)

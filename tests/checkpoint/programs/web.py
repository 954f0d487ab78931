"""A web server and its clients in one job: short connections, one that stays open, uploads; a line for each round."""

import hashlib
import http.client
import http.server
import os
import socket
import threading
import urllib.request


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # no answer waits 40 ms for an acknowledgement

    def do_GET(self) -> None:
        self.answer(hashlib.sha256(self.path.encode()).hexdigest().encode() * (int(self.path[1:]) % 3000 + 1))

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(hashlib.sha256(data).hexdigest().encode())

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
port = server.server_address[1]
child = os.fork()
if not child:
    server.serve_forever()
server.server_close()
kept = http.client.HTTPConnection("127.0.0.1", port)
kept.connect()
kept.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
total = hashlib.sha256()


def ask(n: int, results: dict[int, bytes]) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{n}") as answer:
        results[n] = answer.read()


for number in range(400):
    results: dict[int, bytes] = {}
    threads = [threading.Thread(target=ask, args=(n, results)) for n in range(number * 4, number * 4 + 4)]
    for thread in threads:
        thread.start()
    kept.request("POST", "/", body=bytes([number % 251]) * (number * 7919 % 300000))
    total.update(kept.getresponse().read())
    for thread in threads:
        thread.join()
    for n in sorted(results):
        total.update(results[n])
    print(number, total.hexdigest(), flush=True)
kept.close()
os.kill(child, 15)
os.wait()

"""A job's own network on real nodes: parts on three machines find each other by name, and nobody else (issue 14)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pool.client import Cluster, Pool
from pool.client.forwarding import forward_port
from pool.client.network import UserNetwork
from pool.errors import PoolError
from pool.jobs.network import address4
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, poolnode, program, slots, token, until
from tests.ordinary_user import as_root
from tests.starter.support import PYTHON, is_named


@pytest.fixture(scope="module")
def pool3(whose_pool: object) -> Iterator[Nodes]:
    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        nodes.start("one", "startd", join=await token(head, "startd"), SLOTS="2", CHECKPOINT_WORTH="0").ready()
        nodes.start("two", "startd", join=await token(head, "startd"), SLOTS="2", CHECKPOINT_WORTH="0").ready()
        far = await token(head, "startd")
        nodes.start("three", "startd", join=far, FILESYSTEM_DOMAIN="far", SLOTS="2", CHECKPOINT_WORTH="0").ready()
        async with client(head) as pool:
            await slots(pool, 3)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(pool3: Nodes, request: pytest.FixtureRequest) -> Path:
    return pool3.directory(support.directory_name(request))


#: Each part connects to all lower ones, and sends to each and gets from each; then datagrams, one by one and to all.
TALK = """
import hashlib, os, socket, struct, sys, threading, time
part, parts, size = int(sys.argv[1]), int(os.environ["_CONDOR_NPROCS"]), int(sys.argv[2])
assert socket.gethostname() == f"rank{part}"
server = socket.create_server(("", 5000))
group = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
group.bind(("", 6000))
joined = socket.inet_aton("239.7.7.7") + bytes(4)
group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
def connect(other):
    for _ in range(600):
        try:
            return socket.create_connection((f"rank{other}", 5000), 60)
        except OSError as error:
            time.sleep(0.05)
    raise SystemExit(f"no rank{other}: {error}")
links = {}
for other in range(part):
    links[other] = connect(other)
    links[other].sendall(struct.pack("i", part))
while len(links) < parts - 1:
    link, (address, _) = server.accept()
    other, = struct.unpack("i", link.recv(4, socket.MSG_WAITALL))
    assert address == f"10.77.0.{other + 1}", (address, other)
    links[other] = link
sums = {}
def take(other, link):
    found, left = hashlib.md5(), size
    while left:
        data = link.recv(min(left, 1 << 20))
        assert data, "cut off"
        found.update(data)
        left -= len(data)
    sums[other] = found.hexdigest()
threads = [threading.Thread(target=take, args=item) for item in links.items()]
for thread in threads: thread.start()
data = hashlib.shake_128(bytes([part])).digest(size)
for link in links.values(): link.sendall(data)
for thread in threads: thread.join()
for other, found in sums.items():
    assert found == hashlib.md5(hashlib.shake_128(bytes([other])).digest(size)).hexdigest()
heard = set()
group.settimeout(0.1)
for _ in range(300):
    for to in ("239.7.7.7", "10.77.255.255", f"rank{(part + 1) % parts}"):
        group.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        group.sendto(f"{to} {part}".encode(), (to, 6000))
    try:
        while True: heard.add(group.recv(100).decode())
    except TimeoutError: pass
    wanted = {f"{to} {other}" for to in ("239.7.7.7", "10.77.255.255") for other in links}
    wanted.add(f"rank{part} {(part - 1) % parts}")
    if wanted <= heard: break
else: raise SystemExit(f"not heard: {wanted - heard}")
ping = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
ping.settimeout(30)
for other in links:
    ping.sendto(struct.pack("!BBHHH", 8, 0, 0, 0, other) + b"hello", (f"rank{other}", 0))
    assert ping.recv(100)[6:] == struct.pack("!H", other) + b"hello"
for link in links.values(): link.sendall(b"!")
for link in links.values(): assert link.recv(1) == b"!"
print("all", parts, len(sums), os.environ["POOLNODE_HOSTS"])
"""


def job(home: Path, parts: int, *arguments: object, text: str = TALK, more: str = "") -> str:
    script = program(home, f"exec {PYTHON} -c '{text}' \"$@\"")
    return f"""
    universe = parallel
    executable = {script}
    arguments = $(Node) {" ".join(map(str, arguments))}
    output = out.$(Node)
    error = err.$(Node)
    machine_count = {parts}
    job_network = private
    +ParallelShutdownPolicy = "WAIT_FOR_ALL"
    log = log
    {more}
    queue
    """


def said(home: Path, parts: int) -> list[str]:
    return [(home / f"{kind}.{node}").read_text() for kind in ("err", "out") for node in range(parts)]


async def test_parts_on_three_machines_talk(pool3: Nodes, home: Path) -> None:
    """Six parts, two on each machine: TCP from each to each, datagrams, multicast, broadcast, echoes."""
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(job(home, 6, 700_001), iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE)
        (ad,) = [ad for ad in await pool.history() if ad.value("ClusterId") == cluster.cluster]
    assert result.ok, (result, said(home, 6))
    hosts = " ".join(map(address4, range(6)))
    assert said(home, 6) == [""] * 6 + [f"all 6 5 {hosts}\n"] * 6
    carried = ad.value("NetworkBytes")
    assert 30 * 700_001 < carried < 60 * 700_001
    assert {f"{one}>{to}" for one in range(6) for to in range(6) if one != to} <= set(ad.value("NetworkPairs").split())
    # On a busy machine packets to all parts are dropped, which the line says, too.
    said_so = re.compile(r"\tNetwork: [\d.]+ MB between its parts(, [\d,]+ packets dropped)?\n")
    await until(lambda: said_so.search((home / "log").read_text()) is not None, "its end in the log")
    await until(lambda: not relays(pool3), "its relays to end")


def relays(nodes: Nodes) -> list[psutil.Process]:
    """The relays of all nodes."""
    found = []
    for node in nodes.all:
        for process in psutil.Process(node.process.pid).children(recursive=True):
            if is_named(process, "relay"):
                found.append(process)
    return found


async def test_a_relay_that_is_killed_is_started_again_and_connections_go_on(pool3: Nodes, home: Path) -> None:
    """Each machine's relay is killed while the parts exchange data (issue 14, what it must show, 3)."""
    script = program(
        home,
        f"""exec {PYTHON} -c '
import os, socket, sys, time
part, beside = int(sys.argv[1]), sys.argv[2]
if part == 0:
    server = socket.create_server(("", 5000))
    link = server.accept()[0]
else:
    while True:
        try: link = socket.create_connection(("rank0", 5000)); break
        except OSError: time.sleep(0.05)
for turn in range(100000):
    link.sendall(turn.to_bytes(8, "big") * 100)
    got = b""
    while len(got) < 800: got += link.recv(800 - len(got))
    assert got == turn.to_bytes(8, "big") * 100
    if turn == 20: open(f"{{beside}}/begun.{{part}}", "w").close()
    if part == 0 and os.path.exists(f"{{beside}}/stop"): os.rename(f"{{beside}}/stop", f"{{beside}}/enough")
' "$@" """,
    )
    text = f"""
    universe = parallel
    executable = {script}
    arguments = $(Node) {home}
    output = out.$(Node)
    error = err.$(Node)
    machine_count = 2
    job_network = private
    requirements = (Machine == "one" || Machine == "two")
    queue
    """
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        await until(lambda: all((home / f"begun.{part}").exists() for part in range(2)), "both parts talk")
        shown = poolnode("inspect", str(cluster.cluster), "--address", pool3.all[0].address).stdout
        why = poolnode("why", f"{cluster.cluster}.0", "--address", pool3.all[0].address).stdout
        assert re.search(r"its network on slot\S+: has sent [\d.]+ \w+ to rank", why), why
        assert re.search(r"network: has sent [\d.]+ [KMG]?B\w* to rank1 \([\d.]+ \w+/s\)", shown), shown
        killed = relays(pool3)
        for one in killed:
            with as_root():
                os.kill(one.pid, signal.SIGKILL)
        await until(lambda: len(relays(pool3)) == len(killed), "relays are started again")
        (home / "stop").touch()
        await until((home / "enough").exists, "the parts talk again")
        await cluster.remove()


LEAVES = """
import os, socket, sys, time
part, beside = int(sys.argv[1]), sys.argv[2]
data = b"".join(number.to_bytes(4, "big") for number in range(500000))
if part == 0:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    server.bind(("", 5000))
    server.listen()
    link = server.accept()[0]
    link.sendall(data)
    print("sent", flush=True)
    os.link(f"{beside}/out.0", f"{beside}/sent")
else:
    while True:
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try: link.connect(("rank0", 5000)); break
        except OSError: time.sleep(0.05)
    while not os.path.exists(f"{beside}/go"): time.sleep(0.01)
    got = bytearray()
    while more := link.recv(1 << 20): got += more
    print(got == data)
"""


async def test_the_last_bytes_of_a_part_arrive_though_it_has_ended(pool3: Nodes, home: Path) -> None:
    """Part 0 sends more than the other one has room for, and exits before that reads any of it."""
    where = "requirements = TARGET.SlotID == 1"
    with_files = job(home, 2, home, text=LEAVES, more=where)
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(with_files, iwd=str(home))
        await until((home / "sent").exists, "all is sent")
        await until(lambda: len(support.processes_with("os.link")) == 1, "part 0 has ended")
        (home / "go").touch()
        (result,) = await cluster.wait(support.PATIENCE)
    assert result.ok, (result, said(home, 2))
    assert said(home, 2) == ["", "", "sent\n", "True\n"]
    await until(lambda: not relays(pool3), "its relays have ended")


async def test_a_job_of_one_part_has_its_ports_for_itself(pool3: Nodes, home: Path) -> None:
    """Two jobs on one machine listen on the same port, and see neither the node's port nor each other."""
    host, port = pool3.all[0].said("ready")["address"].removeprefix("tcp://").split(":")
    script = program(
        home,
        f"""exec {PYTHON} -c '
import socket, time
server = socket.create_server(("", 80))
for address in (("{host}", {port}), ("10.77.0.2", 80), ("192.0.2.1", 80)):
    try: socket.create_connection(address, 2)
    except OSError: continue
    raise SystemExit(f"reached {{address}}")
own = socket.create_connection(("rank0", 80)); own.sendall(b"x"); assert server.accept()[0].recv(1) == b"x"
print("alone")' """,
    )
    text = f"executable = {script}\noutput = out.$(Process)\nerror = err.$(Process)\njob_network = private\nqueue 2"
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        results = await cluster.wait(support.PATIENCE)
    assert all(result.ok for result in results), [(home / f"err.{process}").read_text() for process in range(2)]
    assert [(home / f"out.{process}").read_text() for process in range(2)] == ["alone\n"] * 2


async def until_runs(pool: Pool, cluster: Cluster) -> None:
    async def runs() -> bool:
        return [ad.value("JobStatus") for ad in await cluster.ads()] == [2]

    await support.asked(runs, "the job runs")


async def test_a_port_of_a_job_is_brought_to_its_owner_and_to_nobody_else(pool3: Nodes, home: Path) -> None:
    """A web server in the job's network, wherever it runs; other ports; a job without such a network; another user."""
    (home / "page").write_text("hello from the job\n" * 10_000)
    script = program(home, f"exec {PYTHON} -m http.server 80 --bind 127.0.0.1")
    text = f"""
    executable = {script}
    transfer_input_files = page
    should_transfer_files = yes
    job_network = private
    queue
    """
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        sleeping = await pool.submit({"executable": "/bin/sleep", "arguments": "600"}, iwd=str(home))
        failed: list[str] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            job_id = (cluster.cluster, 0)
            forwarding = asyncio.ensure_future(
                forward_port(pool, job_id, 80, listener, node=0, failed=failed.append),
            )
            address = listener.getsockname()

            async def page() -> bytes:
                with contextlib.suppress(OSError):
                    reader, writer = await asyncio.open_connection(*address)
                    writer.write(b"GET /page HTTP/1.0\r\n\r\n")
                    writer.write_eof()
                    answer = await reader.read()
                    writer.close()
                    return answer.partition(b"\r\n\r\n")[2]
                return b""

            await support.asked(page, "the job's server answers")
            pages = await asyncio.gather(*(page() for _ in range(10)))
            assert pages == [(home / "page").read_bytes()] * 10
            forwarding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await forwarding
        await until_runs(pool, sleeping)
        for job, port, why in (
            (cluster, 81, "cannot connect to port 81 of the job: connection refused"),
            (cluster, 70000, "there is no port 70000"),
            (sleeping, 80, "the job has its machine's network"),
        ):
            with pytest.raises(PoolError, match=why):
                async with pool.streaming(
                    "schedd.forward", {"id": [job.cluster, 0], "port": port, "node": 0}
                ) as stream:
                    await stream.receive()
        made = await token(pool3.all[0], "user", user="daemon")
        other_user = {"POOLNODE_ADDRESS": pool3.all[0].said("ready")["address"], "POOLNODE_TOKEN": made}
        refused = poolnode("inspect", str(cluster.cluster), **other_user)
        assert "belongs to" in support.one_line(refused)
        async with await Pool.connect(other_user["POOLNODE_ADDRESS"], network=UserNetwork(other_user)) as other:
            with pytest.raises(PoolError, match="belongs to"):
                async with other.streaming("schedd.forward", {"id": [*job_id], "port": 80, "node": 0}) as stream:
                    await stream.receive()
        await cluster.remove()
        await sleeping.remove()


SERVES = """
import socket, struct, threading
def serve(port, address, answer, family=socket.AF_INET):
    server = socket.create_server((address, port), family=family, backlog=500)
    def run():
        while True:
            link = server.accept()[0]
            link.sendall(answer)
            if port == 82:
                link.recv(1)
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                link.shutdown(socket.SHUT_WR)
                while link.recv(10): pass
            link.close()
    threading.Thread(target=run).start()
serve(80, "127.0.0.1", b"four")
serve(81, "::1", b"six", socket.AF_INET6)
serve(82, "", b"a part of it")
"""


async def answers(port: int, count: int = 1) -> set[bytes]:
    """The answers of so many connections at once; b"reset" for those that break after their first bytes."""

    async def one() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = b""
        try:
            while piece := await reader.read(100):
                data += piece
                writer.write(b"!")
        except ConnectionResetError:
            data += b", reset"
        finally:
            writer.close()
        return data

    return set(await asyncio.gather(*(one() for _ in range(count))))


async def test_forwarded_connections_end_as_those_of_the_job_do(
    pool3: Nodes, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 at once; a server of IPv6 alone; one that breaks off; a port without a server; the job is removed."""
    monkeypatch.setattr("pool.client.forwarding.LOOK", 0.2)
    script = program(home, f"exec {PYTHON} -c '{SERVES}'")
    async with client(pool3.all[0]) as pool:
        sleeping = await pool.submit({"executable": "/bin/sleep", "arguments": "600"}, iwd=str(home))
        cluster = await pool.submit({"executable": script, "job_network": "private"}, iwd=str(home))
        await until_runs(pool, sleeping)
        await until_runs(pool, cluster)
        with contextlib.ExitStack() as stack:
            failed: list[str] = []
            ports, forwarding = [], []
            for port in (80, 81, 82, 83):
                listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=500))
                ports.append(listener.getsockname()[1])
                work = forward_port(pool, (cluster.cluster, 0), port, listener, node=0, failed=failed.append)
                forwarding.append(asyncio.ensure_future(work))

            async def served() -> bool:
                return await answers(ports[2]) == {b"a part of it, reset"}

            await support.asked(served, "the job's servers answer")
            failed.clear()
            assert await answers(ports[0], 200) == {b"four"}
            assert await answers(ports[1], 5) == {b"six"}
            assert failed == []
            assert await answers(ports[3], 5) == {b", reset"}
            assert failed == ["cannot connect to port 83 of the job: connection refused"]
            for job, why in (
                (f"{cluster.cluster}.77", "there is no job"),
                (f"{sleeping.cluster}", "machine's network"),
            ):
                refused = poolnode("forward", job, "80", "--local", "0", "--address", pool3.all[0].address)
                assert why in support.one_line(refused)
            await cluster.remove()
            for ended in asyncio.as_completed(forwarding):
                with pytest.raises(PoolError, match="has left the queue"):
                    await asyncio.wait_for(ended, support.PATIENCE)
        await sleeping.remove()

"""Jobs with a way out on real nodes in a world of their own: names, gangs, nodes that die, other users (issue 14)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pool.client import Cluster, Pool
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, one_line, poolnode, program, slots, token, until
from tests.network.world import MACHINE4, World
from tests.ordinary_user import as_root
from tests.starter.support import PYTHON

NAMED, OTHER = "203.0.113.7", "203.0.113.8"
#: By the name server, which is at the machine's loopback.
NAMES = {"named.test": NAMED, "other.test": OTHER, "rebind.test": "169.254.169.254", "machine.test": MACHINE4}


class NameServer:
    """Answers questions for IPv4 addresses of `NAMES`; there are no others."""

    def __init__(self, world: World) -> None:
        self._udp = world.made(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                question, source = self._udp.recvfrom(1000)
                labels, at = [], 12
                while size := question[at]:
                    labels.append(question[at + 1 : at + 1 + size].decode())
                    at += size + 1
                (kind,) = struct.unpack_from(">H", question, at + 1)
                address = NAMES.get(".".join(labels).lower())
                found = address is not None and kind == 1
                head = struct.pack(">2sHHHHH", question[:2], 0x8180 if address else 0x8183, 1, int(found), 0, 0)
                answer = struct.pack(">HHHIH4s", 0xC00C, 1, 1, 60, 4, socket.inet_aton(address or "0.0.0.0"))
                self._udp.sendto(head + question[12 : at + 5] + (answer if found else b""), source)


class Echo:
    """Sends back what comes to it at an address of the outside.

    Attributes:
        ends: of each connection that is over, "end" or the error's name.
    """

    def __init__(self, world: World, port: int) -> None:
        self._tcp = world.made(socket.AF_INET, socket.SOCK_STREAM, of_machine=False)
        self._tcp.bind((NAMED, port))
        self._tcp.listen(100)
        self.ends: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._echo, args=(self._tcp.accept()[0],), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)
                self.ends.append("end")
            except OSError as error:
                self.ends.append(type(error).__name__)


@pytest.fixture(scope="module")
def world(whose_pool: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world"))
    NameServer(made)
    for port in (80, 81):
        made.listen(port)
    yield made
    made.close()


@pytest.fixture(scope="module")
def echo(world: World) -> Echo:
    return Echo(world, 7000)


def machine_in(world: World, nodes: Nodes) -> tuple[str, ...]:
    """Before a node's command: in the world, with its name server."""
    resolver = nodes.place / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\n")
    resolver.chmod(0o644)
    mounted = f'mount --bind {resolver} /etc/resolv.conf && exec "$@"'
    return ("nsenter", f"--net={world.namespace}", "unshare", "--mount", "sh", "-c", mounted, "machine")


@pytest.fixture(scope="module")
def pool2(world: World, echo: Echo, whose_pool: object) -> Iterator[Nodes]:
    """Nodes in the world. The one called "one" allows a name, "two" the machine's resolver and another port."""

    async def start(nodes: Nodes) -> None:
        inside = machine_in(world, nodes)
        head = nodes.start("head", HEAD, machine=inside).ready()
        for name, setting in (("one", "named.test:80 named.test:7000"), ("two", f"dns {NAMED}:81")):
            config = nodes.place / f"{name}.conf"
            config.write_text(f"JOB_NETWORK_DESTINATIONS = {setting}\n")
            joins = await token(head, "startd")
            nodes.start(
                name, "startd", join=joins, config=config, machine=inside, SLOTS="1", CHECKPOINT_WORTH="0"
            ).ready()
        async with client(head) as pool:
            await slots(pool, 2)
            await support.asked(lambda: both_offer(pool), "both machines offer a way out")

    with support.running(start) as nodes:
        yield nodes


async def both_offer(pool: Pool) -> bool:
    return sum(ad.value("HasNetworkOut", False) is True for ad in await pool.machines()) == 2


@pytest.fixture
def home(pool2: Nodes, request: pytest.FixtureRequest) -> Path:
    return pool2.directory(support.directory_name(request))


def job(home: Path, text: str, where: str, more: str = "") -> str:
    script = program(home, f"exec {PYTHON} -c '{text}' \"$@\"")
    return f"""
    executable = {script}
    arguments = $(Node)
    output = out.$(Node)
    error = err.$(Node)
    log = log
    job_network = private+out
    requirements = {where}
    {more}
    queue
    """


def said(home: Path, node: str = "$(Node)") -> str:
    return "".join(
        (home / f"{kind}.{node}").read_text() for kind in ("err", "out") if (home / f"{kind}.{node}").exists()
    )


TRIES = """
import json, socket
said = {{}}
for name, port in {wanted}:
    try:
        with socket.create_connection((name, port), 10) as link: said[f"{{name}}:{{port}}"] = link.recv(100).decode()
    except socket.gaierror: said[f"{{name}}:{{port}}"] = "no such name"
    except OSError as error: said[f"{{name}}:{{port}}"] = error.strerror
print(json.dumps(said))
"""


def tries(*wanted: tuple[str, int]) -> str:
    return TRIES.format(wanted=json.dumps(wanted))


async def test_names_of_the_setting_and_of_the_machines_resolver(pool2: Nodes, home: Path) -> None:
    """A name of the setting needs no name server, and leads nowhere else; the resolver opens no address."""
    by_hosts, by_dns = home / "hosts", home / "dns"
    for place in (by_hosts, by_dns):
        place.mkdir()
        place.chmod(0o777)
    names = [("named.test", 80), ("named.test", 81), ("other.test", 80)]
    more = [("named.test", 81), ("other.test", 81), ("other.test", 80), ("rebind.test", 81), ("machine.test", 81)]
    async with client(pool2.all[0]) as pool:
        clusters = [
            await pool.submit(job(by_hosts, tries(*names), 'Machine == "one"'), iwd=str(by_hosts)),
            await pool.submit(job(by_dns, tries(*more, ("lost.test", 81)), 'Machine == "two"'), iwd=str(by_dns)),
        ]
        for cluster, place in zip(clusters, (by_hosts, by_dns), strict=True):
            (result,) = await cluster.wait(support.PATIENCE)
            assert result.ok, (result, said(place, ""))
    no_route = "No route to host"
    assert json.loads((by_hosts / "out.").read_text()) == {
        "named.test:80": NAMED,
        "named.test:81": no_route,
        "other.test:80": "no such name",
    }
    assert json.loads((by_dns / "out.").read_text()) == {
        "named.test:81": NAMED,
        "other.test:81": no_route,
        "other.test:80": no_route,
        "rebind.test:81": no_route,
        "machine.test:81": no_route,
        "lost.test:81": "no such name",
    }


async def test_each_part_of_a_gang_leaves_by_its_own_machine(pool2: Nodes, home: Path) -> None:
    """And the parts talk with each other meanwhile."""
    text = f"""
import socket, sys, time
part = int(sys.argv[1])
if part == 0:
    link = socket.create_server(("", 5000)).accept()[0]
else:
    while True:
        try: link = socket.create_connection(("rank0", 5000)); break
        except OSError: time.sleep(0.05)
for port in (80, 81):
    try: print(port, socket.create_connection(("{NAMED}", port), 10).recv(100).decode())
    except OSError as error: print(port, error.strerror)
link.sendall(b"!")
assert link.recv(1) == b"!"
"""
    more = 'universe = parallel\nmachine_count = 2\n+ParallelShutdownPolicy = "WAIT_FOR_ALL"'
    async with client(pool2.all[0]) as pool:
        cluster = await pool.submit(job(home, text, "TARGET.SlotID == 1", more), iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE)
    assert result.ok, (result, [said(home, node) for node in "01"])
    no_route = "No route to host"
    assert sorted(said(home, node) for node in "01") == [
        f"80 {NAMED}\n81 {no_route}\n",
        f"80 {no_route}\n81 {NAMED}\n",
    ]


CONNECTED = """
import socket
def connect():
    link = socket.create_connection(("named.test", 7000), 30)
    link.settimeout(None)
    link.sendall(b"!")
    assert link.recv(1) == b"!"
    return link
link = connect()
open("begun", "w").close()
try: print(link.recv(1), flush=True)
except OSError as error: print(type(error).__name__, flush=True)
connect()
print("connected again", flush=True)
"""


async def connected(pool: Pool, home: Path) -> Cluster:
    """A job that is connected to the outside and waits for bytes."""
    cluster = await pool.submit(job(home, CONNECTED, 'Machine == "one"', "initialdir = " + str(home)), iwd=str(home))
    await until((home / "begun").exists, "the job is connected")
    return cluster


def left_processes() -> list[psutil.Process]:
    """The relays and ways out of all nodes."""
    found = []
    for process in support.family():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() in ("relay", "way_out"):
                found.append(process)
    return found


@pytest.mark.parametrize("what", ["hold", "rm"])
async def test_nothing_is_left_of_a_job_that_is_taken_away(pool2: Nodes, home: Path, echo: Echo, what: str) -> None:
    echo.ends.clear()
    async with client(pool2.all[0]) as pool:
        cluster = await connected(pool, home)
        assert left_processes()
        assert poolnode(what, str(cluster.cluster), "--address", pool2.all[0].address).returncode == 0
        await until(lambda: echo.ends, "the server sees the end")
        await until(lambda: not left_processes(), "its processes are gone")
        if what == "hold":
            await cluster.remove()


async def test_a_job_whose_node_dies_sees_a_reset_and_connects_again(
    pool2: Nodes, home: Path, echo: Echo, world: World
) -> None:
    """No process is left of the node but the job's; the next node gives the job a new way out."""
    echo.ends.clear()
    one = pool2.all[1]
    async with client(pool2.all[0]) as pool:
        cluster = await connected(pool, home)
        with as_root():
            one.crash()
        await until(lambda: echo.ends, "the server sees the end")
        assert echo.ends == ["ConnectionResetError"]
        await until(lambda: said(home, ""), "the job sees the end")
        assert said(home, "") == "ConnectionResetError\n"
        await until(lambda: not left_processes(), "relay and way out are gone")
        config, machine = pool2.place / "one.conf", machine_in(world, pool2)
        pool2.start("one", "startd", config=config, machine=machine, SLOTS="1", CHECKPOINT_WORTH="0").ready()
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, (result, said(home, ""), pool2.all[-1].text)
        assert said(home, "") == "ConnectionResetError\nconnected again\n"


async def test_a_changed_setting_is_for_jobs_that_start_then_and_a_wrong_one_is_refused(
    pool2: Nodes, home: Path, echo: Echo
) -> None:
    """SIGHUP: the job that runs keeps what it had; a setting that cannot be read changes nothing."""
    node, config = next(each for each in reversed(pool2.all) if each.state.name == "two.state"), "two.conf"
    text = f"""
import os, socket, time
def reaches(port):
    try: return bool(socket.create_connection(("{NAMED}", port), 10).recv(100))
    except OSError: return False
print(reaches(80), reaches(81), flush=True)
open("begun", "w").close()
while not os.path.exists("go"): time.sleep(0.01)
print(reaches(80), reaches(81))
"""
    async with client(pool2.all[0]) as pool:
        first = await pool.submit(job(home, text, 'Machine == "two"'), iwd=str(home))
        await until((home / "begun").exists, "the first job has tried")
        (pool2.place / config).write_text(f"JOB_NETWORK_DESTINATIONS = {NAMED}:80\n")
        with as_root():
            node.signal(signal.SIGHUP)
        node.said("configuration read again", changed="JOB_NETWORK_DESTINATIONS")
        (home / "go").touch()
        await first.wait(support.PATIENCE)
        assert said(home, "") == "False True\nFalse True\n"
        second = await pool.submit(job(home, text, 'Machine == "two"'), iwd=str(home))
        await second.wait(support.PATIENCE)
        assert said(home, "") == "True False\n" * 2
    (pool2.place / config).write_text(f"JOB_NETWORK_DESTINATIONS = {NAMED}:http\n")
    refused = one_line(poolnode("reload", "--address", node.address))
    assert "JOB_NETWORK_DESTINATIONS: 203.0.113.7:http is no destination: write ADDRESS/BITS:PORT" in refused


HIDES = """
import os, signal, socket
unix = socket.socket(socket.AF_UNIX)
unix.bind("\\0hidden-of-the-job")
unix.listen()
tcp = socket.create_server(("", 23456))
open("begun", "w").write(str(os.getpid()))
signal.pause()
"""
#: Another user of the machine, in its network: names, ports, lists, namespace and processes of the job.
LOOKS = """
import ctypes, os, socket, sys
os.setgroups([]); os.setresgid(65533, 65533, 65533); os.setresuid(65533, 65533, 65533)
for family, address in ((socket.AF_UNIX, "\\0hidden-of-the-job"), (socket.AF_INET, ("127.0.0.1", 23456)),
                        (socket.AF_INET, ("10.77.0.1", 23456)), (socket.AF_INET6, ("fd70:6f6f:6c00::1", 23456))):
    with socket.socket(family) as s:
        s.settimeout(0.2)
        try: s.connect(address); print("reached", address)
        except OSError: pass
for name in ("tcp", "tcp6", "unix", "udp"):
    text = open(f"/proc/net/{name}").read()
    if "hidden" in text or f"{23456:04X}" in text: print("listed in", name)
libc = ctypes.CDLL(None)
for pid in sys.argv[1:]:
    for name in ("ns/net", "root/etc/hosts", "fd", "environ", "mem"):
        try: os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY)); print("opened", pid, name)
        except OSError: pass
    if libc.setns(os.pidfd_open(int(pid)), 0x40000000) == 0: print("entered", pid)
    if libc.ptrace(16, int(pid), 0, 0) == 0: print("traces", pid)
"""


async def test_a_jobs_network_is_invisible_to_other_users(pool2: Nodes, home: Path, world: World) -> None:
    """Lists below /proc/PID/net have tests in tests/starter/test_network.py and tests/network/test_hostile_jobs.py."""
    async with client(pool2.all[0]) as pool:
        cluster = await pool.submit(job(home, HIDES, 'Machine == "two"'), iwd=str(home))
        await until(lambda: (home / "begun").exists() and (home / "begun").read_text(), "the job listens")
        with as_root():
            pids = [str(each.pid) for each in support.processes_with("hidden-of-the-job")]
            pids += [str(each.pid) for each in left_processes()]
            assert len(pids) >= 4, pids
            command = ["nsenter", f"--net={world.namespace}", PYTHON, "-c", LOOKS, *pids]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("", "")
        await cluster.remove()

"""Jobs without a network, and jobs with one of their own."""

from __future__ import annotations

import array
import asyncio
import os
import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pool.checkpoint.messages_table import Ability
from pool.jobs.network import setup_of
from pool.starter.keeper import NativeKeepers, StartFailed
from tests.starter.support import PYTHON, family, opened, shell, soon, spec, to_end, until

LOOPBACK = (
    "import socket; s = socket.create_server(('127.0.0.1', 0)); "
    "c = socket.create_connection(s.getsockname()); c.sendall(b'x'); assert s.accept()[0].recv(1) == b'x'"
)


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_only_its_own_loopback_is_there(best: NativeKeepers, scratch: Path, isolation: str) -> None:
    if not best.abilities.network:
        pytest.skip("needs the ability network")
    kind = {"network": "none", "isolation": isolation}
    assert (await to_end(best, shell(scratch, "cut -d: -f1 /proc/net/dev | tail -n +3", **kind))).code == 0
    if isolation == "full":
        assert (scratch / "out").read_text().split() == ["lo"]
        return
    assert (await to_end(best, spec(scratch, PYTHON, "-c", LOOPBACK, **kind))).code == 0
    with socket.create_server(("127.0.0.1", 0)) as server:
        reach = f"import socket; socket.create_connection({server.getsockname()!r}, 2)"
        assert (await to_end(best, spec(scratch, PYTHON, "-c", reach, **kind))).code == 1
        kind["network"] = "host"
        assert (await to_end(best, spec(scratch, PYTHON, "-c", reach, **kind))).code == 0


async def test_a_machine_that_cannot_says_so_and_refuses(place: Path, program: Path, scratch: Path) -> None:
    async with opened(place, program, without=512) as keepers:
        assert any(line.startswith("no network namespaces") for line in keepers.abilities.reduced)
        with pytest.raises(StartFailed, match="network"):
            await keepers.start(shell(scratch, "true", network="none"))
        assert (await to_end(keepers, shell(scratch, "exit 3"))).code == 3


def own(isolation: str, part: int = 0, hosts: tuple[str, ...] = ("here.example", "there.example")) -> dict[str, Any]:
    setup = tuple(setup_of(part, hosts))
    return {"network": "private", "network_setup": setup, "isolation": isolation}


TALK = """
import socket
assert socket.gethostname() == 'rank1'
assert socket.gethostbyname('rank0') == socket.gethostbyname('here.example') == '10.77.0.1'
assert socket.gethostbyname('there') == '10.77.0.2'
for family, address in ((socket.AF_INET, '10.77.0.2'), (socket.AF_INET6, 'fd70:6f6f:6c00::2'), (socket.AF_INET, '')):
    with socket.create_server((address or '127.0.0.1', 80), family=family) as s:
        c = socket.create_connection(s.getsockname()[:2]); c.sendall(b'x'); assert s.accept()[0].recv(1) == b'x'
try: socket.create_connection(('192.0.2.1', 80), 5)
except OSError as error: assert error.errno == 101, error
else: raise AssertionError('there is a way out')
for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
    try: socket.socket(socket.AF_PACKET, kind, 0)
    except PermissionError: pass
    else: raise AssertionError('it may forge packets')
"""


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_a_job_has_a_network_of_its_own(best: NativeKeepers, scratch: Path, isolation: str) -> None:
    if not best.abilities.private_network:
        pytest.skip("needs the ability network")
    end = await to_end(best, spec(scratch, PYTHON, "-c", TALK, **own(isolation, part=1)))
    assert end.code == 0, (scratch / "err").read_text()


DEVICES = """
from pathlib import Path
devices = Path('/sys/class/net')
assert {one.name for one in devices.iterdir()} == {'lo', 'eth0', 'wire0'}, list(devices.iterdir())
assert (devices / 'eth0').resolve() == Path('/sys/devices/virtual/net/eth0')
assert (devices / 'eth0/operstate').read_text() == 'up\\n'
assert (devices / 'lo/flags').read_text() == '0x9\\n'
try: (devices / 'eth0/mtu').write_text('1500')
except OSError: pass
else: raise AssertionError('it may change its device')
assert not list(Path('/tmp').glob('kernel'))
"""


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_its_devices_are_those_in_sys(best: NativeKeepers, scratch: Path, isolation: str) -> None:
    if not best.abilities.private_network:
        pytest.skip("needs the ability network")
    end = await to_end(best, spec(scratch, PYTHON, "-c", DEVICES, **own(isolation)))
    assert end.code == 0, (scratch / "err").read_text()


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_the_machines_ports_are_out_of_its_reach(best: NativeKeepers, scratch: Path, isolation: str) -> None:
    if not best.abilities.private_network:
        pytest.skip("needs the ability network")
    with socket.create_server(("127.0.0.1", 0)) as server:
        reach = f"import socket; socket.create_connection({server.getsockname()!r}, 2)"
        assert (await to_end(best, spec(scratch, PYTHON, "-c", reach, **own(isolation)))).code == 1
        assert "refused" in (scratch / "err").read_text()


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_it_can_change_neither_addresses_nor_names(best: NativeKeepers, scratch: Path, isolation: str) -> None:
    if not best.abilities.private_network:
        pytest.skip("needs the ability network")
    script = """
    for try in 'ip addr add 10.77.0.9/16 dev eth0' 'ip route add default dev eth0' 'ip link set eth0 down' \
        'ip neigh add 10.77.0.9 lladdr 2:0:0:0:0:1 dev eth0' 'hostname rank0' 'chmod u+w /etc/hosts' \
        'sh -c "echo 6.6.6.6 rank0 >> /etc/hosts"' 'umount /etc/hosts' 'nsenter -t 1 -n true'
    do $try 2> /dev/null && echo "$try"; done; true
    """
    assert (await to_end(best, shell(scratch, script, **own(isolation)))).code == 0
    assert (scratch / "out").read_text() == ""


#: A job that listens, knows its own sockets by the kernel's lists, and waits.
LISTENS = """
import os, socket
unix = socket.socket(socket.AF_UNIX); unix.bind("\\0hidden-of-the-job"); unix.listen()
tcp = socket.create_server(("127.0.0.1", 23456))
assert f":{23456:04X}" in open("/proc/net/tcp").read()
assert "hidden-of-the-job" in open("/proc/self/net/unix").read()
assert "lo:" in open("/proc/thread-self/net/dev").read()
open("begun", "w").close()
tcp.accept()
"""
#: Another user: all lists of the network, by each process and by one of its threads; what netlink answers (sock_diag(7)
#: and the devices); names that lead into the job.
LOOKS = """
import os, socket, struct, sys
os.setgroups([]); os.setresgid(65533, 65533, 65533); os.setresuid(65533, 65533, 65533)
def look(directory):
    for name in os.listdir(directory):
        path = f"{directory}/{name}"
        try: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read()
        except OSError: continue
        print("reads", path)
for pid in sys.argv[1:]:
    look(f"/proc/{pid}/net"); look(f"/proc/{pid}/task/{pid}/net")
    for name in ("root/proc/net/tcp", "ns/net", "ns/user", "cwd/begun", "fd", "map_files"):
        try: os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY)); print("opens", pid, name)
        except OSError: pass
ports = struct.pack("<IHHIIBBBxI48x", 72, 20, 0x301, 1, 0, socket.AF_INET, 6, 0, 0xffffffff)
names = struct.pack("<IHHIIBBxxIII8x", 40, 20, 0x301, 1, 0, socket.AF_UNIX, 0, 0xffffffff, 0, 1)
for kind, asked, said in ((4, ports, struct.pack(">H", 23456)), (4, names, b"hidden-of-the-job"),
                          (0, struct.pack("<IHHIIBxHiII", 32, 18, 0x301, 1, 0, 0, 0, 0, 0, 0), b"wire0")):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, kind) as ask:
        ask.send(asked)
        answers = b""
        while not answers.endswith(struct.pack("<i", 0)) or struct.unpack_from("<H", last, 4)[0] != 3:
            last = ask.recv(1 << 20)
            assert struct.unpack_from("<H", last, 4)[0] != 2, last
            answers += last
        if said in answers: print("netlink says", said)
"""


async def listed(keepers: NativeKeepers, scratch: Path, who: int, network: str) -> str:
    """The findings of another user of the machine about such a job."""
    os.chown(scratch, who, who)
    kind = own("shared") if network == "private" else {"network": "none", "isolation": "shared"}
    keeper = await soon(keepers.start(spec(scratch, PYTHON, "-c", LISTENS, uid=who, gid=who, groups=(), **kind)))
    await until(lambda: (scratch / "begun").exists() or keeper.ended.done())
    assert not keeper.ended.done(), (scratch / "err").read_text()
    pids = [str(each.pid) for each in family(keeper.pid)]
    assert len(pids) >= 2
    run = partial(subprocess.run, capture_output=True, text=True, check=False)
    done = await asyncio.to_thread(run, [PYTHON, "-c", LOOKS, *pids])
    assert done.stderr == ""
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    return done.stdout


@pytest.mark.parametrize("network", ["private", "none"])
@pytest.mark.parametrize("who", [0, 61234])
async def test_other_users_cannot_list_what_is_in_it(best: NativeKeepers, common: Path, who: int, network: str) -> None:
    if not best.abilities.private_network or not best.abilities.other_users:
        pytest.skip("needs root and the ability network")
    assert not any("list the sockets" in line for line in best.abilities.reduced)
    assert await listed(best, common, who, network) == ""


async def test_a_machine_that_cannot_hide_it_says_so(place: Path, program: Path, common: Path) -> None:
    """As an ordinary user's node cannot. The kernel lists the sockets then; all else stays closed."""
    async with opened(place, program, without=int(Ability.HIDE_SOCKETS)) as keepers:
        if not keepers.abilities.private_network or not keepers.abilities.other_users:
            pytest.skip("needs root and the ability network")
        assert any("can list the sockets" in line for line in keepers.abilities.reduced)
        lines = (await listed(keepers, common, os.getuid(), "private")).splitlines()
    assert any(line.endswith("/net/tcp") for line in lines)
    assert all(line.startswith("reads /proc/") for line in lines), lines


def received(end: socket.socket) -> tuple[int, list[socket.socket]]:
    """The errno of an answer, and the sockets that came with it."""
    data, rights, _, _ = end.recvmsg(4, socket.CMSG_SPACE(4))
    fds = array.array("i")
    for level, kind, raw in rights:
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        fds.frombytes(raw)
    return int.from_bytes(data, "little"), [socket.socket(fileno=fd) for fd in fds]


async def test_its_keeper_hands_out_its_wire_and_connections_to_it(best: NativeKeepers, scratch: Path) -> None:
    if not best.abilities.private_network:
        pytest.skip("needs the ability network")
    text = (
        "import socket; s = socket.create_server(('127.0.0.1', 8888)); open('ready', 'w').close(); "
        "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); c = s.accept()[0]; c.sendall(b'here'); "
        "u.sendto(b'to part one', ('10.77.0.2', 9)); c.recv(1)"
    )
    keeper = await soon(best.start(spec(scratch, PYTHON, "-c", text, **own("shared"))))
    await until((scratch / "ready").exists)
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far:
        keeper.wire(far.fileno())
        error, (wire,) = await soon(asyncio.to_thread(received, near))
        assert error == 0
        keeper.connect(8888, far.fileno())
        error, (port,) = await soon(asyncio.to_thread(received, near))
        assert error == 0
    with wire, port:
        wire.setblocking(False)
        port.setblocking(False)
        assert await soon(loop.sock_recv(port, 4)) == b"here"
        frame = await soon(loop.sock_recv(wire, 1 << 16))
        assert frame.endswith(b"to part one")
        assert frame[10 + 14 + 12 : 10 + 14 + 20] == bytes([10, 77, 0, 1, 10, 77, 0, 2])
        await soon(loop.sock_sendall(port, b"!"))
        assert (await soon(keeper.ended)).code == 0
    await keeper.forget()


async def test_a_machine_without_pairs_of_devices_says_so_and_refuses(
    place: Path, program: Path, scratch: Path
) -> None:
    async with opened(place, program, without=int(Ability.PRIVATE_NETWORK)) as keepers:
        assert "there are no pairs of devices (veth) (switched off)" in keepers.abilities.private_network_why
        with pytest.raises(StartFailed, match="network of its own"):
            await keepers.start(shell(scratch, "true", **own("shared")))
        assert (await to_end(keepers, shell(scratch, "exit 3", network="none"))).code == 3

"""Two machines that do not reach each other: the packets of a job's network go by the schedd's node (issue 14)."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, poolnode, program, slots, token, until
from tests.network.islands import Islands
from tests.ordinary_user import as_root
from tests.starter.support import PYTHON, is_named


@pytest.fixture(scope="module")
def islands(whose_pool: object) -> Iterator[Islands]:
    made = Islands()
    yield made
    made.close()


@pytest.fixture(scope="module")
def pool2(islands: Islands) -> Iterator[Nodes]:
    async def start(nodes: Nodes) -> None:
        start_head(nodes, islands)
        (head,) = nodes.all
        for number, (name, machine) in enumerate(zip(("one", "two"), islands.machines, strict=True), 1):
            joins, listen = await token(head, "startd"), f"10.98.{number}.2:0"
            nodes.start(
                name, "startd", join=joins, machine=machine, LISTEN=listen, SLOTS="1", CHECKPOINT_WORTH="0"
            ).ready()
        async with client(head) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(pool2: Nodes, request: pytest.FixtureRequest) -> Path:
    return pool2.directory(support.directory_name(request))


#: Both exchange numbers; either waits for the other, so each number passes both ways once.
EXCHANGE = """
import os, socket, sys, time
part, beside = int(sys.argv[1]), sys.argv[2]
if part == 0:
    server = socket.create_server(("", 5000))
    link = server.accept()[0]
else:
    while True:
        try: link = socket.create_connection(("rank0", 5000)); break
        except OSError: time.sleep(0.05)
turn = 0
while True:
    link.sendall(turn.to_bytes(8, "big") * 100)
    got = b""
    while len(got) < 800: got += link.recv(800 - len(got))
    assert got == turn.to_bytes(8, "big") * 100
    if turn == 20: open(f"{beside}/begun.{part}", "w").close()
    if part == 0 and os.path.exists(f"{beside}/say"): os.rename(f"{beside}/say", f"{beside}/said")
    turn += 1
"""


def carriers(nodes: Nodes) -> list[psutil.Process]:
    """The relays of the schedd's node, which carry links of others."""
    head = nodes.all[0] if nodes.all[0].process.poll() is None else nodes.all[-1]
    children = psutil.Process(head.process.pid).children(recursive=True)
    return [one for one in children if is_named(one, "relay")]


def start_head(nodes: Nodes, islands: Islands) -> None:
    nodes.start("head", HEAD, machine=islands.middle, LISTEN="10.98.0.1:0", GANG_NETWORK="private").ready()


async def test_packets_go_by_the_schedds_node_and_kills_there_stop_no_connection(
    pool2: Nodes, islands: Islands, home: Path
) -> None:
    """`why` and `inspect` say by which node; its relay is killed, and then it is itself: TCP inside goes on.

    The job has a network of its own by GANG_NETWORK.
    """
    script = program(home, f"exec {PYTHON} -c '{EXCHANGE}' \"$@\"")
    text = f"""
    universe = parallel
    executable = {script}
    arguments = $(Node) {home}
    error = err.$(Node)
    machine_count = 2
    queue
    """
    async with client(pool2.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        await until(lambda: all((home / f"begun.{part}").exists() for part in range(2)), "both parts talk")
        at = ("--address", pool2.all[0].address)
        shown = poolnode("inspect", str(cluster.cluster), *at).stdout
        why = poolnode("why", f"{cluster.cluster}.0", *at).stdout
        for text in (shown, why):
            assert re.search(r"link to (one|two) goes by head", text), text
        (carrier,) = carriers(pool2)
        with as_root():
            os.kill(carrier.pid, signal.SIGKILL)
        await talk_again(home)
        assert [one.pid for one in carriers(pool2)] != [carrier.pid]
    pool2.all[0].crash()
    start_head(pool2, islands)
    await talk_again(home)
    assert carriers(pool2)
    async with client(pool2.all[-1]) as pool:
        poolnode("rm", str(cluster.cluster), "--address", pool2.all[-1].address)
        await until(lambda: not carriers(pool2), "nothing is carried for a job that is gone")


async def talk_again(home: Path) -> None:
    (home / "said").unlink(missing_ok=True)
    (home / "say").touch()
    await until((home / "said").exists, "the parts talk again")

"""Connections that are being closed: which of the kernel's table count, and how long they are waited for."""

from __future__ import annotations

import os
import socket
import subprocess

from pool.network.closing import HeldTables, closing_connections, tables_of, wait_until_closed

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
#: 10.77.0.4 to 10.77.0.1, and the same as fd70:6f6f:6c00::4 and ::1.
FOUR, ONE, OUTSIDE = "04004D0A:D6A9", "01004D0A:A13F", "08080808:01BB"
SIX = ("6F6F70FD0000006C0000000004000000:D6A9", "6F6F70FD0000006C0000000001000000:A13F")
MAPPED = ("0000000000000000FFFF000004004D0A:D6A9", "0000000000000000FFFF000001004D0A:A13F")


def row(here: str, there: str, state: str, sends: int = 1, inode: int = 0) -> str:
    more = f"{sends:08X}:00000000 01:00000014 00000000     0        0 {inode} 3 0000000000000000 20 4 30 10 -1"
    return f"   0: {here} {there} {state} {more}\n"


def test_what_a_process_no_more_has_and_another_part_has_not_acknowledged() -> None:
    for here, there in ((FOUR, ONE), SIX, MAPPED):
        for state in ("04", "09", "0B"):
            assert closing_connections(HEAD + row(here, there, state)) == 1
        assert not closing_connections(HEAD + row(here, there, "04", inode=77))  # a process shut it down
        assert not closing_connections(HEAD + row(here, there, "01"))  # nobody has accepted it
        assert not closing_connections(HEAD + row(here, there, "05", sends=0))  # all is acknowledged
    assert not closing_connections(HEAD + row(FOUR, OUTSIDE, "04"))
    assert not closing_connections(HEAD + row(FOUR, FOUR, "04"))  # its own, which the keeper saves
    assert not closing_connections(HEAD)
    assert not closing_connections("")
    assert closing_connections(HEAD + row(FOUR, ONE, "04") + HEAD + row(*SIX, "09")) == 2


def test_the_tables_of_a_process_are_the_kernels() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert f"0100007F:{server.getsockname()[1]:04X}" in tables_of(os.getpid())
    assert not closing_connections(tables_of(os.getpid()))
    assert tables_of(1 << 22) == ""


async def test_it_waits_for_them_and_not_for_ever() -> None:
    left = [HEAD + row(FOUR, ONE, "04")] * 3
    assert await wait_until_closed(lambda: left.pop() if left else HEAD)
    assert not left
    assert not await wait_until_closed(lambda: HEAD + row(FOUR, ONE, "04"), 0.05)


async def test_it_does_not_wait_where_nobody_is_left() -> None:
    looked: list[int] = []

    def in_vain() -> bool:
        looked.append(1)
        return len(looked) == 3

    assert not await wait_until_closed(lambda: HEAD + row(FOUR, ONE, "04"), 3600, in_vain)
    assert len(looked) == 3


def test_held_tables_outlive_their_process() -> None:
    """They are read anew each time, and are those of the network, not of the process."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        held = HeldTables(process.pid)
        process.kill()
    assert tables_of(process.pid) == ""
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = f"0100007F:{server.getsockname()[1]:04X}"
        assert own in held.read()
    assert f"{own} 00000000:0000 0A" not in held.read()
    held.close()
    assert held.read() == ""
    assert HeldTables(1 << 22).read() == ""

"""A node that joined as a schedd only, in the hands of somebody else: what it sends in a start to root's machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pool.client import Pool
from pool.config import Settings
from pool.node import Node
from pool.outside import OutsideWorld
from pool.wire import RemoteError
from pool.wire.credentials import Credentials
from pool.wire.network import RealNetwork
from tests.e2e.support import PATIENCE, Nodes, token

#: Values of a process of a job of several, and of the start itself, that are no names or programs.
NAMES = ("../../evil", "/evil", "..", ".", "", "a/b", "a\0b", "x" * 300, 7, None, ["x"], b"x")
PROGRAMS = ("/", "/bin/", "/bin/..", "", "a\0b", 7, None, ["/bin/true"])


def wrong_starts(evil: Path) -> list[tuple[str, dict[str, Any]]]:
    """Each with the field that is wrong."""
    good = {"name": "one", "cmd": "/bin/true"}
    starts: list[tuple[str, dict[str, Any]]]
    starts = [("processes", {"processes": [good | {"name": name}]}) for name in (str(evil), *NAMES)]
    starts += [("processes", {"processes": [good | {"cmd": program}]}) for program in PROGRAMS]
    starts += [("executable", {"executable": program}) for program in (*PROGRAMS, "bin/true", "../true")]
    starts += [("digest", {"digest": digest}) for digest in (str(evil), "../../evil", "a" * 63, 7)]
    starts += [("pipes", {"pipes": [{"writer": name, "reader": "one"}]}) for name in (str(evil), "../evil")]
    return [*starts, ("iwd", {"iwd": "home"}), ("stdin", {"stdin": ".."}), ("mode", {"mode": str(evil)})]


async def test_names_and_programs_out_of_a_start_are_refused_at_the_border(nodes: Nodes) -> None:
    head = nodes.start("head", "collector,negotiator,startd").ready()
    home, evil = nodes.directory("home"), nodes.place / "evil"
    sets = {"NODE_NAME": "sub", "LISTEN": "127.0.0.1:0", "MAIL": "none"}

    def read() -> Settings:
        return Settings.load(None, sets=sets, environ={}, files=False)

    rogue = Node(["schedd"], read(), nodes.state("sub"), OutsideWorld(), read, personal=False)
    await rogue.start(await token(head, "schedd"))
    try:
        starts = rogue.running["schedd"].placement.starts  # type: ignore[attr-defined]
        orders: list[dict[str, Any]] = []
        made = starts.order

        def noted(claim: Any, *, whole: bool = False) -> dict[str, Any]:
            orders.append(made(claim, whole=True))
            return orders[-1]

        starts.order = noted
        async with await Pool.connect(f"unix://{rogue.state}/node.sock") as pool:
            job = {"executable": "/bin/true", "keep_claim_idle": "600", "should_transfer_files": "YES"}
            (result,) = await (await pool.submit(job, iwd=str(home))).wait(PATIENCE, until_stuck=True)
            assert result.ok, result
            credentials = Credentials.load(rogue.state / "trust")
            link = await RealNetwork(credentials=credentials).connect(head.said("ready")["address"])
            order = orders[-1]
            for field, wrong in wrong_starts(evil):
                with pytest.raises(RemoteError, match=f"refused to start a job: its {field} is"):
                    await link.call("startd.activate", order | {"start": order["start"] | {"run": 2} | wrong})
            await link.close()
            # The claim is as good as before.
            (result,) = await (await pool.submit(job, iwd=str(home))).wait(PATIENCE, until_stuck=True)
            assert result.ok, result
        assert not evil.exists()
        assert not list(nodes.place.rglob("evil*"))
    finally:
        await rogue.stop(handover=False)

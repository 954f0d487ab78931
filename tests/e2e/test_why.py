"""`poolnode why` on a real node: what a user reads, on a terminal's width and in a pipe (D8)."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.support import ALL, Nodes, asked, client, poolnode


async def test_a_job_and_a_machine_explain_themselves(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        wish = {"executable": "/bin/sleep", "request_memory": "64TB", "environment": "TOKEN=hunter2"}
        cluster = await pool.submit(wish, iwd=home)

        async def looked_at() -> Any:
            found = await pool.why((cluster.cluster, 0))
            return found if "last negotiation" in str(found) else None

        explained = await asked(looked_at, "the first negotiation")
        assert explained.standing == "no machine matches"
        said = explained.lines()
        assert any(line.split()[:3] == ["request_memory", "64", "TB"] and "largest" in line for line in said), said
        assert any(line.startswith("  nearest: without request_memory 64 TB, 1 machine") for line in said), said
        (slot,) = await pool.why_machine("slot1@whole")
        assert slot.lines()[0].startswith("slot1@whole: Unclaimed Idle")
    job = f"{cluster.cluster}.0"
    done = poolnode("why", job, "slot1@whole", "nowhere", POOLNODE_ADDRESS=whole.address)
    assert done.returncode == 1
    assert done.stdout.startswith(f"{job} waits")
    assert "there is no machine nowhere" in done.stderr
    found = json.loads(poolnode("why", job, "--json", POOLNODE_ADDRESS=whole.address).stdout)
    assert found["standing"] == "no machine matches"
    assert "hunter2" not in json.dumps(found)


async def test_the_way_out_fits_what_holds_a_job(nodes: Nodes) -> None:
    """The node says by which command it is reached, and holds of different kinds have ways out of their own."""
    whole = nodes.start("whole", ALL, SLOTS="4").ready()
    told = whole.said("reach this node with")["command"].split()
    assert told[0] == "poolnode"
    done = poolnode(*told[1:])
    assert (done.returncode, done.stderr) == (0, "")
    home = nodes.directory("home")
    program, lines, place = home / "program", home / "input", home / "place"
    wishes: dict[int, dict[str, str]] = {
        6: {"executable": str(program)},
        7: {"executable": "/bin/true", "output": str(place / "out")},
        8: {"executable": "/bin/true", "input": str(lines)},
        14: {"executable": "/bin/true", "initialdir": str(place)},
    }
    async with client(whole) as pool:
        for code, wish in wishes.items():
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
            lines.write_text("1\n")
            place.mkdir()
            cluster = await pool.submit({**wish, "hold": "true"}, iwd=home)
            program.chmod(0o644)
            lines.unlink()
            place.rmdir()
            await pool.act("release", ids=[(cluster.cluster,)])

            async def held(cluster: Any = cluster) -> Any:
                (ad,) = await pool.jobs(ids=[(cluster.cluster,)])
                return ad if ad.value("JobStatus") == 5 and ad.value("HoldReasonCode") != 15 else None

            ad = await asked(held, "the hold")
            said = (ad.value("HoldReason"), (await pool.why((cluster.cluster, 0))).lines())
            assert ad.value("HoldReasonCode") == code, said
            (way,) = [line for line in said[1] if "what releases it" in line]
            word = {6: "program", 7: "output", 8: "input", 14: "initial directory"}[code]
            assert word in way, said

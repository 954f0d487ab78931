"""State of a real job that cannot be saved is named soon after its start, and a job that requires it is held (C7); one
whose connection ends is saved then.
"""

from __future__ import annotations

import sys

from tests.e2e.support import ALL, Nodes, asked, client, program

#: A program with a connection to somebody else, as far as the pool sees: to a port of its own node.
CONNECTED = """
exec {python} -c "
import os, socket, time
there = socket.create_connection(('127.0.0.1', {port}))
while not os.path.exists('enough'): time.sleep(0.01)
there.close()
time.sleep(600)
"
"""


async def test_a_connection_is_named(nodes: Nodes) -> None:
    home = nodes.directory("home")
    node = nodes.start("whole", ALL, CHECKPOINT_EXAMINE="0.5", CHECKPOINT_FIRST="1").ready()
    async with client(node) as pool:
        port = int(str((await pool.info())["address"]).rpartition(":")[2])
        script = program(home, CONNECTED.format(python=sys.executable, port=port))
        easy = await pool.submit({"executable": script}, iwd=str(home))
        strict = await pool.submit({"executable": script, "checkpoint": "required"}, iwd=str(home))

        async def named() -> bool:
            (ad,) = await easy.ads()
            return f"TCP connection to 127.0.0.1:{port}" in str(ad.value("CheckpointTrouble", ""))

        await asked(named, "the connection to be named")
        text = str(await pool.why(f"{easy.cluster}.0"))
        assert "it cannot be checkpointed, and begins anew if it loses its machine" in text

        async def held() -> bool:
            (ad,) = await strict.ads()
            return bool(ad.value("JobStatus") == 5)

        await asked(held, "the strict job to be held")
        (ad,) = await strict.ads()
        assert f"TCP connection to 127.0.0.1:{port}" in str(ad.value("HoldReason"))
        assert ad.value("HoldReasonCode") == 36

        (home / "enough").touch()

        async def saved() -> bool:
            (ad,) = await easy.ads()
            return bool(ad.value("NumCkpts", 0)) and ad.value("CheckpointTrouble", None) is None

        await asked(saved, "the easy job to be saved when its connection had ended")
        await pool.act("remove", everything=True)

"""A real job removed with `rm --checkpoint`, and another one that begins where it stood; and what its runs came to."""

from __future__ import annotations

import os
import sys

from pool.client.checkpoints import Deleted, delete_checkpoints, kept_checkpoints
from tests.e2e.support import ALL, Nodes, client, program, until

COUNT = """
exec {python} -c "
import time
for n in range(1, 151):
    with open('{beat}', 'a') as beat:
        print(n, file=beat)
    time.sleep(0.02)
"
"""


async def test_another_job_goes_on_from_a_removed_one(nodes: Nodes) -> None:
    home = nodes.directory("home")
    node = nodes.start("whole", ALL, POLICY="dedicated").ready()
    beat = home / "beat"
    script = program(home, COUNT.format(python=sys.executable, beat=beat))
    async with client(node) as pool:
        first = await pool.submit({"executable": script}, iwd=str(home))
        await until(lambda: beat.exists() and len(beat.read_text().split()) > 20, "the job to count")
        acted = await first.remove(checkpoint=True)
        assert acted.done == 1
        (result,) = await first.wait()
        assert result.state == "removed"
        (ad,) = await first.ads()
        name = f"{first.cluster}.0"
        assert (ad.value("CheckpointKept"), ad.value("NumCkpts")) == (name, 1)
        assert 0.1 < ad.value("CommittedTime") < 20
        assert ad.value("CheckpointBytes") > 0
        (kept,) = await kept_checkpoints(pool)
        assert (kept.job, kept.command, kept.machine, kept.own) == (name, str(script), "whole", False)
        assert kept.kernel == os.uname().release
        assert kept.size > 0
        counted = beat.read_text().split()
        second = await pool.submit({"executable": script, "start_from_checkpoint": name}, iwd=str(home))
        (result,) = await second.wait()
        assert (result.state, result.exit_code) == ("completed", 0), result
        (ad,) = await second.ads()
        assert ad.value("WorkLost", 0) == 0
        deleted = await delete_checkpoints(pool, [name, "99.0"])
        assert deleted == Deleted((name,), (("99.0", "no checkpoint of it is kept here"),))
        assert await kept_checkpoints(pool) == []
    numbers = beat.read_text().split()
    assert numbers[: len(counted)] == counted
    assert numbers == [str(number) for number in range(1, 151)]

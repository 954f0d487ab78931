"""Jobs that use more than they may: held with what was measured and what was requested, not started again and again."""

# A test has the loop to itself: it may block.

from __future__ import annotations

import pytest

from tests.e2e.support import ALL, Nodes, client, outcome, program, slots

MEMORY = "x=x; while [ ${#x} -lt 150000000 ]; do x=$x$x; done; sleep 60"
DISK = "mkdir -p a/b; head -c 60000000 /dev/zero > a/b/large; sleep 60"


@pytest.mark.parametrize(
    ("enforced", "script", "wish", "said", "subcode"),
    [
        ("ENFORCE_MEMORY", MEMORY, {"request_memory": "50"}, ("memory", "it requested 50 MB"), 102),
        ("ENFORCE_DISK", DISK, {"request_disk": "20MB"}, ("MiB of disk", "it requested 20 MB"), 104),
    ],
)
async def test_a_job_over_its_share_is_held(
    nodes: Nodes, enforced: str, script: str, wish: dict[str, str], said: tuple[str, ...], subcode: int
) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL, environ={f"POOLNODE_{enforced}": "true"}, FILESYSTEM_DOMAIN="x").ready()
    async with client(whole) as pool:
        await slots(pool, 1)
        job = {"executable": program(home, script), "should_transfer_files": "YES", **wish}
        result = await outcome(pool, home, **job)
        assert result.state == "held"
        assert all(text in result.reason for text in said), result.reason
        (ad,) = await pool.jobs()
        names = ("HoldReasonCode", "HoldReasonSubCode", "NumJobStarts")
        assert [ad.value(name) for name in names] == [34, subcode, 1]

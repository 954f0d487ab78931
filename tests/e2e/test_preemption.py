"""A better job takes the place of a real one, which comes back afterwards (D5, RL 4.3)."""

from __future__ import annotations

from tests.e2e.support import ALL, Nodes, asked, client, program, until


async def test_a_job_that_the_machine_prefers_takes_the_place_of_another(nodes: Nodes) -> None:
    home = nodes.directory("home")
    node = nodes.start("whole", ALL, SLOTS="1", RANK="TARGET.Worth").ready()
    first = program(home, "echo begun >> first; test -e second && exit 0; while :; do sleep 0.05; done", "first.sh")
    second = program(home, "echo done > second", "second.sh")
    async with client(node) as pool:
        low = await pool.submit({"executable": first, "+Worth": "1", "log": "first.log"}, iwd=str(home))
        await until((home / "first").exists, "the first job to run")

        async def known() -> bool:
            return any(ad.value("CurrentRank", None) == 1.0 for ad in await pool.machines())

        await asked(known, "the machine's word on the job it has")
        high = await pool.submit({"executable": second, "+Worth": "5"}, iwd=str(home))
        (result,) = await high.wait(20, until_stuck=True)
        assert result.ok, result

        async def told() -> bool:
            log = home / "first.log"
            return log.exists() and "preempted by rank" in log.read_text()

        await asked(told, "the first job's log to say why it left")
        (result,) = await low.wait(20, until_stuck=True)
        assert result.ok, result
    assert (home / "first").read_text() == "begun\nbegun\n"

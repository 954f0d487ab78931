"""Jobs of the local universe on real nodes: beside a schedd without a machine, past its death, as their owner."""

from __future__ import annotations

import pwd

import pytest

from tests.e2e.support import HEAD, ROOT, Nodes, client, outcome, processes_with, program, until

WAITS = """
echo began >> began
while ! test -e go; do sleep 0.02; done
echo ended >> ended; cat; exit 3
"""


@pytest.mark.parametrize("universe", ["local", "scheduler"])
async def test_it_runs_beside_the_schedd_with_its_files(nodes: Nodes, universe: str) -> None:
    home = nodes.directory("home")
    (home / "in").write_text("to read\n")
    head = nodes.start("head", HEAD).ready()
    script = program(home, "cat; echo $1 $MORE >&2; pwd; exit 3")
    files = {"input": "in", "output": "out", "error": "err", "log": "log", "environment": "MORE=env"}
    async with client(head) as pool:
        result = await outcome(pool, home, universe=universe, executable=script, arguments="argument", **files)
    assert (result.exit_code, result.ok) == (3, False)
    assert (home / "out").read_text() == f"to read\n{home}\n"
    assert (home / "err").read_text() == "argument env\n"
    assert "Job executing" in (home / "log").read_text()


@pytest.mark.parametrize("when", ["while the node is away", "after it is back"])
async def test_the_node_is_killed_and_the_job_runs_on(nodes: Nodes, when: str) -> None:
    home = nodes.directory("home")
    head = nodes.start("head", HEAD).ready()
    script = program(home, WAITS, "waits-local-2271.sh")
    async with client(head) as pool:
        cluster = await pool.submit({"universe": "local", "executable": script, "output": "out"}, iwd=str(home))
        await until(lambda: (home / "began").exists(), "the job to begin")
    head.crash()
    assert processes_with("waits-local-2271"), "the job died with its node"
    if when == "while the node is away":
        (home / "go").touch()
        await until(lambda: not processes_with("waits-local-2271"), "the job to end")
    again = nodes.start("head", HEAD).ready()
    async with client(again) as pool:
        (home / "go").touch()
        (result,) = await pool.cluster(cluster.cluster, 1).wait(60)
    assert result.exit_code == 3
    assert (home / "began").read_text() == "began\n"
    assert (home / "ended").read_text() == "ended\n"


@pytest.mark.own_pool("root submits for another user")
@pytest.mark.skipif(not ROOT, reason="needs root, to submit as another user")
async def test_under_a_root_node_it_has_its_owners_rights_and_no_more(nodes: Nodes) -> None:
    user = pwd.getpwnam("nobody")
    home = nodes.directory("home")
    head = nodes.start("head", HEAD, RUN_AS="owner").ready()
    commands = {
        "universe": "local",
        "executable": program(home, "id -u; cat /etc/shadow"),
        "output": "out",
        "error": "err",
    }
    async with client(head) as pool:
        (draft,) = (await pool.describe(commands, iwd=str(home))).clusters
        asked = {"ad": draft.attributes, "count": 1, "deltas": None, "owner": "nobody"}
        answer = await pool.call("schedd.submit", asked)
        await pool.cluster(answer["cluster"], 1).wait(60)
    assert (home / "out").read_text() == f"{user.pw_uid}\n"
    assert "Permission denied" in (home / "err").read_text()
    assert (home / "out").stat().st_uid == user.pw_uid

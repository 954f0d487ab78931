"""Work flows on a real node that dies in the middle, that are edited and submitted twice, and that HTCondor's command
submits.
"""

from __future__ import annotations

import collections
import json
import re
import subprocess
from pathlib import Path

from tests.e2e.support import ALL, Nodes, environ_with_sources, poolnode, until

#: A script or job that leaves a mark, once for each time it is done.
MARK = '#!/bin/sh\necho "$@" >> marks\n'
NODE = "executable = /bin/sh\narguments = \"-c 'echo job $(JOB) >> marks'\"\nlog = jobs.log\nqueue\n"
FIFTY = 50


async def test_a_node_that_dies_in_the_middle_does_nothing_twice(nodes: Nodes) -> None:
    home = nodes.directory("home")
    (home / "mark.sh").write_text(MARK)
    (home / "mark.sh").chmod(0o755)
    (home / "node.sub").write_text(NODE)
    lines = [f"JOB n{at} node.sub\n" for at in range(FIFTY)]
    lines += [f"PARENT n{at - 10} CHILD n{at}\n" for at in range(10, FIFTY)]
    lines += [
        f"SCRIPT {moment} n{at} mark.sh {moment} $JOB\n" for moment in ("PRE", "POST") for at in range(0, FIFTY, 5)
    ]
    (home / "it.dag").write_text("".join([*lines, "JOBSTATE_LOG it.states\n"]))
    node = nodes.start("whole", ALL, SLOTS="8").ready()
    done = poolnode("dag", "submit", "-q", "it.dag", cwd=home, POOLNODE_ADDRESS=node.address)
    number = done.stdout.strip()
    marks = home / "marks"

    def count() -> int:
        return len(marks.read_text().splitlines()) if marks.exists() else 0

    for many in (8, 30):
        await until(lambda many=many: count() >= many, "some nodes to be done")  # type: ignore[misc]
        node.crash()
        node = nodes.start("whole", ALL, SLOTS="8").ready()
    done = poolnode("wait", number, cwd=home, POOLNODE_ADDRESS=node.address)
    assert done.returncode == 0, done
    expected = {f"job n{at}" for at in range(FIFTY)}
    expected |= {f"{moment} n{at}" for moment in ("PRE", "POST") for at in range(0, FIFTY, 5)}
    found = collections.Counter(marks.read_text().splitlines())
    assert set(found) == expected
    assert set(found.values()) == {1}
    states = [line.partition(" ")[2] for line in (home / "it.states").read_text().splitlines()]
    steps = [line for line in states if re.search(r" (SUBMIT|JOB_SUCCESS|POST_SCRIPT_SUCCESS) ", line)]
    assert len(steps) == len(set(steps)) == 2 * FIFTY + FIFTY // 5
    assert states.count("INTERNAL *** RECOVERY_FINISHED ***") == 2


def test_edited_submitted_twice_and_by_the_command_of_htcondor(nodes: Nodes) -> None:
    home = nodes.directory("home")
    (home / "node.sub").write_text("executable = /bin/sh\narguments = \"-c '$(what)'\"\nqueue\n")
    wait = "until test -e go; do sleep .05; done"
    dag = f'JOB A node.sub\nJOB B node.sub\nPARENT A CHILD B\nVARS A what="{wait}"\nVARS B what="echo B > b"\n'
    (home / "it.dag").write_text(dag)
    node = nodes.start("whole", ALL, SLOTS="4").ready()
    tools = home / "tools"

    def run(line: str, code: int = 0) -> str:
        done = poolnode(*line.split(), cwd=home, POOLNODE_ADDRESS=node.address)
        assert done.returncode == code, (line, done)
        return done.stdout + done.stderr

    run(f"compat --install {tools}")
    environ = {**environ_with_sources(), "POOLNODE_ADDRESS": node.address}
    words = [str(tools / "bin" / "condor_submit_dag"), "-batch-name", "mine", "it.dag"]
    said = subprocess.run(words, cwd=home, env=environ, capture_output=True, text=True, check=True).stdout
    (number,) = re.findall(r"^1 job\(s\) submitted to cluster (\d+)\.$", said, re.MULTILINE)
    second = poolnode("dag", "submit", "-q", "it.dag", cwd=home, POOLNODE_ADDRESS=node.address)
    other = second.stdout.strip()
    assert f"work flow {number} runs the same file: the files of this one are named {home}/it.dag.{other}.*" in (
        second.stderr
    )
    while "queued" not in run(f"dag status {number}"):
        pass
    listed = run("dag status").splitlines()
    assert [line.split()[:2] for line in listed] == [[number, "running"], [other, "running"]]
    assert all(line.endswith(f"0 of 2 nodes done  {home}/it.dag") for line in listed)
    (home / "it.dag").write_text(dag.replace("JOB A node.sub", "JOB A node.sub NOOP"))
    assert "A: it has begun" in run(f"dag edit {number}", 1)
    more = 'JOB C node.sub\nPARENT B CHILD C\nRETRY B 2\nVARS C what="cat b > c"\n'
    (home / "it.dag").write_text(dag.replace("echo B", "echo edited") + more)
    shown = "+ C\n~ B: description, retries\nwork flow {}: 1 added, 1 changed"
    assert f"{shown.format(number)}; nothing was done" in run(f"dag edit {number} --dry-run")
    assert shown.format(number) in run(f"dag edit {number}")
    assert "nothing is changed" in run(f"dag edit {number}")
    status = json.loads(run(f"dag status --json {number}"))
    status = status[0] if isinstance(status, list) else status
    assert (sum(status["counts"].values()), status["critical_path"]) == (3, ["A", "B", "C"])
    assert (status["unknown"], status["expected_end"]) == (3, None)
    assert "3 nodes are of descriptions that have not run yet" in run(f"dag status {number}")
    (home / "go").touch()
    for one in (number, other):
        run(f"wait {one}")
    assert Path(home / "c").read_text() in ("edited\n", "B\n")
    assert "ended with 0" in run(f"dag status {number}")
    assert (home / "it.dag.dagman.out").read_text().endswith("EXITING WITH STATUS 0\n")
    assert (home / f"it.dag.{other}.dagman.out").read_text().endswith("EXITING WITH STATUS 0\n")

"""Work flows with real nodes, jobs and files: submitted, failed, taken up again, removed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.e2e.support import ALL, Nodes, poolnode

DAG = """
JOB A node.sub
JOB B node.sub
JOB C node.sub
SCRIPT PRE B pre.sh $JOB $RETRY
SCRIPT DEBUG scripts.log ALL POST C pre.sh post $RETURN
VARS ALL_NODES x="v-$(JOB)"
PARENT A CHILD B
PARENT B CHILD C
RETRY B 1
NODE_STATUS_FILE it.status 1
JOBSTATE_LOG it.states
DOT it.dot
"""
NODE = """
executable = /bin/sh
arguments = "-c 'echo $(JOB) $(RETRY) $(x) >> told; test $(JOB) != B || test -e good'"
queue
"""


def test_a_work_flow_fails_and_is_taken_up_again(nodes: Nodes) -> None:
    home = nodes.directory("home")
    (home / "it.dag").write_text(DAG)
    (home / "node.sub").write_text(NODE)
    (home / "pre.sh").write_text("#!/bin/sh\necho script $* >> told\necho out $2\necho err $1 >&2\n")
    (home / "pre.sh").chmod(0o755)
    shutil.copytree(REPOSITORY / "examples" / "dag", home / "dag")
    address = nodes.start("whole", ALL, POLICY="dedicated").ready().address

    def run(line: str, code: int = 0, folder: Path = home) -> str:
        done = poolnode(*line.split(), cwd=folder, POOLNODE_ADDRESS=address)
        assert done.returncode == code, (line, done)
        return done.stdout

    assert "3 nodes, 2 edges" in run("dag check it.dag")
    assert "no work flow is in the queue" in run("dag status")
    number = run("dag submit -q it.dag").strip()
    example = run("dag submit -q words.dag", folder=home / "dag").strip()
    run(f"wait {number}", 1)
    lines = ["A 0 v-A", "script B 0", "B 0 v-B", "script B 1", "B 1 v-B"]
    assert (home / "told").read_text().splitlines() == lines
    assert "ended with 1" in run(f"dag status {number}")
    assert "1 of 3 nodes are done, 2 are left" in run("dag rescue it.dag")
    assert "NodesFailed = 1;" in (home / "it.status").read_text()
    (home / "good").touch()
    number = run("dag retry -q it.dag").strip()
    run(f"wait {number}")
    told = (home / "told").read_text().splitlines()
    assert told[len(lines) :] == [
        "script B 0",
        "B 0 v-B",
        "C 0 v-C",
        "script post 0",
    ]
    banner, *kept = (home / "scripts.log").read_text().splitlines()
    assert banner.startswith("*** Node=C Type=POST ExitCode=0 Completion=")
    assert banner.endswith(" Cmd='pre.sh post 0'")
    assert kept == ["out 0", "err post"]
    assert not list(home.glob("scripts.log.*"))
    states = (home / "it.states").read_text().splitlines()
    assert states[-1].endswith("INTERNAL *** DAGMAN_FINISHED 0 ***")
    assert sum(" JOB_SUCCESS 0 " in line for line in states) == 3
    assert '"A" -> "B";' in (home / "it.dot").read_text()
    found = json.loads(run(f"dag status --json {number}"))
    assert (found["code"], found["counts"]["DONE"]) == (0, 3)
    run(f"wait {example}")
    assert (home / "dag" / "total").read_text() == "600 words\n"
    run(f"dag status {number}9", 1)

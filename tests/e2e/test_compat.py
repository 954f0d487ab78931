"""The drop-ins and look-alike modules against real nodes, as programs that know nothing of this project call them."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pool.compat.entry import status
from tests.e2e.support import ALL, Nodes, environ_with_sources, poolnode

SCRIPT = """
import htcondor2, classad2
schedd = htcondor2.Schedd()
result = schedd.submit(htcondor2.Submit({"executable": "code.sh", "arguments": "$(code)", "log": "b.log"}),
                       itemdata=iter([{"code": "0"}, {"code": "7"}]))
ended = 0
for event in htcondor2.JobEventLog("b.log").events(60):
    ended += event.type == htcondor2.JobEventType.JOB_TERMINATED
    if ended == 2:
        break
codes = {}
while len(codes) < 2:
    for ad in schedd.history(f"ClusterId == {result.cluster()}", ["ProcId", "ExitCode"]):
        codes[ad["procid"]] = ad["EXITCODE"]
held = schedd.submit(htcondor2.Submit("executable = /bin/true\\nhold = true\\n"))
schedd.edit(f"{held.cluster()}.0", "Project", classad2.quote("alpha"))
(ad,) = schedd.query(f"ClusterId == {held.cluster()}", ["Project", "JobStatus"])
acted = schedd.act(htcondor2.JobAction.Remove, [f"{held.cluster()}.0"], "done")
where = htcondor2.Collector().locate(htcondor2.DaemonType.Schedd)
print(sorted(codes.items()), ad["project"], acted["TotalSuccess"], len(where["MyAddress"]) > 5,
      "UID_DOMAIN" in htcondor2.param)
"""


def test_the_drop_ins_drive_a_pool(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    home = nodes.directory("home")
    node = nodes.start("whole", ALL).ready()
    directory = home / "drop-ins"
    made = poolnode("compat", "--install", str(directory), cwd=home)
    assert made.returncode == 0, made.stderr
    environ = environ_with_sources() | {"POOLNODE_ADDRESS": node.address}
    environ["PATH"] = f"{directory / 'bin'}:{os.environ['PATH']}"
    environ["PYTHONPATH"] = f"{directory / 'python'}:{environ.get('PYTHONPATH', '')}"
    monkeypatch.setenv("POOLNODE_ADDRESS", node.address)
    monkeypatch.chdir(home)

    def run_program(*words: str) -> str:
        done = subprocess.run(words, cwd=home, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done)
        return done.stdout

    def run(line: str, code: int = 0) -> str:
        words = shlex.split(line)
        assert status(words[0], words[1:]) == code, (line, capfd.readouterr())
        return capfd.readouterr().out

    Path(home, "a.sub").write_text("executable = /bin/sleep\narguments = 300\nlog = a.log\n+Kind = 5\nqueue 2\n")
    told = run_program("condor_submit", "a.sub")
    found = re.search(r"^(\d+) job\(s\) submitted to cluster (\d+)\.$", told, re.MULTILINE)
    assert found is not None
    assert found[1] == "2"
    cluster = found[2]
    assert run("condor_submit -terse -append 'hold = true' a.sub") == f"{int(cluster) + 1}.0 - {int(cluster) + 1}.1\n"
    assert run(f"condor_q {cluster} -af:j kind") == f"{cluster}.0 5\n{cluster}.1 5\n"
    lines = run(f"condor_q -nobatch {cluster}").splitlines()
    assert lines[2].startswith("-- Schedd: whole : <")
    assert lines[3].startswith(" ID ")  # Nextflow takes the lines from here to the first empty one
    assert [line.split()[5] for line in lines[4 : lines.index("", 4)]] in (["R", "R"], ["R", "I"], ["I", "I"])
    totals = run("condor_q -hold -allusers").splitlines()[-4:]
    assert [line.split(" jobs;")[0] for line in totals if line] == [
        "Total for query: 2",
        f"Total for {getpass.getuser()}: 4",
        "Total for all users: 4",
    ]
    assert run(f"condor_qedit {cluster}.0 Kind=6") == 'Set attribute "Kind" for 1 matching jobs.\n'
    assert run(f"condor_q {cluster} -format '%d, ' Kind -format '\\n' True") == "6, \n5, \n"
    assert run(f"condor_rm {cluster}.0") == f"Job {cluster}.0 marked for removal\n"
    assert run(f"condor_rm {cluster}") == f"All jobs in cluster {cluster} have been marked for removal\n"
    assert "removed locally" in run(f"condor_rm -forcex {cluster}")  # the status of this one counts for Parsl
    run("condor_rm 99999", code=1)
    run("condor_rm 99999.0", code=1)
    assert run(f"condor_wait a.log {cluster}") == "All jobs done.\n"
    assert run(f"condor_history {cluster} -af JobStatus") == "3\n3\n"
    assert run("condor_status -af:h Name State").startswith("Name")
    assert run("condor_version").startswith("$CondorVersion: ")
    Path(home, "b.py").write_text(SCRIPT)
    Path(home, "code.sh").write_text("#!/bin/sh\nexit $1\n")
    Path(home, "code.sh").chmod(0o755)
    assert run_program(sys.executable, "b.py") == "[(0, 0), (1, 7)] alpha 1 True True\n"

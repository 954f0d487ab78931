"""Submit files as Galaxy, Cromwell and Pegasus write them, from their own sources.

Galaxy: `lib/galaxy/jobs/runners/util/condor/__init__.py`; Cromwell: `cromwell.example.backends/HtCondor.conf` at
c805f3c5; Pegasus: files of a planner's run in `packages/pegasus-common/test/client/analyzer_samples_dir` at 7bb616dc.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pool.client.descriptions import describe
from pool.client.workflows import draft_workflow
from pool.policy.workflow import WorkflowPlan
from pool.policy.workflow.logs import job_tag

GALAXY = """universe = vanilla
getenv = true
notification = NEVER
request_cpus = 2
executable = {home}/script
output = {home}/galaxy_1.o
error = {home}/galaxy_1.e
log = {home}/galaxy_1.condor.log
queue"""
CROMWELL = """Iwd={home}
requirements={native}
leave_in_queue=true
request_memory=512.0
request_disk=256000.0
error={home}/stderr
output={home}/stdout
log_xml=true
request_cpus=1
executable={home}/script
log={home}/execution.log
queue
"""
PEGASUS = """
stream_error  = false
stream_output = false
environment = "LANG=en_US.UTF-8 CONDOR_JOBID=$(cluster).$(process) PEGASUS_DAG_JOB_ID=ls PEGASUS_SITE=condorpool"
+WantIOProxy = True
error = {home}//00/00/ls_ID0000001.err
executable = {home}/script
initialdir = {home}
log = {home}/process-0.log
notification = NEVER
output = {home}//00/00/ls_ID0000001.out
periodic_release = False
periodic_remove = (JobStatus == 5) && ((CurrentTime - EnteredCurrentStatus) > 1800)
priority = 10
should_transfer_files = YES
submit_event_user_notes = pool:condorpool
transfer_executable = true
transfer_output_files = pegasus.html
universe = vanilla
when_to_transfer_output = ON_EXIT
+pegasus_generator = "Pegasus"
+pegasus_wf_uuid = "06031cb1-d2e1-41d8-9e8b-45c9a77e3eb8"
+pegasus_wf_time = "20230304T115603-0800"
+pegasus_wf_xformation = "curl"
+pegasus_job_class = 1
+pegasus_site = "condorpool"
+pegasus_job_runtime = 0
+pegasus_cluster_size = 1
queue
"""
DAG = """
MAXJOBS registration 1
MAXJOBS stagein 10

JOB create_dir_process_0_local 00/00/create.sub
SCRIPT POST create_dir_process_0_local /opt/bin/pegasus-exitcode  -r $RETURN -l process-0.exitcode.log -M process-0.cache.meta   .//00/00/create.out
PRIORITY create_dir_process_0_local 800
RETRY create_dir_process_0_local 1
VARS create_dir_process_0_local +DAGNodeRetry="$(RETRY)"

JOB ls_ID0000001 00/00/ls.sub
RETRY ls_ID0000001 1
CATEGORY ls_ID0000001 stagein
VARS ls_ID0000001 +DAGNodeRetry="$(RETRY)"
PARENT  create_dir_process_0_local CHILD ls_ID0000001
"""  # noqa: E501


def _write_script(home: Path) -> None:
    (home / "script").write_text("#!/bin/sh\n")
    (home / "script").chmod(0o755)
    (home / "00" / "00").mkdir(parents=True, exist_ok=True)


def ad_of(text: str, home: Path) -> dict[str, Any]:
    _write_script(home)
    description = describe(text.format(home=home, native=""), iwd=str(home))
    (cluster,) = description.clusters
    assert cluster.count == 1
    return dict(cluster.attributes)


@pytest.mark.parametrize("text", [GALAXY, CROMWELL, PEGASUS], ids=["Galaxy", "Cromwell", "Pegasus"])
def test_they_are_read_as_they_are(text: str, tmp_path: Path) -> None:
    ad = ad_of(text, tmp_path)
    assert ad["Cmd"] == f"{tmp_path}/script"
    assert ad["JobUniverse"] == 5


def test_cromwell_asks_for_fractions_of_a_megabyte_and_for_a_log_in_xml(tmp_path: Path) -> None:
    ad = ad_of(CROMWELL, tmp_path)
    assert (ad["RequestMemory"], ad["RequestDisk"]) == (512, 256000)
    assert ad["LeaveJobInQueue"] is True
    assert ad["UserLogUseXML"] is True


def test_a_dag_of_pegasus(tmp_path: Path) -> None:
    _write_script(tmp_path)
    for name in ("create", "ls"):
        (tmp_path / "00" / "00" / f"{name}.sub").write_text(PEGASUS.format(home=tmp_path))
    (tmp_path / "process-0.dag").write_text(DAG)
    plan = WorkflowPlan.from_wire(draft_workflow(["process-0.dag"], iwd=str(tmp_path)).whole())
    (first, second) = plan.nodes
    assert (first.priority, first.retries, second.category, plan.limits) == (
        800,
        1,
        "stagein",
        {"registration": 1, "stagein": 10},
    )
    words = ["-r", "$RETURN", "-l", "process-0.exitcode.log", "-M", "process-0.cache.meta", ".//00/00/create.out"]
    assert list(first.scripts["POST"].arguments) == words
    ads = []
    for jobs in first.jobs:
        template = plan.templates[jobs.template]
        own = template.deltas[jobs.first] if template.deltas else None
        ads.append(template.ad | (own or {}))
    assert [ad["DAGNodeRetry"] for ad in ads] == [0, 1]
    assert {job_tag(ad) for ad in ads} == {"condorpool"}
    assert ads[0]["SubmitEventUserNotes"] == "pool:condorpool"

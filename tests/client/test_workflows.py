"""Work flows as they are read: descriptions shared by nodes, variables, retries, inner work flows, rescue files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pool.client.workflows import WorkflowOptions, draft_workflow
from pool.errors import PoolError
from pool.policy.workflow import WorkflowPlan

NODE = "executable = /bin/true\narguments = $(JOB) $(RETRY) $(x) $(Process)\noutput = $(JOB).$(Cluster).out\nqueue\n"


def written(folder: Path, dag: str, **files: str) -> Path:
    (folder / "it.dag").write_text(dag)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder / "it.dag"


def drafted(folder: Path, dag: str, options: WorkflowOptions | None = None, **files: str) -> Any:
    written(folder, dag, **files)
    return draft_workflow(["it.dag"], options, iwd=str(folder))


def ads(draft: Any) -> dict[str, list[dict[str, Any]]]:
    """The ad of each attempt of each node."""
    plan = WorkflowPlan.from_wire(draft.whole())
    found: dict[str, list[dict[str, Any]]] = {}
    for node in plan.nodes:
        for jobs in node.jobs:
            template = plan.templates[jobs.template]
            own = (template.deltas[jobs.first] if template.deltas else None) or {}
            found.setdefault(node.name, []).append(template.ad | own)
    return found


def test_one_description_for_many_nodes(tmp_path: Path) -> None:
    text = 'JOB A n.sub\nJOB B n.sub\nRETRY B 1\nVARS A x="1"\nVARS B x="$(JOB)-two"\nPARENT A CHILD B\n'
    draft = drafted(tmp_path, text, n_sub=NODE)
    found = ads(draft)
    assert [[ad["Args"] for ad in found[name]] for name in "AB"] == [["A 0 1 0"], ["B 0 B-two 0", "B 1 B-two 0"]]
    assert found["A"][0]["Out"] == "A.9007199254740881.out"
    assert len(draft.wire["templates"]) == 1
    assert draft.warnings == []


def test_variables_before_and_after_the_description(tmp_path: Path) -> None:
    sub = (
        "executable = /bin/true\nif defined var1\narguments = $(var1) was prepended\nelse\narguments = none\nendif\n"
        'var2 = "C"\noutput = results-$(var2).out\nqueue\n'
    )
    (ad,) = ads(drafted(tmp_path, 'JOB A n.sub\nVARS A PREPEND var1="A"\nVARS A APPEND var2="B"\n', n_sub=sub))["A"]
    assert (ad["Args"], ad["Out"]) == ("A was prepended", "results-B.out")
    (ad,) = ads(drafted(tmp_path, 'JOB A n.sub\nVARS A APPEND var1="A"\nVARS A PREPEND var2="B"\n'))["A"]
    assert (ad["Args"], ad["Out"]) == ("none", 'results-"C".out')


def test_values_with_every_special_character(tmp_path: Path) -> None:
    dag = (
        "JOB NodeA a.sub\nJOB NodeB b.sub\nJOB NodeC c.sub\n"
        'VARS NodeA first="Alberto Contador"\nVARS NodeA second="\\"\\"Andy\tSchleck\\"\\""\n'
        "VARS NodeA third=\"Lance\\\\ Armstrong\"\nVARS NodeA fourth=\"Vincenzo ''The Shark'' Nibali\"\n"
        'VARS NodeB first="Lance_Armstrong"\nVARS NodeB second="\\\\\\"Andreas_Kloden\\\\\\""\n'
        'VARS NodeC args="\'Nairo Quintana\' \'Chris Froome\'"\nVARS NodeC My.A="\\"bob\\"" +B="17"\n'
    )
    new = "executable = /bin/true\narguments = \"'$(first)' '$(second)' '$(third)' '$(fourth)'\"\nqueue\n"
    old = "executable = /bin/true\narguments = $(first) $(second)\nqueue\n"
    last = 'executable = /bin/true\narguments = "$(args)"\nqueue\n'
    found = ads(drafted(tmp_path, dag, a_sub=new, b_sub=old, c_sub=last))
    from pool.jobs.arguments import split_words

    words = split_words(found["NodeA"][0]["Arguments"])
    assert words == ["Alberto Contador", '"Andy\tSchleck"', "Lance\\ Armstrong", "Vincenzo 'The Shark' Nibali"]
    assert found["NodeB"][0]["Args"] == 'Lance_Armstrong "Andreas_Kloden"'
    assert split_words(found["NodeC"][0]["Arguments"]) == ["Nairo Quintana", "Chris Froome"]
    assert (found["NodeC"][0]["A"], found["NodeC"][0]["B"]) == ("bob", 17)


def test_inline_and_several_jobs(tmp_path: Path) -> None:
    dag = "JOB A {\nexecutable = /bin/true\narguments = $(JOB)\n}\nJOB B n.sub\nJOB C n.sub\nFINAL F f.sub\n"
    many = "executable = /bin/true\narguments = $(JOB) $(Process)\nqueue 3\n"
    draft = drafted(
        tmp_path, dag, n_sub=many, f_sub="executable = /bin/true\narguments = $(FAILED_COUNT) $(DAG_STATUS)\nqueue\n"
    )
    nodes = {node["name"]: node["jobs"] for node in draft.nodes}
    assert nodes == {"A": [[0, 0, 1]], "B": [[1, 0, 3]], "C": [[1, 3, 3]], "F": [[2, 0, 1]]}
    assert [draft.deltas[1][at]["Args"] if draft.deltas[1][at] else None for at in (1, 4)] == ["B 1", "C 1"]
    from pool.jobs.dag.marks import bind_marks

    (ad,) = ads(draft)["F"]
    values = {"DAG_STATUS": 2, "FAILED_COUNT": 5, "DAGManJobId": 7}
    assert bind_marks(ad, values)["Args"] == "5 2"


def test_inner_work_flows_and_directories(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "in.dag").write_text("JOB X x.sub\n")
    (tmp_path / "sub" / "x.sub").write_text(NODE)
    draft = drafted(tmp_path, "SUBDAG EXTERNAL A in.dag DIR sub\nJOB B x.sub DIR sub\nPARENT A CHILD B\n")
    inner = draft.nodes[0]["plan"]
    assert (inner["file"], inner["iwd"]) == (f"{tmp_path}/sub/in.dag", f"{tmp_path}/sub")
    assert ads(draft)["B"][0]["Iwd"] == f"{tmp_path}/sub"


def test_the_newest_rescue_file_is_used(tmp_path: Path) -> None:
    for number, names in ((1, "A"), (2, "AB")):
        (tmp_path / f"it.dag.rescue{number:03d}").write_text("".join(f"DONE {name}\n" for name in names))
    text = "JOB A n.sub\nJOB B n.sub\nJOB C n.sub\n"
    draft = drafted(tmp_path, text, n_sub=NODE)
    assert [node.get("done") for node in draft.nodes] == [True, True, None]
    assert draft.wire["rescue"] == 2
    assert drafted(tmp_path, text, WorkflowOptions(rescue_from=1)).nodes[1].get("done") is None
    assert drafted(tmp_path, text, WorkflowOptions(force=True)).rescue == ""
    with pytest.raises(PoolError, match="there is no rescue file"):
        drafted(tmp_path, text, WorkflowOptions(rescue_from=7))


def test_settings_of_the_work_flow(tmp_path: Path) -> None:
    config = "# ours\nDAGMAN_MAX_JOBS_IDLE = 5\nDAGMAN_ALWAYS_RUN_POST = True\nDAGMAN_VERBOSITY = 3\n"
    dag = "JOB A n.sub\nCONFIG c.config\nSET_JOB_ATTR TestNumber = 17\nENV SET MINE=1\n"
    dag += 'NODE_STATUS_FILE it.status 5\nVARS A x=""\n'
    draft = drafted(tmp_path, dag, n_sub=NODE, c_config=config)
    assert (draft.wire["max_idle"], draft.wire["always_run_post"], draft.wire["ad"]) == (5, True, {"TestNumber": 17})
    assert "MINE=1" in draft.wire["script_ad"]["Environment"]
    assert draft.wire["files"]["status"] == f"{tmp_path}/it.status"
    assert draft.warnings == ["c.config:4: warning: DAGMAN_VERBOSITY has no meaning here"]


def test_statements_about_files_and_failures(tmp_path: Path) -> None:
    dag = "JOB A n.sub DIR sub\nJOB B n.sub\nPROVISIONER P n.sub\nWEAK PARENT A CHILD B\nTOLERANCE B 20% WAIT\n"
    dag += "DOT it.dot UPDATE DONT-OVERWRITE INCLUDE head.dot\nJOBSTATE_LOG it.log\nCONFIG c.config\n"
    dag += "SCRIPT DEBUG it.debug STDOUT POST A post\n"
    config = "DAGMAN_NODE_JOB_FAILURE_TOLERANCE = 2\nDAGMAN_REMOVE_JOB_LIST_ON_FAILURE = false\n"
    config += "DAGMAN_METRICS_FILE_VERSION = 1\n"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "n.sub").write_text(NODE)
    draft = drafted(tmp_path, dag, n_sub=NODE, c_config=config, head_dot="rankdir=LR;\n")
    assert draft.wire["weak"] == [0]
    assert (draft.wire["tolerance"], draft.wire["removes_rest"]) == (2, False)
    files = draft.wire["files"]
    assert files["dot"]["path"] == f"{tmp_path}/it.dot"
    assert (files["dot"]["update"], files["dot"]["overwrite"]) == (True, False)
    assert files["dot"]["include"] == ["head.dot", "rankdir=LR;\n"]
    assert (files["jobstate"], files["metrics"]) == (f"{tmp_path}/it.log", 1)
    assert draft.nodes[0]["scripts"]["POST"]["debug_file"] == f"{tmp_path}/sub/it.debug"
    assert (draft.nodes[1]["tolerance"], draft.nodes[1]["on_failure"]) == (20, "WAIT")
    assert WorkflowPlan.from_wire(draft.whole()).weak == {0}


@pytest.mark.parametrize(
    ("dag", "said"),
    [
        ("JOB A none.sub\n", "it.dag:1: cannot read job file"),
        ("JOB A bad.sub\n", "it.dag:1: A: bad.sub:2: "),
        ("JOB A {\nexecutable = /bin/true\nqueue\n}\n", "it.dag:1: a description in braces has no queue statement"),
        ("JOB A n.sub\nDOT it.dot INCLUDE none.dot\n", "none.dot"),
        ("PROVISIONER A three.sub\nJOB B n.sub\n", "it.dag:1: the PROVISIONER node A is one job"),
        ("JOB A n.sub\nCONFIG m.config\n", "m.config:1: DAGMAN_METRICS_FILE_VERSION is 1 or 2, not 3"),
        ("JOB A n.sub\nRETRY A 1000\n", "at most 100 are possible then"),
        ("SUBDAG EXTERNAL A it.dag\n", "do they in a circle?"),
        ("SUBDAG EXTERNAL A none.dag\n", "it.dag:1: SUBDAG A: none.dag: cannot read DAG file none.dag"),
        ("JOB A n.sub\nCONFIG bad.sub\n", "bad.sub:2: expected NAME = VALUE"),
    ],
)
def test_refused_in_one_line(tmp_path: Path, dag: str, said: str) -> None:
    more = {"three_sub": NODE.replace("queue", "queue 3"), "m_config": "DAGMAN_METRICS_FILE_VERSION = 3\n"}
    with pytest.raises(PoolError) as caught:
        drafted(tmp_path, dag, None, n_sub=NODE, **more, bad_sub="executable = /bin/true\nqueue what\n")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ten_thousand_nodes_are_read_in_a_moment(tmp_path: Path) -> None:
    lines = [f'JOB n{at} n.sub\nVARS n{at} x="{at}"\n' for at in range(10_000)]
    lines += [f"PARENT n{at} CHILD n{at + 100}\n" for at in range(9_900)]
    written(tmp_path, "".join(lines), n_sub=NODE)
    began = time.process_time()
    draft = draft_workflow(["it.dag"], iwd=str(tmp_path))
    taken = time.process_time() - began
    assert (len(draft.nodes), len(draft.wire["templates"]), len(draft.wire["edges"])) == (10_000, 1, 9_900)
    assert taken < 10, f"{taken:.2f} s of processor time"

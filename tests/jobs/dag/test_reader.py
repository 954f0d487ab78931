"""The examples of DAGMan's documentation, and what is wrong with files that are wrong."""

from __future__ import annotations

import pytest

from pool.jobs.dag import Dag, DagError, NodeKind, ScriptKind, apply_rescue, find_cycle, read_dag
from pool.jobs.dag.lines import split_variables
from pool.jobs.dag.model import Dependency

DIAMOND = "JOB A A.sub\nJOB B B.sub\nJOB C C.sub\nJOB D D.sub\nPARENT A CHILD B C\nPARENT B C CHILD D\n"
CROSS = "".join(f"JOB {name} simple-job.sub\n" for name in "ABCDEFG") + "PARENT A B C CHILD D\nPARENT D CHILD E F G\n"
S1 = """
JOB A simple-job.sub
JOB B simple-job.sub
SPLICE X1 X.dag
SPLICE X2 X.dag
PARENT A CHILD X1
PARENT X1 CHILD X2
PARENT X2 CHILD B
"""


def reading(text: str, **others: str) -> Dag:
    files = {"it.dag": text} | {f"{name}.dag": other for name, other in others.items()}

    def read(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(2, "No such file or directory")
        return files[path]

    return read_dag(["it.dag"], read)


def edges(dag: Dag) -> set[tuple[str, str]]:
    return {(parent, child) for edge in dag.dependencies for parent in edge.parents for child in edge.children}


def refusal(text: str, **others: str) -> str:
    with pytest.raises(DagError) as caught:
        reading(text, **others)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_a_diamond() -> None:
    dag = reading(DIAMOND)
    assert list(dag.nodes) == ["A", "B", "C", "D"]
    assert edges(dag) == {("A", "B"), ("A", "C"), ("B", "D"), ("C", "D")}
    assert dag.parents()["D"] == ["B", "C"]


def test_inline_descriptions() -> None:
    text = """
    JOB A {
        executable = /path/diamond.exe
        # of its own
        output     = diamond.out.$(cluster)
    } NOOP
    SUBMIT-DESCRIPTION Shared {
        executable = /bin/true
    }
    JOB B Shared
    job C c.sub dir sub done
    """
    dag = reading(text)
    assert "output     = diamond.out.$(cluster)" in str(dag.nodes["A"].inline)
    assert dag.nodes["A"].noop
    assert dag.nodes["B"].inline is not None
    assert "/bin/true" in dag.nodes["B"].inline
    assert (dag.nodes["C"].directory, dag.nodes["C"].done, dag.nodes["C"].inline) == ("sub", True, None)


def test_scripts() -> None:
    dag = reading(
        DIAMOND + "SCRIPT PRE B pre.sh $JOB .gz\nscript defer 4 60 debug out.txt all post all_nodes stage-out $RETURN\n"
        "SCRIPT HOLD A tell.sh\n"
    )
    before, after = dag.nodes["B"].scripts[ScriptKind.PRE], dag.nodes["D"].scripts[ScriptKind.POST]
    assert (before.program, before.arguments) == ("pre.sh", ("$JOB", ".gz"))
    assert (after.defer_status, after.defer_seconds, after.debug_file, after.debug_streams) == (4, 60, "out.txt", "ALL")
    assert set(dag.nodes["A"].scripts) == {ScriptKind.POST, ScriptKind.HOLD}


def test_retries_and_ends() -> None:
    dag = reading(
        DIAMOND
        + "RETRY C 3 UNLESS-EXIT 2\nABORT-DAG-ON C 10 RETURN 1\nPRE_SKIP B 4\nPRIORITY C -1\nRETRY ALL_NODES 1\n"
    )
    node = dag.nodes["C"]
    assert (node.retries, node.unless_exit, node.abort_on, node.abort_return) == (1, None, 10, 1)
    assert (dag.nodes["B"].pre_skip, node.priority) == (4, -1)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (r'first="Alberto Contador"', "Alberto Contador"),
        (r'second="\"\"Andy	Schleck\"\""', '""Andy\tSchleck""'),
        (r'third="Lance\\ Armstrong"', "Lance\\ Armstrong"),
        (r'''fourth="Vincenzo ''The Shark'' Nibali"''', "Vincenzo ''The Shark'' Nibali"),
        (r'misc="!@#$%^&*()_-=+=[]{}?/"', "!@#$%^&*()_-=+=[]{}?/"),
        (r'second="\\\"Andreas_Kloden\\\""', r"\"Andreas_Kloden\""),
        (r'''args="'Nairo Quintana' 'Chris Froome'"''', "'Nairo Quintana' 'Chris Froome'"),
        (r'My.A="\"bob\""', '"bob"'),
        (r'+A="\"bob\""', '"bob"'),
    ],
)
def test_values_of_variables(written: str, value: str) -> None:
    assert split_variables(written) == [(written.partition("=")[0], value)]


def test_the_last_variable_counts() -> None:
    dag = reading('JOB A a.sub\nVARS A name="A" x="1"\nVARS ALL_NODES name="X"\nVARS A APPEND y="2"\n')
    values = {name: (one.value, one.prepend) for name, one in dag.nodes["A"].variables.items()}
    assert values == {"name": ("X", True), "x": ("1", True), "y": ("2", False)}


def test_all_nodes_leaves_the_final_node_alone() -> None:
    dag = reading("JOB A a.sub\nFINAL F f.sub\nSERVICE S s.sub\nPROVISIONER P p.sub\nRETRY all_nodes 3\n")
    assert [node.retries for node in dag.nodes.values()] == [3, 0, 0, 0]
    assert next(dag.of_kind(NodeKind.SERVICE)).name == "S"


def test_a_splice_between_two_nodes() -> None:
    dag = reading("JOB X s.sub\nJOB Y s.sub\nSPLICE D d.dag\nPARENT X CHILD D\nPARENT D CHILD Y\n", d=DIAMOND)
    assert edges(dag) == {*[("X", "D+A"), ("D+A", "D+B"), ("D+A", "D+C"), ("D+B", "D+D"), ("D+C", "D+D"), ("D+D", "Y")]}


def test_splices_in_splices() -> None:
    top = DIAMOND + "SPLICE S2 X.dag\nPARENT D CHILD S2\nSPLICE S3 s1.dag\n"
    dag = reading(top, X=CROSS, s1=S1)
    assert len(dag.nodes) == 4 + 7 + 2 + 14
    found = edges(dag)
    assert {("D", "S2+A"), ("S3+A", "S3+X1+A"), ("S3+X1+G", "S3+X2+C"), ("S3+X2+E", "S3+B")} <= found
    assert not any(parent.startswith("S3") != child.startswith("S3") for parent, child in found)


def test_directories_of_splices() -> None:
    files = {
        "it.dag": "SPLICE S in.dag DIR sub\n",
        "sub/in.dag": "JOB A a.sub DIR deep\nJOB B b.sub DIR /abs\nJOB C c.sub\n",
    }
    dag = read_dag(["it.dag"], files.__getitem__)
    assert [node.directory for node in dag.nodes.values()] == ["sub/deep", "/abs", "sub"]


def test_pins() -> None:
    top = "SPLICE A a.dag\nSPLICE B b.dag\nSPLICE C c.dag\nCONNECT A B\nCONNECT B C\n"
    a = "JOB A1 A1.sub\nJOB A2 A2.sub\nPIN_OUT A1 1\nPIN_OUT A2 2\n"
    b = "".join(f"JOB B{n} B.sub\nPIN_IN B{n} {(n + 1) // 2}\nPIN_OUT B{n} {n}\n" for n in (1, 2, 3, 4))
    c = "JOB C1 C1.sub\n" + "".join(f"PIN_IN C1 {n}\n" for n in (1, 2, 3, 4))
    dag = reading(top, a=a, b=b, c=c)
    assert dag.parents()["C+C1"] == ["B+B1", "B+B2", "B+B3", "B+B4"]
    assert dag.parents()["B+B3"] == ["A+A2"]
    assert "has no PIN_IN 2" in refusal(top, a=a, b="JOB B b\nPIN_IN B 1\nPIN_OUT B 1\n", c=c)


def test_categories_across_splices() -> None:
    upper = "SPLICE A lower.dag\nMAXJOBS A+catX 10\nMAXJOBS +catY 2\n"
    lower = "JOB N n.sub\nJOB M m.sub\nCATEGORY N catX\nCATEGORY M +catY\nMAXJOBS catX 5\nMAXJOBS +catY 1\n"
    dag = reading(upper, lower=lower)
    assert dag.limits == {"A+catX": 10, "+catY": 2}
    assert [node.category for node in dag.nodes.values()] == ["A+catX", "+catY"]


def test_statements_about_the_whole() -> None:
    dag = reading(
        "JOB A a.sub\nCONFIG it.config\nENV GET HOME LANG\nENV SET A=1;B=two words\nSET_JOB_ATTR TestNumber = 17\n"
        "DOT it.dot UPDATE DONT-OVERWRITE INCLUDE head.dot\nNODE_STATUS_FILE my.status 30 always-update\n"
        "JOBSTATE_LOG it.jobstate\nSAVE_POINT_FILE A\nINCLUDE more.dag\n",
        more="JOB B b.sub\nSAVE_POINT_FILE B ./b.save\nPARENT A \\\n  CHILD B\n",
    )
    assert (dag.config, dag.inherited, dag.environment) == ("it.config", ["HOME", "LANG"], {"A": "1", "B": "two words"})
    assert dag.attributes == {"TestNumber": "17"}
    assert dag.dot is not None
    assert (dag.dot.path, dag.dot.update, dag.dot.overwrite, dag.dot.include) == ("it.dot", True, False, "head.dot")
    assert dag.status_file is not None
    assert (dag.status_file.seconds, dag.status_file.always, dag.jobstate_log) == (30, True, "it.jobstate")
    assert [node.save_point for node in dag.nodes.values()] == ["save_files/A-it.dag.save", "./b.save"]
    assert edges(dag) == {("A", "B")}


def test_several_files() -> None:
    files = {"one.dag": "JOB A a.sub\n", "in/two.dag": "JOB A a.sub\nJOB B b.sub\nPARENT A CHILD B\n"}
    dag = read_dag(list(files), files.__getitem__, own_directory=True)
    assert [(node.name, node.directory) for node in dag.nodes.values()] == [("0.A", ""), ("1.A", "in"), ("1.B", "in")]


def test_a_rescue_file() -> None:
    dag = reading("SPLICE S d.dag\nRETRY S+B 2\n", d=DIAMOND)
    apply_rescue(dag, "it.dag.rescue001", "# Rescue DAG file\n\nDONE S+A\n\nRETRY S+B 1\n")
    assert dag.nodes["S+A"].done
    assert dag.nodes["S+B"].retries == 1
    with pytest.raises(DagError, match=r"it.dag.rescue001:1: there is no node S\+X"):
        apply_rescue(dag, "it.dag.rescue001", "DONE S+X\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JOB A\n", "it.dag:1: expected: JOB NAME DESCRIPTION"),
        ("JOB A a.sub DIRR x\n", "it.dag:1: 'DIRR' has no meaning after the description"),
        ("JOB A a.sub\nJOB A b.sub\n", "it.dag:2: the node A is there already (see it.dag:1)"),
        ("JOB PARENT a.sub\n", "PARENT is a word of the language"),
        ("JOB A+B a.sub\n", "a node's name has no '+'"),
        ("RETYR A a.sub\n", "it.dag:1: RETYR is no statement of a DAG file (did you mean RETRY?)"),
        ("JOB A a.sub\nPARENT A CHILD b\n", "it.dag:2: there is no node b"),
        ("JOB A a.sub\nPARENT A\n", "it.dag:2: expected: PARENT NAME ... CHILD NAME ..."),
        ("JOB A a.sub\nRETRY A many\n", "expected a whole number for RETRY, not 'many'"),
        ("JOB A a.sub\nRETRY A -1\n", "RETRY is at least 0"),
        ("JOB A a.sub\nRETRY A 1 IF 2\n", "expected: RETRY NODE NUMBER [UNLESS-EXIT VALUE]"),
        ("JOB A a.sub\nABORT-DAG-ON A 1 RETURN 256\n", "between 0 and 255"),
        ("JOB A a.sub\nPRE_SKIP A 0\n", "other than 0"),
        ("JOB A a.sub\nVARS A x=1\n", "expected: VARS NODE"),
        ('JOB A a.sub\nVARS A queue="1"\n', "cannot be the name of a macro"),
        ("JOB A {\nexecutable = x\n", "it.dag:1: this description has no closing brace"),
        ("FINAL F f.sub\nFINAL G g.sub\n", "there is one FINAL node at most"),
        ("JOB A a.sub\nFINAL F f.sub\nPARENT A CHILD F\n", "F is a FINAL node, which has no parents"),
        ("JOB A a.sub\nFINAL F f.sub\nRETRY F 1\n", "RETRY has no meaning for the FINAL node F"),
        ("REJECT\nJOB A a.sub\n", "it.dag:1: the file is marked REJECT"),
        ("SUBDAG A x.dag\n", "expected: SUBDAG EXTERNAL NAME FILE"),
        ("SPLICE A none.dag\n", "it.dag:1: cannot read DAG file none.dag: no such file or directory"),
        ("SPLICE A it.dag\n", "it.dag:1: DAG files include each other in a circle: it.dag -> it.dag"),
        ("INCLUDE it.dag\n", "in a circle"),
        ("DATA A b\n", "it.dag:1: DATA: Stork's data nodes left DAGMan"),
        ("JOB A a\nJOB B b\nWEAK A CHILD B\n", "it.dag:3: expected: WEAK PARENT NAME ... CHILD NAME ..."),
        ("JOB A a\nTOLERANCE A -1\n", "TOLERANCE is at least 0"),
        ("JOB A a\nTOLERANCE A % WAIT\n", "expected a whole number for TOLERANCE"),
        ("JOB A a\nTOLERANCE A 1 SOMETIMES\n", "expected: TOLERANCE NODE NUMBER[%] [FAIL-FAST | WAIT]"),
        ("# nothing\n", "it.dag: there is no node in it"),
        ("JOB A a\nSCRIPT PRE A\n", "expected: SCRIPT"),
        ("JOB A a\nSCRIPT DEBUG x OUT PRE A y\n", "DEBUG keeps STDOUT, STDERR or ALL, not OUT"),
        ("JOB A a\nDOT\n", "expected: DOT FILE"),
        ("JOB A a\nSET_JOB_ATTR A\n", "expected: SET_JOB_ATTR NAME = VALUE"),
        ("JOB A a\nENV SET A\n", "expected: ENV GET NAME"),
        ("JOB A a\nJOB B b\nPARENT A CHILD B\nPARENT B CHILD A\n", "it.dag:2: nodes wait for each other: B -> A -> B"),
        ("JOB A a\nPARENT A CHILD A\n", "nodes wait for each other: A -> A"),
        ("RETRY\nJOB\nSCRIPT\nVARS\nPIN_IN\nCONNECT\nMAXJOBS\nCONFIG\nDONE\n", "[and 8 more]"),
    ],
)
def test_refused_in_one_line(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_splice_has_no_files_of_its_own() -> None:
    dag = reading("SPLICE A a.dag\n", a="JOB B b.sub\nCONFIG x\nJOBSTATE_LOG y\n")
    assert (dag.config, dag.jobstate_log) == ("", "")
    assert "a.dag:2: warning: CONFIG does nothing in a splice" in str(dag.warnings[0])


def test_wide_dependencies_cost_names_not_pairs() -> None:
    many = tuple(f"a{number}" for number in range(2000))
    others = tuple(f"b{number}" for number in range(2000))
    assert find_cycle([*many, *others], [Dependency(many, others)]) == []
    assert find_cycle([*many, *others], [Dependency(many, others), Dependency(others[:1], many[-1:])]) != []


def test_weak_dependencies_and_tolerated_failures() -> None:
    dag = reading(
        "JOB A a\nJOB B b\nJOB C c\nweak parent A child B C\nPARENT B CHILD C\nTOLERANCE ALL_NODES 5\n"
        "TOLERANCE B 10% fail-fast\nTOLERANCE C 7 % FAIL_FAST\n"
    )
    assert [(edge.parents, edge.weak) for edge in dag.dependencies] == [(("A",), True), (("B",), False)]
    found = [(one.tolerance, one.is_percentage, one.on_failure) for one in dag.nodes.values()]
    assert found == [(5, False, ""), (10, True, "FAIL-FAST"), (7, True, "FAIL-FAST")]

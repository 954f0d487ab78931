"""`universe = parallel` and `mpi`, `machine_count`, `$(Node)`, several queue statements, `dedicated` (WR 6.5, 6.8)."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.activation import activation
from pool.jobs.description.check import IWD
from pool.jobs.gangs import MOST_KINDS, MOST_PARTS, GangPart, is_parallel, node_of, parts_of, policy_of, wants_dedicated
from tests.jobs.description.support import attributes, read, refusal

FOUR = "universe = parallel\nexecutable = /bin/true\nmachine_count = 4\n"


def ad_of(text: str, **options: Any) -> ClassAd:
    return ClassAd.from_wire(attributes(text, **options))


def messages(text: str, **options: Any) -> list[str]:
    return [one.message for one in refusal(text, **options).diagnostics]


def test_a_thousand_nodes_are_one_record() -> None:
    ad = ad_of("universe = parallel\nexecutable = /bin/true\nmachine_count = 1000\nqueue\n")
    parts = parts_of(ad)
    assert parts.kinds == (GangPart(count=1000),)
    assert (len(parts), ad.value("MinHosts"), ad.value("MaxHosts"), ad.value("JobUniverse")) == (1000, 1000, 1000, 11)
    assert len(str(ad["GangParts"])) < 40
    assert is_parallel(ad)
    assert wants_dedicated(ad)


@pytest.mark.parametrize("name", ["machine_count", "node_count", "NodeCount", "MachineCount"])
@pytest.mark.parametrize(("universe", "number"), [("parallel", 11), ("mpi\nmpi = none", 8), ("11", 11)])
def test_each_spelling_of_the_number_of_nodes(name: str, universe: str, number: int) -> None:
    ad = ad_of(f"universe = {universe}\nexecutable = /bin/true\n{name} = 3\nqueue\n")
    assert (len(parts_of(ad)), ad.value("JobUniverse")) == (3, number)


@pytest.mark.parametrize("universe", ["parallel", "mpi\nmpi = none"])
def test_a_node_has_its_number_where_it_is_asked_for(universe: str) -> None:
    text = FOUR.replace("parallel", universe) + (
        'arguments = "-n $(Node) of $(machine_count)"\noutput = $(NODE).out\nerror = e.$(Node)\ninput = in/$(Node)\n'
        'environment = "RANK=$(Node)"\ntransfer_input_files = part.$(Node)\nqueue\n'
    )
    ad = ClassAd.from_wire({**attributes(text), "ShouldTransferFiles": "YES"})
    start = node_of(activation(ad, ClassAd({}), 1, None), 4, 3, "secret", "")
    assert (start.argv[1:], start.stdout, start.stderr, start.stdin) == (("-n", "3", "of", "4"), "3.out", "e.3", "in/3")
    assert (start.env["RANK"], start.inputs) == ("3", ("part.3",))


def test_several_queue_statements_are_the_nodes_of_one_job() -> None:
    text = (
        "universe = parallel\nexecutable = master\narguments = x\nmachine_count = 1\nrequest_memory = 100\n"
        'requirements = Machine == "m1"\noutput = o.$(Node)\nqueue\n'
        'executable = worker\narguments = "y z"\nmachine_count = 3\nrequest_memory = 50\nrequirements = true\nqueue\n'
        "machine_count = 2\nqueue\n"
    )
    description = read(text)
    (draft,) = description.clusters
    assert (draft.count, description.warnings) == (1, [])
    parts = parts_of(draft.ad)
    assert [part.count for part in parts.kinds] == [1, 3, 2]
    assert [parts.kind_of(number) for number in range(6)] == [0, 1, 1, 1, 2, 2]
    assert draft.ad.value("MaxHosts") == 6
    wires: list[dict[str, Any]] = [{**draft.attributes, **part.own} for part in parts.kinds]
    assert [wire["Cmd"].rpartition("/")[2] for wire in wires] == ["master", "worker", "worker"]
    assert [wire["RequestMemory"] for wire in wires] == [100, 50, 50]
    assert [wire.get("Arguments", wire.get("Args")) for wire in wires] == ["x", "y z", "y z"]
    assert 'Machine == "m1"' in wires[0]["Requirements"][0]
    assert "m1" not in wires[1]["Requirements"][0]
    asked: Any = draft.attributes["Requirements"]  # of a machine that suits some part
    assert all(f"({wire['Requirements'][0]})" in asked[0] for wire in wires)
    assert " || " in asked[0]


def test_parts_that_ask_for_the_same_machines_have_no_requirements_of_their_own() -> None:
    ad = ad_of(f"{FOUR}arguments = a\nqueue\narguments = b\nqueue\n")
    assert [part.own for part in parts_of(ad).kinds] == [{}, {"Args": "b"}]
    assert len(parts_of(ad)) == 8


def test_one_statement_with_a_number_is_several_jobs_and_says_so() -> None:
    description = read(f"{FOUR}arguments = $(Process)\nqueue 3\n")
    (draft,) = description.clusters
    assert draft.count == 3
    (warning,) = description.warnings
    assert warning.message == "this queues 3 jobs of 4 nodes each; HTCondor makes one job of all of them"
    assert [len(parts_of(ClassAd.from_wire({**draft.attributes, **draft.delta(n)}))) for n in range(3)] == [4] * 3


def test_jobs_of_a_table_may_differ_in_their_number_of_nodes() -> None:
    (draft,) = read("universe = parallel\nexecutable = /bin/true\nmachine_count = $(N)\nqueue N in (2, 5)\n").clusters
    assert [len(parts_of(ClassAd.from_wire({**draft.attributes, **draft.delta(n)}))) for n in range(2)] == [2, 5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("universe = parallel\nexecutable = /bin/true\nqueue\n", "needs a number of machines"),
        ("universe = parallel\nexecutable = /bin/true\nmachine_count = 0\nqueue\n", "expected a number of machines"),
        ("universe = parallel\nexecutable = /bin/true\nmachine_count = 2x\nqueue\n", "expected a number of machines"),
        (
            f"universe = parallel\nexecutable = /bin/true\nmachine_count = {MOST_PARTS + 1}\nqueue\n",
            f"at most {MOST_PARTS} nodes",
        ),
        ("executable = /bin/true\nmachine_count = 4\nqueue\n", "'machine_count' is of parallel jobs"),
        ("executable = /bin/true\nnode_count = 4\nqueue\n", "'node_count' is of parallel jobs"),
        (f"{FOUR}output = one.txt\nqueue\n", "4 nodes would write one 'output', one.txt"),
        (f"{FOUR}error = err\nqueue\n", "4 nodes would write one 'error', err"),
        (f"{FOUR}output = o.$(Node)\nqueue\noutput = x\nmachine_count = 1\nerror = x\nqueue\nqueue\n", "several nodes"),
        (f"{FOUR}queue\nqueue 2\n", "each queues one process"),
        (f"{FOUR}queue 2\nqueue\n", "each queues one process"),
        (f"{FOUR}queue\npriority = 5\nqueue\n", "JobPrio differs between the queue statements"),
        (f"{FOUR}queue\nlog = x\nqueue\n", "UserLog differs between the queue statements"),
        (f"{FOUR}initialdir = d.$(Node)\nqueue\n", "'initialdir' has $(Node)"),
        (FOUR.replace("/bin/true", "/bin/$(Node)") + "queue\n", "'executable' has $(Node)"),
        (f"{FOUR}log = log.$(Node)\nqueue\n", "$(Node) stands in UserLog, which is of the whole job"),
        (f"{FOUR}requirements = Rack == $(Node)\nqueue\n", "expected an expression"),
        (f'{FOUR}+ParallelShutdownPolicy = "NEVER"\nqueue\n', "expected one of WAIT_FOR_NODE0, WAIT_FOR_ALL"),
        (f"{FOUR}parallel_script_shadow = x\nqueue\n", "nothing runs beside a job's own program"),
        (f"{FOUR}parallel_script_starter = x\nqueue\n", "nothing runs beside a job's own program"),
        (f"{FOUR}want_io_proxy = true\nqueue\n", "there is no proxy"),
        (f"{FOUR}remote_io = on\nqueue\n", "vanilla universe"),
        (f"{FOUR}on_process_failure = maybe\nqueue\n", "expected end, wait or ignore"),
        (FOUR.replace("/bin/true", "/bin/a | /bin/b") + "queue\n", "one program each"),
        ("executable = /bin/true\nuniverse = local\ndedicated = true\nqueue\n", "sent to machines"),
    ],
)
def test_what_does_not_go_together_is_refused(text: str, says: str) -> None:
    found = messages(text)
    assert any(says in message for message in found), found


def test_too_many_queue_statements_are_refused_with_the_limit() -> None:
    """Each is a record in the job's ad, and an expression has a bounded length."""
    one = "arguments = {n}\nqueue\n"
    found = messages(FOUR.replace("4", "1") + "".join(one.format(n=n) for n in range(MOST_KINDS + 1)))
    assert any(f"at most {MOST_KINDS:,} queue statements" in message for message in found), found
    rank, needs = "Memory + Cpus * {n} - 1 + Disk * 2 + Memory * 3", "Memory > {n} && Disk > 4 && Cpus > 0"
    long = one.replace("queue", f"rank = {rank}\nrequirements = {needs}\nqueue")
    with pytest.raises(PoolError, match=r"990 queue statements of this parallel job are too much .* more than 20000"):
        attributes(FOUR.replace("4", "1") + "".join(long.format(n=n) for n in range(990)))


def test_an_output_without_a_number_is_for_one_node() -> None:
    attributes(FOUR.replace("4", "1") + "output = one.txt\nqueue\n")


def test_files_of_each_node_are_looked_at() -> None:
    files = {f"{IWD}/in.{number}": "x" for number in range(3)} | {"/bin/true": "#!", f"{IWD}/": ""}
    text = f"{FOUR}input = in.$(Node)\nqueue\n"
    found = messages(text, files=files, check_files=True)
    assert any("in.3" in message and "does not exist" in message for message in found), found


@pytest.mark.parametrize("wish", ["WAIT_FOR_NODE0", "WAIT_FOR_ALL", "WAIT_FOR_ANY"])
def test_the_policy_of_the_end(wish: str) -> None:
    assert policy_of(ad_of(f'{FOUR}+ParallelShutdownPolicy = "{wish.lower()}"\nqueue\n')) == wish
    assert policy_of(ad_of(f"{FOUR}queue\n")) == "WAIT_FOR_NODE0"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("executable = /bin/true\nqueue\n", False),
        ("executable = /bin/true\ndedicated = true\nqueue\n", True),
        ("executable = /bin/true\n+WantParallelScheduling = true\nqueue\n", True),
        (f"{FOUR}queue\n", True),
        (f"{FOUR}dedicated = false\nqueue\n", False),
        ("executable = /bin/cat | /bin/cat\nspread = on\ndedicated = true\nqueue\n", True),
    ],
)
def test_which_jobs_are_for_the_dedicated_scheduler(text: str, wanted: bool) -> None:
    assert wants_dedicated(ad_of(text)) is wanted


ONE = "executable = /bin/true\ndedicated = true\n"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3600", 3600), ("2h", 7200), ("30 m", 1800), ("1 h 30 min", 5400), ("0.5", 0.5)],
)
def test_an_expected_duration_is_seconds_or_has_units(text: str, seconds: float) -> None:
    assert attributes(f"{ONE}expected_duration = {text}\nqueue\n")["ExpectedDuration"] == seconds
    assert attributes(f"{FOUR}expected_duration = {text}\nqueue\n")["ExpectedDuration"] == seconds


@pytest.mark.parametrize(
    "start",
    [
        "executable = /bin/true\n+WantDedicated = true\n",
        "executable = /bin/true\n+WantParallelScheduling = true\n",
        "executable = /bin/cat | /bin/cat\nspread = on\ndedicated = true\n",
    ],
)
def test_each_way_to_ask_for_the_dedicated_scheduler_allows_its_commands(start: str) -> None:
    ad = attributes(f"{start}expected_duration = 60\nreservation = r7\nqueue\n")
    assert (ad["ExpectedDuration"], ad["ReservationId"]) == (60, "r7")


def test_a_reservation_by_its_name() -> None:
    assert attributes(f"{ONE}reservation = r7\nqueue\n")["ReservationId"] == "r7"
    assert attributes(f'{FOUR}reservation = "r12"\nqueue\n')["ReservationId"] == "r12"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{ONE}expected_duration = soon\n", "expected a length of time for 'expected_duration', not 'soon'"),
        (f"{ONE}expected_duration = -5\n", "expected a length of time"),
        (f"{ONE}expected_duration = 0\n", "expected a length of time"),
        (f"{ONE}expected_duration = inf\n", "expected a length of time"),
        (f"{ONE}expected_duration = 3 parsecs\n", "expected a length of time"),
        (f"{ONE}reservation = tomorrow\n", "expected a reservation for 'reservation', not 'tomorrow'"),
        ("executable = /bin/true\nexpected_duration = 60\n", "is for jobs of the dedicated scheduler"),
        ("executable = /bin/true\nreservation = r7\n", "is for jobs of the dedicated scheduler"),
        (f"{FOUR}dedicated = false\nreservation = r7\n", "is for jobs of the dedicated scheduler"),
        ("executable = /bin/true\nuniverse = local\nreservation = r7\n", "is for jobs of the dedicated scheduler"),
    ],
)
def test_plans_that_make_no_sense_are_refused_in_one_line(text: str, says: str) -> None:
    error = refusal(f"{text}queue\n")
    (line,) = [str(one) for one in error.diagnostics if says in str(one)]
    assert "\n" not in line


def test_a_vanilla_job_that_asks_for_parallel_scheduling_may_have_several_nodes() -> None:
    """As in HTCondor, where it lets a job in an image be parallel."""
    ad = ad_of("executable = /bin/true\nWantParallelScheduling = true\nmachine_count = 3\nqueue\n")
    assert (len(parts_of(ad)), ad.value("JobUniverse")) == (3, 5)


def test_a_later_statement_in_the_other_quoting_has_its_own_arguments() -> None:
    """An ad with both `Arguments` and `Args` has the first; so a later process got the first one's arguments."""
    (draft,) = read('executable = /bin/echo\narguments = "one"\nqueue\narguments = two three\nqueue\n').clusters
    whole = {**draft.attributes, **draft.delta(1)}
    assert whole["Arguments"] == "two three"

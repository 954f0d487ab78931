"""Nodes for each test; and after it nothing of them is left, nor did any of them show a stack trace.

A test that fails shows the last lines of its nodes' logs: a failure that comes once in a hundred runs on one machine
can only be understood from what the nodes said at that time.

Where root runs the suite, each test has two ways (`WAYS`): on nodes of the user who runs it, whose jobs it submits
himself; and on nodes of root's with RUN_AS = owner, where the whole test is an ordinary user (tests/ordinary_user.py).
An ordinary run of the suite takes one way for each test, a third of them and at least one of each module on
root's nodes, by their names; `--pools both` takes both. A test for which one way only makes sense says so and why:
`pytest.mark.own_pool("it starts root's nodes itself")`.
"""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.conftest import passable
from tests.e2e import support
from tests.ordinary_user import OrdinaryUser

OWN, ROOTS = WAYS = ("own", "root")
#: Tests by module that were not seen to pass as an ordinary user yet: a run that chooses leaves them on their own
#: pool, and `--pools both` runs them in both ways.
NOT_SEEN_TO_PASS: dict[str, tuple[str, ...]] = {
    "test_account_names": ("test_all_listings_write_an_account_in_one_way",),
    "test_belonging": (
        "test_a_revoked_node_is_refused_by_all_and_may_join_again",
        "test_tokens_are_listed_and_taken_back_and_a_revoked_node_leaves_the_status",
    ),
    "test_checkpoint_server": (
        "test_a_node_keeps_the_checkpoints_of_another",
        "test_an_object_store_keeps_them",
    ),
    "test_deaths": (
        "test_sigterm_hands_over_and_the_next_node_takes_up",
    ),
    "test_examining": (
        "test_a_connection_is_named",
    ),
    "test_fetching": (
        "test_inputs_are_fetched_sent_and_told_apart",
        "test_objects_of_a_store_are_signed_at_home",
        "test_one_that_cannot_be_fetched_holds_its_job",
    ),
    "test_keeping": (
        "test_a_user_elsewhere_comes_in_by_token_over_tls",
        "test_reload_shows_what_changed_and_what_waits_for_a_restart",
        "test_stop_ends_the_node_and_leaves_its_jobs_running",
    ),
    "test_kept_checkpoints": (
        "test_another_job_goes_on_from_a_removed_one",
    ),
    "test_moving": (
        "test_a_job_that_is_vacated_goes_on_where_it_was",
        "test_on_demand_and_back_to_the_last_one",
        "test_the_next_checkpoint_takes_over_what_has_not_changed",
        "test_what_cannot_be_saved_is_named_and_runs_on",
    ),
    "test_moving_files": (
        "test_a_node_that_dies_with_a_tentative_checkpoint_finishes_it",
        "test_it_comes_straight_from_the_machine_before",
    ),
    "test_pipes": (
        "test_directories_of_their_own_where_files_are_carried",
        "test_one_that_fails_ends_the_job_and_is_named",
        "test_programs_are_sent_to_a_machine_once",
    ),
    "test_python_library": (
        "test_a_cancelled_future_removes_its_job",
        "test_a_job_that_brings_no_result_says_why",
        "test_functions_run_as_jobs",
        "test_lambdas_need_cloudpickle",
        "test_what_a_function_raises_is_raised_here",
    ),
    "test_python_page": (
        "test_an_example",
    ),
    "test_remote_io": (
        "test_a_full_disk_at_home_is_the_jobs_own_error",
        "test_a_home_that_is_killed_in_the_middle_of_writing_is_gone_on_from",
        "test_a_job_finds_the_directories_that_it_names_and_those_that_it_asks_for",
        "test_a_job_that_begins_again_finds_its_files_as_they_were",
        "test_a_job_that_dies_after_a_checkpoint_goes_on_with_its_files_of_that_moment",
        "test_a_job_works_on_files_that_its_machine_does_not_have",
        "test_what_both_machines_see_is_opened_directly",
    ),
    "test_remote_io_ways": (
        "test_by_notification_where_there_is_no_fuse",
    ),
    "test_spread": (
        "test_a_file_that_is_a_pipe_may_lead_to_another_machine",
        "test_a_machine_that_is_lost_takes_all_parts_with_it",
        "test_a_process_that_fails_ends_those_on_other_machines",
        "test_it_goes_on_from_a_checkpoint_of_all_parts",
    ),
    "test_three_nodes": (
        "test_a_job_sees_neither_its_users_home_nor_the_nodes_state",
    ),
    "test_upkeep": (
        "test_a_machine_is_drained_and_stays_so_until_it_is_wanted_again",
    ),
    "test_userprio": (
        "test_what_cannot_be_is_said_in_one_line",
        "test_who_has_used_what_is_shown_and_kept",
    ),
}

#: Characters of each node's log that a failure shows.
SHOWN = 4000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "whose_pool" in metafunc.fixturenames:
        ways = ways_of(metafunc, metafunc.config.getoption("--pools"))
        ids = [ROOTS if way == ROOTS else getattr(pytest, "HIDDEN_PARAM", OWN) for way in ways]
        metafunc.parametrize("whose_pool", ways, ids=ids, indirect=True, scope="module")


def ways_of(metafunc: pytest.Metafunc, pools: str) -> list[str]:
    """The pools that a test runs on, as the option says."""
    if not support.ROOT or not _has_two_ways(metafunc.module, metafunc.function):
        return [] if pools == "root" and support.ROOT else [OWN]
    if pools in ("own", "root", "both"):
        return {"own": [OWN], "root": [ROOTS], "both": list(WAYS)}[pools]
    name, module = metafunc.function.__name__, metafunc.module
    tests = {
        other: zlib.crc32(other.encode())
        for other, function in vars(module).items()
        if other.startswith("test_")
        and _has_two_ways(module, function)
        and other not in NOT_SEEN_TO_PASS.get(module.__name__.rpartition(".")[2], ())
    }
    chosen = name in tests and (tests[name] % 3 == 0 or name == min(tests, key=tests.__getitem__))
    return [ROOTS if chosen else OWN]


def _has_two_ways(module: object, function: object) -> bool:
    of_module = getattr(module, "pytestmark", [])
    marks = [*(of_module if isinstance(of_module, list) else [of_module]), *getattr(function, "pytestmark", [])]
    return not any(mark.name == "own_pool" for mark in marks)


@pytest.fixture(scope="module", autouse=True)
def whose_pool(request: pytest.FixtureRequest, run_directory: Path) -> Iterator[OrdinaryUser | None]:
    """The user who the test is, on root's pool; None on a pool of the user's own who runs the suite."""
    if request.param == OWN:
        yield None
        return
    passable(run_directory)  # Python's bytecode lies there
    place = Path(tempfile.mkdtemp(prefix="e2e-user-"))
    place.chmod(0o755)
    try:
        user = OrdinaryUser(place)
        with user.is_the_tester(), support.submitting(user):
            yield user
    finally:
        shutil.rmtree(place)


@pytest.fixture
def tmp_path(tmp_path: Path, whose_pool: OrdinaryUser | None) -> Iterator[Path]:
    """The user's, where the test is one: not below pytest's own directory, which each pytest closes to others."""
    if whose_pool is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="e2e-tmp-") as place:
        yield whose_pool.owns(Path(place))


@pytest.fixture
def nodes(whose_pool: OrdinaryUser | None) -> Iterator[support.Nodes]:
    with support.nodes() as made:
        yield made
        for node in made.all:
            assert "Traceback" not in node.text, node.text
            assert not any("trace" in line for line in node.log), node.text


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    made = getattr(item, "funcargs", {}).get("nodes")
    if report.when == "call" and report.failed and isinstance(made, support.Nodes):
        for node in made.all:
            report.sections.append((f"log of node {node.state.stem}", node.text[-SHOWN:]))
    return report

"""The look-alike modules, beside the real ones where they are installed."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from pool.compat.bindings import classad_module, htcondor2_module, htcondor_module
from pool.compat.bindings.schedd import choice
from pool.compat.bindings.submit import statement

AD = '[a = 1; b = "x"; c = a + 1; d = {1,2.5}; e = [f = 1]; u = undefined; x = error; t = true; r = 0.1; s = "q\\"uo"]'


def reference(name: str) -> Any:
    try:
        importlib.import_module("htcondor2.htcondor2_impl")  # the real one, which has a part in C
        return importlib.import_module(name)
    except ImportError:
        pytest.skip("htcondor is not installed")


def test_ads_look_and_behave_as_the_references() -> None:
    real = reference("classad2")
    ours, theirs = classad_module.ClassAd(AD), real.ClassAd(AD)
    assert sorted(ours) == sorted(theirs)
    assert repr(ours) == repr(theirs)
    assert str(ours).strip() == str(theirs).strip()
    for name in theirs:
        assert str(ours[name]) == str(theirs[name]), name
        assert str(ours.eval(name)) == str(theirs.eval(name)), name
        assert str(ours.lookup(name)) == str(theirs.lookup(name)), name
    assert int(classad_module.Value.Undefined) == int(real.Value.Undefined)
    assert ours["C"].eval(ours) == 2
    with pytest.raises(KeyError):
        ours["missing"]
    with pytest.raises(classad_module.ClassAdException):
        classad_module.ClassAd("[a = ")


def test_a_description_is_a_mapping_as_the_references_is() -> None:
    real = reference("htcondor2")
    for arguments in (
        ({"executable": "/bin/x", "Arguments": "a"},),
        ("executable = x\na = $(b)\nqueue 3 x in (1 2)\n",),
    ):
        ours, theirs = htcondor2_module.Submit(*arguments), real.Submit(*arguments)
        assert list(ours) == list(theirs)
        assert ours["EXECUTABLE"] == theirs["EXECUTABLE"]
        assert ours.getQArgs() == (theirs.getQArgs() or ours.getQArgs())
        assert str(ours) == str(theirs)
    with pytest.raises(TypeError):
        ours["x"] = 5  # type: ignore[assignment]
    with pytest.raises(ValueError, match="queue statement"):
        htcondor2_module.Submit({"queue": "1"})


def test_a_value_may_be_bytes_as_toil_gives_it() -> None:
    """The older module took them, and Toil works around a fault of its with them."""
    assert dict(htcondor2_module.Submit({"arguments": b"-c 'a b'"})) == {"arguments": "-c 'a b'"}


def test_enumerations_have_the_references_numbers() -> None:
    real = reference("htcondor2")
    for name in (
        "AdType",
        "DaemonType",
        "DrainType",
        "VacateType",
        "JobAction",
        "JobStatus",
        "JobEventType",
        "QueryOpt",
        "TransactionFlag",
        "SubmitMethod",
        "LogLevel",
        "SubsystemType",
        "FileTransferEventType",
    ):
        theirs = {one.name: int(one) for one in getattr(real, name)}
        for one in getattr(htcondor2_module, name):
            assert theirs[one.name] == int(one), (name, one)


def test_both_modules_have_the_names_that_they_promise() -> None:
    for module in (htcondor2_module, htcondor_module, classad_module):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
    real = {name for name in dir(reference("htcondor2")) if name[0].isupper()}
    beyond = {
        "CommonFilesEventType",
        "CredCheck",
        "Credd",
        "DAGMan",
        "DaemonCommand",
        "DaemonCommands",
        "HistorySrc",
        "Optional",
        "Placementd",
        "RemoteParam",
    }
    assert real - set(htcondor2_module.__all__) == beyond


@pytest.mark.parametrize(
    ("count", "items", "own", "text"),
    [
        (0, None, None, "queue"),
        (3, None, None, "queue 3"),
        (0, None, "2 x in (a b)", "queue 2 x in (a b)"),
        (5, None, "2", "queue 5"),
        (5, None, "2 x in (a b)", "queue 5 x in (a b)"),
        (0, ["a", "b c"], None, "queue 1 item from (\na\nb c\n)"),
        (2, [{"x": "1", "y": "a b"}], None, "queue 2 x,y from (\n1\x1fa b\n)"),
        (0, [("1", "2")], None, "queue 1 item,item1 from (\n1\x1f2\n)"),
    ],
)
def test_the_queue_statement_of_a_submit(count: int, items: Any, own: str | None, text: str) -> None:
    assert statement(count, items, own) == text


def test_items_that_no_line_can_say_are_refused() -> None:
    for items in ([], ["a\nb"], [")"]):
        with pytest.raises(htcondor2_module.HTCondorException):
            statement(0, items, None)


def test_jobs_are_chosen_by_id_list_number_or_constraint() -> None:
    assert choice("12.3") == {"ids": [(12, 3)]}
    assert choice(12) == {"ids": [(12,)]}
    assert choice(["12.0", "13"]) == {"ids": [(12, 0), (13,)]}
    assert choice("JobStatus == 5") == {"constraint": "JobStatus == 5"}
    assert choice(classad_module.ExprTree("JobStatus == 5")) == {"constraint": "JobStatus == 5"}
    with pytest.raises(TypeError):
        choice(["Owner == 5"])


def test_what_the_pool_cannot_do_says_so() -> None:
    schedd = htcondor2_module.Schedd()
    for call in (
        lambda: schedd.jobEpochHistory(),
        lambda: schedd.export_jobs("true", "x", "y"),
        lambda: htcondor2_module.Submit.from_dag("x.dag"),
    ):
        with pytest.raises(htcondor2_module.HTCondorException, match="not possible here"):
            call()

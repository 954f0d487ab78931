"""Dictionaries of commands as programs write them, and ids of jobs: taken, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pool.client import Pool
from pool.client.commands import from_commands
from pool.client.descriptions import describe
from pool.client.ids import job_id, job_ids, one_job
from pool.errors import PoolError
from pool.jobs.arguments import arguments_of
from pool.jobs.environment import environment_of
from tests.client.fakes import Fakes
from tests.client.serving import serving

AWKWARD = ["plain", "two words", "it's", 'say "so"', "", "a'b c\"d", "-x=$HOME"]


def ads(**commands: Any) -> list[dict[str, Any]]:
    """The ads of the jobs of a description."""
    (cluster,) = describe({"executable": "/bin/true", **commands}).clusters
    deltas = cluster.wire_deltas() or [None] * cluster.count
    return [dict(cluster.attributes) | (delta or {}) for delta in deltas]


def test_each_word_of_a_list_is_one_argument() -> None:
    (ad,) = ads(arguments=[*AWKWARD, 7, 2.5, Path("/tmp/x y")])
    assert arguments_of(ad) == [*AWKWARD, "7", "2.5", "/tmp/x y"]


def test_an_environment_is_a_dictionary() -> None:
    wanted = {f"NAME{number}": value for number, value in enumerate(AWKWARD)}
    (ad,) = ads(environment=wanted)
    assert environment_of(ad) == wanted


def test_files_are_lists_of_paths(tmp_path: Path) -> None:
    for name in ("b c", "d"):
        (tmp_path / name).touch()
    (ad,) = ads(transfer_input_files=[tmp_path / "b c", str(tmp_path / "d")], should_transfer_files=True)
    assert ad["TransferInput"] == f"{tmp_path}/b c,{tmp_path}/d"


def test_there_is_a_job_for_each_item() -> None:
    found = ads(arguments="$(seed) $(name)", items=[{"seed": 1, "name": "a, b"}, {"name": "c", "seed": 2}], queue=2)
    assert [arguments_of(ad) for ad in found] == [["1", "a,", "b"]] * 2 + [["2", "c"]] * 2
    assert [arguments_of(ad) for ad in ads(arguments=["$(item)"], items=["x y", 5])] == [["x y"], ["5"]]


def test_own_attributes_may_be_lists() -> None:
    (ad,) = ads(**{"+Sizes": [1, 2]})
    assert ad["Sizes"] == ["{ 1,2 }"]


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ({"arguments": None}, "'arguments' is None"),
        ({"queue": 0}, "cannot queue 0 jobs"),
        ({"queue": None}, "cannot queue None jobs"),
        ({"queue": -3}, "cannot queue -3 jobs"),
        ({"queue": [1]}, "'queue' is a list"),
        ({"requirements": ["a"]}, "'requirements' is a list"),
        ({"request_memory": {"a": 1}}, "'request_memory' is a dict"),
        ({"arguments": [["a"]]}, "'arguments' has a list in it"),
        ({"arguments": ["a\nqueue 5"]}, "'arguments' spans several lines"),
        ({"environment": {"A": "x\ny"}}, "'environment' spans several lines"),
        ({"transfer_input_files": ["a,b"]}, "'a,b' in 'transfer_input_files' has a comma"),
        ({"items": []}, "'items' is empty"),
        ({"items": {"a": 1}}, "'items' is no list"),
        ({"items": [{"a": 1}, {"b": 1}]}, "item 1 has b, the first a"),
        ({"items": [{"a": 1}], "queue": "x in (1)"}, "there are 'items', too"),
        ({5: "a"}, "5 is not the name of a command"),
    ],
)
def test_what_a_command_does_not_take_is_refused_by_name(commands: dict[Any, Any], said: str) -> None:
    with pytest.raises(PoolError) as caught:
        from_commands({"executable": "/bin/true", **commands})
    assert said in caught.value.message


@pytest.mark.parametrize("what", [None, 5, b"executable = x", ["a"]])
def test_what_is_no_description_is_refused(what: Any) -> None:
    with pytest.raises(PoolError, match=f"cannot read a description from a {type(what).__name__}"):
        describe(what)


def test_ids_are_written_in_several_ways() -> None:
    assert [job_id(one) for one in (12, "12", "12.3", (12,), [12, 3])] == [(12,), (12,), (12, 3), (12,), (12, 3)]
    assert one_job("12.3") == (12, 3)


@pytest.mark.parametrize("wrong", ["abc", "12.", "1.2.3", "-1", -1, None, 1.5, True, (), (1, 2, 3), ("1", "2"), {}])
def test_a_malformed_id_is_named(wrong: Any) -> None:
    with pytest.raises(PoolError) as caught:
        job_id(wrong)
    assert caught.value.message == f"{wrong!r} is no job id"


async def test_ids_that_are_not_there_are_named(tmp_path: Path) -> None:
    fakes = Fakes()
    fakes.schedd.add(7, 0)
    async with serving(fakes, tmp_path) as address, await Pool.connect(address) as pool:
        assert [ad.value("Owner") for ad in await pool.cluster("7").ads(["Owner"])] == ["alice"]
        assert [len(ad) for ad in await pool.cluster(7).ads(["Owner"])] == [1]
        assert repr(pool.job("7.2")) == "<Job 7.2>"
        for method in (pool.cluster(99).ads, pool.cluster(99).results):
            with pytest.raises(PoolError, match="there is no cluster 99"):
                await method()
        with pytest.raises(PoolError, match="there is no job 99"):
            await pool.wait([pool.cluster(7), 99], timeout=5)
        with pytest.raises(PoolError, match="'7' is a cluster, not one job"):
            await pool.why("7")
        wrong: Any = ["x"]
        with pytest.raises(PoolError, match="'x' is no job id"):
            await pool.act("hold", ids=wrong)
        with pytest.raises(PoolError, match="'12' is no list"):
            job_ids("12")

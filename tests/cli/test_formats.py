"""Single values as they stand in a listing."""

from __future__ import annotations

import json

import pytest

from pool.cli import formats


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0+00:00:00"),
        (59.9, "0+00:00:59"),
        (142, "0+00:02:22"),
        (4 * 86400 + 8 * 3600 + 11 * 60 + 12, "4+08:11:12"),  # EV 2.8, job 337.0
        (163 * 86400 + 52 * 60 + 24, "163+00:52:24"),  # EV 2.8, vdhoef
        (-5, "0+00:00:00"),
        (None, "-"),
    ],
)
def test_durations_are_the_papers(seconds: float | None, shown: str) -> None:
    assert formats.duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.042, "0.04 s"),
        (12.34, "12.3 s"),
        (245, "4:05"),
        (3723, "1:02:03"),
        (90000, "1+01:00:00"),
        (None, "-"),
    ],
)
def test_short_durations_have_the_precision_people_want(seconds: float | None, shown: str) -> None:
    assert formats.short_duration(seconds) == shown


def test_a_moment_is_local_month_day_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    formats._day_and_minute.cache_clear()
    assert formats.moment(731_439_360) == "3/6 17:36"  # EV 2.8, job 337.0
    assert formats.moment(None) == "-"
    assert formats.moment(0) == "-"


def test_sizes_are_megabytes() -> None:
    assert formats.megabytes(1740) == "1.7"
    assert formats.megabytes(None) == "0.0"


def test_the_platform_is_what_the_requirements_ask_for() -> None:
    assert formats.platform('(TARGET.Arch == "SPARC") && (TARGET.OpSys == "SUNOS41")') == "SPARC_SUNOS41"
    assert formats.platform('OpSys =?= "LINUX" && Memory > 5') == "LINUX"
    assert formats.platform("true") == "any"


def test_a_command_is_the_programs_name_and_its_arguments_on_one_line() -> None:
    assert formats.command({"Cmd": "/home/p/sim", "Arguments": "--seed 3"}) == "sim --seed 3"
    assert formats.command({"Cmd": "/bin/sh", "Args": "-c 'a\nb'"}) == "sh -c 'a b'"
    assert formats.command({"Cmd": "/bin/true", "Arguments": ""}) == "true"
    assert formats.command({"Cmd": "/bin/sh", "Arguments": "-c 'echo it''s; exit 3' x"}) == "sh -c echo it's; exit 3 x"
    assert formats.command({"Cmd": "/bin/sh", "Arguments": "-c for' 'i"}) == "sh -c for i"
    assert formats.command({"Cmd": "/bin/sh", "Args": "don't"}) == "sh don't"
    assert formats.command({"Cmd": "/bin/sh", "Arguments": "don't"}) == "sh don't"
    assert formats.command({}) == "-"
    several = '{ [ Cmd = "/bin/a"; Name = "a"; Arguments = "Name = \\"x\\"" ],[ Name = "b2" ] }'
    assert formats.command({"Processes": [several], "Cmd": "/bin/a"}) == "a | b2"
    assert formats.command({"Cmd": "x", "Arguments": "\x1b[31mred"}) == "x  [31mred"


@pytest.mark.parametrize(
    ("ad", "shown"),
    [
        ({"ExitBySignal": False, "ExitCode": 3}, "3"),
        ({"ExitBySignal": True, "ExitSignal": 11, "ExitCode": 0}, "signal 11"),
        ({}, "-"),
        ({"ExitCode": ["1 + 1"]}, "-"),
    ],
)
def test_exits(ad: formats.WireAd, shown: str) -> None:
    assert formats.exit_text(ad) == shown


def test_expressions_are_marked_in_json_and_bare_in_the_long_form() -> None:
    ad = {"Rank": ["Memory * 2"], "Cmd": 'a "b"', "Ok": True, "N": 1.5, "Inf": float("inf")}
    assert json.loads(json.dumps(formats.json_ad(ad), allow_nan=False)) == {
        "Cmd": 'a "b"',
        "Inf": '/Expr(real("inf"))/',
        "N": 1.5,
        "Ok": True,
        "Rank": "/Expr(Memory * 2)/",
    }
    assert formats.long_ad(ad).splitlines() == [
        r'Cmd = "a \"b\""',
        'Inf = real("inf")',
        "N = 1.5",
        "Ok = true",
        "Rank = Memory * 2",
    ]


def test_amounts_know_one_from_many() -> None:
    assert [formats.amount(n, "job") for n in (0, 1, 10000)] == ["0 jobs", "1 job", "10,000 jobs"]

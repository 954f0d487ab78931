"""Settings as a whole: which file wins, where values come from, what is warned of, what is refused, what changed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from pool.classad import ClassAd, evaluate, parse_expr
from pool.config import TABLE, ConfigError, SettingKind, Settings
from pool.config.places import config_files, state_directory
from pool.config.table import ALIASES, ROWS, canonical
from pool.policy.owner import NAMES, OwnerPolicy
from pool.policy.shipped import DEDICATED, DESKTOP
from tests.conftest import REPOSITORY

Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loaded(
        pool: str = "", local: str | None = None, environ: dict[str, str] | None = None, **sets: str
    ) -> Settings:
        (tmp_path / "pool.conf").write_text(pool)
        (tmp_path / "pool.local.conf").unlink(missing_ok=True)
        if local is not None:
            (tmp_path / "pool.local.conf").write_text(local)
        return Settings.load(tmp_path / "pool.conf", sets=sets, environ=environ or {})

    return loaded


def said(settings: Settings) -> list[str]:
    return [str(warning).rpartition("/")[2] for warning in settings.warnings]


# --- which one wins


def test_what_comes_later_wins_and_each_value_says_where_it_is_from(load: Load, tmp_path: Path) -> None:
    settings = load(
        "UPDATE_INTERVAL = 60\nCLAIM_LEASE = 1\nCLAIM_LIFE = 1\nAD_LIFETIME = 1",
        "# of this machine\nCLAIM_LEASE = 2\nCLAIM_LIFE = 2\nAD_LIFETIME = 2",
        {"POOLNODE_CLAIM_LIFE": "3", "POOLNODE_AD_LIFETIME": "3"},
        ad_lifetime="4",
    )
    assert settings.explain("EVALUATE_INTERVAL") == ("5", "default")
    assert settings.explain("UPDATE_INTERVAL") == ("60", f"{tmp_path}/pool.conf:1")
    assert settings.explain("claim_lease") == ("2", f"{tmp_path}/pool.local.conf:2")
    assert settings.explain("CLAIM_LIFE") == ("3", "environment POOLNODE_CLAIM_LIFE")
    assert settings.explain("AD_LIFETIME") == ("4", "command line")
    assert [settings.is_set(name) for name in ("UPDATE_INTERVAL", "EVALUATE_INTERVAL")] == [True, False]
    assert settings.warnings == []


def test_a_personal_node_needs_no_file() -> None:
    settings = Settings.load(None, sets={}, environ={}, files=False)
    assert settings.warnings == []
    assert settings.text("NODE_NAME") == settings.text("UID_DOMAIN") == socket.gethostname()
    assert settings.number("EVALUATE_INTERVAL") == 5
    assert settings.number("UPDATE_INTERVAL") == 120
    assert settings.flag("ENFORCE_MEMORY") is False


def test_the_usual_places(tmp_path: Path) -> None:
    assert config_files({"HOME": "/home/ada"}) == [
        Path("/home/ada/.config/poolnode/pool.conf"),
        Path("/etc/poolnode/pool.conf"),
    ]
    assert config_files({"XDG_CONFIG_HOME": "/x", "HOME": "/y"})[0] == Path("/x/poolnode/pool.conf")
    assert config_files({}) == [Path("/etc/poolnode/pool.conf")]
    (tmp_path / "poolnode").mkdir()
    (tmp_path / "poolnode" / "pool.conf").write_text("ADMIN = ada@example.org")
    assert Settings.load(None, sets={}, environ={"XDG_CONFIG_HOME": str(tmp_path)}).text("ADMIN") == "ada@example.org"
    (tmp_path / "other.conf").write_text("ADMIN = eve@example.org")
    named = {"XDG_CONFIG_HOME": str(tmp_path), "POOLNODE_CONFIG": str(tmp_path / "other.conf")}
    assert Settings.load(None, sets={}, environ=named).text("ADMIN") == "eve@example.org"
    given = tmp_path / "poolnode" / "pool.conf"
    assert Settings.load(given, sets={}, environ=named).text("ADMIN") == "ada@example.org"


def test_state_directories() -> None:
    assert state_directory({"POOLNODE_STATE": "/s"}, 0) == Path("/s")
    assert state_directory({"HOME": "/r"}, 0, lambda path: True) == Path("/var/lib/poolnode")
    assert state_directory({"XDG_STATE_HOME": "/x"}, 5) == Path("/x/poolnode")
    assert state_directory({"HOME": "/h"}, 0, lambda path: False) == Path("/h/.local/state/poolnode")


def test_a_file_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    for environ, path in (({"POOLNODE_CONFIG": str(tmp_path / "no.conf")}, None), ({}, tmp_path / "no.conf")):
        with pytest.raises(ConfigError, match=r"cannot read .*no.conf: No such file"):
            Settings.load(path, sets={}, environ=environ)


def test_the_local_file_may_lie_elsewhere(load: Load, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / f"{socket.gethostname()}.conf").write_text("CLAIM_LEASE = 7")
    settings = load("LOCAL_CONFIG = here/$(HOSTNAME).conf", "CLAIM_LEASE = 8")
    assert settings.number("CLAIM_LEASE") == 7
    assert said(load("LOCAL_CONFIG_FILE = gone.conf")) == ["gone.conf"]
    assert load("LOCAL_CONFIG =\nCLAIM_LEASE = 9", "CLAIM_LEASE = 8").number("CLAIM_LEASE") == 9


# --- macros


def test_the_papers_own_example(load: Load) -> None:
    """TS 8.1, word for word; MINUTE is there already."""
    settings = load(
        "BackgroundLoad = 0.3\nStartIdleTime = 15 * $(MINUTE)\nCPUIdle = LoadAvg <= $(BackgroundLoad)\n"
        "START : $(CPUIdle) && KeyboardIdle > $(StartIdleTime)\n"
    )
    assert settings.text("START") == "LoadAvg <= 0.3 && KeyboardIdle > 900"
    assert settings.warnings == []
    for idle, load_, value in ((901, 0.3, True), (900, 0, False), (901, 0.4, False)):
        ad = ClassAd({"LoadAvg": load_, "KeyboardIdle": idle})
        assert evaluate(parse_expr(settings.text("START")), ad) is value


def test_the_papers_priority_expression(load: Load) -> None:
    settings = load("PRIO : (UserPrio * 10) + $(Expanded) - (QDate / 1000000000.0)\nExpanded = Expanded")
    assert settings.text("PRIO") == TABLE["PRIO"].default


def test_a_local_file_changes_what_the_pools_expressions_use(load: Load) -> None:
    pool = "Quiet = 900\nSTART : KeyboardIdle > $(Quiet)"
    assert load(pool, "QUIET = 60").text("START") == "KeyboardIdle > 60"


def test_a_definition_that_names_itself_means_what_was_before(load: Load) -> None:
    settings = load("START : KeyboardIdle > 5", 'START : ($(START)) && TARGET.Owner != "eve"')
    assert settings.text("START") == '(KeyboardIdle > 5) && TARGET.Owner != "eve"'
    assert load("START = ($(Start)) && Cpus > 1").text("START") == f"({DESKTOP['START']}) && Cpus > 1"
    assert load("A = 1\nA = $(A)$(A)\nA = $(A)$(A)\nADMIN = $(A)").text("ADMIN") == "1111"


def test_times_may_have_units_and_are_numbers_in_expressions(load: Load) -> None:
    settings = load("START_IDLE = 10 min\nMaxVacateTime = 1 h 30 min\nMAX_SUSPEND = 2 * $(START_IDLE)")
    assert settings.number("START_IDLE") == 600
    assert settings.text("START").endswith("KeyboardIdle > 600")
    assert settings.text("KILL").endswith("> 5400")
    assert settings.number("MAX_SUSPEND") == 1200
    assert settings.text("START_IDLE") == "10 min"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A = $(B)\nB = $(A)", r"pool.conf:\d: \w+ refers to itself by way of \w"),
        ("UID_DOMAIN = $(FILESYSTEM_DOMAIN)\nFILESYSTEM_DOMAIN = $(UID_DOMAIN)", "refers to itself by way of"),
        ("\n".join(f"{a} = $({b})$({b})" for a, b in pairwise("ABCDEFGHIJKLMNOPQRST")), "grows without end"),
    ],
)
def test_macros_without_end(load: Load, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(f"{text}\nT = long\nADMIN = $(A)" if "UID" not in text else text)


def test_the_environment_may_be_named(load: Load) -> None:
    assert load("EXECUTE_DIR = $ENV(SCRATCH)/jobs", environ={"SCRATCH": "/fast"}).text("EXECUTE_DIR") == "/fast/jobs"


# --- the owner's policy


def test_the_shipped_policies_are_the_defaults(load: Load) -> None:
    desktop, dedicated = load(), load("POLICY = Dedicated")
    assert {name: desktop.text(name) for name in NAMES} == DESKTOP
    assert {name: dedicated.text(name) for name in NAMES} == DEDICATED
    assert not any(desktop.is_set(name) for name in NAMES)
    OwnerPolicy.from_shipped(desktop.text("POLICY"), {name: desktop.text(name) for name in NAMES})


def test_the_earlier_papers_vacate_is_preempt_for_suspended_jobs(load: Load) -> None:
    """EV 3.1: VACATE is only asked of a suspended job, whose state had a time of its own."""
    settings = load("VACATE = CurrentTime - EnteredCurrentState > 10 * 60")
    assert settings.text("PREEMPT") == 'Activity == "Suspended" && (CurrentTime - EnteredCurrentActivity > 10 * 60)'
    assert settings.explain("PREEMPT").source.endswith("pool.conf:1")
    assert settings.warnings == []
    assert Settings.load(None, sets={"VACATE": "true"}, environ={}, files=False).is_set("PREEMPT")


def test_names_of_the_papers_and_of_other_pools_are_known() -> None:
    assert all(target in TABLE for target in ALIASES.values())
    assert not set(ALIASES) & set(TABLE)
    assert canonical("StartIdleTime") == "START_IDLE"


# --- includes


def test_includes(load: Load, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.conf").write_text("CLAIM_LEASE = 7\ninclude : b.conf")
    (tmp_path / "sub" / "b.conf").write_text("CLAIM_LIFE = 8")
    settings = load("D = sub\ninclude : $(D)/a.conf\ninclude ifexist : none.conf\nCLAIM_LIFE = 9")
    assert settings.explain("CLAIM_LEASE") == ("7", f"{tmp_path}/sub/a.conf:1")
    assert settings.number("CLAIM_LIFE") == 9
    assert settings.warnings == []
    with pytest.raises(ConfigError, match=r"pool.conf:1: there is no file .*/none.conf \(`include ifexist : FILE`"):
        load("include : none.conf")
    (tmp_path / "loop.conf").write_text("include : loop.conf")
    with pytest.raises(ConfigError, match=r"loop\.conf includes itself"):
        load("include : loop.conf")


# --- warnings


def test_unknown_names_are_warned_of_with_a_suggestion(load: Load) -> None:
    settings = load("UPDATE_INTERVL = 5\nfoo = 3\nBAR = 4\nADMIN = x$(bar)")
    assert said(settings) == [
        "pool.conf:1: UPDATE_INTERVL is no setting, and nothing uses it; is UPDATE_INTERVAL meant?",
        "pool.conf:2: foo is no setting, and nothing uses it",
    ]


def test_a_macro_that_stands_for_nothing_is_warned_of_once(load: Load) -> None:
    settings = load("Quiet = 5\nSTART : KeyboardIdle > 0$(Quite)")
    assert said(settings)[0] == "pool.conf:2: $(Quite) in START stands for nothing; is QUIET meant?"
    settings.describe()
    assert len(settings.warnings) == 2


def test_a_variable_that_nearly_is_a_setting_is_warned_of(load: Load) -> None:
    tools = {"POOLNODE_ADDRESS": "x", "POOLNODE_STATE": "y", "POOLNODE_TOKEN": "z", "HOME": "/"}
    assert load(environ=tools).warnings == []
    assert said(load(environ={"POOLNODE_UPDATE_INTERVALL": "3"})) == [
        "environment POOLNODE_UPDATE_INTERVALL: there is no setting UPDATE_INTERVALL; is UPDATE_INTERVAL meant?"
    ]


def test_a_comment_behind_a_value_is_warned_of(load: Load) -> None:
    assert said(load("ADMIN = ada@example.org # that is me")) == [
        "pool.conf:1: ADMIN contains ` #`: a comment needs a line of its own"
    ]


# --- mistakes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("UPDATE_INTERVAL = often", "pool.conf:1: UPDATE_INTERVAL = often: expected a length of time such as 90"),
        ("\nUPDATE_INTERVAL = 0", "pool.conf:2: UPDATE_INTERVAL = 0: expected at least 0.001 s"),
        ("EVALUATE_INTERVAL = -5", "expected at least 0.001 s"),
        ("RESTARTS_PER_HOUR = 1.5", "RESTARTS_PER_HOUR = 1.5: expected a whole number"),
        ("SUSPEND_LOAD = high", r"pool.conf:1: SUSPEND_LOAD = high: expected a number \(tasks\)"),
        ("BACKGROUND_LOAD = -1", "BACKGROUND_LOAD = -1: expected at least 0"),
        ("ENFORCE_MEMORY = maybe", "ENFORCE_MEMORY = maybe: expected true or false"),
        ("POLICY = desk", "POLICY = desk: expected one of desktop, dedicated"),
        ("RUN_AS = root", "RUN_AS = root: expected one of owner, node, nobody, refuse"),
        ("LISTEN = 9618", "LISTEN = 9618: expected HOST:PORT"),
        ("START : KeyboardIdle >", "pool.conf:1: START = KeyboardIdle >: expected an expression: "),
        ("PRIO : ((", "PRIO = "),
        ("X = 1\nCPUIdle = ((", r"pool.conf:2: START = .*expected an expression.*1 more: .*pool.conf:2: CONTINUE"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_file_and_line(load: Load, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(text)
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_counted(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"pool.local.conf:1: POLICY = .*and 1 more: .*pool.conf:1: CLAIM_LEASE"):
        load("CLAIM_LEASE = x", "POLICY = y")
    with pytest.raises(ConfigError, match="command line: CLAIM_LEASE = x: expected"):
        load(claim_lease="x")
    with pytest.raises(ConfigError, match="environment POOLNODE_CLAIM_LEASE: CLAIM_LEASE = x"):
        load(environ={"POOLNODE_CLAIM_LEASE": "x"})


def test_what_is_no_setting_cannot_be_set_or_asked(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"--set CLAIM_LEAS: there is no such setting \(is CLAIM_LEASE meant"):
        load(CLAIM_LEAS="1")
    settings = load("Mine = 3\nADMIN = $(Mine)")
    with pytest.raises(ConfigError, match=r"there is no setting STRAT \(is START meant\?"):
        settings.explain("STRAT")
    assert settings.explain("mine").value == "3"


def test_an_empty_value_means_the_default_or_nothing(load: Load) -> None:
    settings = load("LISTEN =\nUPDATE_INTERVAL =\nSTART :\nNODE_NAME =\nPOLICY = dedicated")
    assert settings.text("LISTEN") == ""
    assert settings.is_set("LISTEN")
    assert settings.explain("UPDATE_INTERVAL") == ("120", "default")
    assert settings.text("START") == "true"
    assert settings.text("NODE_NAME") == socket.gethostname()


# --- telling, reading again


def test_every_setting_is_described(load: Load) -> None:
    described = load("START : Cpus > 1\nMine = 3\nADMIN = $(Mine)").describe()
    assert [each["name"] for each in described] == list(TABLE)
    start = next(each for each in described if each["name"] == "START")
    assert (start["value"], start["kind"], start["live"]) == ("Cpus > 1", "expression", True)
    assert start["source"].endswith("pool.conf:1")
    [mine] = load("Mine = 3\nADMIN = $(Mine)").describe(["mine"])
    assert (mine["name"], mine["value"]) == ("MINE", "3")


def test_reading_again_gives_the_differences(load: Load) -> None:
    before = load("START_IDLE = 10 min\nNODE_NAME = a\nCLAIM_LEASE = 5")
    after = load("START_IDLE = 5 min\nNODE_NAME = b\nCLAIM_LEASE = 5\nMine = 1")
    assert after.differences(before) == ["NODE_NAME", "START", "START_IDLE"]
    changes = after.changes_since(before)
    assert [(each.name, each.before, each.after, each.live) for each in changes] == [
        ("NODE_NAME", "a", "b", False),
        ("START", before.text("START"), after.text("START"), True),
        ("START_IDLE", "10 min", "5 min", True),
    ]
    assert changes[1].source == "default"
    assert changes[2].source.endswith("pool.conf:1")
    assert load("CLAIM_LEASE = 5").differences(load("CLAIM_LEASE = 5")) == []


# --- the table


def test_defaults_are_of_their_kind_and_rows_say_what_they_are_for() -> None:
    assert len(TABLE) == len(ROWS)
    for row in ROWS:
        assert row.doc, row.name
        assert row.name == row.name.upper()
        assert (row.kind is SettingKind.CHOICE) == bool(row.choices)


def test_every_row_is_read_by_something() -> None:
    sources = "\n".join(path.read_text() for path in (REPOSITORY / "pool").rglob("*.py") if path.name != "table.py")
    unread = [name for name in TABLE if f'"{name}"' not in sources and f"$({name})" not in sources]
    assert unread == []


def test_tools_that_only_look_for_a_node_do_not_wait_for_the_language() -> None:
    code = "import sys, pool.config.places; sys.exit('pool.classad' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0

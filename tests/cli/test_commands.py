"""Whole commands against a node that only remembers, over the real wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.cli import main
from tests.client.fakes import Fakes
from tests.client.serving import Served, served


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with served(Fakes(), tmp_path) as one:
        monkeypatch.setenv("POOLNODE_ADDRESS", one.address)
        monkeypatch.chdir(tmp_path)
        yield one


def out(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[str]:
    got = main.status(list(words))
    captured = capsys.readouterr()
    assert got == code, captured.err
    return captured.out.splitlines()


def test_q_lists_jobs_in_order_with_totals(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    node.fakes.schedd.add(12, 1, JobStatus=2, RemoteHost="slot1@donder")
    node.fakes.schedd.add(12, 0)
    lines = out(capsys, "q")
    assert lines[0].split()[:3] == ["ID", "OWNER", "SUBMITTED"]
    assert lines[1].split()[0] == "12.0"
    assert lines[1].endswith("sim --seed 0")
    assert "slot1@donder" in lines[2]
    assert lines[-1] == "2 jobs: 1 idle, 1 running"
    assert "Requirements" in node.fakes.schedd.asked[0]["attributes"]


def test_q_asks_for_what_was_named(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    out(capsys, "q", "12", "13.4", "--limit", "5")
    out(capsys, "q", "alice", "-c", "JobPrio > 1")
    out(capsys, "q", "--held")
    asked = node.fakes.schedd.asked
    assert (asked[0]["ids"], asked[0]["limit"]) == ([[12], [13, 4]], 5)
    assert (asked[1]["owner"], asked[1]["constraint"]) == ("alice", "JobPrio > 1")
    assert asked[2]["constraint"] == "JobStatus == 5"


def test_listings_as_json_are_whole_ads(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    node.fakes.schedd.add(12, 0)
    node.fakes.schedd.add(12, 1)
    node.fakes.schedd.finish((12, 1))
    (queued,) = map(json.loads, out(capsys, "q", "--json"))
    assert queued["Cmd"] == "/home/p/sim"
    assert queued["Requirements"].startswith("/Expr(")
    (ended,) = map(json.loads, out(capsys, "history", "--json"))
    assert (ended["ProcId"], ended["ExitCode"]) == (1, 0)
    (both,) = map(json.loads, out(capsys, "globalq", "--json") or ["{}"])
    assert both == {}, "the collector knows no schedd yet"


def test_q_long_and_attributes(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    node.fakes.schedd.add(12, 0)
    assert 'Cmd = "/home/p/sim"' in out(capsys, "q", "--long")
    assert out(capsys, "q", "-a", "ProcId,Owner") == ["ProcId Owner", "0      alice"]


def test_q_idle_says_what_the_last_negotiation_said(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    node.fakes.schedd.add(12, 0, LastRejMatchReason="no machine matches", LastRejMatchTime=731_439_400)
    node.fakes.schedd.add(12, 1)
    lines = out(capsys, "q", "--idle")
    assert lines[0].split() == ["ID", "OWNER", "IDLE_SINCE", "LOOKED_AT", "NOT_MATCHED_FOR"]
    assert lines[1].endswith("no machine matches")
    assert lines[2].split()[-2:] == ["-", "-"]
    assert node.fakes.schedd.asked[-1]["constraint"] == "JobStatus == 1"
    out(capsys, "q", "--idle", "--held", code=2)


WAITS = {
    "findings": [
        {"kind": "Queued", "job": "12.1", "owner": "alice", "status": 1, "since": 940.0},
        {"kind": "From the future", "price": 7},
    ],
    "request": {"ad": {"Requirements": ["true"]}, "submitter": "alice@donder", "number": 1},
    "time": 1000.0,
}


def test_why_asks_those_who_know_and_names_those_who_cannot_be_asked(
    node: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    node.fakes.schedd.add(12, 0, JobStatus=2)
    node.fakes.schedd.add(12, 1)
    node.fakes.schedd.reasons[12, 1] = WAITS
    for word in ("12.1", "12"):
        lines = out(capsys, "why", word)
        assert lines[0] == "12.1 waits for 1 min: nobody who knows why can be asked"
        assert lines[1].startswith("  the negotiator cannot be asked: ")
    (found,) = map(json.loads, out(capsys, "why", "12.1", "--json"))
    assert (found["subject"], found["standing"]) == ("12.1", "nobody to ask")
    assert [finding["kind"] for finding in found["findings"]] == ["Queued", "Silent"]


def test_why_of_nothing_there(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert out(capsys, "why", "99.0", code=1) == []
    assert out(capsys, "why", "nowhere", code=1) == []
    assert out(capsys, "why", code=2) == []


def test_why_of_a_machine_that_is_gone_says_what_its_ad_says(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    node.fakes.collector.ads["Machine"] = [
        {
            "Name": "slot1@weg",
            "Machine": "weg",
            "State": "Owner",
            "Activity": "Idle",
            "Start": ["KeyboardIdle > 900"],
            "KeyboardIdle": 3,
            "StartdAddress": "unix:///no/such/socket",
        }
    ]
    lines = out(capsys, "why", "weg")
    assert lines[:3] == [
        "slot1@weg: Owner Idle",
        "  START is false: no job may start",
        "    KeyboardIdle > 900 is not so (KeyboardIdle is 3)",
    ]
    assert any(line.startswith("  the machine cannot be asked: ") for line in lines)


def test_globalq_goes_from_queue_to_queue(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    node.fakes.schedd.add(12, 0)
    node.fakes.collector.ads["Scheduler"] = [
        {"Name": "donder", "ScheddAddress": "here"},
        {"Name": "weg", "ScheddAddress": "unix:///no/such/socket"},
    ]
    assert main.status(["globalq"]) == 1
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "Hostname: donder"
    assert lines[2].split()[0] == "12.0"
    assert lines[-1] == "1 queue, 1 job: 1 idle"
    assert captured.err.startswith("poolnode: the queue of weg does not answer: ")


def test_status_names_a_machine_that_there_is_not(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """It said nothing, or "no machines", and that with the exit status of success."""
    asked = (["elsewhere"], ["elsewhere", "--long"], ["elsewhere", "--json"], ["elsewhere", "-a", "Name"])
    for words in asked:
        assert main.status(["status", *words]) == 1
        assert "the pool has no machine or slot elsewhere (`poolnode status` lists them)" in capsys.readouterr().err
    assert main.status(["status", "elsewhere", "--type", "schedds"]) == 1
    assert "no schedd elsewhere (`poolnode status --type schedds` lists them)" in capsys.readouterr().err
    assert main.status(["status", "elsewhere", "-c", "false"]) == 0


def test_status_joins_machines_and_queues(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    node.fakes.collector.ads["Machine"] = [
        {"Name": "slot1@donder", "Machine": "donder", "State": "Claimed", "Arch": "X86_64", "OpSys": "LINUX"}
    ]
    node.fakes.collector.ads["Scheduler"] = [{"Name": "donder", "TotalRunningJobs": 2, "TotalIdleJobs": 3}]
    lines = out(capsys, "status")
    assert lines[1].split()[:4] == ["slot1@donder", "2", "5", "0"]
    assert lines[-1].split() == ["1", "machine", "1", "slot", "1", "claimed", "5", "jobs", "2", "running"]
    assert out(capsys, "status", "--total")[0].startswith("X86_64/LINUX")
    (ad,) = map(json.loads, out(capsys, "status", "--json"))
    assert ad["State"] == "Claimed"
    assert "TotalIdleJobs = 3" in out(capsys, "status", "--type", "schedds", "--long")


def test_history_and_summary(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    node.fakes.schedd.add(12, 0)
    node.fakes.schedd.finish((12, 0), 3)
    node.fakes.schedd.users = [{"owner": "rvd", "jobs": 42, "local_cpu": 82.0, "remote_cpu": 545377.0}]
    lines = out(capsys, "history")
    assert lines[1].split()[0] == "12.0"
    assert " C     3 slot1@donder sim" in lines[1]
    assert out(capsys, "summary")[1].split() == ["rvd", "42", "0+00:01:22", "6+07:29:37", "6650.9"]
    assert json.loads(out(capsys, "summary", "--json")[0])["owner"] == "rvd"


def test_acts_report_what_was_done_and_what_was_refused(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    node.fakes.schedd.add(12, 0)
    assert out(capsys, "hold", "12", "--reason", "wait") == ["1 job held"]
    assert out(capsys, "release", "12") == ["1 job released"]
    assert out(capsys, "prio", "-p", "-5", "12.0") == ["1 job set to priority -5"]
    assert out(capsys, "vacate", "12.0", "--fast") == ["1 job vacated"]
    assert json.loads(out(capsys, "rm", "-c", "true", "--json")[0])["done"] == 1
    acted = [(a["action"], a.get("ids"), a["value"], a["force"], a["reason"]) for a in node.fakes.schedd.acted]
    assert acted == [
        ("hold", [[12]], None, False, "wait"),
        ("release", [[12]], None, False, ""),
        ("prio", [[12, 0]], -5, False, ""),
        ("vacate", [[12, 0]], None, True, ""),
        ("remove", None, None, False, ""),
    ]
    node.fakes.schedd.add(13, 0, Owner="bob")
    assert main.status(["rm", "13"]) == 1
    assert capsys.readouterr().err == "poolnode: 13.0: it belongs to bob\n"


def test_submit_and_wait(node: Served, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.sub").write_text("executable = /bin/true\noutput = out.$(Process)\nqueue 2\n")
    assert out(capsys, "submit", "a.sub") == ["2 jobs submitted to cluster 1"]
    assert out(capsys, "submit", "-q", "a.sub") == ["2"]
    assert [json.loads(line) for line in out(capsys, "submit", "--json", "a.sub")] == [{"cluster": 3, "jobs": 2}]
    for proc in (0, 1):
        node.fakes.schedd.finish((1, proc), proc)
        node.fakes.schedd.finish((2, proc))
    lines = out(capsys, "wait", "1", code=1)
    assert lines[1].split() == ["1.0", "completed", "0", "2.00", "s", "1.50", "s", "slot1@donder", "out.0"]
    assert lines[-1] == "2 jobs: 1 succeeded, 1 failed"
    assert out(capsys, "wait", "2", "-q") == []
    assert [json.loads(line)["ok"] for line in out(capsys, "wait", "1.1", "2.0", "--json", code=1)] == [
        False,
        True,
    ]
    assert main.status(["wait", "3", "--timeout", "0.1"]) == 1
    assert "3: not ended after 0.1 (the jobs go on)" in capsys.readouterr().err
    assert main.status(["wait", "99"]) == 1
    assert "there is no job 99" in capsys.readouterr().err


def test_submit_with_wait(node: Served, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    node.fakes.schedd.runs = 0
    (tmp_path / "a.sub").write_text("executable = /bin/true\nqueue 2\n")
    lines = out(capsys, "submit", "--wait", "a.sub")
    assert lines[0] == "2 jobs submitted to cluster 1"
    assert lines[-1] == "2 jobs: 2 succeeded"


def test_tail_shows_the_end(node: Served, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    node.fakes.schedd.add(12, 0)
    node.fakes.schedd.output[12, 0] = b"".join(b"line %d\n" % n for n in range(100))
    node.fakes.schedd.finish((12, 0))
    assert main.status(["tail", "12"]) == 0
    assert capfdbinary.readouterr().out.splitlines() == [b"line %d" % n for n in range(90, 100)]
    assert main.status(["tail", "-f", "-n", "2", "12.0"]) == 0
    assert capfdbinary.readouterr().out == b"line 98\nline 99\n"
    assert main.status(["tail", "--all", "12.0"]) == 0
    assert capfdbinary.readouterr().out.count(b"\n") == 100


def test_tail_wants_one_job(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    node.fakes.schedd.add(12, 0)
    node.fakes.schedd.add(12, 1)
    assert main.status(["tail", "12"]) == 2
    assert "cluster 12 has 2 jobs (name one: poolnode tail 12.0)" in capsys.readouterr().err
    assert main.status(["tail", "13"]) == 1
    assert "there is no cluster 13" in capsys.readouterr().err


def test_config_says_where_each_setting_was_set(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert out(capsys, "config") == [
        "NAME        VALUE              SET IN",
        "CLAIM_LEASE 2400               default",
        "START       KeyboardIdle > 900 /etc/poolnode.conf:12",
    ]
    assert len(out(capsys, "config", "--changed")) == 2
    assert out(capsys, "config", "start") == ["KeyboardIdle > 900"]
    assert main.status(["config", "STRAT"]) == 1
    assert "there is no setting STRAT (did you mean START?)" in capsys.readouterr().err


def test_token(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert out(capsys, "token", "--roles", "startd,schedd", "--lifetime", "2h", "--uses", "3") == ["join-abc"]
    assert node.fakes.node.tokens == [{"roles": ["startd", "schedd"], "lifetime": 7200.0, "uses": 3}]


def test_a_refusal_is_one_line_in_the_others_words(
    node: Served, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.sub").write_text("executable = /bin/refused\ntransfer_executable = false\nqueue\n")
    assert main.status(["submit", "a.sub"]) == 1
    assert capsys.readouterr().err == "poolnode: cannot queue: alice has too many jobs (remove some)\n"


def test_wait_ends_with_a_status_of_its_own_when_all_that_is_left_is_held(
    node: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    node.fakes.schedd.add(12, 0, JobStatus=5, HoldReason="no such file: in.txt")
    node.fakes.schedd.add(12, 1)
    node.fakes.schedd.finish((12, 1))
    lines = out(capsys, "wait", "12", "--timeout", "10", code=3)
    assert any("12.0 is held: no such file: in.txt" in line for line in lines)


def test_wait_goes_on_for_a_job_that_is_released_by_itself(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    node.fakes.schedd.add(12, 0, JobStatus=5, PeriodicRelease=["NumJobStarts < 3"])
    out(capsys, "wait", "12", "--timeout", "0.5", code=1)
    node.fakes.schedd.add(13, 0, JobStatus=5)
    out(capsys, "wait", "13", "--timeout", "0.5", "--through-holds", code=1)


def test_htcondors_options_are_understood_or_refused(node: Served, capsys: pytest.CaptureFixture[str]) -> None:
    out(capsys, "q", "-constraint", "true", "-allusers")
    assert node.fakes.schedd.asked[-1]["constraint"] == "true"
    out(capsys, "rm", "-const", "JobPrio > 3")
    assert node.fakes.schedd.acted[-1]["constraint"] == "JobPrio > 3"
    before = len(node.fakes.schedd.asked)
    assert main.status(["q", "-better-analyze", "12"]) == 2
    assert "`poolnode why JOB`" in capsys.readouterr().err
    assert len(node.fakes.schedd.asked) == before

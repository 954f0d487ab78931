"""Findings in words: what a person reads at a glance."""

from __future__ import annotations

from typing import Any

import pytest

from pool.policy.why.findings import (
    Busy,
    ClaimingFinding,
    Cycle,
    Demand,
    Ended,
    FailedStarts,
    Finding,
    Free,
    GangFinding,
    HeldFinding,
    JobCondition,
    Limit,
    Machines,
    Nearest,
    Outlook,
    Queued,
    QuotaFinding,
    RefusedFinding,
    RefusingClause,
    Rejected,
    Rule,
    Running,
    Silent,
    SlotFinding,
    TooFew,
    Trouble,
    TurnFinding,
    Unmet,
    UnreachableFinding,
    Unusable,
    ValueCount,
)
from pool.policy.why.other_pools import LeftMachine
from pool.policy.why.standing import Standing, standing
from pool.policy.why.words import ago, lines, ordinal
from tests.policy.why.support import NOW

QUEUED = Queued("12.3", "alice", 1, NOW - 180, NOW - 180, 0, 3, 20, 5)


def test_a_job_that_nothing_suits() -> None:
    findings: list[Finding] = [
        QUEUED,
        Machines(40, 40),
        Unmet(
            40,
            (
                JobCondition('OpSys == "WINDOWS"', 40, 2, "OpSys", (ValueCount("LINUX", 40),)),
                JobCondition("request_memory 64 GB", 38, 0, "Memory", (), 0, "32 GB", "16 GB", "largest"),
                JobCondition("HasMatlab", 12, 0, "HasMatlab", (ValueCount("false", 7),), 5),
            ),
        ),
        Nearest(('OpSys == "WINDOWS"',), 2),
        TurnFinding("alice@head", 3, 5, 12.5, ("bob@head", "carol@head"), 4),
        Limit("matlab", 4, 4, 1, True),
        QuotaFinding("physics", 10, 40),
        Cycle(NOW - 20, True, 0, "no machine matches", 60),
        Rejected("no machine matches", NOW - 20),
        Outlook(None, "no machine of the pool would do", never=True),
    ]
    assert lines(findings, NOW) == [
        "12.3 waits for 3 min: no machine meets its conditions",
        "  40 machines: 40 do not meet its conditions",
        "    the job asks for      rules out  machines have",
        '    OpSys == "WINDOWS"           40  LINUX (40); alone it rules out 2',
        "    request_memory 64 GB         38  largest 32 GB (16 GB where all else fits)",
        "    HasMatlab                    12  false (7), no HasMatlab (5)",
        '  nearest: without OpSys == "WINDOWS", 2 machines would do',
        "  alice is 3rd of 5 users in line (priority 12.50), after bob, carol; has 4 slots",
        "  of alice's 20 idle jobs 3 come first",
        "  limit matlab: 4 of 4 in use, it takes 1, so it has to wait",
        "  group physics: 10 of its quota of 40 in use",
        "  last negotiation 20 s ago: no machine matches",
        "  outlook: not as things are: no machine of the pool would do",
    ]


def test_a_job_that_waits_for_others_to_end() -> None:
    findings: list[Finding] = [
        QUEUED,
        Machines(10, 40, (ValueCount("Claimed", 40),)),
        RefusedFinding(1, (RefusingClause("KeyboardIdle > 900", 1, ("slot1@desk",), (ValueCount("Owner", 1),)),)),
        Busy(
            38,
            (ValueCount("bob@head", 30), ValueCount("carol@head", 8)),
            (ValueCount("they have run for less than an hour", 38),),
        ),
        Unusable(1, (ValueCount("Drained", 1),)),
        Outlook(840.0, "the jobs there mostly take 20 min"),
    ]
    assert lines(findings, NOW) == [
        "12.3 waits for 3 min: the machines that match are busy",
        "  40 slots on 10 machines: 1 refuses it; 38 match and are busy; 1 matches but is not to be had (1 out of use)",
        "    slots ask for       refuse",
        "    KeyboardIdle > 900       1  slot1@desk (their owners use them)",
        "  busy with: bob (30), carol (8)",
        "  their slots are not taken: they have run for less than an hour (38)",
        "  of alice's 20 idle jobs 3 come first",
        "  outlook: about 14 min: the jobs there mostly take 20 min",
    ]


@pytest.mark.parametrize(
    ("findings", "kind", "headline"),
    [
        ([HeldFinding("no such file", 13, 2, "", NOW - 60)], Standing.HELD, "12.3 is held for 1 min: no such file"),
        ([Ended(False, NOW - 7200, 0)], Standing.ENDED, "12.3 has completed 2 h ago, with exit status 0"),
        ([Ended(False, NOW - 5, 9, True)], Standing.ENDED, "12.3 has completed 5 s ago, by signal 9"),
        ([Ended(True, 0.0, None, False, "by alice")], Standing.ENDED, "12.3 was removed: by alice"),
        (
            [Ended(False, NOW - 5, 127, apart=True)],
            Standing.ENDED,
            "12.3 has completed 5 s ago, with exit status 127. That is a shell's word for a program that it does not "
            "find. The job sent its files along: it saw the system's directories, its own files, and the directories "
            "in its machine's SHOW_PATHS, and nothing else",
        ),
        (
            [Ended(False, NOW - 5, 127)],
            Standing.ENDED,
            "12.3 has completed 5 s ago, with exit status 127",
        ),
        ([Running("s@m", "running", NOW - 90)], Standing.RUNNING, "12.3 runs on s@m for 1 min"),
        (
            [Running("s@m", "running", NOW - 90, others=("s@n",))],
            Standing.RUNNING,
            "12.3 runs on s@m and s@n for 1 min",
        ),
        (
            [Running("s@m", "running", NOW - 90, others=("s@n", "s@o"), more=997)],
            Standing.RUNNING,
            "12.3 runs on s@m, s@n, s@o and 997 more for 1 min",
        ),
        ([Running("s@m", "suspended", NOW - 90)], Standing.RUNNING, "12.3 is suspended on s@m for 1 min"),
        (
            [UnreachableFinding("s@m", 30)],
            Standing.UNREACHABLE,
            "12.3 waits for s@m, which cannot be reached and where it may still run",
        ),
        (
            [QUEUED, ClaimingFinding(2)],
            Standing.CLAIMING,
            "12.3 waits for 3 min: machines have been found for jobs of its owner and are being claimed",
        ),
        (
            [QUEUED, ClaimingFinding(2, 1)],
            Standing.CLAIMING,
            "12.3 waits for 3 min: machines have been found for jobs of its owner, and other jobs make room there",
        ),
        (
            [QUEUED, GangFinding(3, 1, ("b", "c d"))],
            Standing.GATHERING,
            "12.3 waits for 3 min: it needs a machine for each of its parts at the same time",
        ),
        (
            [QUEUED, GangFinding(9, 4, ("node 4 to 8",)), Machines(4, 4), TooFew(9, 4, True), Busy(4)],
            Standing.GATHERING,
            "12.3 waits for 3 min: it needs 9 machines at the same time; 4 in the pool can suit it",
        ),
        ([QUEUED, Machines(0, 0)], Standing.NO_MACHINES, "12.3 waits for 3 min: there is no machine in the pool"),
        (
            [QUEUED, Machines(1, 1), Free(1), Limit("x", 1, 1, 1, True)],
            Standing.LIMITED,
            "12.3 waits for 3 min: a limit is reached",
        ),
        (
            [QUEUED, Machines(1, 1), Free(1)],
            Standing.NEXT,
            "12.3 waits for 3 min: a machine is free for it, and the next negotiation will see to it",
        ),
        (
            [QUEUED, Silent("the negotiator", "gone")],
            Standing.BLIND,
            "12.3 waits for 3 min: nobody who knows why can be asked",
        ),
        ([QUEUED], Standing.UNKNOWN, "12.3 waits for 3 min: nobody knows why"),
    ],
)
def test_the_headline_is_how_it_stands(findings: list[Any], kind: Standing, headline: str) -> None:
    known = findings if QUEUED in findings else [Queued("12.3", "alice", 9), *findings]
    assert standing(known) is kind
    assert lines(known, NOW)[0] == headline


def test_a_job_that_left_its_machine_is_told_why() -> None:
    left = lines([QUEUED, LeftMachine("a job of the machine's own pool needs it", NOW - 120)], NOW)
    assert "  it left its last machine 2 min ago: a job of the machine's own pool needs it" in left


def test_what_a_state_leads_to() -> None:
    held = lines([QUEUED, HeldFinding("x", 1)], NOW)
    assert held[1] == "  what releases it: release the job when the cause is gone (`poolnode release 12.3`)"
    stopping = lines([QUEUED, Running("s@m", "stopping", 0.0, "removed")], NOW)
    assert stopping[1] == "  it was asked to stop, and will then be removed"
    failed = lines([QUEUED, FailedStarts(2, 5, "s@m")], NOW)
    assert failed[1] == "  2 starts of it failed, the last on s@m; it is held after 5"


def test_a_machine() -> None:
    findings: list[Finding] = [
        SlotFinding("slot1@m", "Owner", "Idle", NOW - 7200),
        Trouble("RANK: error"),
        Rule("START", "x", "false", "no job may start", ("KeyboardIdle > 900 is not so (KeyboardIdle is 3)",)),
        Rule("SUSPEND", "false", "always false", "it would suspend the job"),
        Demand(120, 3, 100, (ValueCount("request_memory 64 GB", 20),), (ValueCount("Owner != x", 1),), 2),
        Silent("the negotiator", "gone"),
    ]
    assert lines(findings, NOW) == [
        "slot1@m: Owner Idle for 2 h",
        "  trouble: RANK: error",
        "  START is false: no job may start",
        "    KeyboardIdle > 900 is not so (KeyboardIdle is 3)",
        "  SUSPEND is always false",
        "  120 idle jobs of 3 kinds: 100 match it",
        "    the others ask for: request_memory 64 GB (20)",
        "    it refuses the others by: Owner != x (1)",
        "    2 jobs that it likes better (RANK) may take it over",
        "  the negotiator cannot be asked: gone",
    ]
    assert lines([SlotFinding("a", "Unclaimed", "Idle"), Demand(0, 0)], NOW)[1] == "  no job in the pool waits"


def test_what_is_longer_than_the_terminal_goes_on_in_the_next_line() -> None:
    condition = JobCondition("x" * 100, 1, 0, "y", (ValueCount("z" * 60, 1),))
    findings: list[Finding] = [QUEUED, Machines(1, 1), Unmet(1, (condition,))]
    whole, parted = lines(findings, NOW), lines(findings, NOW, 40)
    assert max(map(len, whole)) > 100
    assert max(map(len, parted)) <= 40
    assert "".join(parted).replace(" ", "") == "".join(whole).replace(" ", "")
    assert parted[:2] == ["12.3 waits for 3 min: no machine meets", "    its conditions"]


def test_a_machine_that_is_carved() -> None:
    slot = SlotFinding("slot1@m", "Unclaimed", "Idle", 0.0, "", "", 2, 3, "8 GB")
    assert lines([slot], NOW)[1] == "  2 slots are carved out of it, 3 processors and 8 GB are left"
    full = SlotFinding("slot1@m", "Unclaimed", "Idle", 0.0, "", "", 1, 0, "8 GB")
    assert lines([full], NOW)[1] == "  1 slot is carved out of it, no processor is left"
    taken = SlotFinding("slot1_1@m", "Claimed", "Busy", 0.0, "bob@h", "12.0")
    demand = Demand(9, 2, 1, (ValueCount("request_memory 64 GB", 8),), (), 0, 1)
    assert lines([taken, demand], NOW)[1:] == [
        "  9 idle jobs of 2 kinds: 1 matches it",
        "    1 job of users who stand better may take it over",
    ]


def test_nothing_is_known_and_nothing_breaks() -> None:
    assert lines([], NOW) == ["the job waits: nobody knows why"]


def test_lengths_of_time_and_places() -> None:
    said = [ago(seconds) for seconds in (0, 59.4, 60, 3599, 3600, 7500, 86400, 100000, -5)]
    assert said == ["0 s", "59 s", "1 min", "59 min", "1 h", "2 h 5 min", "1 d", "1 d 3 h", "0 s"]
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 21, 1000)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "21st",
        "1,000th",
    ]


def test_a_limit_that_can_never_be_met_is_said_so() -> None:
    (line,) = [line for line in lines([QUEUED, Limit("matlab", 0, 2, 4, True)], NOW) if "limit matlab" in line]
    assert line == "  limit matlab: 0 of 2 in use, it takes 4: more than there ever is, so it can never start"


def test_accounts_of_one_name_in_two_domains_are_told_apart() -> None:
    shares = (ValueCount("bob@head", 1), ValueCount("bob@far", 1), ValueCount("carol@far", 1))
    found: list[Finding] = [QUEUED, Machines(3, 3), Busy(2, shares)]
    assert "  busy with: bob@head (1), bob@far (1), carol (1)" in lines(found, NOW)

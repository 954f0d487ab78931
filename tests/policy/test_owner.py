"""The owner's policy: the papers' times to the second, every condition, and what an expression without value does."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.classad import ClassAd, requirements_accept
from pool.policy.owner import (
    NAMES,
    Fault,
    OwnerPolicy,
    OwnerVerdict,
    decide,
    judge,
    judge_replaced,
    preference,
    weight,
    wire,
)
from pool.policy.shipped import DEDICATED, DESKTOP, PolicyError
from pool.policy.slots import (
    BUSY,
    CLAIMED_IDLE,
    CONDITIONS,
    DRAINED,
    KILLING,
    MATCHED,
    OWNER,
    RETIRING,
    SUSPENDED,
    TABLE,
    UNCLAIMED,
    VACATING,
    SlotCondition,
    SlotEvent,
    next_condition,
)

NOW = 10**9
QUIET = 10**6
JOB = ClassAd({"ImageSize": 5000, "Owner": "ada"})
desktop = OwnerPolicy.from_shipped("desktop", {})
dedicated = OwnerPolicy.from_shipped("Dedicated", {})


def slot(
    condition: SlotCondition = BUSY, *, idle: float = QUIET, load: float = 0, own: float = 0, since: float = 0
) -> ClassAd:
    """A slot's ad: seconds since a key was touched, whole load, the pool's part of it, seconds in this activity."""
    return ClassAd(
        {
            "State": str(condition.state),
            "Activity": str(condition.activity),
            "EnteredCurrentActivity": NOW - since,
            "EnteredCurrentState": NOW - since - 5000,
            "KeyboardIdle": int(idle),
            "TotalLoadAvg": load,
            "TotalCondorLoadAvg": own,
            "Cpus": 2,
            "Memory": 1000,
            "Disk": 1000,
        }
    )


def asks(
    condition: SlotCondition, policy: OwnerPolicy = desktop, job: ClassAd | None = JOB, **facts: float
) -> SlotEvent | None:
    has_job = condition in (BUSY, SUSPENDED, RETIRING, VACATING, KILLING)
    return decide(policy, slot(condition, **facts), job if has_job else None, condition, NOW)


# --- the papers' policy (EV 2.7)


@pytest.mark.parametrize(
    ("idle", "load", "starts"),
    [(901, 0.3, True), (900, 0, False), (QUIET, 0.31, False), (0, 0, False), (QUIET, 0, True)],
)
def test_a_job_may_start_after_fifteen_minutes_at_a_low_load(idle: float, load: float, starts: bool) -> None:
    assert asks(OWNER, idle=idle, load=load) is (SlotEvent.OWNER_LEAVES if starts else None)
    for offered in (UNCLAIMED, MATCHED, CLAIMED_IDLE):
        assert asks(offered, idle=idle, load=load) is (None if starts else SlotEvent.OWNER_RETURNS)


@pytest.mark.parametrize(
    ("idle", "load", "suspended"),
    [(0, 0, True), (14, 0, True), (15, 0, False), (QUIET, 1.5, False), (QUIET, 1.51, True)],
)
def test_a_job_is_suspended_when_the_owner_is_back(idle: float, load: float, suspended: bool) -> None:
    assert asks(BUSY, idle=idle, load=load) is (SlotEvent.SUSPEND if suspended else None)


@pytest.mark.parametrize(
    ("idle", "load", "goes_on"), [(300, 0, False), (301, 0.3, True), (301, 0.4, False), (3, 0, False)]
)
def test_it_goes_on_after_five_quiet_minutes(idle: float, load: float, goes_on: bool) -> None:
    assert asks(SUSPENDED, idle=idle, load=load, since=400) is (SlotEvent.CONTINUE if goes_on else None)


def test_it_leaves_after_ten_minutes_of_suspension_and_is_killed_after_ten_more() -> None:
    assert asks(SUSPENDED, idle=3, since=600) is None
    assert asks(SUSPENDED, idle=3, since=601) is SlotEvent.VACATE
    assert asks(VACATING, idle=3, since=600) is None
    assert asks(VACATING, idle=3, since=601) is SlotEvent.KILL
    assert asks(KILLING, idle=3, since=6000) is None


def test_a_running_job_is_not_preempted_by_time() -> None:
    assert asks(BUSY, since=10**6) is None


def test_a_job_may_retire_where_its_owner_grants_that() -> None:
    policy = OwnerPolicy.from_shipped("desktop", {"PREEMPT": "true", "MAX_JOB_RETIREMENT": "3600"})
    assert asks(BUSY, policy) is SlotEvent.RETIRE
    assert asks(RETIRING, policy, since=3599) is None
    assert asks(RETIRING, policy, since=3600) is SlotEvent.VACATE
    assert asks(SUSPENDED, policy) is SlotEvent.VACATE
    assert asks(BUSY, OwnerPolicy.from_shipped("desktop", {"PREEMPT": "true"})) is SlotEvent.VACATE


def left(policy: OwnerPolicy, job: ClassAd, *, ran: float, suspended: float = 0) -> SlotEvent | None:
    """The state of a running job that has to make room after a time."""
    ad = slot(BUSY)
    ad["JobStart"], ad["TotalJobSuspendTime"] = NOW - ran, suspended
    return judge_replaced(policy, ad, job, NOW).event


def test_retirement_counts_from_the_start_without_suspensions() -> None:
    policy = OwnerPolicy.from_shipped("dedicated", {"MAX_JOB_RETIREMENT": "3600"})
    assert left(policy, JOB, ran=3599) is SlotEvent.RETIRE
    assert left(policy, JOB, ran=3600) is SlotEvent.VACATE
    assert left(policy, JOB, ran=3700, suspended=200) is SlotEvent.RETIRE
    assert left(policy, JOB, ran=3800, suspended=200) is SlotEvent.VACATE
    assert left(OwnerPolicy.from_shipped("dedicated", {}), JOB, ran=0) is SlotEvent.VACATE


def test_a_job_may_wish_for_less_retirement_and_not_for_more() -> None:
    policy = OwnerPolicy.from_shipped("dedicated", {"MAX_JOB_RETIREMENT": "TARGET.Nice =?= true ? 0 : 3600"})
    assert left(policy, ClassAd({"MaxJobRetirementTime": 60}), ran=61) is SlotEvent.VACATE
    assert left(policy, ClassAd({"MaxJobRetirementTime": 7200}), ran=3601) is SlotEvent.VACATE
    assert left(policy, ClassAd({"MaxJobRetirementTime": "soon"}), ran=61) is SlotEvent.RETIRE
    assert left(policy, ClassAd({"Nice": True}), ran=1) is SlotEvent.VACATE


def test_a_retiring_job_leaves_rather_than_waits() -> None:
    policy = OwnerPolicy.from_shipped("desktop", {"MAX_JOB_RETIREMENT": "3600"})
    assert asks(RETIRING, policy, idle=3) is SlotEvent.VACATE
    assert asks(RETIRING, policy) is None
    assert asks(RETIRING) is SlotEvent.VACATE  # its owner promises no retirement any more


def test_the_load_of_the_pools_own_jobs_does_not_count() -> None:
    """A5: eight processes of a pipe job are not the owner."""
    assert asks(BUSY, load=8.1, own=8) is None
    assert asks(BUSY, load=8.1, own=6) is SlotEvent.SUSPEND
    assert asks(UNCLAIMED, load=4.2, own=4) is None


def test_a_whole_story_of_an_owner_who_comes_and_stays() -> None:
    condition, since, seen, touched = BUSY, 0.0, [], 100.0
    for now in range(0, 2000, 5):
        idle = now - touched if now >= touched else QUIET
        touched = now if now >= touched and now % 60 < 5 else touched
        facts = slot(condition, idle=max(idle, 0), since=now - since)
        event = decide(desktop, facts, JOB, condition, NOW)
        if event is not None:
            condition, since = next_condition(condition, event), now
            seen.append((now, event))
        if condition == KILLING:
            break
    assert [event for _, event in seen] == [SlotEvent.SUSPEND, SlotEvent.VACATE, SlotEvent.KILL]
    assert seen[0][0] == 100
    assert [later - before for (before, _), (later, _) in pairwise(seen)] == [605, 605]


def test_dedicated_machines_always_run_jobs() -> None:
    for condition in (UNCLAIMED, MATCHED, CLAIMED_IDLE, BUSY):
        assert asks(condition, dedicated, idle=0, load=50) is None
    assert asks(OWNER, dedicated, idle=0, load=50) is SlotEvent.OWNER_LEAVES
    assert asks(SUSPENDED, dedicated, idle=0) is SlotEvent.CONTINUE
    assert asks(VACATING, dedicated, since=601) is SlotEvent.KILL


# --- owners' own policies (RL 4.2)


def test_small_jobs_are_suspended_and_others_preempted() -> None:
    policy = OwnerPolicy.from_shipped("desktop", {"WANT_SUSPEND": "TARGET.ImageSize < 10000"})
    assert asks(BUSY, policy, idle=1) is SlotEvent.SUSPEND
    assert asks(BUSY, policy, ClassAd({"ImageSize": 10**6}), idle=1) is SlotEvent.VACATE


def test_an_owner_may_have_jobs_killed_without_asking() -> None:
    policy = OwnerPolicy.from_shipped("desktop", {"WANT_SUSPEND": "false", "WANT_VACATE": "false"})
    assert asks(BUSY, policy, idle=1) is SlotEvent.KILL
    assert asks(RETIRING, policy, idle=1) is SlotEvent.KILL


def test_an_owner_may_change_a_time_alone() -> None:
    policy = OwnerPolicy.from_shipped("desktop", {}, {"START_IDLE": 60, "SUSPEND_LOAD": 3})
    assert asks(OWNER, policy, idle=61) is SlotEvent.OWNER_LEAVES
    assert asks(BUSY, policy, load=2.5) is None
    assert policy.texts["START"].endswith("KeyboardIdle > 60")


def test_a_start_that_depends_on_the_job_is_offered() -> None:
    for text in (
        'TARGET.Owner == "ada"',
        'regexp("a.a", TARGET.Owner)',
        "TARGET.ImageSize < Memory",
        "TARGET.Nice =?= true",
        "KeyboardIdle > 900 && isUndefined(TARGET.Owner) == false",
    ):
        policy = OwnerPolicy.from_shipped("desktop", {"START": text})
        assert judge(policy, slot(OWNER), None, OWNER, NOW) == OwnerVerdict(SlotEvent.OWNER_LEAVES, "START"), text
        assert judge(policy, slot(UNCLAIMED), None, UNCLAIMED, NOW) == OwnerVerdict(None), text


def test_the_owner_at_the_keyboard_settles_a_start_that_depends_on_the_job() -> None:
    policy = OwnerPolicy.from_shipped("desktop", {"START": 'KeyboardIdle > 900 && TARGET.Owner == "ada"'})
    assert asks(UNCLAIMED, policy, idle=3) is SlotEvent.OWNER_RETURNS


# --- expressions without a value


@pytest.mark.parametrize(
    ("name", "condition", "facts", "event"),
    [
        ("SUSPEND", BUSY, {"idle": 0}, None),
        ("CONTINUE", SUSPENDED, {}, None),
        ("PREEMPT", BUSY, {}, None),
        ("PREEMPT", SUSPENDED, {"idle": 3, "since": 600}, None),
        ("PREEMPT", SUSPENDED, {"idle": 3, "since": 601}, SlotEvent.VACATE),
        ("KILL", VACATING, {"since": 600}, None),
        ("KILL", VACATING, {"since": 601}, SlotEvent.KILL),
        ("WANT_SUSPEND", BUSY, {"idle": 0}, SlotEvent.SUSPEND),
        ("WANT_VACATE", RETIRING, {"idle": 0}, SlotEvent.VACATE),
    ],
)
@pytest.mark.parametrize(
    ("text", "value"),
    [("NotThere", "undefined"), ('1 + "a"', "error"), ('"true"', "'true'"), ('real("NaN")', "nan")],
)
def test_an_expression_without_value_counts_as_is_written_and_is_told(
    name: str, condition: SlotCondition, facts: dict[str, float], event: SlotEvent | None, text: str, value: str
) -> None:
    policy = OwnerPolicy.from_shipped("desktop", {name: text})
    verdict = judge(policy, slot(condition, **facts), JOB, condition, NOW)
    assert verdict.event is event
    assert verdict.faults == (Fault(name, value),)
    assert verdict.faults[0].text == f"{name}: {value}" + (": no attribute NotThere" if value == "undefined" else "")
    assert name in verdict.asked
    assert policy.faults(slot(condition), JOB, NOW) == [name]


@pytest.mark.parametrize("text", ["NotThere", "TARGET.NotThere", '1 + "a"', '"much"', 'real("NaN")'])
def test_an_amount_without_value_counts_as_is_written_and_is_told(text: str) -> None:
    policy = OwnerPolicy.from_shipped("dedicated", {"RANK": text, "MAX_JOB_RETIREMENT": text, "SLOT_WEIGHT": text})
    rank, verdict = preference(policy, slot(BUSY), JOB, NOW)
    assert (rank, [fault.name for fault in verdict.faults]) == (0.0, ["RANK"])
    verdict = judge_replaced(policy, slot(BUSY), JOB, NOW)
    assert (verdict.event, [fault.name for fault in verdict.faults]) == (SlotEvent.VACATE, ["MAX_JOB_RETIREMENT"])
    weighs, verdict = weight(policy, slot(BUSY), NOW)
    assert (weighs, [fault.name for fault in verdict.faults]) == (None, ["SLOT_WEIGHT"])


def test_amounts_are_numbers_and_a_weight_is_not_below_nothing() -> None:
    policy = OwnerPolicy.from_shipped("dedicated", {"RANK": 'TARGET.Owner == "ada"', "SLOT_WEIGHT": "-1"})
    assert preference(policy, slot(BUSY), JOB, NOW) == (1.0, OwnerVerdict(None))
    assert weight(policy, slot(BUSY), NOW) == (None, OwnerVerdict(None, "", (Fault("SLOT_WEIGHT", "-1.0"),)))
    assert weight(OwnerPolicy.from_shipped("dedicated", {}), slot(BUSY), NOW) == (2.0, OwnerVerdict(None))


def test_a_start_that_names_what_nobody_may_have_is_told() -> None:
    policy = OwnerPolicy.from_shipped("dedicated", {"START": "KeybordIdle > 900 && TARGET.Nice"})
    verdict = judge(policy, slot(UNCLAIMED), None, UNCLAIMED, NOW)
    assert verdict.event is None
    assert [fault.text for fault in verdict.faults] == ["START: undefined without a job: no attribute KeybordIdle"]
    policy = OwnerPolicy.from_shipped("dedicated", {"START": "ImageSize < 1000"})
    assert judge(policy, slot(UNCLAIMED), None, UNCLAIMED, NOW) == OwnerVerdict(None)


@pytest.mark.parametrize("text", ['1 + "a"', '"yes"', "error"])
def test_nothing_starts_where_start_makes_no_sense(text: str) -> None:
    policy = OwnerPolicy.from_shipped("dedicated", {"START": text})
    verdict = judge(policy, slot(UNCLAIMED), None, UNCLAIMED, NOW)
    assert (verdict.event, verdict.because) == (SlotEvent.OWNER_RETURNS, "START")
    assert [fault.name for fault in verdict.faults] == ["START"]
    assert judge(policy, slot(OWNER), None, OWNER, NOW).event is None


def test_only_what_is_needed_is_told() -> None:
    policy = OwnerPolicy.from_shipped("desktop", {"KILL": "NotThere", "CONTINUE": "error"})
    assert judge(policy, slot(BUSY), JOB, BUSY, NOW).faults == ()


def test_a_fault_of_an_earlier_step_is_told_with_the_decision() -> None:
    policy = OwnerPolicy.from_shipped("desktop", {"PREEMPT": "NotThere", "WANT_SUSPEND": "error"})
    verdict = judge(policy, slot(BUSY, idle=0), JOB, BUSY, NOW)
    assert verdict == OwnerVerdict(
        SlotEvent.SUSPEND, "SUSPEND", (Fault("PREEMPT", "undefined"), Fault("WANT_SUSPEND", "error"))
    )


def test_a_slot_without_facts_is_safe() -> None:
    """A broken sensor: nothing starts, nothing is lost."""
    empty = ClassAd()
    assert judge(desktop, empty, JOB, BUSY, NOW).event is None
    assert judge(desktop, empty, JOB, VACATING, NOW).event is None
    assert requirements_accept(ClassAd.from_wire(wire(desktop)), JOB, NOW) is False


def test_numbers_count_as_truth() -> None:
    assert asks(BUSY, OwnerPolicy.from_shipped("desktop", {"SUSPEND": "1"})) is SlotEvent.SUSPEND
    assert asks(BUSY, OwnerPolicy.from_shipped("desktop", {"SUSPEND": "0.0"})) is None


@given(
    st.sampled_from(CONDITIONS),
    st.dictionaries(
        st.sampled_from(NAMES), st.sampled_from(["true", "false", "NotThere", "error", '"x"', "TARGET.Owner", "7"])
    ),
    st.integers(0, 2000),
    st.floats(0, 10),
    st.integers(-100, 2000),
)
def test_whatever_the_policy_says_the_table_allows_it(
    condition: SlotCondition, texts: dict[str, str], idle: int, load: float, since: int
) -> None:
    policy = OwnerPolicy.from_shipped("desktop", texts)
    verdict = judge(policy, slot(condition, idle=idle, load=load, since=since), JOB, condition, NOW)
    assert verdict.event is None or (condition, verdict.event) in TABLE
    if condition in (DRAINED, KILLING):
        assert verdict == OwnerVerdict(None)


# --- reading, telling


def test_a_shipped_policy_is_complete_and_in_plain_expressions() -> None:
    for texts in (DESKTOP, DEDICATED):
        assert tuple(texts) == NAMES
        assert not any("$" in text for text in texts.values())
    assert DESKTOP["START"] == "((TotalLoadAvg - TotalCondorLoadAvg) <= 0.3) && KeyboardIdle > 900"


def test_unknown_policies_and_what_is_no_expression_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"POLICY = desk: there is no such policy \(one of desktop, dedicated\)"):
        OwnerPolicy.from_shipped("desk", {})
    with pytest.raises(PolicyError, match=r"START = KeyboardIdle >: "):
        OwnerPolicy.from_shipped("desktop", {"START": "KeyboardIdle >"})


def test_an_empty_override_is_none() -> None:
    assert OwnerPolicy.from_shipped("desktop", {"START": ""}).texts["START"] == DESKTOP["START"]


def test_a_machines_ad_accepts_what_fits() -> None:
    ad = slot(UNCLAIMED)
    ad.update(ClassAd.from_wire(wire(desktop, ["License"])))
    ad["License"] = 2
    for request, fits in (
        ({}, True),
        ({"RequestCpus": 3}, False),
        ({"RequestMemory": 1001}, False),
        ({"RequestGPUs": 1}, False),
        ({"RequestLicense": 2}, True),
        ({"RequestLicense": 3}, False),
    ):
        assert requirements_accept(ad, ClassAd(request), NOW) is fits, request


def test_one_judgement_is_cheap() -> None:
    """A machine of a hundred slots is judged every five seconds: operations are counted, not time."""
    calls = 0
    original = OwnerPolicy.value

    def counted(self: OwnerPolicy, *args: object) -> object:
        nonlocal calls
        calls += 1
        return original(self, *args)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OwnerPolicy, "value", counted)
        for condition in CONDITIONS:
            judge(desktop, slot(condition, idle=0), JOB, condition, NOW)
    assert calls <= 2 * len(CONDITIONS)

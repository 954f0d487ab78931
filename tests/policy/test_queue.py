"""The queue in memory: order, groups, and how they follow what happens to jobs."""

from typing import Any

from pool.classad import parse_expr
from pool.policy.packed import unpack
from pool.policy.queue import HELD, IDLE, RUNNING, JobQueue, QueuedCluster, QueuedJob

PRIO = parse_expr("(UserPrio * 10) + Expanded - (QDate / 1000000000.0)", syntax="old")


def queue() -> JobQueue:
    return JobQueue(PRIO)


def add(
    to: JobQueue,
    number: int,
    count: int = 1,
    owner: str = "alice",
    deltas: list[dict[str, object] | None] | None = None,
    **ad: object,
) -> QueuedCluster:
    wire = {"Requirements": ["TARGET.Memory >= RequestMemory"], "RequestMemory": 100, "QDate": number, **ad}
    cluster = QueuedCluster(number, owner, wire)
    to.add_cluster(cluster)
    for proc in range(count):
        to.add(QueuedJob(cluster, proc, IDLE, deltas[proc] if deltas else None, None))
    return cluster


def order(of: JobQueue, owner: str = "alice") -> list[tuple[int, int]]:
    found = []
    while groups := of.groups(owner):
        job = of.first(groups[0])
        assert job is not None
        found.append(job.id)
        of.set_status(job, RUNNING)
    return found


def test_first_come_first_served() -> None:
    jobs = queue()
    add(jobs, 1, 3)
    add(jobs, 2, 2)
    assert order(jobs) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]


def test_user_priority_comes_before_age() -> None:
    jobs = queue()
    add(jobs, 1)
    add(jobs, 2, JobPrio=1)
    assert order(jobs) == [(2, 0), (1, 0)]


def test_an_expanded_job_comes_before_a_fresh_one() -> None:
    jobs = queue()
    add(jobs, 1)
    cluster = add(jobs, 2, 2)
    jobs.set_status(cluster.jobs[1], RUNNING)
    cluster.jobs[1].update({"NumJobStarts": 1})
    jobs.set_status(cluster.jobs[1], IDLE)
    assert order(jobs)[0] == (2, 1)


def test_jobs_that_match_alike_are_one_group() -> None:
    jobs = queue()
    add(jobs, 1, 1000)
    add(jobs, 2, 3, Cmd="/bin/other")
    add(jobs, 3, 2, RequestMemory=5000)
    groups = jobs.groups("alice")
    assert [group.idle for group in groups] == [1003, 2]


def test_a_delta_that_matters_makes_another_group() -> None:
    jobs = queue()
    add(jobs, 1, 3, deltas=[None, {"Arguments": "x"}, {"RequestMemory": 9}])
    assert sorted(group.idle for group in jobs.groups("alice")) == [1, 2]


def test_what_machines_refer_to_matters_once_it_is_known() -> None:
    jobs = queue()
    add(jobs, 1, 2, deltas=[{"Project": "a"}, {"Project": "b"}])
    assert len(jobs.groups("alice")) == 1
    assert jobs.add_references(frozenset({"project"}))
    assert sum(1 for _ in jobs.regroup()) == 2
    assert len(jobs.groups("alice")) == 2
    assert not jobs.add_references(frozenset({"project"}))


def test_jobs_come_into_new_groups_one_by_one_whatever_happens_meanwhile() -> None:
    jobs = queue()
    cluster = add(jobs, 1, 6, deltas=[{"Project": "a", "Site": str(number)} for number in range(6)])
    assert jobs.add_references(frozenset({"project"}))
    work = jobs.regroup()
    next(work)
    jobs.remove(cluster.jobs[1])
    jobs.set_status(cluster.jobs[2], HELD)
    add(jobs, 2, 1, Project="a")
    assert sum(1 for _ in work) == 5
    assert [group.idle for group in jobs.groups("alice")] == [5]
    assert jobs.add_references(frozenset({"site"}))
    stopped = jobs.regroup()
    next(stopped)
    assert jobs.reprioritise(parse_expr("-ProcId", syntax="old"))
    assert not jobs.reprioritise(parse_expr("-ProcId", syntax="old"))
    assert sum(1 for _ in jobs.regroup()) == 6
    assert list(stopped) == []
    assert [group.idle for group in jobs.groups("alice")] == [1, 1, 1, 1, 1]
    assert order(jobs) == [(1, 0), (2, 0), (1, 3), (1, 4), (1, 5)]


def test_what_differs_from_start_to_start_matters_where_it_is_asked_for() -> None:
    jobs = queue()
    for number, text in enumerate(("NumJobStarts < 3", "ProcId != 1", "EnteredCurrentStatus < 5", "true"), 1):
        cluster = add(jobs, number, 3, Requirements=[text])
        jobs.set_status(cluster.jobs[0], HELD)
        cluster.jobs[0].update({"NumJobStarts": 3, "EnteredCurrentStatus": 7, "LastHoldReason": "x"})
        jobs.set_status(cluster.jobs[0], IDLE)
        parts = sorted(group.idle for group in jobs.groups("alice"))
        assert parts == {1: [1, 2], 2: [1, 1, 1], 3: [1, 2], 4: [3]}[number]
        for job in list(cluster.jobs.values()):
            jobs.remove(job)


def test_counts_follow_every_change() -> None:
    jobs = queue()
    cluster = add(jobs, 1, 3)
    jobs.set_status(cluster.jobs[0], HELD)
    jobs.set_status(cluster.jobs[1], RUNNING)
    assert (jobs.count("alice", IDLE), jobs.count("alice", HELD), jobs.count("alice", RUNNING)) == (1, 1, 1)
    assert not jobs.remove(cluster.jobs[0])
    assert not jobs.remove(cluster.jobs[1])
    assert jobs.remove(cluster.jobs[2])
    assert jobs.owners() == []
    assert jobs.groups("alice") == []


def test_a_group_that_emptied_and_filled_again_is_whole() -> None:
    jobs = queue()
    cluster = add(jobs, 1, 2)
    assert order(jobs) == [(1, 0), (1, 1)]
    for job in cluster.jobs.values():
        jobs.set_status(job, IDLE)
    add(jobs, 2)
    assert len(jobs.groups("alice")) == 1
    assert sorted(order(jobs)) == [(1, 0), (1, 1), (2, 0)]


def test_edited_moves_a_job_in_the_order() -> None:
    jobs = queue()
    cluster = add(jobs, 1, 3)
    cluster.jobs[2].update({"JobPrio": 5})
    jobs.edited(cluster.jobs[2])
    assert order(jobs) == [(1, 2), (1, 0), (1, 1)]


def test_the_schedds_notes_are_no_part_of_the_ad() -> None:
    cluster = add(queue(), 1)
    cluster.jobs[0].update({"_run": {"claim": "secret"}, "RemoteHost": "slot1"})
    wire = cluster.jobs[0].wire()
    assert wire["RemoteHost"] == "slot1"
    assert "_run" not in wire


def test_values_that_only_look_alike_make_groups_of_their_own() -> None:
    jobs = queue()
    for number, rank in enumerate((1, 1.0, True, ["1"], "1"), 1):
        add(jobs, number, Rank=rank)
    assert len(jobs.groups("alice")) == 5


def test_what_matters_is_followed_through_the_jobs_own_expressions() -> None:
    jobs = queue()
    add(jobs, 1, Rank=["Mine + 1"], Mine=["Size"], SIZE=1)
    add(jobs, 2, Rank=["Mine + 1"], Mine=["Size"], SIZE=2)
    add(jobs, 3, Rank=["Mine + 1"], mine=["Size"], Size=2)
    assert [group.idle for group in jobs.groups("alice")] == [1, 2]


def test_the_order_may_come_from_an_expression_of_the_job() -> None:
    jobs = JobQueue(parse_expr("UserPrio + Wish", syntax="old"))
    add(jobs, 1)
    add(jobs, 2, Wish=["Size * 2"], Size=7)
    add(jobs, 3, Wish=20)
    assert order(jobs) == [(3, 0), (2, 0), (1, 0)]


def test_what_was_kept_of_a_job_comes_back() -> None:
    cluster = add(queue(), 1)
    job = cluster.jobs[0]
    job.update({"_run": {"claim": "secret"}, "RemoteHost": "slot1", "Gone": 1})
    job.update({"Gone": None})
    again = QueuedJob(cluster, 0, RUNNING, None, unpack(job.packed_changes()))
    assert (again.state, again.notes) == ({"RemoteHost": "slot1"}, {"_run": {"claim": "secret"}})
    job.update({"_run": None, "RemoteHost": None})
    assert job.packed_changes() == b""


def test_names_of_files_that_are_not_utf_8_are_kept() -> None:
    cluster = add(queue(), 1, Cmd="/tmp/\udcff")
    assert cluster.wire["Cmd"] == cluster.ad.value("Cmd") == "/tmp/\udcff"


def test_clusters_alike_but_for_what_says_which_they_are_share_the_rest() -> None:
    jobs = queue()
    first, second = add(jobs, 1, Arguments="1"), add(jobs, 2, Arguments="2")
    other = add(jobs, 3, RequestMemory=7)
    assert first._parts[0] is second._parts[0] is not other._parts[0]
    assert (first.wire["Arguments"], first.wire["QDate"]) == ("1", 1)
    assert (second.wire["Arguments"], second.wire["QDate"]) == ("2", 2)
    assert first.wire["RequestMemory"] == first.ad.value("RequestMemory") == 100


def test_jobs_come_to_be_kept_back_one_by_one_and_none_starts_meanwhile() -> None:
    kept: set[tuple[int, int]] = set()
    asked: list[tuple[int, int]] = []

    def keeps_back(job: QueuedJob) -> bool:
        asked.append(job.id)
        return job.id in kept

    jobs = JobQueue(PRIO, keeps_back=keeps_back)
    add(jobs, 1, 1000)
    other = add(jobs, 2, 1000)
    kept |= {(1, proc) for proc in range(1000)} | {(2, 0), (2, 999)}
    asked.clear()
    jobs.withdraw_withheld()
    assert not asked, "nothing is looked at in the call itself, however many jobs there are"
    work = jobs.regroup()
    for _ in range(10):
        next(work)
    assert order(jobs) == [(2, proc) for proc in range(1, 999)]
    for job in other.jobs.values():
        jobs.set_status(job, IDLE)
    for _ in work:
        pass
    asked.clear()
    assert order(jobs) == [(2, proc) for proc in range(1, 999)]
    assert not asked, "when all have been looked at, starts cost no look of their own"
    kept.clear()
    jobs.withdraw_withheld()
    for _ in jobs.regroup():
        pass
    assert len(order(jobs)) == 1002


def test_a_cluster_like_the_one_before_is_put_where_it_would_be_alone() -> None:
    """Only what says which job it is may differ between two; some of that matters, where an expression reads it."""
    by_args: list[dict[str, Any]] = [{"QDate": 7, "Requirements": ['Args == "a"'], "Args": args} for args in "abba"]
    by_number: list[dict[str, Any]] = [{"QDate": 7, "Requirements": ["TARGET.Memory > ClusterId"]}] * 2
    first_and_last = {"QDate": 7, "Cmd": "/bin/true"}
    ads: list[dict[str, Any]] = [
        first_and_last,
        {"QDate": 7},
        {"QDate": 7},
        {"QDate": 8},
        {"QDate": 7, "JobPrio": 1},
        {"QDate": 7, "JobPrio": True},
        {"QDate": 7, "JobPrio": 1.0},
        {"QDate": 7, "JobPrio": ["size(Args)"], "Args": "a"},
        {"QDate": 7, "JobPrio": ["size(Args)"], "Args": "aaa"},
        *by_args,
        *by_number,
        first_and_last,
    ]
    jobs = queue()
    for references in (frozenset[str](), frozenset({"cmd"})):
        if jobs.add_references(references):
            for _ in jobs.regroup():
                pass
        for number, ad in enumerate(ads * 2, len(jobs.clusters) + 1):
            together = add(jobs, number, **ad).jobs[0]
            alone = queue()
            alone.add_references(references)
            apart = add(alone, number, **ad).jobs[0]
            assert together.group is not None
            assert apart.group is not None
            assert (together.group.signature, together.prio) == (apart.group.signature, apart.prio), ad
        for job in list(jobs.jobs()):
            jobs.set_status(job, RUNNING)

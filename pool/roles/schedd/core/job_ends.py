"""The steps that follow for a job from the end of a run: from a startd's report, or from a user's wish.

Functions over a job and a report; nothing is written or sent here. `pool.roles.schedd.placement.placement` decides
which claims go and which jobs come next.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pool.jobs import costs, network_use
from pool.jobs.events import EventKind
from pool.jobs.network_use import Carried, PartsUse
from pool.jobs.pipes.model import ends_attributes, read_ends
from pool.jobs.reasons import Evict, Hold
from pool.jobs.states import Happening
from pool.policy.checkpoints import KEPT_AWAY, Attempt, avoided_machines
from pool.policy.exits import Decision, ExitVerdict, after_exit
from pool.policy.more_resources import more_for
from pool.policy.queue import RUNNING, QueuedJob
from pool.policy.slot_names import machine_of_slot
from pool.policy.start_failures import EVERYWHERE, Again, after_failure, from_wire, to_wire
from pool.roles.schedd.core.ledger import JobChange
from pool.shadow.shadow import INPUT_LIMIT, OUTPUT_LIMIT

#: The decision for a job that has no expression about its end.
COMPLETED = Decision(ExitVerdict.COMPLETE)
#: How a program ends by itself.
BY_ITSELF = ("exit", "signal", "misuse")
#: The cause of the end of a job that was handed on to a claim and was not begun there.
NOT_BEGUN = "not_begun"
#: When the program of the present run began; there once the log has its beginning.
BEGAN = "JobCurrentStartExecutingDate"
#: So many starts that could not go on from a checkpoint are remembered.
MOST_TRIES = 50
#: The job's own note of processor seconds by process in all its runs: {name: [user, system]}.
USED = "_used"
#: The job's own note of them: [machine, generation] each.
TRIES = "_tries"
#: The job's own note of its failed starts: [machine, when, until] each.
FAILURES = "_start_failures"


@dataclass(frozen=True, slots=True)
class After:
    """Facts by which a failed start is judged.

    Attributes:
        following: the checkpoint that the next start goes on from when these tries have failed.
        home: the name of the schedd's node.
        network: what the job's own network has carried in the run that has ended.
    """

    following: Callable[[list[Attempt]], int | None] = lambda tries: None
    home: str = ""
    network: PartsUse | None = None


def end_steps(job: QueuedJob, slot: str, report: dict[str, Any], now: float, after: After) -> list[JobChange]:
    """The steps that follow from the end of a run.

    Args:
        slot: where it ran.
        report: the startd's; see `pool.roles.startd.running.running_job`.
        now: wall time, seconds.
    """
    changes = usage_changes(report)
    changes |= {"_run": None, "RemoteHost": None, "LastRemoteHost": slot}
    wall = float(report.get("wall", 0.0))
    changes["RemoteWallClockTime"] = float(job.get("RemoteWallClockTime", 0) or 0) + wall
    add_use(job, changes, report)
    if carried := add_network(job, changes, after.network):
        report = {**report, "network": carried}
    add_work(job, changes, report)
    add_processes(job, changes, report)
    steps: list[JobChange] = []
    if report.get("started_event") and job.get(BEGAN) is None:
        steps.append(JobChange(job, None, {}, EventKind.EXECUTE, {"slot": slot, **started(report)}))
    cause = str(report.get("cause"))
    if cause != "start" and (job.get(BEGAN) is not None or report.get("started_event")):
        changes[FAILURES] = None  # its program did begin
    wish = job.stored_note("_wish")
    if wish:
        changes["_wish"] = None
    if wish and (wish["what"] == "remove" or cause not in BY_ITSELF):
        steps.append(as_wished(job, wish, changes, report))
    elif cause in BY_ITSELF:  # also one that was to leave its machine: what is done is not done again
        by_itself_steps = by_itself(job, changes, report, now)
        if wish and wish["what"] == "hold" and by_itself_steps[-1].happening is Happening.REQUEUE:
            by_itself_steps = [as_wished(job, wish, changes, report)]
        steps += by_itself_steps
    elif cause == "exceeded":
        subcode = int(report.get("subcode") or 0)
        why = str(report.get("said") or "it used more than it may")[:1000]
        steps.append(over_resources(job, slot, why, subcode, changes, report, now))
    elif cause == "start":
        steps.append(failed_start(job, slot, changes, report, after, now))
    else:
        why = str(report.get("why") or cause)
        changes |= {"VacateReason": why, "LastVacateTime": int(now)}
        data = {"why": why, "slot": slot, **usage_data(report)}
        if report.get("reason"):
            data["reason"] = str(report["reason"])
        steps.append(JobChange(job, Happening.EVICT, changes, EventKind.EVICTED, data))
    return steps


def not_begun_step(job: QueuedJob, report: dict[str, Any]) -> JobChange:
    """The step for a job that was handed on and did not begin: idle again, as if nothing had been, or as was wished."""
    changes: dict[str, Any] = {"_run": None, "RemoteHost": None}
    if int(job.get("NumJobStarts") or 0) == 1:
        changes["JobStartDate"] = None
    wish = job.stored_note("_wish")
    if wish:
        return as_wished(job, wish, {**changes, "_wish": None}, report)
    return JobChange(job, Happening.EVICT, changes)


def over_resources(
    job: QueuedJob, slot: str, why: str, subcode: int, changes: dict[str, Any], report: dict[str, Any], now: float
) -> JobChange:
    """It used more than it had asked for: held, or to run again with more, as it says itself."""
    more = more_for(job.ad(), subcode, now)
    if not more:
        return hold_step(job, why, Hold.OUT_OF_RESOURCES, changes, subcode)
    asks = ", ".join(f"{name} = {value}" for name, value in more.items() if name.startswith("Request"))
    why = f"{why}; it runs again with {asks}"
    changes |= {**more, "VacateReason": why, "LastVacateTime": int(now)}
    data = {"why": why, "slot": slot, "reason": str(Evict.REQUEUED), **usage_data(report)}
    return JobChange(job, Happening.EVICT, changes, EventKind.EVICTED, data)


def by_itself(job: QueuedJob, changes: dict[str, Any], report: dict[str, Any], now: float) -> list[JobChange]:
    """It has ended by itself: complete, held, or to run again, as the job says."""
    by_signal = report.get("signal") is not None
    status = report.get("signal") if by_signal else report.get("code")
    changes |= {
        "ExitBySignal": by_signal,
        "ExitSignal" if by_signal else "ExitCode": status,
        "ExitStatus": status,
        "JobCoreDumped": bool(report.get("core")),
        "NumJobCompletions": int(job.get("NumJobCompletions", 0)) + 1,
        "LastJobStatus": RUNNING,
    }
    data = {"signal": report.get("signal"), "code": report.get("code"), "core": bool(report.get("core"))}
    data |= usage_data(report)
    if ends := read_ends(report.get("ends")):
        ends = all_runs(ends, changes[USED])
        together = sum(end["max_rss"] for end in ends)  # VS 6.3.3: of all processes
        changes["ImageSize"] = max(together, int(changes.get("ImageSize", 0)))
        changes |= ends_attributes(ends)
        data["ends"] = ends
    if report.get("said"):
        changes["ExitReason"] = data["why"] = str(report["said"])[:1000]
    if report.get("singletons"):
        return [hold_step(job, str(report["singletons"])[:1000], Hold.START_FAILED, changes)]
    if report.get("checkpoint_error"):
        error = report["checkpoint_error"]
        return [hold_step(job, f"its checkpoint could not be kept: {error}", Hold.CHECKPOINT_FAILED, changes)]
    if report.get("output_error"):
        error = report["output_error"]
        code = Hold.OUTPUT_TOO_LARGE if OUTPUT_LIMIT in str(error) else Hold.TRANSFER_OUTPUT
        return [hold_step(job, f"its output could not be sent to the submit side: {error}", code, changes)]
    verdict = COMPLETED
    if job.get("OnExitHold") is not None or job.get("OnExitRemove") is not None:
        job.update(changes)
        verdict = after_exit(job.ad(), now)
    if verdict.verdict is ExitVerdict.HOLD:
        return [
            JobChange(job, None, dict(changes), EventKind.TERMINATED, data),
            hold_step(job, verdict.reason, verdict.code, {}, verdict.subcode),
        ]
    if verdict.verdict is ExitVerdict.REQUEUE:
        return [
            JobChange(
                job,
                Happening.REQUEUE,
                changes,
                EventKind.EVICTED,
                {"why": verdict.reason, "requeued": True, **data},
            )
        ]
    changes |= {"CompletionDate": int(now)}
    return [JobChange(job, Happening.EXIT, changes, EventKind.TERMINATED, data)]


def as_wished(job: QueuedJob, wish: dict[str, Any], changes: dict[str, Any], report: dict[str, Any]) -> JobChange:
    """The job was stopped because its user (or an expression of its) asked for it."""
    what, why = wish["what"], str(wish.get("why", ""))
    if what == "remove":
        kept = {"CheckpointKept": report["kept"]} if report.get("kept") else {}
        if ends := read_ends(report.get("ends")):
            kept |= ends_attributes([{**end, "failed": False} for end in all_runs(ends, changes[USED])])
        return JobChange(
            job, Happening.REMOVE, {**changes, **kept, "RemoveReason": why}, EventKind.ABORTED, {"why": why}
        )
    if what == "hold":
        return hold_step(job, why, int(wish.get("code", Hold.USER_REQUEST)), changes, int(wish.get("subcode", 0)))
    data = {"why": why, **usage_data(report)}
    if what == "move":
        changes |= wish["changes"]
        data["reason"] = str(Evict.MOVED)
    return JobChange(job, Happening.EVICT, {**changes, "VacateReason": why}, EventKind.EVICTED, data)


def failed_restore(
    job: QueuedJob, slot: str, changes: dict[str, Any], report: dict[str, Any], after: After, now: float
) -> JobChange:
    """It could not go on from a checkpoint there. A machine that lacks something is left alone for good; one that fails
    often for a minute, in which others may take the job, unless it is the schedd's own: it may be the only one."""
    machine, generation = machine_of_slot(slot), int(report.get("checkpoint") or 0)
    tries = [(str(name), int(number)) for name, number in job.stored_note(TRIES, ()) or ()]
    before = avoided_machines((Attempt(*one) for one in tries), after.home)
    if report.get("unfit"):
        avoided = {machine} - {after.home}
    else:
        tries = [*tries, (machine, generation)][-MOST_TRIES:]
        changes[TRIES] = [list(one) for one in tries]
        avoided = set(avoided_machines((Attempt(*one) for one in tries), after.home)) - set(before)
    why = f"it could not go on from checkpoint {generation}: {report.get('error')}"
    following = after.following([Attempt(*one) for one in tries])
    if following is None:
        why += "; it begins anew"
    elif following != generation:
        why += f"; it goes on from checkpoint {following}"
    until = None if report.get("unfit") else int(now + KEPT_AWAY)
    for name in sorted(avoided):
        changes["Requirements"] = without_machine(changes.get("Requirements", job.get("Requirements")), name, until)
        why += f"; it is not sent to {name} again" if until is None else f"; it is not sent to {name} for a minute"
    return JobChange(job, Happening.EVICT, changes, EventKind.SHADOW_EXCEPTION, {"why": why, "slot": slot})


def without_machine(requirements: Any, machine: str, until: int | None = None) -> list[str]:
    """Requirements (in wire form) that hold on every machine but one besides, for good or until that wall time."""
    name = machine.replace("\\", "\\\\").replace('"', '\\"')
    other = f'TARGET.Machine =!= "{name}"'
    if until is not None:
        other = f"({other} || time() >= {until})"
    if requirements is None or requirements is True:
        return [other]
    text = requirements[0] if isinstance(requirements, list) else str(requirements).lower()
    if until is not None:  # a later time takes the place of an earlier one
        earlier = re.compile(rf'\(TARGET\.Machine =!= "{re.escape(name)}" \|\| time\(\) >= [0-9]+\)')
        if earlier.search(text):
            return [earlier.sub(lambda _: other, text)]
    return [text if other in text else f"({text}) && {other}"]


def require_both(first: Any, second: Any) -> Any:
    """Requirements (in wire form) that hold where both do."""
    if second is None or second is True or first == second:
        return first
    if first is None or first is True:
        return second
    texts = [one[0] if isinstance(one, list) else str(one).lower() for one in (first, second)]
    return [" && ".join(f"({text})" for text in texts)]


#: The reason for a hold by the step of the start that failed; HTCondor has one for each of these.
FAILED_STEPS = {
    "chdir": Hold.INITIAL_DIRECTORY,
    "open stdin": Hold.INPUT_FILE,
    "open stdout": Hold.OUTPUT_FILE,
    "open stderr": Hold.OUTPUT_FILE,
}


def failed_start(
    job: QueuedJob, slot: str, changes: dict[str, Any], report: dict[str, Any], after: After, now: float
) -> JobChange:
    """A machine could not start it: another will, unless it is the job's own fault."""
    where, why = str(report.get("where", "start")), str(report.get("error", "it could not be started"))
    if where == "checkpoint":
        return failed_restore(job, slot, changes, report, after, now)
    if where == "input":
        return failed_input(job, slot, why, bool(report.get("retry")), changes, now)
    if not report.get("retry") and where in ("start", "account"):
        code = Hold.NO_ACCOUNT if where == "account" else FAILED_STEPS.get(str(report.get("step")), Hold.START_FAILED)
        return hold_step(job, f"it could not be started on {slot}: {why}", code, changes)
    machine = machine_of_slot(slot)
    again = record_failed_start(job, machine, changes, now)
    if again.hold:
        machines = {failure.machine for failure in again.failures} - {EVERYWHERE}
        counted = f"{len(machines)} machines" if len(machines) > 1 else machine
        reason = f"{len(again.failures)} starts failed, on {counted}; the last said: {why}"
        return hold_step(job, reason, Hold.TOO_MANY_STARTS, changes)
    changes["Requirements"] = without_machine(
        changes.get("Requirements", job.get("Requirements")), machine, int(again.until)
    )
    data = {"why": f"{why}; it is not sent to {machine} for {again.until - now:.0f} s", "slot": slot}
    return JobChange(job, Happening.EVICT, changes, EventKind.SHADOW_EXCEPTION, data)


def failed_input(job: QueuedJob, slot: str, why: str, passes: bool, changes: dict[str, Any], now: float) -> JobChange:
    """Its input did not come: tried again for a while where the cause may pass, else held."""
    tries = ""
    if passes:
        again = record_failed_start(job, EVERYWHERE, changes, now)
        if not again.hold:
            data = {"why": f"its input could not be sent: {why}; it is tried again in {again.until - now:.0f} s"}
            return JobChange(job, Happening.EVICT, changes, EventKind.SHADOW_EXCEPTION, {**data, "slot": slot})
        tries = f", after {len(again.failures)} tries"
    code = Hold.INPUT_TOO_LARGE if INPUT_LIMIT in why else Hold.TRANSFER_INPUT
    return hold_step(job, f"its input could not be sent{tries}: {why}", code, changes)


def record_failed_start(job: QueuedJob, machine: str, changes: dict[str, Any], now: float) -> Again:
    """The next step after a failed start, noted in the changes."""
    again = after_failure(from_wire(job.stored_note(FAILURES)), machine, now)
    changes[FAILURES] = to_wire(again.failures)
    return again


def hold_step(
    job: QueuedJob, reason: str, code: int, changes: dict[str, Any] | None = None, subcode: int = 0
) -> JobChange:
    """The step that holds a job, with the reason that users see."""
    all_changes = dict(changes or {})
    all_changes |= {
        "HoldReason": reason,
        "HoldReasonCode": int(code),
        "HoldReasonSubCode": subcode,
        "NumSystemHolds": int(job.get("NumSystemHolds", 0) or 0) + (0 if code == Hold.USER_REQUEST else 1),
    }
    return JobChange(
        job, Happening.HOLD, all_changes, EventKind.HELD, {"why": reason, "code": code, "subcode": subcode}
    )


def release_step(job: QueuedJob, reason: str) -> JobChange:
    """The step that makes a held job idle again; why it was held stays to be read as the last reason."""
    changes = {
        "LastHoldReason": job.get("HoldReason"),
        "HoldReason": None,
        "HoldReasonCode": None,
        "HoldReasonSubCode": None,
        "ReleaseReason": reason,
        FAILURES: None,
    }
    return JobChange(job, Happening.RELEASE, changes, EventKind.RELEASED, {"why": reason})


def not_begun(job: QueuedJob) -> dict[str, Any]:
    """The changes that take an earlier run's beginning from a job."""
    return {} if job.get(BEGAN) is None else {BEGAN: None}


def usage_changes(report: dict[str, Any]) -> dict[str, Any]:
    """Attributes of a job from a report of what it uses (sizes in KiB)."""
    changes: dict[str, Any] = {}
    if report.get("max_rss"):
        changes["ImageSize"] = changes["ResidentSetSize"] = int(report["max_rss"])
    return changes


def network_changes(job: QueuedJob, use: PartsUse | None) -> dict[str, Any]:
    """Attributes of a running job from what its own network has carried so far."""
    before = Carried.of_note(job.stored_note(network_use.NOTE))
    return use.attributes(before, running=True) if use else {}


def add_network(job: QueuedJob, changes: dict[str, Any], use: PartsUse | None) -> str:
    """Add what the job's own network has carried in a run to what it carried in those before: all of it, in words."""
    if not use:
        return ""
    before = Carried.of_note(job.stored_note(network_use.NOTE))
    changes |= use.attributes(before, running=False)
    changes[network_use.NOTE] = list((before + use.carried).counts())
    return network_use.in_words(changes.get)


def add_use(job: QueuedJob, changes: dict[str, Any], report: dict[str, Any]) -> None:
    """Add a run's processor seconds, and the bytes of files carried for it, to the job's accounts (A11)."""
    for name, key in (("BytesSent", "sent"), ("BytesRecvd", "received")):
        if report.get(key):
            changes[name] = int(job.get(name, 0) or 0) + int(report[key])
    for name, key in (("RemoteUserCpu", "user_cpu"), ("RemoteSysCpu", "system_cpu")):
        changes[name] = round(float(job.get(name, 0) or 0) + float(report.get(key, 0.0)), 6)


def add_work(job: QueuedJob, changes: dict[str, Any], report: dict[str, Any]) -> None:
    """Add a run's work, done or lost, and what its checkpoints cost."""
    run, said = int(job.get("NumJobStarts", 0) or 0), report.get("costs")
    note = job.stored_note(costs.COSTS)
    if isinstance(said, dict):
        changes |= costs.cost_changes(job.get, run, note, said)
        note = changes[costs.COSTS]
    removed = (job.stored_note("_wish") or {}).get("what") == "remove"
    whole = removed or report.get("checkpointed") or report.get("cause") in BY_ITSELF
    committed = None if whole else costs.committed(run, note)
    wall, suspended = float(report.get("wall", 0.0)), float(report.get("suspended", 0.0))
    changes |= costs.ran(job.get, wall, suspended, committed) | {costs.COSTS: None}
    if report.get("checkpointed"):
        work = float(changes.get("CommittedTime", job.get("CommittedTime")) or 0.0)
        changes |= costs.reached(job.stored_note(costs.HELD), report.get("generation"), work)
    elif report.get("cause") in BY_ITSELF:
        changes[costs.HELD] = None


def add_processes(job: QueuedJob, changes: dict[str, Any], report: dict[str, Any]) -> None:
    """Add what each process of a job of several has used in a run to what it used in those before (VS 6.3.3)."""
    ends = read_ends(report.get("ends"))
    if not ends:
        return
    before = dict(job.stored_note(USED) or {})
    used: dict[str, list[float]] = {}
    for end in ends:
        user, system = before.get(end["name"], (0.0, 0.0))
        used[end["name"]] = [round(user + end["user_cpu"], 6), round(system + end["system_cpu"], 6)]
    changes[USED] = before | used


def all_runs(ends: list[dict[str, Any]], used: dict[str, list[float]]) -> list[dict[str, Any]]:
    """How processes ended, with what they have used in all runs."""
    return [{**end, "user_cpu": used[end["name"]][0], "system_cpu": used[end["name"]][1]} for end in ends]


def usage_data(report: dict[str, Any]) -> dict[str, Any]:
    """The part of a report that events carry."""
    keys = ("user_cpu", "system_cpu", "max_rss", "wall", "sent", "received", "checkpointed", "network")
    return {key: report[key] for key in keys if key in report}


def started(data: dict[str, Any]) -> dict[str, Any]:
    """When the program was started, as events carry it."""
    return {"started": data["started"]} if "started" in data else {}

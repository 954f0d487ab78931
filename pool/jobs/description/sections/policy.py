"""The job's policy and the notices about it: status, rank, periodic and exit policy, retries, signals, times.

The expressions are only checked and put down; the schedd, shadow and starter evaluate them.
"""

from __future__ import annotations

import re
import signal

from pool.decimals import clipped_number, has_digits_only
from pool.jobs.crontab import Crontab, NoSuchMoment
from pool.jobs.description.commands import CommandKind, SubmitCommand
from pool.jobs.description.diagnostics import nearest
from pool.jobs.description.expressions import boolean_of, in_parentheses_for, integer_of, wire_of
from pool.jobs.description.job import JobDraft
from pool.jobs.description.queueing import split_list
from pool.jobs.description.sections.program import check_writable, checked

NOTIFICATIONS = {"never": 0, "always": 1, "complete": 2, "error": 3, "start": 4}
HELD_BY_SUBMITTER = 15
PERIODIC = (
    ("periodic_hold", "PeriodicHold"),
    ("periodic_hold_reason", "PeriodicHoldReason"),
    ("periodic_hold_subcode", "PeriodicHoldSubCode"),
    ("periodic_release", "PeriodicRelease"),
    ("periodic_remove", "PeriodicRemove"),
    ("periodic_vacate", "PeriodicVacate"),
    ("on_exit_hold_reason", "OnExitHoldReason"),
    ("on_exit_hold_subcode", "OnExitHoldSubCode"),
)
_DEFERRING = ("CronMinute", "CronHour", "CronDayOfMonth", "CronMonth", "CronDayOfWeek", "DeferralTime")
_RECONNECTING = (5, 10, 11, 13)
_SHORTEST_LEASE = 20
_LIMIT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?")
_INT_MAX = 2**31 - 1


def simple(job: JobDraft, command: SubmitCommand) -> None:
    """Any command that becomes its attribute as it is."""
    text = job.param(command.name, command.attribute)
    if text is None and command.other:
        text = job.param(command.other)
    if text is None:
        return
    name = command.name if job.param(command.name) else command.other or command.name
    kind = command.kind
    if kind is CommandKind.EXPRESSION:
        job.set_expression(command.attribute, text, name, command.attribute)
    elif kind is CommandKind.BOOLEAN:
        truth = boolean_of(text)
        if truth is None:
            raise job.refuse(name, f"expected true or false for '{name}', not {text!r}", other=command.attribute)
        job.set(command.attribute, truth)
    elif kind in (CommandKind.INTEGER, CommandKind.COUNT):
        job.set(command.attribute, _integer(job, command, name, text))
    else:
        value = _text(job, kind, text)
        if command.name == "log" and checked(job, value):
            check_writable(job, name, value)
        job.set(command.attribute, value)


def _integer(job: JobDraft, command: SubmitCommand, name: str, text: str) -> int:
    number = integer_of(text)
    if number is None or (command.kind is CommandKind.COUNT and number < 0):
        raise job.refuse(name, f"expected {command.kind} for '{name}', not {text!r}", other=command.attribute)
    return number


def _text(job: JobDraft, kind: CommandKind, text: str) -> str:
    if kind in (CommandKind.BARE, CommandKind.BARE_PATH):
        text = text.strip()
        if len(text) > 1 and text[0] == text[-1] == '"':
            text = text[1:-1]
    if kind is CommandKind.LIST:
        return ",".join(split_list(text))
    return job.full_path(text) if kind in (CommandKind.PATH, CommandKind.BARE_PATH) and text else text


def status(job: JobDraft) -> None:
    """`hold`: whether the job waits for its owner's release from the beginning."""
    if job.boolean("hold"):
        job.set("JobStatus", 5)
        job.set("HoldReasonCode", HELD_BY_SUBMITTER)
        job.set("HoldReason", "submitted on hold at user's request")
    else:
        job.set("JobStatus", 1)
    job.set("EnteredCurrentStatus", int(job.facts.now))


def notification(job: JobDraft) -> None:
    """`notification`: the events that are mailed to the owner (EV 2.8, VS 6.3.3)."""
    text = job.param("notification", "JobNotification") or job.facts.notification
    number = NOTIFICATIONS.get(text.lower())
    if number is None:
        meant = nearest(text, NOTIFICATIONS)
        raise job.refuse(
            "notification",
            f"expected never, always, complete, error or start for 'notification', not {text!r}",
            f"did you mean {meant}?" if meant else "",
            other="JobNotification",
        )
    job.set("JobNotification", number)


CHECKPOINTS = ("off", "auto", "self", "required")


def checkpoint(job: JobDraft) -> None:
    """`checkpoint`: whether and how the job is saved while it runs (C3, C7), and how often."""
    text = job.param("checkpoint", "JobCheckpoint")
    if text is not None:
        wish = text.lower()
        if wish not in CHECKPOINTS:
            meant = nearest(wish, CHECKPOINTS)
            raise job.refuse(
                "checkpoint",
                f"expected {', '.join(CHECKPOINTS[:-1])} or {CHECKPOINTS[-1]} for 'checkpoint', not {text!r}",
                f"did you mean {meant}?" if meant else "",
                other="JobCheckpoint",
            )
        job.set("JobCheckpoint", wish)
    seconds = job.integer("checkpoint_interval", "CheckpointInterval")
    if seconds is not None:
        job.set("CheckpointInterval", seconds)


def rank(job: JobDraft) -> None:
    """`rank`, or `preferences` as the papers call it: which of the matching machines is liked best."""
    text = job.param("rank", "preferences")
    if text is None:
        job.set("Rank", 0.0)
    else:
        job.set_expression("Rank", text, "rank", "preferences")


def periodic(job: JobDraft) -> None:
    """`periodic_*` and the reasons of `on_exit_hold`."""
    for command, attribute in PERIODIC:
        if text := job.param(command, attribute):
            job.set_expression(attribute, text, command, attribute)


def leave_in_queue(job: JobDraft) -> None:
    """`leave_in_queue`: whether the job stays in the queue after its end."""
    text = job.param("leave_in_queue", "LeaveJobInQueue")
    if text:
        job.set_expression("LeaveJobInQueue", text, "leave_in_queue", "LeaveJobInQueue")
    elif job.lookup("LeaveJobInQueue") is None:
        job.set("LeaveJobInQueue", False)


def retries(job: JobDraft) -> None:
    """`on_exit_*`, and `max_retries` and its kin, which are folded into OnExitRemove."""
    remove = job.param("on_exit_remove", "OnExitRemove")
    hold = job.param("on_exit_hold", "OnExitHold")
    most = job.integer("max_retries", "JobMaxRetries")
    success = job.integer("success_exit_code", "JobSuccessExitCode")
    until = job.param("retry_until")
    if hold:
        job.set_expression("OnExitHold", hold, "on_exit_hold", "OnExitHold")
    if most is None and success is None and until is None:
        if remove:
            job.set_expression("OnExitRemove", remove, "on_exit_remove", "OnExitRemove")
        return
    if most is not None or job.lookup("JobMaxRetries") is None:
        job.set("JobMaxRetries", 2 if most is None else most)
    if not hold and job.lookup("OnExitHold") is None:
        job.set("OnExitHold", False)
    if job.lookup("OnExitRemove") is not None and success is None and until is None:
        return
    if success is not None:
        job.set("JobSuccessExitCode", success)
    clauses = [
        "NumJobCompletions > JobMaxRetries",
        f"ExitCode =?= {'JobSuccessExitCode' if success is not None else 0}",
    ]
    if until:
        clauses.append(_retry_until(job, until))
    if remove:
        clauses.append(_clause(job, remove, "on_exit_remove"))
    job.set_expression("OnExitRemove", " || ".join(clauses), "on_exit_remove", "OnExitRemove")


def _retry_until(job: JobDraft, text: str) -> str:
    code = integer_of(text)
    if code is None:
        return _clause(job, text, "retry_until")
    if not -_INT_MAX <= code <= _INT_MAX:
        raise job.refuse("retry_until", f"expected an exit code for 'retry_until', not {code}")
    return f"ExitCode =?= {code}"


def _clause(job: JobDraft, text: str, command: str) -> str:
    job.set_expression("OnExitRemove", text, command)
    value = wire_of(text)
    return in_parentheses_for("||", value[0] if isinstance(value, list) else text)


def on_evict(job: JobDraft) -> None:
    """`on_evict_checks`: names of changes, each in `transform_body_NAME`, made to a job that was evicted."""
    text = job.param("on_evict_checks", "TransformOnEvict")
    if not text:
        return
    found = []
    for name in split_list(text):
        body = job.param(f"transform_body_{name}", f"TransformBody_{name}")
        if body:
            found.append(name)
            lines = [line.strip() for line in body.split("\n")]
            job.set(f"TransformBody_{name}", "\x1e".join(line for line in lines if line and line[0] != "#"))
    job.set("TransformOnEvict", " ".join(found))


def materialization(job: JobDraft) -> None:
    """`max_materialize`: how many jobs of the cluster machines are looked for at once, those that run counted in."""
    if job.facts.as_reference:
        return  # the reference keeps it beside the ad
    if text := job.param("max_materialize", "JobMaterializeLimit"):
        job.set_expression("JobMaterializeLimit", text, "max_materialize", "JobMaterializeLimit")


def manifest(job: JobDraft) -> None:
    """`manifest_dir`: one name, in the job's directory and in its initial directory."""
    name = job.text_of("ManifestDir")
    if name and ("/" in name or name in (".", "..") or len(name) > 255) and not job.facts.as_reference:
        raise job.refuse("manifest_dir", f"expected one name for 'manifest_dir', not {name!r}", other="ManifestDir")


def signals(job: JobDraft) -> None:
    """`kill_sig` and its kin: by which signals the job is asked to end, and how long it has then."""
    for command, attribute, default in (
        ("kill_sig", "KillSig", "" if job.nature.universe == 5 else "SIGTERM"),
        ("remove_kill_sig", "RemoveKillSig", ""),
        ("hold_kill_sig", "HoldKillSig", ""),
        ("checkpoint_signal", "CheckpointSig", ""),
    ):
        text = job.param(command, attribute)
        name = _signal(job, command, attribute, text) if text else default
        if name:
            job.set(attribute, name)
    if timeout := job.param("kill_sig_timeout", "KillSigTimeout"):
        found = re.match(r"\s*[-+]?[0-9]+", timeout)
        job.set("KillSigTimeout", clipped_number(found[0].strip()) if found else 0)


def _signal(job: JobDraft, command: str, attribute: str, text: str) -> str:
    try:
        if has_digits_only(text.strip().lstrip("-")):
            return signal.Signals(clipped_number(text.strip())).name
        return signal.Signals[text.strip().upper()].name
    except (KeyError, ValueError):
        meant = nearest(text, [known.name for known in signal.Signals])
        raise job.refuse(
            command,
            f"expected a signal such as SIGTERM or 15 for '{command}', not {text!r}",
            f"did you mean {meant}?" if meant else "",
            other=attribute,
        ) from None


def concurrency(job: JobDraft) -> None:
    """`concurrency_limits`: names of what the pool has only so much of, each with an amount."""
    text, expression = job.param("concurrency_limits"), job.param("concurrency_limits_expr")
    if text and expression:
        raise job.refuse("concurrency_limits_expr", "'concurrency_limits' is given too", "leave one of them out")
    if expression:
        job.set_expression("ConcurrencyLimits", expression, "concurrency_limits_expr")
    if not text:
        return
    limits = sorted(split_list(text.lower()))
    for limit in limits:
        name, colon, amount = limit.partition(":")
        if not all(_LIMIT_NAME.fullmatch(part) for part in name.split(".", 1)):
            raise job.refuse(
                "concurrency_limits",
                f"expected NAME or NAME:AMOUNT in 'concurrency_limits', not {limit!r}",
            )
        if colon and not _AMOUNT.fullmatch(amount.strip()) and not job.facts.as_reference:
            raise job.refuse(
                "concurrency_limits",
                f"expected a number behind the colon of {limit!r} in 'concurrency_limits', not {amount!r}",
            )
    job.set("ConcurrencyLimits", ",".join(limits))


def accounting(job: JobDraft) -> None:
    """`accounting_group` and its user: in whose name use is counted."""
    if project := job.param("project_name", "ProjectName"):
        job.set("ProjectName", project)
    group = job.param("accounting_group", "AccountingGroup")
    if job.boolean("nice_user", "NiceUser"):
        group = group or "nice-user"
        job.set("MaxJobRetirementTime", 0)
    user = job.param("accounting_group_user", "AcctGroupUser")
    if not group and not user:
        return
    user = user or job.user
    for command, name in (("accounting_group", group), ("accounting_group_user", user)):
        if name and re.search(r"\s", name):
            raise job.refuse(command, f"expected a name without blanks for '{command}', not {name!r}")
    job.set("AcctGroupUser", user)
    if group:
        job.set("AcctGroup", group)
    job.set("AccountingGroup", f"{group}.{user}" if group else user)


def is_deferred(job: JobDraft) -> bool:
    """Whether the job has a time before which it must not start."""
    return any(job.lookup(attribute) is not None for attribute in _DEFERRING)


def deferral(job: JobDraft) -> None:
    """`deferral_time`, or the `cron_*` commands: the time at which the job starts."""
    if text := job.param("deferral_time", "DeferralTime"):
        _moment(job, "DeferralTime", "deferral_time", text)
    if not is_deferred(job):
        return
    if not job.facts.as_reference:
        try:
            Crontab.read(job.lookup)
        except NoSuchMoment as error:
            raise job.refuse("cron_minute", error.message, error.hint) from None
    for attribute, commands, default in (
        ("DeferralWindow", ("cron_window", "CronWindow", "deferral_window", "DeferralWindow"), 0),
        (
            "DeferralPrepTime",
            ("cron_prep_time", "CronPrepTime", "deferral_prep_time", "DeferralPrepTime"),
            300,
        ),
    ):
        given = next(((name, text) for name in commands if (text := job.param(name))), None)
        if given:
            _moment(job, attribute, *given)
        else:
            job.set(attribute, default)


def _moment(job: JobDraft, attribute: str, command: str, text: str) -> None:
    job.set_expression(attribute, text, command, attribute)
    value = job.lookup(attribute)
    if isinstance(value, list):
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise job.refuse(command, f"expected an integer that is not negative for '{command}', not {text!r}")


def automatic(job: JobDraft) -> None:
    """The attributes that follow from others: hosts, lease, priority, transfer at checkpoints."""
    if job.lookup("MaxHosts") is None and job.nature.universe != 8:
        job.set("MinHosts", 1)
        job.set("MaxHosts", 1)
    if job.lookup("CurrentHosts") is None:
        job.set("CurrentHosts", 0)
    if job.lookup("SuccessCheckpointExitCode") is not None:
        job.set("WantFTOnCheckpoint", True)
    if job.nature.universe in _RECONNECTING and job.lookup("JobLeaseDuration") is None:
        job.set("JobLeaseDuration", job.facts.lease)
    if job.lookup("JobPrio") is None:
        job.set("JobPrio", 0)
    if job.lookup("JobStarterLog") is not None and job.lookup("JobStarterDebug") is None:
        job.set("JobStarterDebug", True)


def mistakes(job: JobDraft) -> None:
    """Refuse commands that are allowed alone but not together, or that are hardly meant."""
    if job.text_of("NotifyUser").lower() in ("false", "never"):
        job.warn(
            "notify_user",
            f"mail will go to a user named {job.text_of('NotifyUser')}",
            "write notification = never for no mail",
        )
    length = job.lookup("JobMachineAttrsHistoryLength")
    if isinstance(length, int) and not 0 <= length <= _INT_MAX:
        raise job.refuse("job_machine_attrs_history_length", f"expected a length from 0 to {_INT_MAX}, not {length}")
    lease = job.lookup("JobLeaseDuration")
    if isinstance(lease, int) and not isinstance(lease, bool) and 0 < lease < _SHORTEST_LEASE:
        job.warn("job_lease_duration", f"a lease is at least {_SHORTEST_LEASE} seconds; {lease} is taken as that")
        job.set("JobLeaseDuration", _SHORTEST_LEASE)
    if job.nature.universe == 7 and job.lookup("DeferralTime") is not None:
        raise job.refuse("deferral_time", "scheduler jobs cannot be deferred", "use universe = local")
    if job.lookup("OutputDestination") is not None and job.lookup("OutputDirectory") is not None:
        raise job.refuse("output_directory", "'output_destination' is given too", "leave one of them out")

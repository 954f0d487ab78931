"""Findings put into words: a headline, then what a person needs to see at a glance, about fifteen lines.

Pure text: nothing is asked, no clock is read (`now` is the asker's), and no time zone is needed, for all times are said
as "3 min ago". Machines are counted, never listed, but for a few names as examples.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pool.policy.account_names import written_accounts
from pool.policy.why.findings import (
    BesideSchedd,
    Busy,
    ClaimingFinding,
    Cycle,
    DedicatedFinding,
    Deferred,
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
    NetworkFinding,
    NoNetwork,
    NotItsTurn,
    Outlook,
    OutOfReach,
    Queued,
    QuotaFinding,
    RanksFinding,
    RefusedFinding,
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
    Unsavable,
    Unshown,
    Unusable,
    ValueCount,
)
from pool.policy.why.other_pools import LeftMachine, OtherPool
from pool.policy.why.standing import Standing, standing

F = TypeVar("F")
#: Status numbers of jobs that matter here (`pool.jobs.states`).
IDLE = 1
_STATES = {
    "Owner": "in use by their owners",
    "Drained": "out of use",
    "Preempting": "moving a job off",
    "Matched": "just given to somebody",
    "Claimed": "claimed",
}
#: Exit statuses with which shells say that a program is not there, or cannot be run.
_NOT_FOUND = (126, 127)
_NOT_VISIBLE = (
    "That is a shell's word for a program that it does not find. The job sent its files along: it saw the system's "
    "directories, its own files, and the directories in its machine's SHOW_PATHS, and nothing else"
)
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def lines(findings: Sequence[Finding], now: float, width: int | None = None) -> list[str]:
    """An explanation as lines.

    Args:
        now: wall seconds.
        width: the longest line, longer ones go on in the next; None leaves them as they are.
    """
    findings = _with_written_accounts(findings)
    slot = _first(findings, SlotFinding)
    made = _of_machine(slot, findings, now) if slot is not None else _of_job(findings, now)
    return made if width is None else [part for line in made for part in _fits_width(line, max(20, width))]


def _with_written_accounts(findings: Sequence[Finding]) -> list[Finding]:
    """The same with each account as people read it."""
    named = [slot.user for slot in _findings_of(findings, SlotFinding)]
    for turn in _findings_of(findings, TurnFinding):
        named += [turn.user, *turn.ahead]
    for busy in _findings_of(findings, Busy):
        named += [share.value for share in busy.users]
    written = written_accounts(named)
    made: list[Finding] = []
    for finding in findings:
        if isinstance(finding, SlotFinding):
            finding = dataclasses.replace(finding, user=written[finding.user])
        elif isinstance(finding, TurnFinding):
            ahead = tuple(written[user] for user in finding.ahead)
            finding = dataclasses.replace(finding, user=written[finding.user], ahead=ahead)
        elif isinstance(finding, Busy):
            users = tuple(ValueCount(written[share.value], share.count) for share in finding.users)
            finding = dataclasses.replace(finding, users=users)
        made.append(finding)
    return made


def _fits_width(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line.strip(), width, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False
    )


# --- a job


def _of_job(findings: Sequence[Finding], now: float) -> list[str]:
    queued = _first(findings, Queued)
    made = [headline(findings, now)]
    made += [f"  {line}" for line in _state_lines(findings, now)]
    if queued is None or queued.status != IDLE:
        return made
    made += _machine_lines(findings)
    made += [f"  {_other_pool(found)}" for found in findings if isinstance(found, OtherPool)]
    made += [f"  {line}" for line in _order_lines(findings, now)]
    return made


def headline(findings: Sequence[Finding], now: float) -> str:
    """The one line that says most."""
    queued = _first(findings, Queued)
    name = queued.job if queued else "the job"
    kind = standing(findings)
    if (ended := _first(findings, Ended)) is not None:
        return f"{name} {_ended(ended, now)}"
    if (held := _first(findings, HeldFinding)) is not None:
        return f"{name} is held{_since(held.since, now)}: {held.reason or 'no reason was given'}"
    if (lost := _first(findings, UnreachableFinding)) is not None:
        return f"{name} waits for {lost.slot}, which cannot be reached and where it may still run"
    if (running := _first(findings, Running)) is not None:
        return f"{name} {_running(running, now)}"
    since = _since(queued.since, now) if queued else ""
    if (away := _first(findings, OutOfReach)) is not None:
        return f"{name} waits{since}: its checkpoint lies at {away.where}, which cannot be reached"
    if (deferred := _first(findings, Deferred)) is not None:
        asks = f", and a machine is looked for in {ago(deferred.asks - now)}" if deferred.asks > now else ""
        return f"{name} waits{since}: it is to start in {ago(max(0.0, deferred.moment - now))}{asks}"
    if (waiting := _first(findings, DedicatedFinding)) is not None:
        return f"{name} waits{since}: {waiting.why or _BECAUSE[kind]}"
    if (turn := _first(findings, NotItsTurn)) is not None:
        return f"{name} waits{since}: {_not_its_turn(turn)}"
    if (beside := _first(findings, BesideSchedd)) is not None:
        return f"{name} waits{since}: {plural(beside.most, 'job')} of its kind may run on the submit machine at once"
    if kind is Standing.GATHERING and (few := _first(findings, TooFew)) is not None:
        noun = "machine" if few.apart else "slot"
        needs = f"it needs {plural(few.needs, noun)} at the same time"
        return f"{name} waits{since}: {needs}; {few.suit:,} in the pool can suit it"
    claiming = _first(findings, ClaimingFinding)
    because = _MAKING_ROOM if claiming is not None and claiming.freed else _BECAUSE[kind]
    return f"{name} waits{since}: {because}"


def _not_its_turn(turn: NotItsTurn) -> str:
    bounds = [
        *([f"max_idle = {turn.idle}"] if turn.idle is not None else []),
        *([f"max_materialize = {turn.whole}"] if turn.whole is not None else []),
        *([f"next_job_start_delay = {turn.delay:g}"] if turn.delay else []),
    ]
    now = ", and one has just started" if turn.paused else ""
    return f"other jobs of its cluster come first, as the cluster says {' and '.join(bounds)}{now}"


_BECAUSE = {
    Standing.CLAIMING: "machines have been found for jobs of its owner and are being claimed",
    Standing.GATHERING: "it needs a machine for each of its parts at the same time",
    Standing.DEDICATED: "its machines are the dedicated scheduler's, and other dedicated jobs have them",
    Standing.BLIND: "nobody who knows why can be asked",
    Standing.NO_MACHINES: "there is no machine in the pool",
    Standing.NO_MATCH: "no machine meets its conditions",
    Standing.REFUSED: "the machines that it would take refuse it",
    Standing.LIMITED: "a limit is reached",
    Standing.UNUSABLE: "the machines that match are not to be had now",
    Standing.BUSY: "the machines that match are busy",
    Standing.NEXT: "a machine is free for it, and the next negotiation will see to it",
    Standing.UNKNOWN: "nobody knows why",
}


_MAKING_ROOM = "machines have been found for jobs of its owner, and other jobs make room there"


def _state_lines(findings: Sequence[Finding], now: float) -> list[str]:
    made: list[str] = []
    queued = _first(findings, Queued)
    if (held := _first(findings, HeldFinding)) is not None:
        hint = held.hint or "release the job when the cause is gone"
        made.append(f"what releases it: {hint} (`poolnode release {queued.job if queued else 'JOB'}`)")
    if (lost := _first(findings, UnreachableFinding)) is not None:
        made.append(f"it starts elsewhere in {ago(lost.left)} at most, when the machine's lease has ended for sure")
    running = _first(findings, Running)
    if running is not None and running.wish:
        made.append(f"it was asked to stop, and will then be {running.wish}")
    if running is not None and running.late:
        made.append(f"its parts on {', '.join(running.late)} are not ready yet, and the others wait for them")
    if running is not None and running.network_why:
        made.append(f"its network is the machines': {running.network_why}")
    made += [f"on {found.slot} {found.words}" for found in findings if isinstance(found, RanksFinding)]
    made += [f"its network on {found.slot}: {found.words}" for found in findings if isinstance(found, NetworkFinding)]
    if running is not None and (unsavable := _first(findings, Unsavable)) is not None:
        made.append(f"it cannot be checkpointed, and begins anew if it loses its machine: {unsavable.why}")
    if running is not None and running.files:
        made.append(f"its owner's files: {running.files}")
    if running is not None and running.because:
        made.append(f"it stands still because {running.because}; it goes on there when that is over, or has to leave")
    if (gang := _first(findings, GangFinding)) is not None:
        made.append(f"{gang.held} of {plural(gang.parts, 'part')} have a slot; none yet for {', '.join(gang.missing)}")
        if gang.pause:
            made.append(f"what it had was given back for others; it asks again in {ago(gang.pause)}")
    if (waiting := _first(findings, DedicatedFinding)) is not None and waiting.expected:
        made.append(waiting.expected)
    if (failed := _first(findings, FailedStarts)) is not None:
        where = f", the last on {failed.slot}" if failed.slot else ""
        made.append(f"{plural(failed.count, 'start')} of it failed{where}; it is held after {failed.most}")
        if failed.pause:
            made.append(f"its input could not be had; that is tried again in {ago(failed.pause)}")
    if (left := _first(findings, LeftMachine)) is not None:
        made.append(f"it left its last machine {ago(now - left.when)} ago: {left.why}")
    if (away := _first(findings, OutOfReach)) is not None:
        made.append(f"it goes on when that is back, and does not begin anew meanwhile; the last try said: {away.why}")
    made += [f"{silent.who} cannot be asked: {silent.why}" for silent in _findings_of(findings, Silent)]
    return made


def _machine_lines(findings: Sequence[Finding]) -> list[str]:
    machines = _first(findings, Machines)
    if machines is None or not machines.slots:
        return []
    noun = "machine" if machines.machines == machines.slots else "slot"
    count = plural(machines.slots, noun)
    if noun == "slot":
        count += f" on {plural(machines.machines, 'machine')}"
    unmet, refused = _first(findings, Unmet), _first(findings, RefusedFinding)
    parts = []
    if unmet is not None:
        parts.append(f"{unmet.count:,} {_does_or_do(unmet.count)} not meet its conditions")
    if refused is not None:
        parts.append(f"{refused.count:,} refuse{'s' if refused.count == 1 else ''} it")
    if (busy := _first(findings, Busy)) is not None:
        parts.append(f"{_match(busy.count)} and {_is_or_are(busy.count)} busy")
    if (unusable := _first(findings, Unusable)) is not None:
        said = ", ".join(f"{share.count:,} {_STATES.get(share.value, share.value)}" for share in unusable.states)
        parts.append(f"{_match(unusable.count)} but {_is_or_are(unusable.count)} not to be had ({said})")
    if (free := _first(findings, Free)) is not None:
        parts.append(f"{_match(free.count)} and {_is_or_are(free.count)} free")
    made = [f"  {count}: {'; '.join(parts) or 'nothing is known of them'}"]
    rows: list[tuple[str, str, str]] = []
    if unmet is not None:
        rows.append(("the job asks for", "rules out", f"{noun}s have"))
        rows += [(one.text, f"{one.rules_out:,}", _what_machines_have(one)) for one in unmet.conditions]
    if refused is not None:
        rows.append((f"{noun}s ask for", "refuse", ""))
        rows += [
            (one.text, f"{one.count:,}", _machines_text(one.names, one.count, one.states)) for one in refused.clauses
        ]
    made += table(rows)
    if (unshown := _first(findings, Unshown)) is not None:
        made += [f"  {line}" for line in _unshown(unshown, noun)]
    if (without := _first(findings, NoNetwork)) is not None:
        why = shares_text(without.reasons)
        asks = "no way out of its network" if without.out else "no network of its own"
        made.append(f"  it gets {asks}, as it asks, on {plural(without.count, noun)}: {why}")
    if busy is not None:
        made.append(f"  busy with: {shares_text(busy.users)}")
        if busy.kept:
            made.append(f"  their slots are not taken: {shares_text(busy.kept)}")
    if (nearest := _first(findings, Nearest)) is not None:
        made.append(f"  {_nearest(nearest, noun)}")
    return made


def _other_pool(found: OtherPool) -> str:
    """One line: "physics: 40 idle machines, none lets you in before 18:00"."""
    if found.trouble:
        return f"{found.pool}: {found.trouble}"
    if found.user:
        line = "no machine has been asked for yet"
        if found.waiting:
            line = f"{plural(found.waiting, 'job')} of {found.user} {_wait(found.waiting)} there, too"
        return f"{found.pool}: {line}{': ' if found.why else ''}{found.why}"
    if not found.idle:
        return f"{found.pool}: no idle machine"
    idle = plural(found.idle, "idle machine")
    if found.fit:
        which = "all take it" if found.fit == found.idle else f"{found.fit:,} would take it"
        return f"{found.pool}: {idle}, {which}{'; it said: ' if found.why else ''}{found.why}"
    if not found.refused:
        return f"{found.pool}: {idle}, none meets the job's conditions"
    when = f"none lets you in before {found.opens}" if found.opens else "none lets you in"
    return f"{found.pool}: {idle}, {when}" + (f" ({found.unmet:,} do not meet its conditions)" if found.unmet else "")


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _order_lines(findings: Sequence[Finding], now: float) -> list[str]:
    made: list[str] = []
    if (turn := _first(findings, TurnFinding)) is not None:
        made.append(_turn_text(turn))
    queued = _first(findings, Queued)
    if queued is not None and queued.idle > 1:
        first = "it is the first"
        if queued.ahead:
            first = f"{queued.ahead:,} come{'s' if queued.ahead == 1 else ''} first"
        made.append(f"of {queued.owner}'s {queued.idle:,} idle jobs {first}")
    for limit in _findings_of(findings, Limit):
        verdict = ", so it has to wait" if limit.binds else ""
        if limit.wants > limit.most:
            verdict = ": more than there ever is, so it can never start"
        made.append(f"limit {limit.name}: {limit.used:g} of {limit.most:g} in use, it takes {limit.wants:g}{verdict}")
    for quota in _findings_of(findings, QuotaFinding):
        verdict = ": the group has its share" if quota.binds else ""
        made.append(f"group {quota.group}: {quota.used:g} of its quota of {quota.quota:g} in use{verdict}")
    if (cycle := _first(findings, Cycle)) is not None:
        made.append(_cycle(cycle, now))
    if (rejected := _first(findings, Rejected)) is not None and not (cycle and cycle.reason == rejected.reason):
        made.append(f"last rejected{_ago(rejected.when, now)}: {rejected.reason}")
    if (outlook := _first(findings, Outlook)) is not None:
        long = "not as things are" if outlook.never else "cannot tell"
        if outlook.seconds is not None:
            long = f"{'at most' if outlook.most else 'about'} {ago(outlook.seconds)}"
        made.append(f"outlook: {long}{': ' if outlook.basis else ''}{outlook.basis}")
    return made


def _ended(ended: Ended, now: float) -> str:
    when = _ago(ended.when, now)
    if ended.removed:
        return f"was removed{when}: {ended.reason or 'no reason was given'}"
    if ended.code is None:
        return f"has completed{when}"
    how = f"by signal {ended.code}" if ended.signalled else f"with exit status {ended.code}"
    unseen = f". {_NOT_VISIBLE}" if ended.apart and not ended.signalled and ended.code in _NOT_FOUND else ""
    return f"has completed{when}, {how}{unseen}"


def _running(running: Running, now: float) -> str:
    since = _since(running.since, now)
    rest = (*running.others, *([f"{running.more} more"] if running.more else []))
    where = " and ".join(filter(None, (", ".join((running.slot, *rest[:-1])), *rest[-1:])))
    if running.phase == "running":
        return f"runs on {where}{since}"
    return f"is {running.phase} on {where}{since}"


def _what_machines_have(one: JobCondition) -> str:
    if one.best and one.want:
        said = f"{one.want} {one.best}"
        if one.best_fitting:
            said += f" ({one.best_fitting} where all else fits)"
    else:
        said = shares_text(one.has)
    if one.silent and one.attribute:
        said = f"{said}{', ' if said else ''}no {one.attribute} ({one.silent:,})"
    if one.alone:
        said += f"{'; ' if said else ''}alone it rules out {one.alone:,}"
    return said


def _unshown(unshown: Unshown, noun: str) -> list[str]:
    ways = ["with `remote_io = auto` they are copied there"]
    if any("/dev/fuse" in share.value for share in unshown.reasons):
        ways.append("a node shows them whose user may open /dev/fuse, or run by root on Linux 5.19 or newer")
    if any("file tree" in share.value for share in unshown.reasons):
        ways.append("a node shows them that root runs, or whose user may make namespaces")
    made = [f"its owner's files cannot be shown to it on {plural(unshown.count, noun)}: {shares_text(unshown.reasons)}"]
    return [*made, f"  way out: {'; '.join(ways)}"]


def _machines_text(names: Sequence[str], count: int, states: Sequence[ValueCount]) -> str:
    listed = ", ".join(names) + (", .." if count > len(names) else "")
    owners = sum(share.count for share in states if share.value == "Owner")
    if owners == count:
        return f"{listed} (their owners use them)"
    return f"{listed} ({owners:,} in use by their owners)" if owners else listed


def _nearest(nearest: Nearest, noun: str) -> str:
    would = plural(nearest.lets_in, noun)
    if not nearest.changes:
        clauses = " and ".join(nearest.theirs)
        return f"nearest: {would}, where only {clauses} {'is' if len(nearest.theirs) == 1 else 'are'} in the way"
    changed = " and ".join(nearest.changes)
    theirs = f", if they also took it despite {' and '.join(nearest.theirs)}" if nearest.theirs else ""
    return f"nearest: without {changed}, {would} would do{theirs}"


def _turn_text(turn: TurnFinding) -> str:
    said = f"{turn.user} is {ordinal(turn.place)} of {plural(turn.of, 'user')} in line"
    if turn.of == 1:
        said = f"{turn.user} is alone in line"
    if turn.priority is not None and turn.of > 1:
        said += f" (priority {turn.priority + 0.0:.2f})"
    if turn.ahead:
        said += f", after {', '.join(turn.ahead)}{', ..' if turn.place - 1 > len(turn.ahead) else ''}"
    return f"{said}; has {plural(turn.running, 'slot')}"


def _cycle(cycle: Cycle, now: float) -> str:
    said = f"last negotiation{_ago(cycle.when, now)}"
    if cycle.reason:
        return f"{said}: {cycle.reason}"
    if not cycle.asked:
        return f"{said}: before this job was asked for"
    return f"{said}: {plural(cycle.matched, 'job')} like it got machines" if cycle.matched else said


# --- a machine


def _of_machine(slot: SlotFinding, findings: Sequence[Finding], now: float) -> list[str]:
    doing = f"{slot.state} {slot.activity}".strip()
    serves = f" with job {slot.job}" if slot.job else ""
    serves += f" of {slot.user}" if slot.user else ""
    made = [f"{slot.name}: {doing}{_since(slot.since, now)}{serves}"]
    if slot.drained:
        made.append(f"  {slot.drained}; `poolnode undrain` brings it back")
    if slot.parts:
        left = f"{slot.cpus:g} processors and {slot.memory} are left" if slot.cpus >= 1 else "no processor is left"
        made.append(f"  {plural(slot.parts, 'slot')} {_is_or_are(slot.parts)} carved out of it, {left}")
    made += [f"  trouble: {trouble.text}" for trouble in _findings_of(findings, Trouble)]
    for rule in _findings_of(findings, Rule):
        constant = rule.value.startswith("always")
        made.append(f"  {rule.name} is {rule.value}" + ("" if constant else f": {rule.effect}"))
        made += [f"    {clause}" for clause in rule.clauses]
    for demand in _findings_of(findings, Demand):
        made += [f"  {line}" for line in _demand(demand, taken=bool(slot.user))]
    made += [f"  {silent.who} cannot be asked: {silent.why}" for silent in _findings_of(findings, Silent)]
    made += [f"  {_cycle(cycle, now)}" for cycle in _findings_of(findings, Cycle)]
    return made


def _demand(demand: Demand, *, taken: bool) -> list[str]:
    if not demand.jobs:
        return ["no job in the pool waits"]
    of = f"{plural(demand.jobs, 'idle job')} of {plural(demand.clusters, 'kind')}"
    made = [f"{of}: {demand.fit:,} match{'es' if demand.fit == 1 else ''} it"]
    if demand.unmet and not taken:
        made.append(f"  the others ask for: {shares_text(demand.unmet)}")
    if demand.refused and not taken:
        made.append(f"  it refuses the others by: {shares_text(demand.refused)}")
    if demand.better:
        made.append(f"  {plural(demand.better, 'job')} that it likes better (RANK) may take it over")
    if demand.guests:
        which = plural(demand.guests, "job")
        made.append(f"  {which} of this pool may take it over: its job is of another pool, and leaves")
    if demand.prior:
        made.append(f"  {plural(demand.prior, 'job')} of users who stand better may take it over")
    return made


# --- small words


def table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Three columns, the second to the right; a row's first column takes at most half a line of 110."""
    if not rows:
        return []
    first = min(56, max(len(row[0]) for row in rows))
    second = max(len(row[1]) for row in rows)
    return [f"    {left:<{first}}  {middle:>{second}}  {right}".rstrip() for left, middle, right in rows]


def shares_text(shares: Iterable[ValueCount]) -> str:
    """`LINUX (40), WINDOWS (2)`."""
    return ", ".join(f"{share.value} ({share.count:,})" for share in shares)


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else _ENDINGS.get(number % 10, "th")
    return f"{number:,}{ending}"


def ago(seconds: float) -> str:
    """A length of time in at most two units: `40 s`, `12 min`, `3 h 5 min`, `2 d 4 h`."""
    whole = max(0, int(seconds + 0.5))
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    days, hours = divmod(hours, 24)
    return f"{days} d" + (f" {hours} h" if hours else "")


def _ago(when: float, now: float) -> str:
    return f" {ago(now - when)} ago" if when else ""


def _since(when: float, now: float) -> str:
    return f" for {ago(now - when)}" if when else ""


def _does_or_do(count: int) -> str:
    return "does" if count == 1 else "do"


def _match(count: int) -> str:
    return f"{count:,} match{'es' if count == 1 else ''}"


def _is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def _first(findings: Iterable[Finding], kind: type[F]) -> F | None:
    return next((finding for finding in findings if isinstance(finding, kind)), None)


def _findings_of(findings: Iterable[Finding], kind: type[F]) -> list[F]:
    return [finding for finding in findings if isinstance(finding, kind)]

"""`condor_rm`, `condor_hold`, `condor_release`, `condor_vacate_job`, `condor_qedit` and `condor_prio`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pool.compat.asking import ask_schedd, print_error, selection
from pool.compat.options import Option, Parsed, parse, usage
from pool.decimals import has_digits_only
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import ActionResult, Pool

_WHICH = (
    Option("constraint", 1, 1),
    Option("all", 1),
    Option("address", 2, 1, key="pool"),
    Option("reason", 1, 1),
    Option("name", 1, 1),
    Option("pool", 1, 1),
    Option("totals", 3),
    Option("version", 1),
    Option("help", 1),
)
_REMOVE = (
    Option("forcex", 1),
    Option("held", 3),
    Option("transfer", 2, refused="poolnode fetch JOB, then condor_rm"),
    *_WHICH,
)
_HOLD = (Option("subcode", 1, 1, refused="the reason of a hold is kept in words: -reason TEXT"), *_WHICH)
_VACATE = (Option("fast", 1), *_WHICH)
#: Action -> (how a success is told, the verb of a failure).
_WORDS = {
    "remove": ("marked for removal", "remove"),
    "forcex": ("removed locally (remote state unknown)", "remove"),
    "hold": ("held", "hold"),
    "release": ("released", "release"),
    "vacate": ("vacated", "vacate"),
    "fast": ("fast-vacated", "fast-vacate"),
}


def remove(words: Sequence[str]) -> int:
    """Run `condor_rm`; returns its exit status."""
    given = parse(_REMOVE, words)
    return _act("condor_rm", _REMOVE, given, "remove", "forcex" if given.has("forcex") else "remove")


def hold(words: Sequence[str]) -> int:
    """Run `condor_hold`; returns its exit status."""
    return _act("condor_hold", _HOLD, parse(_HOLD, words), "hold", "hold")


def release(words: Sequence[str]) -> int:
    """Run `condor_release`; returns its exit status."""
    return _act("condor_release", _WHICH, parse(_WHICH, words), "release", "release")


def vacate_job(words: Sequence[str]) -> int:
    """Run `condor_vacate_job`; returns its exit status."""
    given = parse(_VACATE, words)
    return _act("condor_vacate_job", _VACATE, given, "vacate", "fast" if given.has("fast") else "vacate")


def _act(tool: str, table: Sequence[Option], given: Parsed, action: str, words: str) -> int:
    if given.has("help") or given.has("version"):
        return help_or_version(tool, table, given, "[cluster | cluster.proc | user] ...")
    constraints = given.all_of("constraint") + (["JobStatus == 5"] if given.has("held") else [])
    if not (given.words or constraints or given.has("all")):
        print_error(usage(tool, table, "[cluster | cluster.proc | user] ..."))
        return 1
    force = given.has("forcex") or given.has("fast")
    chosen: list[tuple[str, dict[str, Any]]] = [(word, selection([word], constraints)) for word in given.words]
    if not chosen:
        chosen = [("", selection([], constraints) if constraints else {"everything": True})]

    async def question(pool: Pool) -> int:
        failed = False
        for word, params in chosen:
            error, done = "", 0
            refused: tuple[tuple[str, str], ...] = ()
            try:
                acted = await pool.act(action, reason=given.value("reason") or "", force=force, **params)
                done, refused = acted.done, tuple(one for one in acted.refused if "no such job" not in one[1])
            except PoolError as problem:
                error = str(problem)
            if not done and not error and given.has("forcex"):
                done = await _removed_before(pool, params)
            well = bool(done) and not refused and not error
            failed |= not well
            for line in _outcome_lines(word, constraints, words, done, refused, error):
                print(line, file=sys.stdout if well else sys.stderr)
            if given.has("totals"):
                print(f"{done} Succeeded, {len(refused)} Failed, {int(not done and not refused)} Not Found")
        return int(failed)

    return ask_schedd(given.value("pool"), given.value("name"), question)


async def _removed_before(pool: Pool, params: dict[str, Any]) -> int:
    """How many of these jobs have been removed already: here a removed job is out of the queue at once."""
    ads = await pool.gather("schedd.history", params | {"attributes": ["JobStatus"], "limit": 1000})
    return sum(1 for ad in ads if ad.get("JobStatus") == 3)


def _outcome_lines(
    word: str, constraints: Sequence[str], words: str, done: int, refused: Sequence[tuple[str, str]], error: str
) -> list[str]:
    """The lines about one choice of jobs, as `condor_rm` words them."""
    past, verb = _WORDS[words]
    if error:
        return [error]
    cluster, _, proc = word.partition(".")
    if proc and not constraints:
        told = dict(refused).get(word, "")
        if done:
            return [f"Job {word} {past}"]
        return [f"Job {word}: {told}" if told else f"Job {word} not found"]
    which = ""
    if word and has_digits_only(word[0]):
        which = f" in cluster {cluster}"
    elif word:
        which = f' of user "{word}"'
    if constraints:
        which += f" matching constraint ({' && '.join(constraints)})"
    lines = [f"{job}: {why}" for job, why in refused[:20]]
    return [f"All jobs{which} have been {past}", *lines] if done else [f"Couldn't find/{verb} all jobs{which}", *lines]


def help_or_version(tool: str, table: Sequence[Option], given: Parsed, words: str = "") -> int:
    """Prints the page of `-help`, or the release for `-version`."""
    if given.has("version"):
        from pool.compat.settings import version

        return version([])
    sys.stdout.write(usage(tool, table, words))
    return 0


_QEDIT = (
    Option("help", 1),
    Option("name", 1, 1),
    Option("pool", 1, 1),
    Option("constraint", 1, 1),
    Option("owner", 1, 1),
    Option("jobids", 1, 1),
    Option("dry-run", 3, refused="condor_q -constraint EXPR shows which jobs it is"),
    Option("edits", 2, 1, colon=True, refused="give NAME=VALUE on the command line"),
    Option("forward", 3, refused="a running job takes it at its next start"),
    Option("version", 1),
)


def qedit(words: Sequence[str]) -> int:
    """Run `condor_qedit`; returns its exit status."""
    given = parse(_QEDIT, words)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_qedit", _QEDIT, given, "[job ...] attribute=value ...")
    which, pairs = _edits(given)
    constraints = given.all_of("constraint")
    which += given.all_of("owner") + [one for text in given.all_of("jobids") for one in text.replace(",", " ").split()]
    if not which and not constraints:
        raise PoolError("no jobs are named", hint="condor_qedit 12.0 RequestMemory=2048")

    async def question(pool: Pool) -> ActionResult:
        return await pool.act("edit", attributes=pairs, **selection(which, constraints))

    acted = ask_schedd(given.value("pool"), given.value("name"), question)
    for job, why in acted.refused[:20]:
        print_error(f"Failed to set attribute for job {job}: {why}")
    if not acted.done:
        print_error(
            "No jobs match"
            + (f" the constraint: {' && '.join(constraints)}" if constraints else ": " + " ".join(which))
        )
        return 1
    for name in pairs:
        print(f'Set attribute "{name}" for {acted.done} matching jobs.')
    return 1 if acted.refused else 0


def _edits(given: Parsed) -> tuple[list[str], dict[str, str]]:
    """The jobs, and the attributes with their values: `NAME=VALUE`, or `NAME VALUE` as in older releases."""
    words = list(given.words)
    which: list[str] = []
    needs_one = not (given.all_of("constraint") or given.all_of("owner") or given.all_of("jobids"))
    while words and "=" not in words[0] and (has_digits_only(words[0][:1]) or (needs_one and not which)):
        which.append(words.pop(0))
    pairs: dict[str, str] = {}
    while words:
        name, equals, value = words.pop(0).partition("=")
        if not equals:
            if not words:
                raise PoolError(f"{name} has no value", hint="condor_qedit 12.0 NAME=VALUE")
            value = words.pop(0)
        pairs[name.strip()] = value.strip()
    if not pairs:
        raise PoolError("no attribute is named", hint="condor_qedit 12.0 NAME=VALUE")
    return which, pairs


_PRIO = (
    Option("prio", 1, 1, key="value"),
    Option("all", 1, key="mine"),
    Option("name", 1, 1),
    Option("pool", 2, 1),
    Option("version", 1),
    Option("help", 1),
)


def prio(words: Sequence[str]) -> int:
    """Run `condor_prio`; returns its exit status. `+N` and `-N` change the priority, `-p N` sets it."""
    steps = [word for word in words if word[:1] in "+-" and has_digits_only(word[1:])]
    value_at = [at for at, word in enumerate(words) if word in ("-p", "-prio", "--prio")]
    plain = [word for at, word in enumerate(words) if word not in steps or at - 1 in value_at]
    given = parse(_PRIO, plain)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_prio", _PRIO, given, "[+N | -N | -p N] [cluster | cluster.proc | user] ...")
    wanted = given.value("value")
    if (wanted is None) == (not steps) or len(steps) > 1:
        raise PoolError("one priority is needed", hint="condor_prio -p 10 12.0, or condor_prio +5 12.0")
    if not given.words and not given.has("mine"):
        raise PoolError("no jobs are named", hint="condor_prio -p 10 12.0")

    async def question(pool: Pool) -> int:
        from pool.client.descriptions import user_name

        params = selection(given.words or [user_name()])
        if wanted is not None:
            acted = await pool.act("prio", value=int(wanted), **params)
            return acted.done
        done = 0
        asked = params | {"attributes": ["ClusterId", "ProcId", "JobPrio"]}
        for ad in await pool.gather("schedd.query", asked):
            value = int(ad.get("JobPrio") or 0) + int(steps[0])
            done += (await pool.act("prio", ids=[(ad["ClusterId"], ad["ProcId"])], value=value)).done
        return done

    if not ask_schedd(given.value("pool"), given.value("name"), question):
        print_error("No jobs match " + " ".join(given.words))
        return 1
    return 0

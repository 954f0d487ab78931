"""Words that people bring from other systems: HTCondor's options with one dash, and names of other tools' commands.

Each is understood where it means the same here, and refused with the right spelling where it does not. Pure: words go
in, words or a UsageProblem come out. A command's table lists only the options that no long option of ours spells.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from pool.cli.selection import UsageProblem

#: Option -> (the words that do it here, the hint of the refusal). Exactly one of the two is set; () drops the option.
Meaning = tuple[tuple[str, ...] | None, str]


def _is(*words: str) -> Meaning:
    return words, ""


def _use(hint: str) -> Meaning:
    return None, hint


_NODE = _use("name the node to ask: --address tcp://HOST:PORT")
_AUTOFORMAT = _use("attributes as columns: -a ClusterId,ProcId,Cmd; for programs: --json")
_LISTING: dict[str, Meaning] = {
    "pool": _NODE,
    "name": _NODE,
    "autoformat": _AUTOFORMAT,
    "af": _AUTOFORMAT,
    "format": _AUTOFORMAT,
    "print-format": _AUTOFORMAT,
    "xml": _use("whole ads: --long or --json"),
    "wide": _is(),
}
_ACTING: dict[str, Meaning] = {"pool": _NODE, "name": _NODE, "addr": _NODE}
_WHY = _use("`poolnode why JOB` says why a job waits")

#: Command -> HTCondor's option -> meaning here.
OPTIONS: dict[str, dict[str, Meaning]] = {
    "q": {
        **_LISTING,
        "hold": _is("--held"),
        "run": _is("--constraint", "JobStatus == 2"),
        "running": _is("--constraint", "JobStatus == 2"),
        "submitter": _is(),
        "allusers": _is(),
        "nobatch": _is(),
        "batch": _use("every job has a line of its own here: poolnode q"),
        "global": _use("poolnode globalq"),
        "analyze": _WHY,
        "better-analyze": _WHY,
        "totals": _use("the last line of `poolnode q` has them"),
        "dag": _use("work flows are not built yet"),
    },
    "globalq": {**_LISTING, "global": _is()},
    "history": {
        **_LISTING,
        "match": _is("--limit"),
        "backwards": _is(),
        "forwards": _use("newest first is the only order; `poolnode history | tac` turns it round"),
        "since": _use("poolnode history -c 'CompletionDate > 1700000000'"),
        "completedsince": _use("poolnode history -c 'CompletionDate > 1700000000'"),
    },
    "status": {
        **_LISTING,
        "avail": _is("--constraint", 'State == "Unclaimed"'),
        "claimed": _is("--constraint", 'State == "Claimed"'),
        "schedd": _is("--type", "schedds"),
        "submitters": _is("--type", "submitters"),
        "any": _is("--type", "any"),
        "totals": _is("--total"),
        "compact": _is(),
        "nocompact": _is(),
    },
    "rm": {**_ACTING, "forcex": _is("--force")},
    "hold": {**_ACTING, "subcode": _use("a reason is kept in words: --reason TEXT")},
    "release": _ACTING,
    "prio": _ACTING,
    "vacate": _ACTING,
    "submit": {
        **_ACTING,
        "append": _use("commands follow the file: poolnode submit FILE request_memory=2GB"),
        "terse": _is("--quiet"),
        "disable": _is(),
        "file": _is(),
        "batch-name": _use("poolnode submit FILE batch_name=NAME"),
        "remote": _NODE,
        "interactive": _use("a shell as a job is not built yet"),
    },
    "wait": {
        "wait": _is("--timeout"),
        "num": _use("name the jobs to wait for: poolnode wait 12.0 12.1"),
        "echo": _use("events are in the job's log file; poolnode wait shows progress"),
        "status": _use("poolnode wait JOB shows progress"),
    },
    "tail": {"stderr": _is("--err"), "no-stdout": _use("poolnode tail --err JOB"), "maxbytes": _use("-n LINES")},
    "userprio": {"allusers": _is(), "usage": _is(), "setprio": _use("poolnode userprio USER --priority N")},
}

#: Commands of other systems, and of everyday tools -> the one to use here.
COMMANDS = {
    "analyze": "why",
    "bjobs": "q",
    "bkill": "rm",
    "bsub": "submit",
    "cancel": "rm",
    "continue": "release",
    "del": "rm",
    "delete": "rm",
    "hosts": "status",
    "info": "status",
    "jobs": "q",
    "kill": "rm",
    "list": "q",
    "log": "tail",
    "logs": "tail",
    "ls": "q",
    "machines": "status",
    "nodes": "status",
    "pause": "hold",
    "ps": "q",
    "qdel": "rm",
    "qstat": "q",
    "qsub": "submit",
    "queue": "q",
    "remove": "rm",
    "resume": "release",
    "sacct": "history",
    "sbatch": "submit",
    "scancel": "rm",
    "sinfo": "status",
    "squeue": "q",
    "srun": "run",
    "start": "run",
    "top": "status",
    "transfer_data": "fetch",
    "unhold": "release",
}

_ONE_DASH = re.compile(r"-([A-Za-z][A-Za-z_-]+)(?::\S*)?")


def translate(command: str, words: Sequence[str], flags: Collection[str], values: Collection[str]) -> list[str]:
    """The command line with HTCondor's one-dash options spelled as ours.

    Args:
        command: the name of our command. words: its arguments.
        flags: its options that take no value, as they are written (-l, --long). values: those that take one.

    Raises:
        UsageProblem: an option that is neither ours nor one that can be translated.
    """
    result: list[str] = []
    meanings = OPTIONS.get(command, {})
    longs = {option[2:] for option in (*flags, *values) if option.startswith("--")}
    for at, word in enumerate(words):
        if word == "--":
            return [*result, *words[at:]]
        match = _ONE_DASH.fullmatch(word)
        if match is None or (result and result[-1] in values):
            result.append(word)
            continue
        name = match[1].lower()
        found = _find(name, meanings, longs)
        if found is None and _is_bundle(match[1], flags, values):
            result.append(word)
        elif found is None:
            raise UsageProblem(
                f"{command} has no option {word}", hint=f"see `poolnode {command} --help`; long options have two dashes"
            )
        else:
            ours, hint = found
            if ours is None:
                raise UsageProblem(f"{command} has no option {word}", hint=hint)
            result += ours
    return result


def _is_bundle(letters: str, flags: Collection[str], values: Collection[str]) -> bool:
    """Whether these are short options in one word (-ql); only the last may take a value."""
    return all(f"-{one}" in flags for one in letters[:-1]) and f"-{letters[-1]}" in {*flags, *values}


def _find(name: str, meanings: Mapping[str, Meaning], longs: Collection[str]) -> Meaning | None:
    """The meaning of an option, or of an abbreviation of one (at least three letters that fit one option only)."""
    if name in meanings:
        return meanings[name]
    if name in longs:
        return (f"--{name}",), ""
    near = {one for one in (*meanings, *longs) if len(name) >= 3 and one.startswith(name)}
    if len({one if one in longs else meanings[one] for one in near}) == 1:
        one = min(near)
        return meanings.get(one, ((f"--{one}",), ""))
    return None


def instead_of(command: str, known: Collection[str]) -> str | None:
    """The command of ours that does what this word means elsewhere, or that it misspells.

    A word is never taken for the misspelling of a command that begins otherwise: 'top' is not 'stop'.
    """
    word = command.lower().removeprefix("condor_")
    if word in known:
        return word
    if word in COMMANDS:
        return COMMANDS[word]
    import difflib

    near = [name for name in known if name[:1] == word[:1]]
    return next(iter(difflib.get_close_matches(word, near, n=1, cutoff=0.6)), None)

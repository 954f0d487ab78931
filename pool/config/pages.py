"""The pages of the documentation that say what tables in the program say: made from them, so that they stay true.

    python -m pool.config.pages docs        writes docs/configuration.md, docs/states.md and docs/submit.md

Nothing of it is needed to run a node.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from pool.config.table import ALIASES, SECTIONS, Setting
from pool.jobs import states
from pool.jobs.description import support
from pool.policy import slots, starter
from pool.policy.shipped import DEDICATED_TEXTS, DESKTOP_TEXTS, MACROS

_MADE = "<!-- Made by `python -m pool.config.pages docs` from the program's tables: change those. -->\n"

_COMMANDS = """\
# Commands of a submit file

Each command of the language, and the support for it in this pool. `partly`: the supported part is named. `ignored`:
`poolnode submit`, `submit --check` and `Pool.submit` print a warning of one line. `refused`: a description with the
command is not queued. A value that asks for nothing (`stream_output = false`) is accepted without a warning.

"""

_CONFIGURATION = """\
# Configuration

A node without any configuration runs. An administrator changes settings in a pool-wide file, which all machines may
share, and in a local file next to it, which wins over the pool-wide one (TS 8, EV 2.5):

    # /etc/poolnode/pool.conf
    POLICY        = desktop
    StartIdleTime = 5 * $(MINUTE)
    START         : $(START) && TARGET.Owner != "guest"

    # /etc/poolnode/pool.local.conf
    include ifexist : /etc/poolnode/this-room.conf
    SLOTS = partitionable memory=50%

| what | means |
|---|---|
| `NAME = value` | a setting, or a macro of your own |
| `NAME : expression` | the same; the papers write control expressions so |
| `$(NAME)`, `$(NAME:default)` | the value of NAME, wherever set; within its own definition its earlier value |
| `$ENV(NAME)` | a variable of the node's environment |
| `include : FILE`, `include ifexist : FILE` | reads another file at this place; relative to the directory of this one |
| `# ...` | a comment, on a line of its own |
| `\\` at the end of a line | the value goes on in the next line |

Of several definitions the last wins, in this order: default, pool-wide file, local file, `POOLNODE_NAME` in the
environment of the node, `--set NAME=value`. The pool-wide file is the one given with `--config`, or named by
`$POOLNODE_CONFIG`, or `~/.config/poolnode/pool.conf`, or `/etc/poolnode/pool.conf`; the first that is there is read.

`poolnode config` shows every setting of a running node, its value, and the file and line where it was set. After a
SIGHUP the files are read again; a configuration with a mistake is refused as a whole, with file and line, and the node
keeps its settings. Settings marked * take effect when the node is started again.

Names are the same in capitals and small letters. Lengths of time are in seconds, or with units: `90`, `10 min`,
`1 h 30 min`. Numbers may be calculated: `2 * $(HOUR)`.
"""

_STATES = """\
# States

The states of a slot, of a job and of a start of a job, and the events that move them. The program works by these
tables; an event that a table does not show is refused.

## Slots

Kept by the startd of the machine (`pool/policy/slots.py`, where the rules stand); moved by the owner's expressions,
the negotiator's matches, and the schedd that has the claim. State and activity are shown by `poolnode status`.

"""

_STARTER = """
## The start of a job

Kept by the starter on the execute machine (`pool/policy/starter.py`, where the rules stand), after the state machine
of the 1994 starter (VS 3.6, figure 3.5, table 3.1, appendix B). Events in capitals come at any time; the others follow
from the work of the state.

"""
_ANSWERS = """
The answer of each state to each event that comes at any time: the next state in bold, or the action. `keep` means that
a later state answers the event; `-` means that nothing has to be done.

"""


def configuration() -> str:
    """docs/configuration.md."""
    parts = [_MADE, _CONFIGURATION]
    for title, rows in SECTIONS:
        parts.append(f"\n## {title}\n\n{_table(('setting', 'value', 'default', 'meaning'), map(_row, rows))}")
    parts.append(
        "\n## The shipped policies\n\n"
        "Evaluated with the slot's ad as MY and the job's as TARGET, every EVALUATE_INTERVAL.\n\n"
    )
    names = DESKTOP_TEXTS.keys()
    parts.append(
        _table(
            ("expression", "desktop (EV 2.7, TS 8.1)", "dedicated"),
            ((f"`{name}`", _code(DESKTOP_TEXTS[name]), _code(DEDICATED_TEXTS[name])) for name in names),
        )
    )
    parts.append("\nThey are made of these macros, which can be used and changed like any other:\n\n")
    parts.append(_table(("macro", "stands for"), ((f"`{name}`", _code(text)) for name, text in MACROS.items())))
    parts.append("\n## Other names\n\nThe papers' names, and those that HTCondor's users know, for the same.\n\n")
    parts.append(_table(("name", "setting"), ((f"`{other}`", f"`{name}`") for other, name in ALIASES.items())))
    return "".join(parts)


def state_tables() -> str:
    """docs/states.md."""
    moves = [
        (str(before), event.value, str(after), action.value) for (before, event), (after, action) in slots.TABLE.items()
    ]
    runs = [
        (_job(before), happening.value, _job(move.next), move.action.value.replace("_", " "))
        for (before, happening), move in states.TABLE.items()
    ]
    head = ("from", "event", "to", "action")
    return "".join(
        (
            _MADE,
            _STATES,
            f"```mermaid\n{slots.draw()}```\n\n",
            _table(head, moves),
            "\n## Jobs\n\nKept by the schedd (`pool/jobs/states.py`); a move is written before it is acted upon.\n\n",
            f"```mermaid\n{states.draw()}```\n\n",
            _table(head, runs),
            _STARTER,
            f"```mermaid\n{starter.draw()}```\n",
            _ANSWERS,
            _table(("state", *(event.value for event in starter.ASYNCHRONOUS)), starter.answers()),
            "\nThe actions on the way:\n\n",
            _table(head, starter.moves()),
        )
    )


def commands() -> str:
    """docs/submit.md."""
    rows = [
        (", ".join(f"`{name}`" for name in row.names), row.support.value, row.says + f" ({row.hint})" * bool(row.hint))
        for row in support.TABLE
    ]
    return "".join((_MADE, _COMMANDS, _table(("command", "here", "effect, or the warning or refusal"), rows)))


PAGES = {"configuration.md": configuration, "states.md": state_tables, "submit.md": commands}


def _row(setting: Setting) -> tuple[str, ...]:
    mark = "" if setting.live else " *"
    value = ", ".join(setting.choices) or f"{setting.kind}{f' ({setting.unit})' if setting.unit else ''}"
    default = "the policy's" if setting.default.startswith("$(POLICY_") else _code(setting.default)
    return f"`{setting.name}`{mark}", value, default, setting.doc


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _job(status: states.JobStatus) -> str:
    return status.name.capitalize().replace("_", " ")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def main(directory: Path) -> None:
    """Write all pages."""
    for name, made in PAGES.items():
        (directory / name).write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The policies that owners need not write: the papers' for desktops, and one for machines that always run jobs.

DESKTOP is the papers' policy with their times. A job may start after 15 minutes without keyboard and with a load of the
owner's own of at most 0.3. It is suspended when the keyboard is touched or that load is above 1.5. It goes on after 5
quiet minutes. After 10 minutes of suspension it has to leave, and 10 minutes later it is killed. The owner's load is
the machine's without the pool's (`pool.machine.load`); the papers took the whole, which cannot work for jobs of several
processes (VS 7.4). DEDICATED always runs jobs.

Both are kept as texts with macros, in the papers' own notation, so that a configuration may change one of the times or
one of the expressions and still use the rest; `pool.config` reads the same texts. `pool.policy.owner` defines the
meaning of the expressions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pool.errors import PoolError


class PolicyError(PoolError):
    """A policy expression cannot be read, or there is no policy of that name."""


#: The times and loads of the papers' policy: seconds, and runnable processes (EV 2.7). `KEYBOARD_TOUCHED` is how young
#: a touch must be to count as one: the kernel notes a terminal's in steps of eight seconds, and it is looked at every
#: five.
TIMES: Mapping[str, float] = {
    "START_IDLE": 900,
    "CONTINUE_IDLE": 300,
    "BACKGROUND_LOAD": 0.3,
    "SUSPEND_LOAD": 1.5,
    "KEYBOARD_TOUCHED": 15,
    "MAX_SUSPEND": 600,
    "MAX_VACATE": 600,
}
#: Macros that the shipped expressions are made of, for an administrator's own too.
MACROS: Mapping[str, str] = {
    "MINUTE": "60",
    "HOUR": "(60 * 60)",
    "DAY": "(24 * 60 * 60)",
    "NONCONDORLOADAVG": "(TotalLoadAvg - TotalCondorLoadAvg)",
    "STATETIMER": "(CurrentTime - EnteredCurrentState)",
    "ACTIVITYTIMER": "(CurrentTime - EnteredCurrentActivity)",
    "ACTIVATIONTIMER": "(CurrentTime - JobStart)",
    "LASTCKPT": "(CurrentTime - LastPeriodicCheckpoint)",
    "CPUIDLE": "($(NonCondorLoadAvg) <= $(BACKGROUND_LOAD))",
    "CPUBUSY": "($(NonCondorLoadAvg) > $(SUSPEND_LOAD))",
    "KEYBOARDBUSY": "(KeyboardIdle < $(KEYBOARD_TOUCHED))",
}
#: The papers' policy (EV 2.7, TS 8.1), as a configuration would write it.
DESKTOP_TEXTS: Mapping[str, str] = {
    "START": "$(CPUIdle) && KeyboardIdle > $(START_IDLE)",
    "SUSPEND": "$(KeyboardBusy) || $(CPUBusy)",
    "CONTINUE": "$(CPUIdle) && KeyboardIdle > $(CONTINUE_IDLE)",
    "PREEMPT": 'Activity == "Suspended" && $(ActivityTimer) > $(MAX_SUSPEND)',
    "KILL": "$(ActivityTimer) > $(MAX_VACATE)",
    "WANT_SUSPEND": "true",
    "WANT_VACATE": "true",
    "WANT_CHECKPOINT": "true",
    "START_URGENT": "false",
    "RANK": "0.0",
    "MAX_JOB_RETIREMENT": "0",
    "SLOT_WEIGHT": "Cpus",
}
#: For servers and personal pools: jobs always run.
DEDICATED_TEXTS: Mapping[str, str] = {
    "START": "true",
    "SUSPEND": "false",
    "CONTINUE": "true",
    "PREEMPT": "false",
    "KILL": "$(ActivityTimer) > $(MAX_VACATE)",
    "WANT_SUSPEND": "false",
    "WANT_VACATE": "true",
    "WANT_CHECKPOINT": "true",
    "START_URGENT": "false",
    "RANK": "0.0",
    "MAX_JOB_RETIREMENT": "0",
    "SLOT_WEIGHT": "Cpus",
}
SHIPPED_TEXTS = {"desktop": DESKTOP_TEXTS, "dedicated": DEDICATED_TEXTS}

_MACRO = re.compile(r"\$\((\w+)\)")


def filled(text: str, times: Mapping[str, float] = TIMES) -> str:
    """A shipped text with its macros and times put in."""
    while "$(" in text:
        text = _MACRO.sub(lambda match: _macro(match[1].upper(), times), text)
    return text


def _macro(name: str, times: Mapping[str, float]) -> str:
    return f"{times[name]:g}" if name in times else MACROS[name]


def shipped(name: str, times: Mapping[str, float] = TIMES) -> dict[str, str]:
    """The expressions of a shipped policy.

    Args:
        times: as TIMES, with some of them changed.

    Raises:
        PolicyError: there is no such policy.
    """
    texts = SHIPPED_TEXTS.get(name.lower())
    if texts is None:
        raise PolicyError(f"POLICY = {name}: there is no such policy", hint=f"one of {', '.join(SHIPPED_TEXTS)}")
    return {key: filled(text, times) for key, text in texts.items()}


DESKTOP: Mapping[str, str] = shipped("desktop")
DEDICATED: Mapping[str, str] = shipped("dedicated")

"""Every setting there is: its name, kind, default, unit, and what it is for. One table; the docs are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a setting's value is."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    EXPRESSION = "expression"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str
    kind: Kind
    default: str
    unit: str
    doc: str


def _text(name: str, default: str, doc: str) -> Setting:
    return Setting(name, Kind.TEXT, default, "", doc)


def _number(name: str, default: str, unit: str, doc: str) -> Setting:
    return Setting(name, Kind.NUMBER, default, unit, doc)


def _flag(name: str, default: str, doc: str) -> Setting:
    return Setting(name, Kind.FLAG, default, "", doc)


def _expression(name: str, default: str, doc: str) -> Setting:
    return Setting(name, Kind.EXPRESSION, default, "", doc)


ROWS = (
    _text("NODE_NAME", "", "this node's name in the pool; the host name when empty"),
    _text("ROLES", "", "roles to run when --roles is not given"),
    _text(
        "LISTEN",
        "0.0.0.0:9618",
        "host and port to listen on for other nodes; empty listens on the unix socket only",
    ),
    _text("PUBLIC_ADDRESS", "", "host and port under which others reach this node, where that differs from LISTEN"),
    _text("COLLECTOR", "", "address of the pool's collector; this node, or the one it joined, when empty"),
    _text("UID_DOMAIN", "", "machines with the same domain share user names; the host name when empty"),
    _text(
        "FILESYSTEM_DOMAIN", "", "machines with the same domain share their files; the host name when empty"
    ),
    _text("ADMIN", "", "mail address of the administrator"),
    _text("MAIL", "", "sendmail program; empty looks in the usual places, none sends no mail"),
    _text("LOG_LEVEL", "info", "debug, info, warning or error"),
    _number("RESTARTS_PER_HOUR", "10", "", "restarts of a failed role within an hour before it is given up"),
    _text("SLOTS", "partitionable", "partitionable, or the number of equal slots"),
    _text("EXECUTE_DIR", "", "where jobs' scratch directories lie; in the state directory when empty"),
    _text("RUN_AS", "owner", "whom jobs run as on a node run by root: owner, node, nobody or refuse"),
    _flag("ENFORCE_MEMORY", "false", "kill jobs that use more memory than their slot has"),
    _text("POLICY", "desktop", "desktop (the papers' owner policy) or dedicated (jobs always run)"),
    _expression("START", "", "when jobs may start; the policy's when empty"),
    _expression("SUSPEND", "", "when a running job is suspended"),
    _expression("CONTINUE", "", "when a suspended job goes on"),
    _expression("PREEMPT", "", "when a job has to leave"),
    _expression("KILL", "", "when a leaving job is killed"),
    _expression("WANT_SUSPEND", "", "whether a job is suspended before it has to leave"),
    _expression("WANT_VACATE", "", "whether a leaving job is asked softly first"),
    _expression("RANK", "", "which jobs this machine prefers"),
    _number("EVALUATE_INTERVAL", "5", "s", "time between two evaluations of the owner's policy (EV 2.7)"),
    _number(
        "UPDATE_INTERVAL", "120", "s", "time between two advertisements of what has not changed (EV 2.7)"
    ),
    _number("AD_LIFETIME", "900", "s", "time after which the collector drops an ad that was not renewed"),
    _number("CLAIM_LEASE", "600", "s", "how long a claim lives when the two sides cannot reach each other"),
    _number("CLAIM_LEASE_MAX", "86400", "s", "longest lease this machine grants"),
    _number("CLAIM_LIFE", "1200", "s", "age at which a claim is given back after its present job"),
    _number("NEGOTIATION_SETTLE", "0.002", "s", "pause before a cycle, to take in what comes together"),
    _number("NEGOTIATION_INTERVAL", "300", "s", "longest time between two cycles (EV 2.6)"),
    _expression(
        "PRIO",
        "(UserPrio * 10) + Expanded - (QDate / 1000000000.0)",
        "order of a user's jobs (EV 2.6, TS 8.2)",
    ),
    _number("PERIODIC_INTERVAL", "60", "s", "time between two evaluations of jobs' periodic expressions"),
    _number("HISTORY_DAYS", "365", "d", "how long ended jobs are remembered"),
)

TABLE = {row.name: row for row in ROWS}

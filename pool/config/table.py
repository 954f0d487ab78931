"""Every setting there is: its name, kind, default, unit, and what it is for. One table; the docs are made from it.

A row stands here if and only if something in the program reads it. The defaults of the owner's expressions are the
shipped policy's that POLICY names (`pool.policy.owner`), whose times and loads are settings too.
"""

from __future__ import annotations

from dataclasses import dataclass

from pool.config.kinds import SettingKind
from pool.policy.priorities.updown import INACTIVE, UPDATE_PRIO
from pool.policy.shipped import SHIPPED_TEXTS, TIMES


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        default: text, in which macros may stand.
        choices: for a CHOICE, what there is to choose from, lower case.
        least: for numbers, the least value that makes sense.
        needed: an empty value means the default, rather than nothing.
        live: takes effect when the configuration is read again; otherwise when the node is started.
    """

    name: str
    kind: SettingKind
    default: str
    unit: str
    doc: str
    choices: tuple[str, ...] = ()
    least: float = 0.0
    needed: bool = False
    live: bool = True


def _text(name: str, default: str, doc: str, *, needed: bool = False, live: bool = True) -> Setting:
    return Setting(name, SettingKind.TEXT, default, "", doc, needed=needed, live=live)


def _count(name: str, default: str, unit: str, doc: str, *, live: bool = True) -> Setting:
    return Setting(name, SettingKind.COUNT, default, unit, doc, needed=True, live=live)


def _number(name: str, default: str, unit: str, doc: str) -> Setting:
    return Setting(name, SettingKind.NUMBER, default, unit, doc, needed=True)


def _duration(name: str, default: str, doc: str, *, least: float = 0.001, live: bool = True) -> Setting:
    return Setting(name, SettingKind.DURATION, default, "s", doc, least=least, needed=True, live=live)


def _flag(name: str, default: str, doc: str) -> Setting:
    return Setting(name, SettingKind.FLAG, default, "", doc, needed=True)


def _choice(name: str, default: str, choices: tuple[str, ...], doc: str, *, live: bool = True) -> Setting:
    return Setting(name, SettingKind.CHOICE, default, "", doc, choices=choices, needed=True, live=live)


def _expression(name: str, default: str, doc: str) -> Setting:
    return Setting(name, SettingKind.EXPRESSION, default, "", doc, needed=True)


def _owners(name: str, doc: str) -> Setting:
    return _expression(name, f"$(POLICY_{name})", doc)


def _time(name: str, doc: str) -> Setting:
    return _duration(name, f"{TIMES[name]:g}", doc, least=0.0)


def _load(name: str, doc: str) -> Setting:
    return _number(name, f"{TIMES[name]:g}", "tasks", doc)


_NODE = (
    _text("NODE_NAME", "$(HOSTNAME)", "this node's name in the pool", needed=True, live=False),
    _text("ROLES", "", "roles to run when --roles is not given", live=False),
    Setting(
        "LISTEN",
        SettingKind.ADDRESS,
        "0.0.0.0:9618",
        "",
        "host and port to listen on for other nodes; empty listens on the unix socket only",
        live=False,
    ),
    _text(
        "PUBLIC_ADDRESS",
        "",
        "host and port under which others reach this node, where that differs from LISTEN",
        live=False,
    ),
    _text("POOL_NAME", "", "this pool's name for other pools; the world node's name when empty", live=False),
    _text("FLOCK_FILE", "", "file that says what other pools may do here, and whether our jobs go there (TOML)"),
    _count(
        "FLOCK_LISTED_MACHINES",
        "500",
        "",
        "idle slots that another pool is shown one by one; where it may have more, they are summed up by kind",
    ),
    _flag(
        "FLOCK_GUESTS_LEAVE",
        "true",
        "whether jobs of other pools leave our machines when our own jobs need them; FLOCK_FILE may say otherwise of "
        "one pool",
    ),
    _flag(
        "PRIVATE_FLOCK", "true", "users of this pool may let jobs that they have queued in other pools run here, too"
    ),
    _text("COLLECTOR", "", "address of the pool's collector; this node, or the one it joined, when empty", live=False),
    _text("UID_DOMAIN", "$(HOSTNAME)", "machines with the same domain share user names", needed=True),
    _text("FILESYSTEM_DOMAIN", "$(HOSTNAME)", "machines with the same domain share their files", needed=True),
    _text(
        "LOCAL_CONFIG",
        "pool.local.conf",
        "the local file, read after the pool-wide one and over it; relative to that one's directory",
    ),
    _text(
        "MAP_USERS",
        "",
        "accounts here of users who come with a token: alice = bob, * = guest (for users without an account "
        "of that name)",
    ),
    _text("ADMIN", "", "mail address of the administrator"),
    _text("MAIL", "", "sendmail program; empty looks in the usual places, none sends no mail"),
    _choice(
        "LOG_LEVEL",
        "info",
        ("debug", "info", "warning", "error"),
        "the least important entries that the log holds",
        live=False,
    ),
    _duration(
        "CERTIFICATE_LIFE",
        "7300 d",
        "lifetime of the certificates that this node signs for its pool; they are renewed before",
    ),
    _count(
        "RESTARTS_PER_HOUR",
        "10",
        "",
        "restarts of a failed role within an hour before it is given up",
        live=False,
    ),
    _duration(
        "GIVEN_UP_RETRY",
        "3600",
        "time after which a role that was given up is tried again; with 0 the node exits with a status for "
        "its service manager",
        least=0.0,
        live=False,
    ),
)
_STARTD = (
    _text(
        "SLOTS",
        "partitionable",
        "partitionable, or the number of equal slots; then the part of the machine to use: 4 cpus=6 memory=50%",
        needed=True,
        live=False,
    ),
    _text(
        "EXECUTE_DIR", "", "directory of the jobs' scratch directories; in the state directory when empty", live=False
    ),
    _choice(
        "RUN_AS",
        "owner",
        ("owner", "node", "nobody", "refuse"),
        "user that jobs run as on a node run by root",
    ),
    _choice(
        "JOB_SYSTEM_CALLS",
        "filtered",
        ("filtered", "namespaces", "all"),
        "for jobs with a file tree of their own or as another user: filtered; namespaces lets them make those; all",
    ),
    _choice(
        "REMOTE_IO_WAY",
        "auto",
        ("auto", "fuse", "notify", "stage"),
        "how jobs here are shown the submit machine's files: by /dev/fuse; by answering their system calls; not at "
        "all, so that they are copied; auto takes the first that the machine lets it",
        live=False,
    ),
    _choice(
        "JOB_NETWORK",
        "host",
        ("host", "private+out", "private", "none"),
        "jobs' network where they ask for none, and the most that they may ask for: this machine's; one of their own "
        "with a way out, or without (job_network = private); only a loopback of their own",
    ),
    _text(
        "JOB_NETWORK_DESTINATIONS",
        "",
        "addresses outside that jobs with job_network = private+out may reach: ADDRESS/BITS:PORT, NAME:PORT, *:443, "
        "dns (this machine's resolver), localhost:PORT; none when empty",
    ),
    _flag(
        "PRIVATE_TMP",
        "true",
        "jobs that open their files in place have a /tmp, /var/tmp and /dev/shm of their own, unless they name a file "
        "there",
    ),
    _count(
        "JOB_PROCESSES",
        "16384",
        "",
        "processes and threads that one job may have at a time; 0 for any number. Needs cgroups, or another user",
    ),
    _text(
        "SHOW_PATHS",
        "",
        "directories that jobs with a file tree of their own see beside the system's: PATH read-only, PATH:rw to write "
        "to, PATH:rw:alice+%physics for jobs of that user and that group only",
        live=False,
    ),
    _text(
        "STARTD_ATTRS",
        "",
        "names of macros whose expressions the ads of this machine's slots have as attributes of their own",
    ),
    _text(
        "TRANSFER_PLUGINS",
        "",
        "programs of HTCondor's protocol that fetch inputs which are URLs of other schemes than http and https",
        live=False,
    ),
    _flag("ENFORCE_MEMORY", "false", "hold jobs that use more memory than their slot has"),
    _flag("ENFORCE_DISK", "false", "hold jobs whose scratch directory takes more disk than their slot has"),
    _count(
        "IMAGE_CACHE",
        "20000",
        "MB",
        "disk space for unpacked images of jobs on this machine; those used longest ago are removed first; 0 "
        "unpacks one for each start (docs/images.md)",
        live=False,
    ),
    _count("CHECKPOINT_QUOTA", "0", "MB", "disk space for checkpoints on this disk; 0 for no bound but its own"),
    _text(
        "CHECKPOINT_SERVER",
        "",
        "where a submit machine keeps checkpoints: a directory, a URL of fsspec's (s3://BUCKET/PATH), or the address "
        "(tcp://HOST:PORT) of a node with CHECKPOINT_DIR; in its state directory when empty",
        live=False,
    ),
    _text("CHECKPOINT_DIR", "", "a directory of this node for other nodes' checkpoints; none when empty", live=False),
    _number("CHECKPOINT_BANDWIDTH", "0", "MB/s", "bandwidth of all checkpoints that this node sends; 0 for no bound"),
    _duration("CHECKPOINT_FIRST", "30 min", "time of running until a first checkpoint; 0 for none (EV 2.7)", least=0.0),
    _duration("CHECKPOINT_MOST", "2 h", "longest time between two; it doubles from the first (EV 2.7)"),
    _duration(
        "CHECKPOINT_EXAMINE",
        "10 s",
        "time after its start when a job is checked for state that cannot be saved; if there is any, again "
        "at six times that",
    ),
    _duration(
        "CHECKPOINT_WORTH",
        "10 s",
        "least work since its last checkpoint for which a job that has to leave is saved",
        least=0.0,
    ),
    _duration("UPDATE_INTERVAL", "120", "time between two advertisements of an unchanged ad (EV 2.7)"),
    _duration("AD_LIFETIME", "900", "time after which the collector drops an ad that was not renewed"),
    _duration("CLAIM_LEASE_MAX", "86400", "longest lease that a machine grants, or a job's job_lease_duration gets"),
)
_OWNER = (
    _choice(
        "POLICY",
        "desktop",
        tuple(SHIPPED_TEXTS),
        "desktop (the papers' owner policy) or dedicated (jobs always run)",
    ),
    _owners("START", "when jobs may start (TS 8.1)"),
    _owners("SUSPEND", "when a running job is suspended"),
    _owners("CONTINUE", "when a suspended job goes on"),
    _owners("PREEMPT", "when a job has to leave; VACATE is the same for suspended jobs only (EV 3.1)"),
    _owners("KILL", "when a leaving job is killed"),
    _owners("WANT_SUSPEND", "whether a job is suspended before it has to leave (RL 4.2)"),
    _owners("WANT_VACATE", "whether a leaving job first gets its soft kill signal"),
    _owners("WANT_CHECKPOINT", "whether a leaving job that is not killed at once has a last checkpoint made"),
    _owners("START_URGENT", "which urgent jobs (`urgent = true`) may suspend the one that runs and take its slot"),
    _text("VALID_COD_USERS", "", "users whose urgent jobs may, where START_URGENT is not set: alice, bob"),
    _owners("RANK", "which jobs this machine prefers; a better one may preempt (RL 4.3)"),
    _owners("SLOT_WEIGHT", "how much a slot counts in its user's usage"),
    _text(
        "DEDICATED_SCHEDULER",
        "",
        "the schedd (its node) whose dedicated jobs always have this machine; of several each goes before the "
        "next (WR 3.1)",
    ),
    _time("START_IDLE", "keyboard idle time after which jobs may start (EV 2.7)"),
    _time("CONTINUE_IDLE", "keyboard idle time after which a suspended job goes on (EV 2.7)"),
    _time("KEYBOARD_TOUCHED", "keyboard idle time below which the owner is there"),
    _load("BACKGROUND_LOAD", "the owner's load up to which jobs start and go on (EV 2.7)"),
    _load("SUSPEND_LOAD", "the owner's load above which jobs are suspended (EV 2.7)"),
    _time("MAX_SUSPEND", "time of suspension after which a job has to leave (EV 2.7)"),
    _time("MAX_VACATE", "time for leaving after which a job is killed (EV 2.7)"),
    Setting(
        "MAX_JOB_RETIREMENT",
        SettingKind.SPAN,
        "$(POLICY_MAX_JOB_RETIREMENT)",
        "s",
        "time that a job may run since its start before PREEMPT or a better job makes it leave; may read the job's ad",
        needed=True,
    ),
    _duration("EVALUATE_INTERVAL", "5", "time between two evaluations of the owner's policy (EV 2.7)"),
)
_SCHEDD = (
    _text(
        "REMOTE_IO_TREES",
        "/",
        "directories of this submit machine that jobs with remote_io may ask for, `:ro` behind those for reading only",
    ),
    _count(
        "REMOTE_IO_UNDO",
        "1024",
        "MB",
        "disk space for undoing a job's changes on the submit side, in case it is restored from a checkpoint",
    ),
    _count(
        "REMOTE_IO_WATCHES",
        "8192",
        "",
        "directories of one owner whose changes are reported to jobs that read them, so that these need not "
        "ask; 0: none",
    ),
    _number(
        "REMOTE_IO_BANDWIDTH",
        "0",
        "MB/s",
        "bandwidth of the remote_io of all jobs of this schedd, shared fairly; 0 for no bound",
    ),
    _duration("CLAIM_LEASE", "600", "time that a claim lives while the two sides cannot reach each other"),
    _duration("CLAIM_PATIENCE", "1800", "time that a schedd waits for a slot whose job has yet to leave"),
    _choice(
        "GANG_NETWORK",
        "private",
        ("host", "private", "private+out"),
        "network of parallel jobs that ask for none (job_network), where all their machines can give it; host for what "
        "each machine gives by its JOB_NETWORK",
    ),
    _duration("GANG_PATIENCE", "60", "how long a job on several machines holds some of them while it lacks others"),
    _choice(
        "DEDICATED_ORDER",
        "users",
        ("users", "fifo"),
        "queue of dedicated jobs: users by what each has used (WR 6.1), or fifo, one queue for all (WR 3.3)",
    ),
    _flag(
        "DEDICATED_FIFO",
        "true",
        "whether a job that waits for machines holds back the later ones; false starves jobs that need many",
    ),
    _choice(
        "DEDICATED_BACKFILL",
        "easy",
        ("none", "easy", "conservative"),
        "which later dedicated jobs may start before one that waits: those that delay not that one (easy), or none "
        "before them (conservative)",
    ),
    _flag("DEDICATED_LEND", "true", "whether machines that a dedicated job waits with run others meanwhile (WR 4.1)"),
    _flag("DEDICATED_TIME_SHARING", "false", "whether dedicated jobs that can be saved take turns on the machines"),
    Setting(
        "SCHEDD_PREEMPTION_REQUIREMENTS",
        SettingKind.EXPRESSION,
        "",
        "",
        "when a waiting dedicated job (TARGET) may take a machine (MY) from a running one; nothing without the next",
    ),
    Setting(
        "SCHEDD_PREEMPTION_RANK",
        SettingKind.EXPRESSION,
        "",
        "",
        "which of those machines are taken first: the highest; empty for no such preemption, as in HTCondor",
    ),
    _duration(
        "UNUSED_CLAIM_TIMEOUT", "300", "how long the dedicated scheduler keeps a machine that no dedicated job needs"
    ),
    _count("RESERVATION_MACHINES", "16", "", "machines that a user may have reserved at once"),
    _number("RESERVATION_MACHINE_HOURS", "64", "h", "machine hours that a user may have reserved in all"),
    _duration("RESERVATION_AHEAD", "7 d", "how far ahead a user's reservation may begin"),
    _duration("CLAIM_LIFE", "1200", "age at which a claim is given back after its present job", least=0.0),
    _duration(
        "HAND_ON_BELOW", "0", "length of jobs below which a claim's next is sent before they end; 0: never", least=0.0
    ),
    _flag("REMATCH", "false", "whether running jobs look for machines that their Rank likes better (RL 4.1)"),
    _duration("REMATCH_PAUSE", "3600", "how long a job runs before it looks for another machine", least=0.0),
    _count("REMATCH_MOVES", "3", "", "moves in a job's life"),
    _expression(
        "PRIO",
        "(UserPrio * 10) + Expanded - (QDate / 1000000000.0)",
        "order of a user's jobs (EV 2.6, TS 8.2)",
    ),
    _count("MAX_JOBS_SUBMITTED", "0", "", "jobs that may be in the queue; 0 for any number"),
    _count("MAX_JOBS_PER_OWNER", "0", "", "jobs of one user that may be in the queue; 0 for any number"),
    _count(
        "MAX_SPOOL_BYTES_PER_OWNER",
        "10737418240",
        "B",
        "files of one user that are kept for jobs submitted from other machines, outputs included; 0 for any number",
    ),
    _duration(
        "SPOOL_KEPT",
        "10 d",
        "time that a completed job from another machine waits for its outputs to be fetched, and time that a "
        "job is held whose inputs never came",
    ),
    _text(
        "JOB_TRANSFORM_NAMES",
        "",
        "names; each JOB_TRANSFORM_NAME changes the ads of jobs as they come in, in this order (docs/transforms.md)",
    ),
    _text(
        "SUBMIT_REQUIREMENTS",
        "",
        "names; a job must make each SUBMIT_REQUIREMENT_NAME true, and is refused with its _REASON otherwise",
    ),
    _expression(
        "SYSTEM_PERIODIC_HOLD", "false", "when a job that is not held is held, whatever its own expressions say"
    ),
    _expression("SYSTEM_PERIODIC_RELEASE", "false", "when a held job is released"),
    _expression("SYSTEM_PERIODIC_REMOVE", "false", "when a job is removed"),
    _expression("SYSTEM_PERIODIC_VACATE", "false", "when a running job leaves its machine"),
    _count("MAX_LOCAL_JOBS", "200", "", "jobs of the local and scheduler universes that run beside the schedd at once"),
    _duration("PERIODIC_INTERVAL", "60", "time between two evaluations of jobs' periodic expressions", live=False),
    _duration("KEPT_CHECKPOINTS", "30 d", "time for which checkpoints of jobs removed with `rm --checkpoint` are kept"),
    _number("HISTORY_DAYS", "365", "d", "how long ended jobs are remembered"),
)
_NEGOTIATOR = (
    _duration(
        "NEGOTIATION_SETTLE", "0.002", "pause before a cycle, so that changes that come together count in it", least=0.0
    ),
    _duration("NEGOTIATION_INTERVAL", "300", "longest time between two cycles (EV 2.6)"),
    _choice(
        "PRIORITY_POLICY",
        "updown",
        ("updown", "fairshare", "equal"),
        "order of users: the papers' up-down algorithm, shares by decaying usage, or the user that holds least first",
    ),
    _choice(
        "PRIORITY_OVER",
        "users",
        ("users", "machines"),
        "whether priorities belong to users, or to the machines they submit from as in EV 2.6",
    ),
    _duration("PRIORITY_INTERVAL", "300", "time between two updates of priorities (EV 2.6)"),
    _expression(
        "INACTIVE", INACTIVE, "up-down: the users with nothing to run; over Prio, Users, Running, Jobs (EV 2.6)"
    ),
    _expression("UPDATE_PRIO", UPDATE_PRIO, "up-down: an active user's next index, over the same (EV 2.6, TS 8.3)"),
    _duration("PRIORITY_HALF_LIFE", "1 d", "fair share: time in which usage loses half of its weight"),
    _number("PRIORITY_FACTOR", "1000", "", "fair share: factor of users without one of their own"),
    _text(
        "GROUP_QUOTAS",
        "",
        "slots that groups of users may hold: physics=0.5, physics.theory=0.4 alone, chem=20; at most 1 is a share",
    ),
    _text("CONCURRENCY_LIMITS", "", "units of the limits that jobs name in concurrency_limits: matlab=10, net.big=3"),
    _number("CONCURRENCY_LIMIT_DEFAULT", "1000000", "", "units of limits that CONCURRENCY_LIMITS does not name"),
    _flag("RANK_PREEMPTION", "true", "whether a job gives way to one that its machine's RANK prefers (RL 4.3)"),
    _expression(
        "PREEMPTION_REQUIREMENTS",
        "false",
        "when a job may give way to one of a user with better priority (RL 4.3); MY is the slot, TARGET the new job",
    ),
    _expression(
        "NEGOTIATOR_PRE_JOB_RANK",
        "FlockPool =?= undefined",
        "which machines go first, whatever the job's Rank says (RL 4.3): by default this pool's own, before those of "
        "other pools; MY is the slot, TARGET the job",
    ),
    _expression(
        "NEGOTIATOR_POST_JOB_RANK",
        "FlockValue",
        "which machines go first among those that the job's Rank likes equally (RL 4.3): by default, of other pools', "
        "those with the greatest server value; MY and TARGET as above",
    ),
    _expression("PREEMPTION_RANK", "0", "which of several jobs gives way: the one where this is highest (RL 4.3)"),
    _duration("PREEMPTION_MINIMUM_RUN", "1 h", "time that a job runs before a better priority may end it", least=0.0),
    _duration(
        "GUEST_MINIMUM_RUN",
        "5 min",
        "time that a job of another pool which cannot be saved has a machine before it leaves for one of this pool",
        least=0.0,
    ),
    _number("REMATCH_GAIN", "0", "", "how much more a running job must like another machine to move there (RL 4.1)"),
)

#: The rows by what reads them, in the order of the documentation.
SECTIONS: tuple[tuple[str, tuple[Setting, ...]], ...] = (
    ("Every node", _NODE),
    ("Machines (startd)", _STARTD),
    ("The machine's owner (startd)", _OWNER),
    ("Queues (schedd)", _SCHEDD),
    ("Matchmaking (negotiator)", _NEGOTIATOR),
)
ROWS = tuple(row for _, rows in SECTIONS for row in rows)
TABLE = {row.name: row for row in ROWS}

#: Names of the papers and of HTCondor's users for the same things.
ALIASES = {
    "BACKGROUNDLOAD": "BACKGROUND_LOAD",
    "HIGHLOAD": "SUSPEND_LOAD",
    "STARTIDLETIME": "START_IDLE",
    "CONTINUEIDLETIME": "CONTINUE_IDLE",
    "MAXSUSPENDTIME": "MAX_SUSPEND",
    "MAXVACATETIME": "MAX_VACATE",
    "MACHINEMAXVACATETIME": "MAX_VACATE",
    "MAXJOBRETIREMENTTIME": "MAX_JOB_RETIREMENT",
    "CONDOR_ADMIN": "ADMIN",
    "SUBMIT_REQUIREMENT_NAMES": "SUBMIT_REQUIREMENTS",
    "STARTD_EXPRS": "STARTD_ATTRS",
    "CLASSAD_LIFETIME": "AD_LIFETIME",
    "CLAIM_WORKLIFE": "CLAIM_LIFE",
    "REQUEST_CLAIM_TIMEOUT": "CLAIM_PATIENCE",
    "STARTD_RANK": "RANK",
    "EXECUTE": "EXECUTE_DIR",
    "NEGOTIATOR_INTERVAL": "NEGOTIATION_INTERVAL",
    "PRIORITY_HALFLIFE": "PRIORITY_HALF_LIFE",
    "DEFAULT_PRIO_FACTOR": "PRIORITY_FACTOR",
    "LOCAL_CONFIG_FILE": "LOCAL_CONFIG",
}


def canonical(name: str) -> str:
    """A name as the table has it: upper case, and an alias replaced."""
    upper = name.upper()
    return ALIASES.get(upper, upper)

"""`htcondor2`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pool.compat import settings as _settings
from pool.compat.bindings import classad_module as classad
from pool.compat.bindings import collector as _collector
from pool.compat.bindings import connections as _connections
from pool.compat.bindings import enums as _enums
from pool.compat.bindings import job_log as _job_log
from pool.compat.bindings import schedd as _schedd
from pool.compat.bindings import submit as _submit

__version__ = _settings.FOLLOWED
HTCondorException = _connections.LookProblem
AdType = AdTypes = _enums.LookAdType
DaemonType = DaemonTypes = _enums.LookDaemonType
DrainType = DrainTypes = _enums.LookDrainType
VacateType = VacateTypes = _enums.LookVacateType
CompletionType = _enums.LookCompletionType
CredType = CredTypes = _enums.LookCredType
QueryOpt = QueryOpts = _enums.LookQueryOpt
TransactionFlag = TransactionFlags = _enums.LookTransactionFlag
JobAction = _enums.LookJobAction
JobStatus = _enums.LookJobStatus
JobEventType = _enums.LookJobEventType
FileTransferEventType = _enums.LookFileTransferEventType
SubmitMethod = _enums.LookSubmitMethod
SubsystemType = _enums.LookSubsystemType
LogLevel = _enums.LookLogLevel
Collector = _collector.LookCollector
Negotiator = _collector.LookNegotiator
Startd = _collector.LookStartd
Schedd = _schedd.LookSchedd
Submit = _submit.LookSubmit
SubmitResult = _submit.LookSubmitResult
JobEvent = _job_log.LookJobEvent
JobEventLog = _job_log.LookJobEventLog


class LookParam(Mapping[str, str]):
    """The node's settings by name, and the names by which HTCondor's tools ask for the same; `param`."""

    def __getitem__(self, key: str) -> str:
        return _settings.settings_here()[key.upper()][0]

    def __iter__(self) -> Iterator[str]:
        return iter(_settings.settings_here())

    def __len__(self) -> int:
        return len(_settings.settings_here())

    def __setitem__(self, key: str, value: str) -> None:
        raise _connections.unable(
            f"param[{key!r}] = ...", "change the node's configuration file, then `poolnode reload`"
        )


param = LookParam()


class LookSecurityContext:
    """Credentials: this pool finds the user's own; `SecurityContext`."""

    def __init__(self, token: Any = None) -> None:
        if token is not None:
            raise _connections.unable("a token of HTCondor's", "POOLNODE_TOKEN, or ~/.config/poolnode/token")


SecurityContext = LookSecurityContext


def version() -> str:
    """The release that the module follows."""
    return _settings.version_text()


def platform() -> str:
    """This machine's platform."""
    return _settings.platform_text()


def set_subsystem(name: str, daemon_type: Any = SubsystemType.Auto) -> None:
    """Nothing depends on it here."""


def reload_config() -> None:
    """Nothing is kept: each look at `param` asks the node."""


def enable_debug() -> None:
    """Errors say what failed by themselves; `POOLNODE_DEBUG=1` shows where."""


disable_debug = enable_log = enable_debug


def log(level: Any, message: str) -> None:
    """Write a line to this program's own log, through Python's `logging`."""
    import logging

    logging.getLogger("htcondor2").info("%s", message)


__all__ = [
    "AdType",
    "AdTypes",
    "Collector",
    "CompletionType",
    "CredType",
    "CredTypes",
    "DaemonType",
    "DaemonTypes",
    "DrainType",
    "DrainTypes",
    "FileTransferEventType",
    "HTCondorException",
    "JobAction",
    "JobEvent",
    "JobEventLog",
    "JobEventType",
    "JobStatus",
    "LogLevel",
    "Negotiator",
    "QueryOpt",
    "QueryOpts",
    "Schedd",
    "SecurityContext",
    "Startd",
    "Submit",
    "SubmitMethod",
    "SubmitResult",
    "SubsystemType",
    "TransactionFlag",
    "TransactionFlags",
    "VacateType",
    "VacateTypes",
    "classad",
    "disable_debug",
    "enable_debug",
    "enable_log",
    "log",
    "param",
    "platform",
    "reload_config",
    "set_subsystem",
    "version",
]

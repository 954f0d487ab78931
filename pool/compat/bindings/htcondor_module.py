"""`htcondor`, the older module: the names of `htcondor2`, with its errors and transactions."""

from __future__ import annotations

from pool.compat.bindings import collector as _collector
from pool.compat.bindings import connections as _connections
from pool.compat.bindings import htcondor2_module as _newer
from pool.compat.bindings import schedd as _schedd
from pool.compat.bindings.htcondor2_module import *  # noqa: F403

__version__ = _newer.__version__
HTCondorIOError = HTCondorReplyError = _connections.LookIOProblem
HTCondorLocateError = _collector.LookLocateProblem
HTCondorEnumError = HTCondorInternalError = HTCondorTypeError = HTCondorValueError = _connections.LookProblem
Transaction = _schedd.LookTransaction
EditResult = _schedd.LookEditResult

__all__ = [
    *_newer.__all__,
    "EditResult",
    "HTCondorEnumError",
    "HTCondorIOError",
    "HTCondorInternalError",
    "HTCondorLocateError",
    "HTCondorReplyError",
    "HTCondorTypeError",
    "HTCondorValueError",
    "Transaction",
    "__version__",
]

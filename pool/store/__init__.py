"""Where the schedd's queue, events, history and accounting are kept so that nothing accepted is ever lost.

Start reading at `store.py`; `changes.py` is what goes in and comes out. It knows nothing of ads or roles.
"""

from pool.store.changes import (
    WHOLE_CLUSTER,
    AddEvent,
    Change,
    ClusterRow,
    EndProc,
    EventRow,
    HistoryRow,
    Loaded,
    NewCluster,
    ProcRow,
    RemoveCluster,
    RewriteFile,
    SetMeta,
    SetProc,
    Shrink,
    Trim,
    UsageRow,
)
from pool.store.errors import (
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreGone,
    StoreLost,
    StoreRefused,
    StoreTooNew,
    StoreUnwritable,
)
from pool.store.store import Store

__all__ = [
    "WHOLE_CLUSTER",
    "AddEvent",
    "Change",
    "ClusterRow",
    "EndProc",
    "EventRow",
    "HistoryRow",
    "Loaded",
    "NewCluster",
    "ProcRow",
    "RemoveCluster",
    "SetMeta",
    "SetProc",
    "Store",
    "StoreBusy",
    "StoreDamaged",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreGone",
    "StoreLost",
    "StoreRefused",
    "StoreTooNew",
    "StoreUnwritable",
    "RewriteFile",
    "Shrink",
    "Trim",
    "UsageRow",
]

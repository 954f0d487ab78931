"""The language of DAGMan's files: from text to a `Dag`, and the files that are written about one. Pure."""

from pool.jobs.dag.model import (
    Dag,
    DagNode,
    DagScript,
    Dependency,
    DotFile,
    NodeKind,
    NodeVariable,
    ScriptKind,
    StatusFile,
    find_cycle,
)
from pool.jobs.dag.reader import DagError, apply_rescue, read_dag

__all__ = [
    "Dag",
    "DagError",
    "DagNode",
    "DagScript",
    "Dependency",
    "DotFile",
    "NodeKind",
    "NodeVariable",
    "ScriptKind",
    "StatusFile",
    "apply_rescue",
    "find_cycle",
    "read_dag",
]

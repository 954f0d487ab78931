"""The job description language: from the text a user writes to the job ads that are queued.

    description = read_description(text, iwd=..., environ=..., user=..., facts=SubmitFacts(...))
    for draft in description.clusters: draft.ad, draft.count, draft.deltas()

The grammar is that of the papers (VS 2.1, EV 2.8) and what users of batch pools write today: macros,
conditions, includes, queue statements over lists, tables and files. Diagnostics name file, line, what was
expected and the nearest command. Nothing here talks to a schedd.

Names are loaded when they are first used: a schedd needs expressions and numbers of clusters, and reads no files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool.jobs.description.diagnostics import DescriptionError as DescriptionError
    from pool.jobs.description.diagnostics import Diagnostic as Diagnostic
    from pool.jobs.description.diagnostics import Severity as Severity
    from pool.jobs.description.diagnostics import SourcePosition as SourcePosition
    from pool.jobs.description.draft import ClusterDraft as ClusterDraft
    from pool.jobs.description.draft import Description as Description
    from pool.jobs.description.draft import bind_cluster as bind_cluster
    from pool.jobs.description.facts import PROVISIONAL_CLUSTER as PROVISIONAL_CLUSTER
    from pool.jobs.description.facts import SubmitFacts as SubmitFacts
    from pool.jobs.description.files import DescriptionFiles as DescriptionFiles
    from pool.jobs.description.files import RealFiles as RealFiles
    from pool.jobs.description.reader import read_description as read_description

_MODULES = {
    "PROVISIONAL_CLUSTER": "facts",
    "ClusterDraft": "draft",
    "Description": "draft",
    "DescriptionError": "diagnostics",
    "DescriptionFiles": "files",
    "Diagnostic": "diagnostics",
    "RealFiles": "files",
    "Severity": "diagnostics",
    "SourcePosition": "diagnostics",
    "SubmitFacts": "facts",
    "bind_cluster": "draft",
    "read_description": "reader",
}

__all__ = [
    "PROVISIONAL_CLUSTER",
    "ClusterDraft",
    "Description",
    "DescriptionError",
    "Diagnostic",
    "DescriptionFiles",
    "RealFiles",
    "Severity",
    "SubmitFacts",
    "SourcePosition",
    "bind_cluster",
    "read_description",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

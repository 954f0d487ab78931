"""The job description language: from the text a user writes to the job ads that are queued.

    description = read_description(text, iwd=..., environ=..., user=..., facts=SubmitFacts(...))
    for draft in description.clusters: draft.ad, draft.count, draft.deltas()

The grammar is that of the papers (VS 2.1, EV 2.8) and what users of batch pools write today: macros,
conditions, includes, queue statements over lists, tables and files. Diagnostics name file, line, what was
expected and the nearest command. Nothing here talks to a schedd.
"""

from pool.jobs.description.diagnostics import DescriptionError, Diagnostic, Severity, SourcePosition
from pool.jobs.description.draft import ClusterDraft, Description, bind_cluster
from pool.jobs.description.facts import PROVISIONAL_CLUSTER, SubmitFacts
from pool.jobs.description.files import DescriptionFiles, RealFiles
from pool.jobs.description.reader import read_description

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

"""`condor_submit_dag`: queue a work flow."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pool.compat.actions import help_or_version
from pool.compat.asking import ask_schedd, print_error
from pool.compat.options import Option, Parsed, parse, usage
from pool.decimals import whole_number
from pool.errors import PoolError

_NO_PROCESS = "no process of its own runs a work flow here: leave it out"
OPTIONS = (
    Option("help", 1),
    Option("version", 2),
    Option("no_submit", 4),
    Option("verbose", 1),
    Option("force", 1),
    Option("r", 1, 1, key="name"),
    Option("remote", 1, 1, key="name"),
    Option("maxidle", 4, 1),
    Option("maxjobs", 4, 1),
    Option("maxpre", 5, 1),
    Option("maxpost", 5, 1),
    Option("notification", 3, 1),
    Option("suppress_notification", 2, refused="write notification = never into the descriptions"),
    Option("dont_suppress_notification", 2),
    Option("dagman", 4, 1, refused=_NO_PROCESS),
    Option("debug", 3, 1, refused="the schedd runs work flows: its log is the node's"),
    Option("usedagdir", 1),
    Option("outfile_dir", 1, 1, refused="its files lie beside the DAG file"),
    Option("config", 4, 1, refused="write CONFIG into the DAG file"),
    Option("append", 2, 1),
    Option("insert_sub_file", 8, 1, refused=_NO_PROCESS),
    Option("batch-name", 1, 1),
    Option("AutoRescue", 2, 1),
    Option("autorescue", 2, 1, key="AutoRescue"),
    Option("DoRescueFrom", 3, 1),
    Option("dorescuefrom", 3, 1, key="DoRescueFrom"),
    Option("load_save", 2, 1),
    Option("allowversionmismatch", 3),
    Option("AllowVersionMismatch", 3),
    Option("no_recurse", 4, refused="the files of SUBDAG are read at the submit"),
    Option("do_recurse", 4),
    Option("update_submit", 1),
    Option("import_env", 3),
    Option("include_env", 4, 1, refused="write ENV GET into the DAG file"),
    Option("insert_env", 8, 1, refused="write ENV SET into the DAG file"),
    Option("DumpRescue", 2, refused="`poolnode dag check` names every mistake"),
    Option("valgrind", 3, refused=_NO_PROCESS),
    Option("DontAlwaysRunPost", 3),
    Option("AlwaysRunPost", 3),
    Option("priority", 1, 1),
    Option("DoRecovery", 4, refused="the schedd keeps how far a work flow is, and goes on from there by itself"),
    Option("schedd-daemon-ad-file", 8, 1, refused="set POOLNODE_ADDRESS"),
    Option("schedd-address-file", 8, 1, refused="set POOLNODE_ADDRESS"),
)


def submit_dag(words: Sequence[str]) -> int:
    """Run `condor_submit_dag`; returns its exit status."""
    from pool.client.workflow_requests import submit_workflow
    from pool.client.workflows import WorkflowOptions, draft_workflow

    given = parse(OPTIONS, words)
    if given.has("help") or given.has("version"):
        return help_or_version("condor_submit_dag", OPTIONS, given, "dag_file ...")
    if not given.words:
        print_error(usage("condor_submit_dag", OPTIONS, "dag_file ..."))
        return 1
    if (notice := given.value("notification")) and notice.lower() != "never":
        raise PoolError("-notification: no mail is sent about a work flow", hint="`poolnode wait ID && mail ...`")
    options = WorkflowOptions(
        inherit=("*",) if given.has("import_env") else (),
        max_jobs=_number(given, "maxjobs"),
        max_idle=_number(given, "maxidle"),
        max_pre=_number(given, "maxpre"),
        max_post=_number(given, "maxpost"),
        force=given.has("force") or given.value("AutoRescue") == "0",
        rescue_from=_number(given, "DoRescueFrom") or None,
        load_save=given.value("load_save") or "",
        use_dag_dir=given.has("usedagdir"),
        always_run_post=given.has("AlwaysRunPost"),
        priority=_number(given, "priority"),
        batch_name=given.value("batch-name") or "",
        append=given.all_of("append"),
    )
    draft = draft_workflow(given.words, options)
    for warning in draft.warnings:
        print_error(f"WARNING: {' '.join(warning.split())}")
    first = given.words[0]
    rule = "-" * 71
    lines = [
        rule,
        f"File for submitting this DAG to HTCondor           : {first}.condor.sub",
        f"Log of DAGMan debugging messages                   : {first}.dagman.out",
        f"Log of HTCondor library output                     : {first}.lib.out",
        f"Log of HTCondor library error messages             : {first}.lib.err",
        f"Log of the life of condor_dagman itself            : {first}.dagman.log",
        "",
    ]
    if given.has("no_submit"):
        sys.stdout.write("\n".join([*lines, "-no_submit given, not submitting DAG to HTCondor.", rule, ""]))
        return 0
    number = ask_schedd(None, given.value("name"), lambda pool: submit_workflow(pool, draft))
    for note in draft.notes:
        print_error(f"WARNING: {note}")
    begun = [f"Running rescue DAG {draft.wire['rescue']}"] if draft.rescue else []
    lines = [*begun, *lines, "Submitting job(s).", f"1 job(s) submitted to cluster {number}.", rule, ""]
    sys.stdout.write("\n".join(lines))
    return 0


def _number(given: Parsed, name: str) -> int:
    text = given.value(name)
    if text is None:
        return 0
    negative = text.startswith("-")
    found = whole_number(text.removeprefix("-"))
    if found is None or (negative and name != "priority"):
        raise PoolError(f"-{name} takes a whole number, not {text[:40]!r}")
    return -found if negative else found

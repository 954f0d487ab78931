"""How quick the language is, beside the reference engine's Python module in the same run."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable
from typing import Any

from pool.classad import ClassAd, parse_ad, parse_expr
from pool.classad.ad import evaluate
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

CLAUSES = (
    '(TARGET.Arch == "X86_64") && (TARGET.OpSys == "LINUX") && (TARGET.Disk >= RequestDisk)'
    " && (TARGET.Memory >= RequestMemory) && (TARGET.HasFileTransfer)"
)
MACHINE = {"Arch": "X86_64", "OpSys": "LINUX", "Disk": 10**8, "Memory": 8192, "HasFileTransfer": True}
SECONDS = 0.4


def job_ad() -> dict[str, str]:
    """A job's ad as submitting makes it: 55 attributes, expressions among them."""
    plain = {f"Attribute{number}": str(number * 7) for number in range(20)}
    texts = {f"Text{number}": f'"value {number} of the job"' for number in range(18)}
    return {
        **plain,
        **texts,
        "Requirements": CLAUSES,
        "Rank": "0.0",
        "RequestCpus": "1",
        "RequestDisk": "DiskUsage",
        "DiskUsage": "2500",
        "RequestMemory": "ifThenElse(MemoryUsage =!= undefined, MemoryUsage, (ImageSize + 1023) / 1024)",
        "ImageSize": "125000",
        "LeaveJobInQueue": "false",
        "PeriodicHold": "NumJobStarts > 5 && JobStatus == 1",
        "PeriodicRelease": "false",
        "PeriodicRemove": "(time() - EnteredCurrentStatus) > 86400",
        "OnExitRemove": "true",
        "OnExitHold": "ExitBySignal == true",
        "JobPrio": "0",
        "Owner": '"alice"',
        "WantCheckpoint": "false",
        "JobUniverse": "5",
    }


def rate(run: Callable[[], object]) -> float:
    """How often a second, of the best of three tries."""
    gc.collect()
    best = 0.0
    for _ in range(3):
        done, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < SECONDS:
            for _ in range(200):
                run()
            done += 200
        best = max(best, done / spent)
    return best


@benchmark("language")
async def language(effort: Effort) -> list[Row]:
    """Evaluating an expression of five clauses, reading a job's ad, beside the reference engine."""
    job, machine = ClassAd({"RequestDisk": 1000, "RequestMemory": 1024}), ClassAd(MACHINE)
    pair, alone = parse_expr(CLAUSES), parse_expr(CLAUSES.replace("TARGET.", ""))
    both = ClassAd({**MACHINE, "RequestDisk": 1000, "RequestMemory": 1024})
    assert evaluate(pair, job, machine) is evaluate(alone, both) is True
    attributes = job_ad()
    assert len(attributes) == 55, len(attributes)
    long = "\n".join(f"{name} = {text}" for name, text in attributes.items())
    new = "[" + ";".join(f"{name} = {text}" for name, text in attributes.items()) + "]"
    wire = ClassAd.from_long(long).to_wire()
    module = reference()
    name = "the reference's Python module"
    theirs: dict[str, float] = {}
    if module is not None:
        their_both = module.ClassAd({**MACHINE, "RequestDisk": 1000, "RequestMemory": 1024})
        their_alone = module.ExprTree(CLAUSES.replace("TARGET.", ""))
        their_job, their_machine = module.ClassAd({"RequestDisk": 1000, "RequestMemory": 1024}), module.ClassAd(MACHINE)
        their_pair = module.ExprTree(CLAUSES)
        assert their_pair.eval(their_job, their_machine) is their_alone.eval(their_both) is True
        theirs = {
            "alone": rate(lambda: their_alone.eval(their_both)),
            "pair": rate(lambda: their_pair.eval(their_job, their_machine)),
            "new": rate(lambda: module.ClassAd(new)),
        }
    else:
        name = ""
    return [
        Row(
            "an expression of 5 clauses, compiled, one ad",
            rate(lambda: evaluate(alone, both)),
            "1/s",
            Goal("at least", 400_000),
            name,
            theirs.get("alone"),
        ),
        Row(
            "the same between two ads",
            rate(lambda: evaluate(pair, job, machine)),
            "1/s",
            None,
            name,
            theirs.get("pair"),
        ),
        Row(
            "a job's ad of 55 attributes read, long form",
            rate(lambda: ClassAd.from_long(long)),
            "1/s",
            Goal("at least", 10_000),
            name,
            theirs.get("new"),
            "texts that were seen before are not parsed again",
        ),
        Row("the same in new form", rate(lambda: parse_ad(new)), "1/s", None, name, theirs.get("new")),
        Row("the same off the wire", rate(lambda: ClassAd.from_wire(wire)), "1/s"),
    ]


def reference() -> Any | None:
    """The reference engine in the mode that pools use, where it is installed."""
    try:
        importlib.import_module("htcondor2")
        return importlib.import_module("classad2")
    except ImportError:
        return None

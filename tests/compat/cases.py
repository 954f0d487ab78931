"""The command lines of the corpus, and how HTCondor's own tools answer them.

`python -m tests.compat.cases DIR` asks the condor_q, condor_status and condor_history of a directory, which read ads
from files and need no pool, and writes their answers to `tests/compat/corpus/cases.jsonl`.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
#: Option with which each tool reads ads from a file.
FILES = {"condor_q": "-jobads", "condor_status": "-ads", "condor_history": "-file"}

_VALUES = ("L N S R R2 R3 B U E EL X Missing", "I Big Neg Zero T Q Empty Pct Req Fn", "owner JOBSTATUS")
_EXPRESSIONS = (
    'strcat(Owner,"x")',
    "R + 1",
    "JobStatus == 2",
    "Missing",
    "Missing + 1",
    "{1,2}",
    "Fn",
    '"text"',
    "5",
    "I",
)
_LETTERS = (
    "",
    "r",
    "V",
    "j",
    "l",
    "h",
    "t",
    ",",
    "n",
    "g",
    "lr",
    "lrng",
    "jl",
    "jh",
    "hV",
    "hr",
    "t,",
    "jlhVt",
    "T",
    "Y",
    "lV",
)
_FORMATS = (
    "%d",
    "%5d|",
    "%-5d|",
    "%05d",
    "%+d",
    "% d",
    "%x",
    "%X",
    "%o",
    "%u",
    "%c",
    "%ld",
    "%lld",
    "%hd",
    "%i",
    "%f",
    "%.2f",
    "%10.3f|",
    "%-10.1f|",
    "%e",
    "%g",
    "%G",
    "%s",
    "%10s|",
    "%-10s|",
    "%.3s|",
    "%8.2s|",
    "%v",
    "%V",
    "%r",
    "%10v|",
    "%-12V|",
    "%T",
    "%Y",
    "a%db",
    "100%%",
    "%d%%",
    "\\n",
    "\\t%s\\n",
    "plain",
    "%%%d",
    "%q",
    "%",
)
_ATTRIBUTES = ("JobStatus", "S", "R", "B", "U", "L", "Big", "Neg", "T", "Q", "Empty", "I", "X")


def command_lines() -> Iterator[tuple[str, str, list[str]]]:
    """(tool, the file of its ads, the other arguments) of each case."""
    for attributes, letters in itertools.product(_VALUES, _LETTERS):
        option = "-af" + (f":{letters}" if letters else "")
        yield "condor_q", "values.ads", [option, *attributes.split()]
    for expression, letters in itertools.product(_EXPRESSIONS, ("", "r", "V", "lV", "h")):
        yield "condor_q", "values.ads", ["-autoformat" + (f":{letters}" if letters else ""), expression]
    for form, attribute in itertools.product(_FORMATS, _ATTRIBUTES):
        yield "condor_q", "values.ads", ["-format", form, attribute]
    yield "condor_q", "values.ads", ["-format", "%s, ", "JobStatus", "-format", "\\n", "True"]
    yield "condor_q", "values.ads", ["-format", "%d.", "ClusterId", "-format", "%d\\n", "ProcId"]
    for file in ("values.ads", "jobs.ads"):
        for form in ("-json", "-xml", "-long", "-js", "-l"):
            yield "condor_q", file, [form]
            yield "condor_q", file, [form, "-attributes", "Owner,ClusterId,L,Missing"]
            yield "condor_q", file, [form, "-constraint", "false"]
    for extra in ([], ["12"], ["12.1"], ["alice"], ["-const", "JobStatus == 1"], ["-cons", "false"]):
        for kind in (["-nobatch"], [], ["-hold"], ["-run"], ["-idle"], ["-totals"]):
            yield "condor_q", "jobs.ads", [*kind, *extra]
    for extra in (
        [],
        ["-af", "Name", "Memory"],
        ["-af:h", "Name", "Memory"],
        ["-json", "-attributes", "Name"],
        ["-total"],
        ["-xml"],
        ["-avail"],
        ["slot1@host.example.org"],
        ["-constraint", "Cpus > 2"],
        ["-constraint", "false"],
        ["-long"],
        ["-sort", "Memory", "-af", "Memory"],
        ["-limit", "1", "-af", "Name"],
        ["-format", "%s\\n", "Name"],
        ["-any"],
        ["host.example.org", "-af", "Name"],
    ):
        yield "condor_status", "slots.ads", extra
    yield "condor_status", "schedds.ads", ["-schedd"]
    yield "condor_status", "schedds.ads", ["-any"]
    for extra in (
        [],
        ["-af", "ClusterId", "Owner"],
        ["-json", "-attributes", "Owner"],
        ["-limit", "2"],
        ["-long"],
        ["-const", "JobStatus == 5"],
        ["-forwards"],
        ["-xml", "-limit", "1"],
    ):
        yield "condor_history", "history.ads", extra


def main(directory: Path) -> None:
    """Ask the reference, and write the corpus: every case whose answer does not depend on the moment."""
    environ = {**os.environ, "CONDOR_CONFIG": "/dev/null", "TZ": "UTC", "COLUMNS": "80", "LC_ALL": "C"}
    with (CORPUS / "cases.jsonl").open("w", encoding="latin-1") as out:
        for tool, file, arguments in command_lines():
            done = subprocess.run(
                [directory / tool, FILES[tool], file, *arguments],
                cwd=CORPUS,
                env=environ,
                capture_output=True,
                check=False,
            )
            case = {"tool": tool, "file": file, "arguments": arguments, "status": done.returncode}
            print(json.dumps({**case, "output": done.stdout.decode("latin-1")}), file=out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

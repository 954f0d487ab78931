"""Compare what this reader makes of a folder of description files with the job ads expected of them.

A case is `NAME.sub` beside `NAME.expect.json`: `first_job` {attribute: text in long form}, `jobs`
(differences of each process, `__absent__` lists what it lacks), `fixtures` {path: text}, `env`, `procs`,
`ok`. `$IWD` stands for the directory of submission. Files are not looked at: the cases were made where they
exist or with checks switched off.
"""

from __future__ import annotations

import fnmatch
import json
import os.path
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pool.classad import ClassAd
from pool.jobs.arguments import join_words, split_words
from pool.jobs.description.diagnostics import DescriptionError
from pool.jobs.description.draft import ClusterDraft
from pool.jobs.description.expressions import Wire
from pool.jobs.description.facts import SubmitFacts
from pool.jobs.description.files import Kind
from pool.jobs.description.reader import read_description

IWD = "/submit/here"
VOLATILE = frozenset({"qdate", "enteredcurrentstatus", "condorversion", "condorplatform", "diskusage"}) | {
    "imagesize",
    "executablesize",
    "transferinputsizemb",
    "jobsubmitfile",
    "jobsubmitmethod",
}
_FOREIGN_VARIABLES = ("CONDOR_CONFIG=", "LD_PRELOAD=")


class Fixtures:
    """Files that only a case knows, in memory."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = {os.path.normpath(os.path.join(IWD, name)): text for name, text in texts.items()}
        self.folders = {str(parent) for name in self.texts for parent in Path(name).parents}

    def read_text(self, path: str) -> str:
        """The text of a fixture."""
        found = self.texts.get(os.path.normpath(path))
        if found is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return found

    def head(self, path: str, size: int) -> bytes:
        """The first bytes of a fixture."""
        return self.read_text(path).encode()[:size]

    def kind(self, path: str) -> Kind:
        """The file that a path leads to."""
        path = os.path.normpath(path)
        return "file" if path in self.texts else "directory" if path in self.folders else "missing"

    def size(self, path: str) -> int:
        """Bytes of a fixture."""
        return len(self.read_text(path).encode())

    def allowed(self, path: str, mode: int) -> bool:
        """Fixtures may be used for everything."""
        return self.kind(path) != "missing"

    def closed_above(self, path: str) -> str | None:
        """No folder of fixtures is closed."""
        return None

    def matching(self, pattern: str) -> list[str]:
        """Fixtures and their folders that match, level by level as a shell does."""
        parts = pattern.split("/")
        named = [*self.texts, *(f"{folder.rstrip('/')}/" for folder in self.folders)]
        found = []
        for name in named:
            own = name.rstrip("/").split("/")
            if len(own) == len(parts) and all(_matches(a, b) for a, b in zip(own, parts, strict=True)):
                found.append(name)
        return sorted(found)

    def run(self, command: str, folder: str) -> str:
        """Only `seq` is known; nothing is really run."""
        words = command.split()
        if words[:1] != ["seq"] or len(words) not in (2, 3):
            raise OSError("only seq is known in a check")
        first, last = (1, int(words[1])) if len(words) == 2 else (int(words[1]), int(words[2]))
        return "".join(f"{number}\n" for number in range(first, last + 1))


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) and (name[:1] != "." or pattern[:1] == ".")


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Whether a case holds, and if not, the first few differences."""

    name: str
    differences: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Nothing differs."""
        return not self.differences


FACTS = SubmitFacts(
    filesystem_domain="example.org", uid_domain="example.org", now=1e9, allow_commands=True, as_reference=True
)


def check_case(path: Path) -> CaseResult:
    """Compare one case."""
    expected = json.loads(path.with_name(f"{path.stem}.expect.json").read_text())
    return CaseResult(path.stem, tuple(_differences(path, expected)))


def check_folder(folder: Path) -> Iterator[CaseResult]:
    """Compare all cases of a folder, in order of their names."""
    for path in sorted(folder.glob("*.sub")):
        yield check_case(path)


def _differences(path: Path, expected: dict[str, Any]) -> Iterator[str]:
    try:
        description = read_description(
            path.read_text(errors="surrogateescape"),
            iwd=IWD,
            environ=expected["env"],
            user=expected["env"].get("USER", "alice"),
            facts=FACTS,
            files=Fixtures(expected.get("fixtures", {})),
            cluster=1,
            check_files=False,
        )
    except DescriptionError as trouble:
        if expected["ok"] or expected["exit_code"] == 0:
            yield f"refused: {trouble}"
        return
    count = sum(draft.count for draft in description.clusters)
    if not expected["ok"] and expected["exit_code"]:
        yield f"accepted, expected: {expected.get('stderr', 'an error')!r}"
        return
    if count != expected["procs"]:
        yield f"{count} processes, expected {expected['procs']}"
    if count:
        yield from _compare_jobs(description.clusters[0], expected)


def _compare_jobs(draft: ClusterDraft, expected: dict[str, Any]) -> Iterator[str]:
    first = {name.lower(): text for name, text in expected["first_job"].items()}
    volatile = bool(expected.get("volatile_macros"))
    for index, changes in enumerate(expected["jobs"]):
        wanted = dict(first)
        wanted |= {name.lower(): text for name, text in changes.items() if name != "__absent__"}
        for name in changes.get("__absent__", ()):
            wanted.pop(name.lower(), None)
        if index >= draft.count:
            return
        yield from _compare(index, long_form(draft, index), wanted, volatile)


def long_form(draft: ClusterDraft, index: int) -> dict[str, str]:
    """Process `index` as attribute to expression text in long form, ClusterId and ProcId included."""
    attributes: dict[str, Wire] = {**draft.attributes, **draft.delta(index)}
    attributes |= {"ClusterId": draft.cluster, "ProcId": index}
    lines = ClassAd.from_wire(attributes).to_long().split("\n")
    return {name.strip(): text for name, _, text in (line.partition(" = ") for line in lines)}


def _compare(index: int, found: dict[str, str], wanted: dict[str, str], volatile: bool) -> Iterator[str]:
    ours = {name.lower(): text for name, text in found.items()}
    for name in sorted((ours.keys() | wanted.keys()) - VOLATILE):
        mine, theirs = ours.get(name), wanted.get(name)
        theirs = theirs.replace("$IWD", IWD) if theirs else theirs
        if mine == theirs or (name == "environment" and _same_variables(mine, theirs)):
            continue
        if volatile and mine and theirs and re.sub(r"[0-9]+", "0", mine) == re.sub(r"[0-9]+", "0", theirs):
            continue
        yield f"process {index}: {name} = {mine}, expected {theirs}"


def _same_variables(mine: str | None, theirs: str | None) -> bool:
    if mine is None or theirs is None:
        return False
    kept = [word for word in split_words(theirs[1:-1]) if not word.startswith(_FOREIGN_VARIABLES)]
    return mine == f'"{join_words(kept)}"'

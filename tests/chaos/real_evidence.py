"""The facts of a round of real processes: from reports, queues, histories, logs and output files."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pool.classad import ClassAd
from pool.client import Pool
from pool.jobs.events import EventKind
from pool.policy.queue import COMPLETED
from tests.chaos.faults import SCHEDDS
from tests.chaos.real_cluster import Cluster
from tests.chaos.real_faults import RealJob
from tests.chaos.record import JobName, Outcome, Record, Run

#: Bytes that a job changes in a tick (`reporter.c`).
PART = 4096
#: A signal, and HTCondor's hold code for outputs.
KILLED, NOT_BROUGHT_HOME = 9, 12
#: Of holds whose cause can be no fault: its files were there when the program ended.
FILES_WENT = ("did not leave its output", "scratch directory")


@dataclass(slots=True)
class Submitted:
    """A job of a round: what it was asked to do, and its name if the submit was answered.

    Attributes:
        seed: how it changes its input.
        killed: a fault sent SIGKILL to its process, so that it may end as a program that is killed does.
    """

    label: str
    schedd: str
    given: RealJob
    seed: int
    home: Path
    name: JobName | None = None
    killed: bool = False


class Evidence:
    """Of one round, which begins now."""

    def __init__(self, cluster: Cluster, jobs: list[Submitted]) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._logs = {machine.log: machine.log.stat().st_size for machine in cluster.machines.values()}
        self._began = time.time()

    async def collect(self) -> Record:
        """The schedds' account of it all, and the reports."""
        record = Record()
        for schedd in SCHEDDS:
            async with asyncio.timeout(60.0), await Pool.connect(self._cluster.machines[schedd].address) as pool:
                for ad in await pool.jobs():
                    if self._known(schedd, ad) is not None:
                        left = f"status {ad.value('JobStatus')}, hold reason {ad.value('HoldReason')}"
                        record.left[_name(schedd, ad)] = left
                for ad in await pool.history():
                    if (job := self._known(schedd, ad)) is not None:
                        record.outcomes[_name(schedd, ad)].append(_outcome(job, ad))
                        why = str(ad.value("LastHoldReason"))
                        if any(words in why for words in FILES_WENT):
                            record.failures.append(f"{job.label} was held: {why}")
                await self._count_ends(pool, schedd, record)
        for job in self._jobs:
            if job.name is not None:
                record.accepted.append(job.name)
                copies = self._cluster.reports.copies.get(job.label, [])
                record.runs[job.name] = [
                    Run(number, f"process {copy.pid}", copy.began, copy.seen, copy.whole or job.killed)
                    for number, copy in enumerate(copies, 1)
                ]
        return record

    def _known(self, schedd: str, ad: ClassAd) -> Submitted | None:
        """The job of this round that an ad is of; one whose submit was not answered has its name from here."""
        for job in self._jobs:
            if str(job.home) == ad.value("Iwd") and job.schedd == schedd:
                job.name = job.name or _name(schedd, ad)
                return job
        return None

    async def _count_ends(self, pool: Pool, schedd: str, record: Record) -> None:
        ids = [job.name[1:] for job in self._jobs if job.name is not None and job.schedd == schedd]
        if not ids:
            return
        async for batch in pool.events(ids=ids):
            if not batch:
                return
            for event in batch:
                if event["kind"] == EventKind.TERMINATED:
                    record.told[(schedd, event["cluster"], event["proc"])] += 1

    def wrong_outputs(self, record: Record) -> list[str]:
        """Jobs that are said to be completed, and whose files are not what they wrote."""
        found = []
        for job in self._jobs:
            if job.name is None or job.name not in record.outcomes or job.killed:
                continue
            for name, right in (("out", _output(job)), ("stdout", _counted(job))):
                path = job.home / name
                is_there = path.read_bytes() if path.exists() else None
                if is_there != right:
                    size = "is missing" if is_there is None else f"has {len(is_there)} bytes"
                    found.append(f"{job.name[1]}.0 of {job.schedd}: {path} {size} and is not its {len(right)} bytes")
        return found

    def traces(self) -> list[str]:
        """Stack traces in the logs of this round."""
        found = []
        for log, before in self._logs.items():
            with log.open("rb") as file:
                file.seek(before)
                lines = [line for line in file if b'"trace"' in line or b"Traceback" in line]
            found += [f"a stack trace in {log}: {line.decode(errors='replace')[:600].strip()}" for line in lines[:3]]
        return found

    def keep(self, name: str, lines: list[str]) -> None:
        """Keep, beside the logs, what shows how it came to this."""
        kept = self._cluster.directory / name
        kept.mkdir()
        copies = {job.label: self._cluster.reports.copies.get(job.label, []) for job in self._jobs}
        names = {job.label: job.name for job in self._jobs}
        told = {label: {"job": names[label], "copies": [asdict(one) for one in of]} for label, of in copies.items()}
        (kept / "reports.json").write_text(json.dumps({"began": self._began, "jobs": told}, indent=1))
        (kept / "faults.txt").write_text("\n".join(lines))
        for job in self._jobs:
            shutil.copytree(job.home, kept / job.home.parent.name / job.home.name)
        for schedd in SCHEDDS:
            shutil.copytree(self._cluster.machines[schedd].state / "spool", kept / f"spool-{schedd}")
        for path, before in self._logs.items():
            with path.open("rb") as log, (kept / path.name).open("wb") as part:
                log.seek(before)
                shutil.copyfileobj(log, part)


def _name(schedd: str, ad: ClassAd) -> JobName:
    return schedd, int(ad.value("ClusterId")), int(ad.value("ProcId"))


def _outcome(job: Submitted, ad: ClassAd) -> Outcome:
    status = "completed" if ad.value("JobStatus") == COMPLETED else f"in state {ad.value('JobStatus')}"
    code = 0 if job.killed and ad.value("ExitSignal") == KILLED else ad.value("ExitCode")
    times = int(ad.value("NumJobCompletions") or 0)
    if ad.value("LastHoldReasonCode") == NOT_BROUGHT_HOME:
        times = min(times, 1)  # a full disk on the submit side: it ended, was held, and ran again
    return Outcome(status, code, times, float(ad.value("CompletionDate") or 0))


def _output(job: Submitted) -> bytes:
    """The output of its program for its input."""
    given = (job.home / "in").read_bytes()
    parts = [given[at : at + PART] for at in range(0, len(given), PART)]
    return b"".join(bytes(byte ^ (job.seed + tick & 0xFF) for byte in part) for tick, part in enumerate(parts, 1))


def _counted(job: Submitted) -> bytes:
    return "".join(f"{tick}\n" for tick in range(1, job.given.ticks + 1)).encode()

"""HyperQueue's local cluster in a process of its own: `python -m tests.benchmarks.hyperqueue_peer SLOTS`.

Prints "ready" when it is up; for each line "TASKS" on standard input it runs that many `/bin/true` as one job
and prints the seconds they took, twice: until the last task had run, as a file shows that a task depending on
all of them touches, and until HyperQueue's own client said so (it looks once a second). Ends with its
standard input.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO


def serve(slots: int, answers: TextIO) -> None:
    """Run jobs until standard input ends."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with tempfile.TemporaryDirectory() as directory, LocalCluster(f"{directory}/server") as cluster:
        cluster.start_worker(WorkerConfig(cores=slots))
        client = cluster.client()
        print("ready", file=answers, flush=True)
        for turn, line in enumerate(sys.stdin):
            mark = Path(directory) / f"mark{turn}"
            began = time.time()
            job = Job(directory)
            tasks = [job.program(["/bin/true"], stdout=None, stderr=None) for _ in range(int(line))]
            job.program(["/bin/touch", str(mark)], stdout=None, stderr=None, deps=tasks)
            client.wait_for_jobs([client.submit(job)])
            print(mark.stat().st_mtime - began, time.time() - began, file=answers, flush=True)


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # HyperQueue writes its own messages to standard output
    serve(int(sys.argv[1]), own)

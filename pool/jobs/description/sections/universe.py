"""The sort of job: universe, another batch system."""

from __future__ import annotations

import re

from pool.decimals import clipped_number
from pool.jobs.description import support
from pool.jobs.description.diagnostics import nearest
from pool.jobs.description.job import JobDraft
from pool.jobs.gangs import NODE_MARKS, PARALLEL

NUMBERS = {
    "standard": 1,
    "pvm": 4,
    "vanilla": 5,
    "scheduler": 7,
    "mpi": 8,
    "grid": 9,
    "java": 10,
    "parallel": 11,
    "local": 12,
    "vm": 13,
}
_SUPPORTED = frozenset({5, 7, 8, 9, 10, 11, 12})
_GRIDS = frozenset({"condor", "batch", "arc", "pbs", "lsf", "nqs", "sge", "slurm", "naregi", "blah"})
_GRID_TEXTS = (
    ("arc_rte", "ArcRte"),
    ("arc_resources", "ArcResources"),
    ("arc_application", "ArcApplication"),
    ("arc_data_staging", "ArcDataStaging"),
    ("batch_extra_submit_args", "BatchExtraSubmitArgs"),
    ("batch_project", "BatchProject"),
    ("batch_queue", "BatchQueue"),
)


def universe(job: JobDraft) -> None:
    """`universe`, decided once for a cluster; docker and container jobs are vanilla jobs in an image."""
    nature = job.nature
    text = job.param("universe", "JobUniverse") or "vanilla"
    nature.docker = text.lower() == "docker"
    nature.container = text.lower() == "container"
    several = text.lower() == "pipe"  # VS 3.3's name for jobs of several processes
    nature.universe = 5 if nature.docker or nature.container or several else _number(job, text)
    docker, image = job.param("docker_image", "DockerImage"), job.param("container_image", "ContainerImage")
    if nature.universe in ((5, 12) if job.facts.as_reference else (5, *NODE_MARKS, 12)):
        if image and (docker or nature.docker):
            raise job.refuse(
                "container_image",
                "a docker job has its image in 'docker_image'",
                "leave one of the images out",
            )
        if not nature.docker and (docker or image):
            nature.container = True
            if docker:
                job.set("WantDockerImage", True)
        if nature.docker:
            job.set("WantDocker", True)
        if nature.container:
            job.set("WantContainer", True)
    support.check_universe(job)
    job.set("JobUniverse", nature.universe)
    if job.boolean("WantParallelScheduling"):
        job.set("WantParallelScheduling", True)
    if remote := job.param("remote_universe", "Remote_JobUniverse"):
        job.set("Remote_JobUniverse", _number(job, remote, "remote_universe"))
    parallel = job.is_true("WantParallelScheduling") and not job.facts.as_reference
    job.macros.defaults["node"] = NODE_MARKS.get(PARALLEL if parallel else nature.universe, "")
    if nature.universe == 9:
        nature.grid_type = _grid_type(job)


def _number(job: JobDraft, text: str, command: str = "universe") -> int:
    digits = re.match(r"\s*[0-9]+", text)
    number = clipped_number(digits[0].strip()) if digits else 0
    number = number or NUMBERS.get(text.strip().lower(), 0)
    if number in _SUPPORTED:
        return number
    if number:
        support.check_number(job, number, command)
    known = [name for name, value in NUMBERS.items() if value in _SUPPORTED] + ["docker", "container", "pipe"]
    meant = nearest(text, known)
    what = "is no universe" if not number else "is a universe that is not supported"
    raise job.refuse(
        command,
        f"{text!r} {what}: expected one of {', '.join(known)}",
        f"did you mean {meant}?" if meant else "",
        other="JobUniverse",
    )


def _grid_type(job: JobDraft) -> str:
    text = job.param("grid_resource", "GridResource")
    if not text:
        raise job.refuse("universe", "a grid job needs its resource", "write grid_resource = TYPE ADDRESS")
    word = text.split()[0].lower()
    if "$$" in word:
        return word
    if word not in _GRIDS:
        raise job.refuse("grid_resource", f"expected a resource of type condor, batch or arc, not {word!r}")
    return word


def grid(job: JobDraft) -> None:
    """`grid_resource` and what belongs to it."""
    if job.nature.universe != 9:
        return
    if text := job.param("grid_resource", "GridResource"):
        job.set("GridResource", text)
    for command, attribute in _GRID_TEXTS:
        if text := job.param(command, attribute):
            job.set(attribute, text)
    if text := job.param("batch_runtime", "BatchRuntime"):
        job.set_expression("BatchRuntime", text, "batch_runtime", "BatchRuntime")


def container_services(job: JobDraft) -> None:
    """`container_service_names`: ports of the container that are reached from outside."""
    if not (job.nature.docker or job.nature.container):
        return
    names = job.param("container_service_names", "ContainerServiceNames")
    if not names:
        return
    job.set("ContainerServiceNames", names)
    for service in re.findall(r"[^,\s]+", names):
        command = f"{service}_container_port"
        port = job.integer(command)
        if port is None or not 0 <= port <= 65535:
            raise job.refuse(
                command if port is not None else "container_service_names",
                f"the service {service!r} needs a port from 0 to 65535",
                f"write {command} = NUMBER",
            )
        job.set(f"{service}_ContainerPort", port)


def credentials(job: JobDraft) -> None:
    """`x509userproxy`, `scitokens_file`: files that speak for the user elsewhere."""
    proxy = job.param("x509userproxy")
    if proxy:
        path = job.full_path(proxy)
        if job.files.kind(path) != "file":
            raise job.refuse_path("x509userproxy", path, f"there is no proxy file {path}")
        job.set("x509userproxy", path)
    elif job.boolean("use_x509userproxy"):
        raise job.refuse("use_x509userproxy", "no proxy file is named", "write x509userproxy = FILE")
    lifetime = job.integer("delegate_job_gsi_credentials_lifetime", "DelegateJobGSICredentialsLifetime")
    if lifetime is not None:
        job.set("DelegateJobGSICredentialsLifetime", lifetime)
    _token(job)
    if job.param("use_oauth_services", "UseOAuthServices"):
        raise job.refuse("use_oauth_services", "this pool has no service that keeps OAuth tokens")


def _token(job: JobDraft) -> None:
    file = job.param("scitokens_file", "ScitokensFile")
    use = job.param("use_scitokens", "use_scitoken")
    known = file or job.environ.get("BEARER_TOKEN_FILE")
    wanted = bool(file) if not use else bool(known) if use.lower() == "auto" else job.boolean("use_scitokens")
    if not wanted:
        return
    if not known:
        raise job.refuse("use_scitokens", "no token file is named", "write scitokens_file = FILE")
    job.set("ScitokensFile", job.full_path(known))

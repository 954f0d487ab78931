"""`requirements`: what the owner asks for, with what the job needs anyway added to it (EV 2.8).

A clause is added only where the owner's own text does not speak of the same attribute of the machine.
"""

from __future__ import annotations

import re

from pool.jobs.description.expressions import ExpressionError, referenced, wire_of
from pool.jobs.description.job import JobDraft
from pool.jobs.description.sections.policy import is_deferred
from pool.jobs.description.sections.program import image_kind
from pool.jobs.description.sections.resources import requested
from pool.jobs.description.sections.transfer import TRANSFERRING
from pool.jobs.huge_pages import CLAUSE as HUGE_PAGES_CLAUSE
from pool.jobs.huge_pages import HUGE_PAGES, ON
from pool.jobs.network import CLAUSES, JOB_NETWORK
from pool.jobs.network import FACTS as NETWORK_FACTS

_OWN = frozenset({"requestmemory", "vm_ckptmac", "requirements"})
_SYSTEMS = {"opsys", "opsysandver", "opsyslongname", "opsysshortname", "opsysname", "opsyslegacy"}
_IMAGE_CLAUSES = {"docker": "TARGET.HasDockerURL", "sif": "TARGET.HasSIF", "folder": "TARGET.HasSandboxImage"}
_CUDA = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")
_DEFERRAL = (
    "(((time() + ScheddInterval) >= (DeferralTime - DeferralPrepTime)) && (time() < (DeferralTime + DeferralWindow)))"
)


def requirements(job: JobDraft) -> None:
    """Write Requirements; `+Requirements` is taken as it is."""
    own = job.param("requirements")
    if job.param("MY.Requirements"):
        if own:
            job.warn("MY.Requirements", "+Requirements is used, and 'requirements' is not", "leave one of them out")
        return
    clauses = [f"({own})"] if own else []
    spoken = _target_references(job, own)
    if job.nature.universe == 9 and job.nature.grid_type != "condor":
        job.set_expression("Requirements", (own and f"({own})") or "TRUE", "requirements")
        return
    clauses += _platform(job, spoken)
    clauses += _amounts(job, spoken)
    if "hastdp" not in spoken and job.lookup("ToolDaemonCmd") is not None:
        clauses.append("TARGET.HasTDP")
    if "encryptexecutedirectory" not in spoken and job.is_true("EncryptExecuteDirectory"):
        clauses.append("TARGET.HasEncryptExecuteDirectory")
    if job.nature.universe in TRANSFERRING:
        clauses += _transfer(job, spoken)
    if is_deferred(job):
        if job.nature.universe != 12:
            clauses.append("TARGET.HasJobDeferral")
        if job.lookup("ScheddInterval") is None:
            job.set("ScheddInterval", 300)
        clauses.append(_DEFERRAL)
    if job.is_true("WantFTOnCheckpoint") and "hasselfcheckpointtransfers" not in spoken:
        clauses.append("TARGET.HasSelfCheckpointTransfers")
    if job.text_of("JobCheckpoint") == "required" and "hascheckpoint" not in spoken:
        clauses.append("TARGET.HasCheckpoint")
    if (clause := CLAUSES.get(job.text_of(JOB_NETWORK))) and not spoken & NETWORK_FACTS:
        clauses.append(clause)
    if job.text_of(HUGE_PAGES) == ON and HUGE_PAGES.lower() not in spoken:
        clauses.append(HUGE_PAGES_CLAUSE)
    if version := job.text_of("CUDAVersion"):
        clauses.append(_cuda(job, version))
    if job.is_true("OCUWanted"):
        clauses.append("TARGET.OCU =?= true")
    job.set_expression("Requirements", " && ".join(clauses), "requirements")


def _target_references(job: JobDraft, own: str | None) -> set[str]:
    if not own:
        return set()
    try:
        wire_of(own)
    except ExpressionError as trouble:
        raise job.refuse("requirements", f"expected an expression for 'requirements', not {own!r}: {trouble}") from None
    mine, spoken = referenced(own, _OWN)
    if "requirements" in mine | spoken:
        raise job.refuse(
            "requirements", "'requirements' refers to itself", "write $(requirements) for its earlier text"
        )
    return spoken


def _platform(job: JobDraft, spoken: set[str]) -> list[str]:
    nature, facts = job.nature, job.facts
    if nature.universe == 10:
        return ["TARGET.HasJava"]
    arch = [] if "arch" in spoken else [f'(TARGET.Arch == "{facts.arch}")']
    if nature.docker:
        network = job.text_of("DockerNetworkType")
        known = network in ("", "host", "none", "nat")
        return [
            *arch,
            "TARGET.HasDocker",
            *([] if known else ["StringListMember(My.DockerNetworkType, TARGET.DockerNetworks)"]),
        ]
    if nature.container:
        kind = "docker" if job.lookup("DockerImage") is not None else image_kind(job.text_of("ContainerImage"))
        return [*arch, "TARGET.HasContainer", _IMAGE_CLAUSES[kind]]
    return arch if spoken & _SYSTEMS else [*arch, f'(TARGET.OpSys == "{facts.opsys}")']


def _requests(job: JobDraft, attribute: str, more_than: float) -> bool:
    """Whether the job asks for that resource: by an expression, or by a number that is large enough."""
    value = job.lookup(attribute)
    if value is None:
        return False
    return value > more_than if isinstance(value, int | float) and not isinstance(value, bool) else True


def _amounts(job: JobDraft, spoken: set[str]) -> list[str]:
    clauses = []
    if job.lookup("RequestDisk") is None:
        if "disk" not in spoken:
            clauses.append("(TARGET.Disk >= DiskUsage)")
    elif "disk" in spoken:
        clauses.append("(TARGET.Disk >= RequestDisk)")
    elif _requests(job, "RequestDisk", 0):
        enough = "(TARGET.Disk >= RequestDisk)"
        newer = f'(versionGE(split(TARGET.CondorVersion)[1], "25.12.0") || {enough})'
        clauses.append(newer if job.nature.universe == 5 else enough)
    if _requests(job, "RequestMemory", 1):
        clauses.append("(TARGET.Memory >= RequestMemory)")
    if job.nature.universe != 9 and "cpus" not in spoken and _requests(job, "RequestCpus", 1):
        clauses.append("(TARGET.Cpus >= RequestCpus)")
    return clauses + [clause for name in requested(job) if (clause := _resource(job, spoken, name))]


def _resource(job: JobDraft, spoken: set[str], attribute: str) -> str:
    name = attribute[len("Request") :]
    value = job.lookup(attribute)
    if name.lower() in spoken or isinstance(value, bool):
        return ""
    if isinstance(value, str):
        return f"regexp({attribute}, TARGET.{name})" if value else ""
    if isinstance(value, int | float) and value <= 0:
        return ""
    if job.lookup(f"Require{name}") is not None:
        return f"(countMatches(MY.Require{name},TARGET.Available{name}) >= {attribute})"
    return f"(TARGET.{name} >= {attribute})"


def _transfer(job: JobDraft, spoken: set[str]) -> list[str]:
    same_files = "(TARGET.FileSystemDomain == MY.FileSystemDomain)"
    whether = job.text_of("ShouldTransferFiles")
    remote = job.lookup("RemoteIO")
    if remote is not None and "hasremoteio" not in spoken:
        same_files = f"({same_files} || TARGET.HasRemoteIO)"
    if whether == "NO":
        return [] if "filesystemdomain" in spoken else [same_files]
    if spoken & {"hasfiletransfer", "hasjobtransferplugins"}:
        return []
    sent = ["TARGET.HasJobTransferPlugins" if job.text_of("TransferPlugins") else "TARGET.HasFileTransfer"]
    encrypted = ("EncryptInputFiles", "EncryptOutputFiles", "DontEncryptInputFiles", "DontEncryptOutputFiles")
    if "hasperfileencryption" not in spoken and any(job.lookup(name) is not None for name in encrypted):
        sent.append("TARGET.HasPerFileEncryption")
    if (
        job.text_of("TransferCheckpoint")
        or job.is_true("PreserveRelativePaths")
        or job.text_of("WhenToTransferOutput") == "ON_SUCCESS"
    ):
        sent.append('versioncmp( split(TARGET.CondorVersion)[1], "8.9.7" ) >= 0')
    if job.is_true("RequireCommonFilesTransfer"):
        sent.append("TARGET.HasCommonFilesTransfer >= 2")
    wanted = job.text_of("WantTransferPluginMethods").split(",")
    if wanted != [""] and "hasfiletransferpluginmethods" not in spoken:
        sent += [f'stringListIMember("{name}",TARGET.HasFileTransferPluginMethods)' for name in wanted]
    clause = f"({' && '.join(sent)})"
    if whether == "IF_NEEDED" and "filesystemdomain" not in spoken and (wanted == [""] or job.facts.as_reference):
        clause = f"({same_files} || {clause})"
    return [clause]


def _cuda(job: JobDraft, version: str) -> str:
    found = _CUDA.fullmatch(version)
    if not found:
        raise job.refuse("cuda_version", f"expected a version such as 12 or 12.1, not {version!r}")
    major = int(found[1])
    if found[2] is not None:
        number = major * 1000 + int(found[2]) % 100
    else:
        number = major * 1000 if major < 1000 else major
    job.set("CUDAVersion", number)
    return "CUDAVersion <= TARGET.CUDAMaxSupportedVersion"

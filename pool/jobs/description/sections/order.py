"""The order in which the sections write a job, and which attributes each may write.

Each section declares the attributes that it reads and writes. So the first process alone shows which parts of the job
differ by process: a section that reads such an attribute differs by process, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pool.jobs.description import support
from pool.jobs.description.commands import SIMPLE
from pool.jobs.description.job import JobDraft
from pool.jobs.description.pipes import processes, spread
from pool.jobs.description.sections import (
    mpi,
    parallel,
    policy,
    program,
    requirements,
    resources,
    transfer,
    universe,
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a job.

    Attributes:
        write: what writes it.
        attributes: those that it may write, in lower case; a trailing `*` is a prefix.
        commands: without any of these in the description, in lower case, it writes nothing; empty where it always may.
    """

    write: Callable[[JobDraft], None]
    attributes: tuple[str, ...] = ()
    commands: frozenset[str] = frozenset()


def _attributes(text: str) -> tuple[str, ...]:
    return tuple(text.lower().split())


def _commands(text: str) -> frozenset[str]:
    return frozenset(text.lower().split())


def beginning(job: JobDraft) -> None:
    """The attributes that every job begins with: nothing used, nothing counted."""
    for name in ("RemoteWallClockTime", "RemoteUserCpu", "RemoteSysCpu"):
        job.set(name, 0.0)
    for name in ("CumulativeRemoteUserCpu", "CumulativeRemoteSysCpu"):
        job.set(name, 0.0)
    for name in _COUNTERS:
        job.set(name, 0)
    job.set("ExitBySignal", False)
    job.set("MyType", "Job")
    job.set("TargetType", "Machine")
    job.set("Owner", ["undefined"])
    job.set("QDate", int(job.facts.now))


_COUNTERS = (
    "ExitStatus",
    "NumCkpts",
    "NumJobStarts",
    "NumJobCompletions",
    "NumRestarts",
    "NumSystemHolds",
    "CommittedTime",
    "CommittedSlotTime",
    "CumulativeSlotTime",
    "TotalSuspensions",
    "LastSuspensionTime",
    "CumulativeSuspensionTime",
    "CommittedSuspensionTime",
)


def addition(job: JobDraft, command: str) -> None:
    """`+Attribute = expression` or `MY.Attribute = expression`: anything the owner wants in the job ad."""
    attribute = command[len("MY.") :]
    if not attribute:
        raise job.refuse(command, "expected the name of an attribute after '+' or 'MY.'")
    job.set_expression(attribute, job.param(command) or "undefined", command)


def additions(job: JobDraft) -> list[Section]:
    """One section for each attribute that the owner adds."""
    names = (macro.name for key, macro in sorted(job.macros.table.items()) if key.startswith("my."))
    return [Section(partial(addition, command=name), (name[len("my.") :].lower(),)) for name in names]


IWD = Section(program.initial_directory, _attributes("Iwd RootDir"))

BEFORE_ADDITIONS: tuple[Section, ...] = (
    Section(
        processes.processes,
        _attributes("Processes Pipes ProcessEnvironments OnProcessFailure PipeBuffer Cmd Arguments TransferExecutable"),
    ),
    Section(
        program.executable,
        _attributes("Cmd TransferExecutable DockerImage ContainerImage WantDockerImage WantSIF WantSandboxImage"),
    ),
    Section(program.arguments, _attributes("Args Arguments")),
    Section(universe.grid, _attributes("GridResource Arc* Batch*")),
    Section(
        program.java_arguments,
        _attributes("JavaVMArgs JavaVMArguments"),
        _commands("java_vm_arguments java_vm_args java_vm_arguments2 JavaVMArgs"),
    ),
    Section(
        parallel.several_machines,
        _attributes(
            "MinHosts MaxHosts RequestCpus WantIOProxy JobRequiresSandbox WantDedicated ExpectedDuration ReservationId"
        ),
    ),
    Section(program.environment, _attributes("Env EnvDelim Environment")),
    Section(policy.status, _attributes("JobStatus HoldReason HoldReasonCode EnteredCurrentStatus")),
    Section(
        program.tool_daemon,
        _attributes("ToolDaemon* SuspendJobAtExec"),
        _commands("tool_daemon_cmd ToolDaemonCmd"),
    ),
    Section(program.standard_input, _attributes("In TransferIn StreamIn")),
    Section(program.standard_output, _attributes("Out TransferOut StreamOut")),
    Section(program.standard_error, _attributes("Err TransferErr StreamErr")),
    Section(
        universe.credentials,
        _attributes("x509userproxy DelegateJobGSICredentialsLifetime ScitokensFile"),
        _commands(
            "x509userproxy use_x509userproxy delegate_job_gsi_credentials_lifetime DelegateJobGSICredentialsLifetime"
            " scitokens_file ScitokensFile use_scitokens use_scitoken use_oauth_services UseOAuthServices"
        ),
    ),
    Section(policy.notification, _attributes("JobNotification")),
    Section(
        policy.checkpoint,
        _attributes("JobCheckpoint CheckpointInterval"),
        _commands("checkpoint JobCheckpoint checkpoint_interval CheckpointInterval"),
    ),
    Section(policy.rank, _attributes("Rank")),
    Section(
        policy.periodic,
        _attributes("Periodic* OnExitHoldReason OnExitHoldSubCode"),
        _commands(" ".join(f"{command} {attribute}" for command, attribute in policy.PERIODIC)),
    ),
    Section(policy.leave_in_queue, _attributes("LeaveJobInQueue")),
    Section(
        policy.retries,
        _attributes("JobMaxRetries JobSuccessExitCode OnExitHold OnExitRemove"),
        _commands(
            "max_retries JobMaxRetries success_exit_code JobSuccessExitCode retry_until"
            " on_exit_hold OnExitHold on_exit_remove OnExitRemove"
        ),
    ),
    Section(
        policy.on_evict,
        _attributes("TransformOnEvict TransformBody_*"),
        _commands("on_evict_checks TransformOnEvict"),
    ),
    Section(
        policy.materialization,
        _attributes("JobMaterializeLimit"),
        _commands("max_materialize JobMaterializeLimit"),
    ),
    Section(policy.signals, _attributes("KillSig RemoveKillSig HoldKillSig KillSigTimeout CheckpointSig")),
    Section(universe.container_services, _attributes("ContainerServiceNames")),
    Section(
        resources.requests,
        _attributes("Request* Require* GPUs* Retry* Max* Next* TransformBody_* TransformOnEvict"),
    ),
    Section(mpi.mpi, _attributes("MpiFamily MpiRun PmixLibrary RanksPerMachine RequestCpus ParallelShutdownPolicy")),
    Section(
        policy.concurrency,
        _attributes("ConcurrencyLimits"),
        _commands("concurrency_limits concurrency_limits_expr"),
    ),
    Section(
        policy.accounting,
        _attributes("ProjectName MaxJobRetirementTime AcctGroup AcctGroupUser AccountingGroup"),
        _commands(
            "project_name ProjectName accounting_group AccountingGroup accounting_group_user AcctGroupUser"
            " nice_user NiceUser"
        ),
    ),
    *(
        Section(
            partial(policy.simple, command=c),
            (c.attribute.lower(),),
            _commands(f"{c.name} {c.attribute} {c.other}"),
        )
        for c in SIMPLE
        if c.name != "rootdir"
    ),
    Section(resources.network, _attributes("JobNetwork WantJobNetworking"), _commands("job_network JobNetwork")),
    Section(
        resources.outside_connections,
        _attributes("OutsideConnections"),
        _commands("outside_connections OutsideConnections"),
    ),
    Section(resources.huge_pages, _attributes("HugePages"), _commands("huge_pages HugePages")),
    Section(policy.manifest, (), _commands("manifest_dir ManifestDir")),
    Section(policy.deferral, _attributes("DeferralTime DeferralWindow DeferralPrepTime")),
    Section(transfer.remote_io, _attributes("RemoteIO RemoteIOTrees")),
    Section(
        transfer.transfer,
        _attributes(
            "TransferInput TransferOutput TransferOutputRemaps ShouldTransferFiles WhenToTransferOutput"
            " CommonInputFiles PublicInputFiles CommonInputCatalogs ImageSize DiskUsage FileSystemDomain"
            " ContainerImage* Cmd TransferExecutable"
        ),
    ),
    Section(
        policy.automatic,
        _attributes("MinHosts MaxHosts CurrentHosts WantFTOnCheckpoint JobLeaseDuration JobPrio JobStarterDebug"),
    ),
    Section(policy.mistakes, _attributes("JobLeaseDuration")),
    Section(support.check),
)

AFTER_ADDITIONS: tuple[Section, ...] = (
    Section(resources.gpu_demands, _attributes("RequireGPUs")),
    Section(transfer.methods, _attributes("WantTransferPluginMethods")),
    Section(requirements.requirements, _attributes("Requirements ScheddInterval CUDAVersion")),
    Section(spread.spread, _attributes("GangParts GangApart RemoteIO Requirements Request*")),
    Section(parallel.nodes, _attributes("GangParts GangApart OnProcessFailure")),
)

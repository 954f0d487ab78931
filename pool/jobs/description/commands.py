"""The table of commands: every word of the description language, the job attribute it makes, and its kind.

`SIMPLE` commands become their attribute with no more than a check of their kind. `SPECIAL` ones are handled
in `sections`, named here so that nobody's command is called unknown. A command may also be written as its job
attribute (`JobPrio = 5`). Names of attributes are the ones that users of batch pools know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class CommandKind(StrEnum):
    """The form that the text of a command must have, and how it is stored."""

    EXPRESSION = "an expression"
    BOOLEAN = "true or false"
    INTEGER = "an integer"
    COUNT = "an integer that is not negative"
    STRING = "a text"
    BARE = "a text, its double quotes taken off"
    LIST = "words between commas or blanks"
    PATH = "a file name, made absolute"
    BARE_PATH = "a file name, double quotes taken off, made absolute"


@dataclass(frozen=True, slots=True)
class SubmitCommand:
    """A command that becomes one attribute as it is; `other` is a further name of it."""

    name: str
    attribute: str
    kind: CommandKind
    other: str = ""


_E, _B, _I, _S = CommandKind.EXPRESSION, CommandKind.BOOLEAN, CommandKind.INTEGER, CommandKind.STRING

SIMPLE: tuple[SubmitCommand, ...] = (
    SubmitCommand("next_job_start_delay", "NextJobStartDelay", _E),
    SubmitCommand("keep_claim_idle", "KeepClaimIdle", _E),
    SubmitCommand("job_ad_information_attrs", "JobAdInformationAttrs", _S),
    SubmitCommand("ulog_execute_attrs", "UserLogExecuteEventAttrs", _S),
    SubmitCommand("max_idle", "JobMaterializeMaxIdle", _E, "materialize_max_idle"),
    SubmitCommand("docker_network_type", "DockerNetworkType", _S),
    SubmitCommand("docker_pull_policy", "DockerPullPolicy", _S),
    SubmitCommand("docker_override_entrypoint", "DockerOverrideEntrypoint", _B),
    SubmitCommand("docker_send_credentials", "DockerSendCredentials", _B),
    SubmitCommand("container_target_dir", "ContainerTargetDir", CommandKind.BARE),
    SubmitCommand("mount_under_scratch", "MountUnderScratch", CommandKind.BARE),
    SubmitCommand("transfer_container", "TransferContainer", _B),
    SubmitCommand("transfer_plugins", "TransferPlugins", _S),
    SubmitCommand("want_io_proxy", "WantIOProxy", _B),
    SubmitCommand("want_job_networking", "WantJobNetworking", _B),
    SubmitCommand("starter_debug", "JobStarterDebug", CommandKind.BARE),
    SubmitCommand("starter_log", "JobStarterLog", CommandKind.BARE_PATH),
    SubmitCommand("container_is_common", "ContainerIsCommon", _B),
    SubmitCommand("job_machine_attrs", "JobMachineAttrs", _S),
    SubmitCommand("job_machine_attrs_history_length", "JobMachineAttrsHistoryLength", _I),
    SubmitCommand("notify_user", "NotifyUser", _S),
    SubmitCommand("email_attributes", "EmailAttributes", CommandKind.LIST),
    SubmitCommand("remote_initialdir", "RemoteIwd", _S),
    SubmitCommand("remote_grid_resource", "Remote_GridResource", _S),
    SubmitCommand("output_destination", "OutputDestination", _S),
    SubmitCommand("output_directory", "OutputDirectory", CommandKind.PATH),
    SubmitCommand("want_graceful_removal", "WantGracefulRemoval", _E),
    SubmitCommand("job_max_vacate_time", "JobMaxVacateTime", _E),
    SubmitCommand("encrypt_execute_directory", "EncryptExecuteDirectory", _B),
    SubmitCommand("encrypt_input_files", "EncryptInputFiles", _S),
    SubmitCommand("encrypt_output_files", "EncryptOutputFiles", _S),
    SubmitCommand("dont_encrypt_input_files", "DontEncryptInputFiles", _S),
    SubmitCommand("dont_encrypt_output_files", "DontEncryptOutputFiles", _S),
    SubmitCommand("load_profile", "LoadProfile", _B),
    SubmitCommand("primary_unix_group", "PrimaryUnixGroup", _S),
    SubmitCommand("file_remaps", "FileRemaps", _E),
    SubmitCommand("buffer_files", "BufferFiles", _E),
    SubmitCommand("buffer_size", "BufferSize", _E),
    SubmitCommand("buffer_block_size", "BufferBlockSize", _E),
    SubmitCommand("fetch_files", "FetchFiles", _S),
    SubmitCommand("compress_files", "CompressFiles", _S),
    SubmitCommand("append_files", "AppendFiles", _S),
    SubmitCommand("local_files", "LocalFiles", _S),
    SubmitCommand("log", "UserLog", CommandKind.PATH),
    SubmitCommand("dagman_log", "DAGManNodesLog", CommandKind.PATH),
    SubmitCommand("log_xml", "UserLogUseXML", _B),
    SubmitCommand("noop_job", "IsNoopJob", _E),
    SubmitCommand("noop_job_exit_signal", "NoopJobExitSignal", _E),
    SubmitCommand("noop_job_exit_code", "NoopJobExitCode", _E),
    SubmitCommand("dag_node_name", "DAGNodeName", _S),
    SubmitCommand("match_list_length", "LastMatchListLength", _I),
    SubmitCommand("dagman_job_id", "DAGManJobId", CommandKind.COUNT),
    SubmitCommand("submit_event_notes", "SubmitEventNotes", _S),
    SubmitCommand("submit_event_user_notes", "SubmitEventUserNotes", _S),
    SubmitCommand("submit_event_notes_attrs", "SubmitEventNotesAttrs", _S),
    SubmitCommand("stack_size", "StackSize", _E),
    SubmitCommand("jar_files", "JarFiles", _S),
    SubmitCommand("parallel_script_shadow", "ParallelScriptShadow", _S),
    SubmitCommand("parallel_script_starter", "ParallelScriptStarter", _S),
    SubmitCommand("cron_minute", "CronMinute", _S),
    SubmitCommand("cron_hour", "CronHour", _S),
    SubmitCommand("cron_day_of_month", "CronDayOfMonth", _S),
    SubmitCommand("cron_month", "CronMonth", _S),
    SubmitCommand("cron_day_of_week", "CronDayOfWeek", _S),
    SubmitCommand("description", "JobDescription", _S),
    SubmitCommand("batch_name", "JobBatchName", CommandKind.BARE),
    SubmitCommand("batch_id", "JobBatchId", CommandKind.BARE),
    SubmitCommand("max_job_retirement_time", "MaxJobRetirementTime", _E),
    SubmitCommand("job_lease_duration", "JobLeaseDuration", _E),
    SubmitCommand("core_size", "CoreSize", _I),
    SubmitCommand("priority", "JobPrio", _I, "prio"),
    SubmitCommand("run_as_owner", "RunAsOwner", _B),
    SubmitCommand("max_transfer_input_mb", "MaxTransferInputMB", _E),
    SubmitCommand("max_transfer_output_mb", "MaxTransferOutputMB", _E),
    SubmitCommand("manifest", "ManifestDesired", _B),
    SubmitCommand("manifest_dir", "ManifestDir", _S),
    SubmitCommand("checkpoint_exit_code", "SuccessCheckpointExitCode", _I),
    SubmitCommand("checkpoint_destination", "CheckpointDestination", _S),
    SubmitCommand("aws_region", "AWSRegion", _S),
    SubmitCommand("aws_access_key_id_file", "EC2AccessKeyId", _S),
    SubmitCommand("aws_secret_access_key_file", "EC2SecretAccessKey", _S),
    SubmitCommand("s3_access_key_id_file", "EC2AccessKeyId", _S),
    SubmitCommand("s3_secret_access_key_file", "EC2SecretAccessKey", _S),
    SubmitCommand("gs_access_key_id_file", "EC2AccessKeyId", _S),
    SubmitCommand("gs_secret_access_key_file", "EC2SecretAccessKey", _S),
    SubmitCommand("erase_output_and_error_on_restart", "EraseOutputAndErrorOnRestart", _B),
    SubmitCommand("transfer_checkpoint_files", "TransferCheckpoint", _S),
    SubmitCommand("preserve_relative_paths", "PreserveRelativePaths", _B),
    SubmitCommand("cuda_version", "CUDAVersion", _S),
    SubmitCommand("skip_if_dataflow", "SkipIfDataflow", _B),
    SubmitCommand("allowed_job_duration", "AllowedJobDuration", _E),
    SubmitCommand("allowed_execute_duration", "AllowedExecuteDuration", _E),
    SubmitCommand("jobset", "JobSetName", CommandKind.BARE),
    SubmitCommand("rootdir", "RootDir", _S),
    SubmitCommand("urgent", "Urgent", _B),
    SubmitCommand("flock", "WantFlock", _B),
    SubmitCommand("also_pools", "FlockAlso", _S),
    SubmitCommand("start_from_checkpoint", "StartFromCheckpoint", CommandKind.BARE),
)

_SPECIAL_NAMES = """
    accounting_group accounting_group_user allow_arguments_v1 allow_environment_v1 arc_application
    arc_data_staging arc_resources arc_rte argument arguments arguments2 batch_extra_submit_args batch_project
    batch_queue batch_runtime checkpoint checkpoint_interval checkpoint_signal concurrency_limits
    concurrency_limits_expr container_image
    container_service_names cron_prep_time cron_window deferral_prep_time deferral_time deferral_window
    delegate_job_gsi_credentials_lifetime disk_usage docker_image env environment environment2 error
    executable get_env getenv gpus_maximum_capability gpus_minimum_capability gpus_minimum_memory
    gpus_minimum_runtime grid_resource hold hold_kill_sig image_size initial_dir initialdir input
    java_vm_args java_vm_arguments java_vm_arguments2 job_iwd kill_sig kill_sig_timeout leave_in_queue
    machine_count max_materialize max_retries nice_user node_count nodecount notification on_evict_checks
    on_exit_hold on_exit_hold_reason on_exit_hold_subcode on_exit_remove output periodic_hold
    periodic_hold_reason periodic_hold_subcode periodic_release periodic_remove periodic_vacate preferences
    project_name rank remote_universe remove_kill_sig require_gpus requirements retry_request_disk
    retry_request_memory retry_request_memory_increase retry_request_memory_max retry_until scitokens_file
    shell should_transfer_files skip_filechecks stderr stdin stdout stream_error stream_input stream_output
    submit_allow_duplicate_matches submit_fail_empty_fields submit_fail_empty_matches submit_match_directories
    submit_warn_duplicate_matches submit_warn_empty_fields submit_warn_empty_matches success_exit_code
    suspend_job_at_exec tool_daemon_args tool_daemon_arguments tool_daemon_arguments2 tool_daemon_cmd
    tool_daemon_error tool_daemon_input tool_daemon_output transfer_common_input transfer_error
    transfer_executable transfer_input transfer_input_files transfer_output transfer_output_files
    transfer_output_remaps universe use_oauth_services use_scitoken use_scitokens use_x509userproxy
    vm_checkpoint vm_disk vm_macaddr vm_memory vm_networking vm_networking_type vm_no_output_vm vm_type
    vm_vcpus vm_vnc want_ads wantparallelscheduling when_to_transfer_output x509userproxy xen_initrd
    xen_kernel xen_kernel_params xen_root request_cpus request_memory request_disk request_gpus
    interactive_executable interactive_args send_credential dedicated expected_duration reservation
    public_input_files queue include
    pipe on_process_failure pipe_buffer spread mpi ranks_per_machine remote_io remote_io_trees rendezvousdir wantnametag
    job_network outside_connections huge_pages
"""
_SPECIAL_ATTRIBUTES = """
    AccountingGroup AcctGroupUser Args ArcApplication ArcDataStaging ArcResources ArcRte BatchExtraSubmitArgs
    BatchProject BatchQueue BatchRuntime CheckpointInterval JobCheckpoint Cmd CommonInputFiles ContainerImage
    ContainerServiceNames
    CronPrepTime CronWindow DeferralPrepTime DeferralTime DeferralWindow DelegateJobGSICredentialsLifetime
    DiskUsage DockerImage Err GPUsMaxCapability GPUsMinCapability GPUsMinMemory GPUsMinRuntime GridResource
    HoldKillSig ImageSize In Iwd JavaVMArgs JobMaterializeLimit JobMaxRetries JobNotification
    JobSuccessExitCode JobUniverse JobVMCheckpoint JobVMMACAddr JobVMMemory JobVMNetworking
    JobVMNetworkingType JobVMType JobVMVNC JobVM_VCPUS KillSig KillSigTimeout LeaveJobInQueue MachineCount
    NiceUser OnExitHold OnExitHoldReason OnExitHoldSubCode OnExitRemove Out PeriodicHold PeriodicHoldReason
    PeriodicHoldSubCode PeriodicRelease PeriodicRemove PeriodicVacate ProjectName Rank RemoteIO RemoteIOTrees
    RemoveKillSig RequestCpus RequestDisk RequestGPUs RequestMemory RequireGPUs ScitokensFile ShouldTransferFiles
    StreamErr
    StreamIn StreamOut SubmitAllowDuplicateMatches SubmitFailEmptyFields SubmitFailEmptyMatches
    SubmitMatchDirectories SubmitWarnDuplicateMatches SubmitWarnEmptyFields SubmitWarnEmptyMatches
    SuspendJobAtExec ToolDaemonArgs ToolDaemonCmd ToolDaemonError ToolDaemonInput ToolDaemonOutput
    TransferErr TransferExecutable TransferIn TransferInput TransferInputFiles TransferOut TransferOutput
    TransferOutputFiles TransferOutputRemaps TransformOnEvict UseOAuthServices WhenToTransferOutput
    WantDedicated ExpectedDuration ReservationId MpiFamily MpiRun PmixLibrary RanksPerMachine JobNetwork
    OutsideConnections HugePages
"""

SPECIAL: frozenset[str] = frozenset(_SPECIAL_NAMES.split()) - {"queue", "include"}
NAMES: frozenset[str] = SPECIAL | {c.name for c in SIMPLE} | {c.other for c in SIMPLE if c.other}
_KNOWN = (
    NAMES
    | {name.lower() for name in _SPECIAL_ATTRIBUTES.split()}
    | {command.attribute.lower() for command in SIMPLE}
    | {"dag_status", "failed_count", "job", "retry"}  # set by workflow managers in every node
)
_FAMILIES = re.compile(
    r"(my\.|factory\.|request_..|require_..|transform_body_|transformbody_|ec2_|gce_|azure_|cloud_label_).*"
    r"|.*_container_port|.*_oauth_(permissions|resource|options).*",
    re.IGNORECASE,
)
_PER_PROCESS = re.compile(
    r"(?P<process>.+)\.(?P<command>input|output|error|arguments?|initialdir|(?P<more>executable|environment"
    r"|exit_codes_ok|append_output|append_error|short_reads|transfer_executable|transfer_input_files|requirements"
    r"|request_cpus|request_memory|request_disk))",
    re.IGNORECASE,
)


def is_command(name: str) -> bool:
    """Whether a name is a command of the language, in any of its spellings."""
    return name.lower() in _KNOWN or _FAMILIES.fullmatch(name) is not None


def process_command(name: str, *, several: bool = False) -> tuple[str, str] | None:
    """The process and command of a `process.Input` line (VS 3.2, 4.2), or None for any other name.

    Args:
        several: the job is known to have several processes: the commands count too that the papers do not have, which
            elsewhere are a macro's name like any other.
    """
    found = _PER_PROCESS.fullmatch(name)
    if found is None or name.lower().startswith("my.") or (found["more"] and not several):
        return None
    command = found["command"].lower()
    return found["process"], "arguments" if command == "argument" else command

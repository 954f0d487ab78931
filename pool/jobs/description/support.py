"""The support for each command of the language: done, done in part, ignored with a warning, or refused.

The sections read a command as the reference does; this table says what becomes of it here, and `check` has the reader
say so. No command is ignored without a word: `docs/submit.md` is made from the table, and a test finds for each command
the code that obeys it, the warning, or the refusal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from pool.jobs.description.commands import NAMES
from pool.jobs.description.expressions import boolean_of
from pool.jobs.description.job import JobDraft


class Support(StrEnum):
    """The support for a command."""

    DONE = "done"
    PARTLY = "partly"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Row:
    """One or more commands that have the same fate.

    Attributes:
        says: what is done, for the documentation; of an ignored or refused command what is said about it.
        hint: the way out.
        code: where it is done: a file below `pool/`, and a word of that file that is there for it.
        harmless: a value that asks for nothing, which is taken without a word.
        warns: a command that is done in part is warned about, too.
    """

    names: tuple[str, ...]
    support: Support
    says: str
    hint: str = ""
    code: tuple[str, str] = ("", "")
    harmless: str = ""
    warns: bool = False

    def asks_nothing(self, text: str) -> bool:
        """Whether this value is the same as not writing the command."""
        if self.harmless:
            return text.strip().lower() in self.harmless.split("|")
        return boolean_of(text) is False or text.strip().lower() in ("no", "never")


def _done_row(names: str, says: str, code: str, word: str) -> Row:
    return Row(tuple(names.split()), Support.DONE, says, code=(code, word))


def _partly(names: str, says: str, code: str, word: str, *, warns: bool = False, hint: str = "") -> Row:
    return Row(tuple(names.split()), Support.PARTLY, says, hint, code=(code, word), warns=warns)


def _ignored(names: str, says: str, hint: str = "", harmless: str = "") -> Row:
    return Row(tuple(names.split()), Support.IGNORED, says, hint, harmless=harmless)


def _refused(names: str, says: str, hint: str = "", harmless: str = "") -> Row:
    return Row(tuple(names.split()), Support.REFUSED, says, hint, harmless=harmless)


_READER = "jobs/description/"
_PROGRAM = _READER + "sections/program.py"
_POLICY = _READER + "sections/policy.py"
_RESOURCES = _READER + "sections/resources.py"
_SHOWN = "is kept in the job's ad, where listings and expressions find it"
_ON = ("pool/roles/schedd", "pool/roles/startd")
_GRID = "belongs to the grid universe: this pool sends no job to another batch system"
_IMAGES = "names a port of a container, which here is reached by the machine's own network"
_VM = "belongs to virtual machines, which this pool does not start"
_NO_SCRIPTS = "is refused: nothing runs beside a job's own program, on the submit machine or where it runs"
_OLD = "was of the standard universe of old, and means nothing any more"
_TOKENS = "asks for a credential that this pool has no service for"

TABLE: tuple[Row, ...] = (
    # -- the program ---------------------------------------------------------------------------------------
    _done_row("executable", "the program", "jobs/activation.py", "Cmd"),
    _done_row(
        "arguments argument arguments2", "its arguments, in either quoting", "jobs/activation.py", "arguments_of"
    ),
    _done_row("allow_arguments_v1", "takes both forms of arguments in one description", _PROGRAM, "allow_arguments_v1"),
    _done_row("allow_environment_v1", "takes both forms of environment at once", _PROGRAM, "allow_environment_v1"),
    _done_row("shell", "a command line for /bin/sh, instead of an executable", _PROGRAM, "shell"),
    _done_row(
        "environment environment2 env", "its environment, in either form", "jobs/activation.py", "environment_of"
    ),
    _done_row("getenv get_env", "variables of the submitter's environment", _PROGRAM, "getenv"),
    _done_row(
        "initialdir initial_dir job_iwd", "the directory that relative names start from", "jobs/activation.py", "Iwd"
    ),
    _done_row("input stdin", "the file it reads as standard input", "jobs/activation.py", "In"),
    _done_row("output stdout", "the file that gets its standard output", "jobs/activation.py", "Out"),
    _done_row("error stderr", "the file that gets its standard error", "jobs/activation.py", "Err"),
    _done_row("core_size", "the largest core file", "jobs/activation.py", "CoreSize"),
    _done_row("skip_filechecks", "files are not checked when the job is submitted", _PROGRAM, "skip_filechecks"),
    _partly(
        "universe",
        "vanilla, pipe, java, docker, container; parallel and mpi (docs/parallel.md); local and scheduler, which run on"
        " the submit machine; standard, grid and vm are refused by name",
        _READER + "support.py",
        "_UNIVERSES",
    ),
    _done_row("pipe", "a pipe between two processes (docs/pipes.md)", _READER + "pipes/shell_syntax.py", "pipe"),
    _done_row("pipe_buffer", "bytes that a pipe may hold on disk", "jobs/activation.py", "PipeBuffer"),
    _done_row(
        "on_process_failure", "what becomes of a job when a process fails", "jobs/activation.py", "OnProcessFailure"
    ),
    _done_row(
        "machine_count node_count nodecount",
        "so many nodes of one parallel job, started together or not at all (docs/parallel.md)",
        _READER + "sections/parallel.py",
        "machine_count",
    ),
    _done_row(
        "dedicated wantparallelscheduling",
        "the job is for the dedicated scheduler; parallel jobs are without it (docs/parallel.md)",
        "jobs/gangs.py",
        "WantDedicated",
    ),
    _done_row(
        "expected_duration",
        "how long the dedicated job will probably run (seconds, or 2h, 30 m): it plans, and ends no job "
        "(docs/dedicated.md)",
        "jobs/gangs.py",
        "ExpectedDuration",
    ),
    _done_row(
        "reservation",
        "the dedicated job runs on the machines of this reservation, and on no others (docs/dedicated.md)",
        "jobs/gangs.py",
        "ReservationId",
    ),
    _done_row(
        "mpi",
        "how the ranks of an MPI job find each other: mpich, openmpi, none, or auto, which looks at the program's"
        " libraries (docs/mpi.md)",
        _READER + "sections/mpi.py",
        "mpi",
    ),
    _done_row(
        "ranks_per_machine", "so many ranks of an MPI job on each machine (docs/mpi.md)", "jobs/mpi.py", "RanksPer"
    ),
    _done_row("spread", "processes of one job on several machines", _READER + "pipes/spread.py", "spread"),
    # -- files -----------------------------------------------------------------------------------------------
    _done_row(
        "should_transfer_files",
        "whether files are copied to the machine and back",
        "jobs/activation.py",
        "ShouldTransferFiles",
    ),
    _done_row("transfer_executable", "whether the program is sent along", "jobs/activation.py", "TransferExecutable"),
    _done_row("transfer_input_files", "files that are sent along", "jobs/activation.py", "TransferInput"),
    _done_row(
        "transfer_output_files",
        "files that are sent back to the submit machine, where they replace files of the same name. Without "
        "it new and changed files are sent back, which replace earlier outputs only: a user's own file "
        "stays, and the output gets another name beside it (NAME.JOB)",
        "jobs/activation.py",
        "TransferOutput",
    ),
    _done_row(
        "transfer_output_remaps",
        "where outputs are written on the submit machine",
        "jobs/activation.py",
        "TransferOutputRemaps",
    ),
    _partly(
        "when_to_transfer_output",
        "ON_EXIT and ON_EXIT_OR_EVICT; ON_SUCCESS is as ON_EXIT, with a warning",
        "jobs/activation.py",
        "WhenToTransferOutput",
    ),
    _done_row(
        "transfer_checkpoint_files", "the files of a self-made checkpoint", "jobs/activation.py", "TransferCheckpoint"
    ),
    _done_row(
        "remote_io",
        "the job works on the submit machine's files (docs/remote-files.md)",
        "jobs/activation.py",
        "RemoteIO",
    ),
    _done_row(
        "remote_io_trees",
        "the directories of the submit machine that it may use",
        "roles/schedd/files/remote_io.py",
        "rees",
    ),
    _partly(
        "transfer_input transfer_output transfer_error",
        "with a list of files as transfer_input_files and its like; the standard files are always transferred",
        _PROGRAM,
        "transfer_",
    ),
    _done_row(
        "stream_output stream_error",
        "where files are copied, its output is sent to the submit machine every second; otherwise the job "
        "writes there itself",
        "roles/schedd/files/output_streams.py",
        "StreamOut",
    ),
    _refused(
        "stream_input",
        "is refused: where files are copied, standard input is whole before the job begins, so that it can start again"
        " from its first byte on another machine",
        "leave it out, or write remote_io = on to read the file on the submit machine as it grows",
    ),
    _done_row(
        "remote_initialdir",
        "an absolute path: the directory of its machine in which the program begins; its files are then those of the"
        " machine (should_transfer_files = NO), and relative names of outputs begin at initialdir as always",
        "starter/order.py",
        "begins_in",
    ),
    _done_row(
        "preserve_relative_paths",
        "inputs and outputs with relative names keep the directories in their names",
        "shadow/shadow.py",
        "keeps_paths",
    ),
    _done_row(
        "manifest manifest_dir",
        "where files are copied, lists of its directory before and after the run, and its environment, are "
        "sent to the submit machine",
        "starter/manifest.py",
        "environment",
    ),
    _done_row(
        "aws_region aws_access_key_id_file aws_secret_access_key_file s3_access_key_id_file s3_secret_access_key_file"
        " gs_access_key_id_file gs_secret_access_key_file",
        "the files of the keys by which s3:// and gs:// inputs are signed; they stay on the submit machine",
        "shadow/shadow.py",
        "EC2AccessKeyId",
    ),
    _done_row(
        "public_input_files transfer_common_input",
        "files that many jobs share; they are sent as inputs are",
        "jobs/activation.py",
        "PublicInputFiles",
    ),
    _done_row(
        "max_transfer_input_mb max_transfer_output_mb",
        "it is held when more would have to be transferred",
        "jobs/activation.py",
        "MaxTransferInputMB",
    ),
    _done_row(
        "encrypt_input_files encrypt_output_files",
        "nothing more than for other jobs: all that goes between nodes is encrypted",
        "roles/startd/owner/facts.py",
        "HasPerFileEncryption",
    ),
    _done_row(
        "java_vm_args java_vm_arguments java_vm_arguments2 jar_files",
        "the arguments of the Java machine, and its class path",
        "jobs/activation.py",
        "JavaVMArguments",
    ),
    _done_row(
        "container_image docker_image transfer_container",
        "the image that is its root (docs/images.md): a directory, an archive (.tar) or an OCI layout anywhere, docker://"
        " where skopeo, podman or apptainer fetches it, .sif where apptainer unpacks it",
        "jobs/activation.py",
        "ContainerImage",
    ),
    Row(
        ("docker_network_type",),
        Support.PARTLY,
        "none: no network; any other value: the machine's own network",
        code=("jobs/activation.py", "DockerNetworkType"),
        harmless="none|host",
        warns=True,
    ),
    _done_row(
        "docker_pull_policy",
        "always, which is also the default: the registry is asked at each start for the present meaning of "
        "the name, and an image that the machine does not keep is fetched",
        "starter/image_cache.py",
        "digest",
    ),
    _done_row(
        "docker_override_entrypoint",
        "true runs the executable of a docker job itself, not as the first argument of the image's entrypoint",
        "jobs/activation.py",
        "DockerOverrideEntrypoint",
    ),
    _done_row(
        "docker_send_credentials",
        "the owner's login for the image's registry is used. Only that entry of docker's or podman's file is "
        "sent to the machine, at the start, and is written to no disk there",
        "shadow/shadow.py",
        "RegistryLogins",
    ),
    _ignored("container_is_common", "has no effect: machines that see the submit side's files use it in its place"),
    _ignored("container_target_dir", "has no effect: a job's own directory is /job in every image"),
    _refused("container_service_names", _IMAGES, "leave it out"),
    # -- what it needs -----------------------------------------------------------------------------------------
    _done_row("requirements", "the condition that a machine must fulfil", "policy/matching/clauses.py", "Requirements"),
    _done_row(
        "rank preferences", "the order of preference among these machines", "policy/negotiation/candidates.py", "Rank"
    ),
    _done_row(
        "request_cpus request_memory request_disk request_gpus",
        "the resources of a machine that it gets",
        "policy/carve.py",
        "Request",
    ),
    _done_row("request_NAME require_NAME", "the same of any other resource of machines", _RESOURCES, "request_"),
    _done_row(
        "require_gpus gpus_minimum_capability gpus_maximum_capability gpus_minimum_memory gpus_minimum_runtime"
        " cuda_version",
        "the properties that its GPUs must have, as nvidia-smi or the administrator's STARTD_ATTRS describe "
        "them on each machine",
        "policy/carve.py",
        "RequireGPUs",
    ),
    _done_row(
        "image_size disk_usage",
        "sizes that are known before the first run",
        _READER + "sections/transfer.py",
        "disk_usage",
    ),
    _done_row(
        "concurrency_limits concurrency_limits_expr",
        "units of resources that the whole pool has few of",
        "policy/negotiation/cycle.py",
        "imits",
    ),
    # -- who, and how often --------------------------------------------------------------------------------------
    _done_row("priority prio", "its place among its owner's jobs", "policy/queue.py", "jobprio"),
    _done_row("nice_user", "it gets only slots that nobody else wants", "jobs/nice.py", "NiceUser"),
    _done_row(
        "accounting_group accounting_group_user",
        "the account that its use is charged to",
        "policy/charges.py",
        "AcctGroup",
    ),
    _done_row(
        "max_job_retirement_time",
        "time that it may stay when a better job comes",
        "policy/owner.py",
        "MaxJobRetirementTime",
    ),
    _done_row(
        "job_lease_duration",
        "time that it runs on without contact to the submit machine",
        "roles/schedd/placement/claiming.py",
        "JobLeaseDuration",
    ),
    _done_row("flock", "false keeps it in its own pool (docs/flocking.md)", "policy/flock/shown.py", "WantFlock"),
    _done_row(
        "also_pools",
        "other pools in which its owner has an account and it may run (docs/flocking.md)",
        "policy/flock/private.py",
        "FlockAlso",
    ),
    _done_row("urgent", "it stops the job that runs (docs/urgent.md)", "policy/urgent.py", "Urgent"),
    _done_row("hold", "it waits for its owner's release", _POLICY, "hold"),
    _done_row("leave_in_queue", "it stays in the queue after its end", "policy/exits.py", "LeaveJobInQueue"),
    _done_row(
        "max_retries retry_until success_exit_code",
        "the number of attempts, and the condition of success",
        _POLICY,
        "max_retries",
    ),
    _done_row(
        "on_exit_hold on_exit_hold_reason on_exit_hold_subcode",
        "it is held at its end",
        "policy/exits.py",
        "OnExitHold",
    ),
    _done_row(
        "on_exit_remove", "whether it leaves the queue at its end, or runs again", "policy/exits.py", "OnExitRemove"
    ),
    _done_row(
        "periodic_hold periodic_hold_reason periodic_hold_subcode",
        "it is held when this becomes true",
        "policy/exits.py",
        "PeriodicHold",
    ),
    _done_row("periodic_release", "it is released when this becomes true", "policy/exits.py", "PeriodicRelease"),
    _done_row("periodic_remove", "it is removed when this becomes true", "policy/exits.py", "PeriodicRemove"),
    _done_row("periodic_vacate", "it leaves its machine when this becomes true", "policy/exits.py", "PeriodicVacate"),
    _done_row(
        "allowed_job_duration allowed_execute_duration",
        "it is held when it takes longer than so many seconds, from its start or from its program's",
        "policy/exits.py",
        "AllowedExecuteDuration",
    ),
    _done_row(
        "deferral_time deferral_window deferral_prep_time",
        "it starts at a set time: a machine is looked for before that, and the job is held if it has none "
        "within the window",
        "policy/deferral.py",
        "DeferralWindow",
    ),
    _done_row(
        "cron_minute cron_hour cron_day_of_month cron_month cron_day_of_week cron_window cron_prep_time",
        "it starts at the next moment of a crontab, and with on_exit_remove = false at each",
        "jobs/crontab.py",
        "CronMinute",
    ),
    _done_row(
        "retry_request_memory retry_request_memory_increase retry_request_memory_max retry_request_disk",
        "a job that was over its memory or disk runs again with more, instead of being held",
        "policy/more_resources.py",
        "TransformOnEvict",
    ),
    _done_row(
        "max_idle materialize_max_idle",
        "the number of the cluster's idle jobs that machines are looked for at once; the others wait in the queue",
        "policy/materialization.py",
        "JobMaterializeMaxIdle",
    ),
    _done_row(
        "max_materialize",
        "the number of the cluster's jobs that have their turn at once, running and held ones included",
        "policy/materialization.py",
        "JobMaterializeLimit",
    ),
    _done_row(
        "next_job_start_delay",
        "seconds between two starts of the cluster's jobs",
        "policy/materialization.py",
        "NextJobStartDelay",
    ),
    _done_row(
        "remove_kill_sig hold_kill_sig",
        "the signal that asks it to end where it is removed, or held",
        "roles/schedd/placement/running_jobs.py",
        "RemoveKillSig",
    ),
    _done_row(
        "stack_size",
        "bytes that its stacks may have, within the machine's own limit",
        "jobs/activation.py",
        "StackSize",
    ),
    _done_row("kill_sig", "the signal that asks it to end", "jobs/activation.py", "KillSig"),
    _done_row(
        "kill_sig_timeout job_max_vacate_time",
        "the time that it has to end then",
        "jobs/activation.py",
        "KillSigTimeout",
    ),
    _done_row(
        "keep_claim_idle",
        "seconds that its slot is kept for its owner's next job",
        "roles/schedd/placement/placement.py",
        "KeepClaimIdle",
    ),
    _done_row(
        "job_machine_attrs job_machine_attrs_history_length",
        "attributes of its machines that its ad gets: MachineAttrNAME0 of the latest machine",
        "jobs/machine_attributes.py",
        "JobMachineAttrs",
    ),
    _done_row("want_job_networking", "false: it has no network", "jobs/activation.py", "WantJobNetworking"),
    _done_row(
        "job_network",
        "its network: host (the machine's), private (one of its own), private+out (with a way out), none",
        "jobs/network.py",
        "JobNetwork",
    ),
    # -- checkpoints ---------------------------------------------------------------------------------------------
    _done_row("checkpoint", "whether and how it is saved while it runs", "policy/checkpoints.py", "JobCheckpoint"),
    _done_row(
        "outside_connections",
        "a checkpoint while it has connections to the outside: refuse, or reset (the restore resets them)",
        "jobs/network.py",
        "OutsideConnections",
    ),
    _done_row(
        "huge_pages",
        "on: malloc asks for memory in huge pages, for shorter stops at checkpoints; off: it does not; without it the "
        "machine decides",
        "jobs/huge_pages.py",
        "HugePages",
    ),
    _done_row("checkpoint_interval", "how often", "policy/checkpoints.py", "CheckpointInterval"),
    _done_row("checkpoint_signal", "the signal that asks it to save itself", "jobs/activation.py", "CheckpointSig"),
    _done_row(
        "checkpoint_exit_code",
        "the exit code that says that it has saved itself",
        "jobs/activation.py",
        "SuccessCheckpointExitCode",
    ),
    _done_row(
        "start_from_checkpoint",
        "a kept checkpoint that it starts from",
        "roles/schedd/submit/submit_methods.py",
        "StartFromCheckpoint",
    ),
    _refused(
        "checkpoint_destination",
        "is refused: checkpoints are kept where the administrator's CHECKPOINT_SERVER says, for all jobs of a schedd",
        "leave it out",
    ),
    # -- log and mail ----------------------------------------------------------------------------------------------
    _done_row("log", "the file that its events are written to", "roles/schedd/notices/reporting.py", "UserLog"),
    _done_row("notification", "the events that its owner gets mail about", "jobs/notice.py", "JobNotification"),
    _done_row("email_attributes", "attributes of its ad that such mail shows", "jobs/notice.py", "EmailAttributes"),
    _done_row("notify_user", "the address of such mail", "roles/schedd/notices/reporting.py", "NotifyUser"),
    _done_row("batch_name batch_id description jobset project_name", _SHOWN, _READER + "commands.py", "JobBatchName"),
    _done_row("dag_node_name dagman_job_id", _SHOWN, _READER + "commands.py", "DAGNodeName"),
    # -- the language itself ---------------------------------------------------------------------------------------
    _ignored(
        "submit_allow_duplicate_matches submit_fail_empty_fields submit_fail_empty_matches submit_match_directories"
        " submit_warn_duplicate_matches submit_warn_empty_fields submit_warn_empty_matches",
        "is a setting of the reference's own submit, and has no effect here",
        "a queue statement that matches nothing always warns",
        "true|false|auto|never",
    ),
    # -- ignored ------------------------------------------------------------------------------------------------------
    _ignored(
        "run_as_owner",
        "has no effect: the machine's setting RUN_AS decides which user a job runs as",
        "",
        "true|t|yes|1",
    ),
    _ignored(
        "dont_encrypt_input_files dont_encrypt_output_files", "has no effect: all that goes between nodes is encrypted"
    ),
    _ignored(
        "on_evict_checks",
        "has no effect: an evicted job is changed by retry_request_memory and retry_request_disk only",
        "retry_request_memory, periodic_hold and periodic_release do what most such changes are for",
    ),
    _ignored(
        "want_graceful_removal", "has no effect: rm asks first and kills after job_max_vacate_time", "", "true|t|yes|1"
    ),
    _ignored("log_xml", "has no effect: the log is written as text"),
    _ignored("dagman_log", "has no effect: the job's events are written to its log", "use log"),
    _ignored(
        "submit_event_notes submit_event_user_notes submit_event_notes_attrs ulog_execute_attrs"
        " job_ad_information_attrs",
        "has no effect: the log has what every job's log has",
    ),
    _ignored("match_list_length", "has no effect: the event log has every machine the job was on"),
    _ignored("mount_under_scratch", "has no effect: /tmp, /var/tmp and /dev/shm are a job's own (PRIVATE_TMP)"),
    _ignored(
        "starter_log starter_debug", "has no effect: what happened on the machine is in the job's log and the node's"
    ),
    _ignored(
        "interactive_executable interactive_args", "has no effect: there is no interactive submit", "see poolnode run"
    ),
    _ignored("skip_if_dataflow", "has no effect: the job runs though its outputs are newer than its inputs"),
    _ignored("erase_output_and_error_on_restart", "has no effect", "", "true|t|yes|1"),
    _ignored("load_profile send_credential", "belongs to Windows, and has no effect"),
    _ignored("want_ads", "has no effect"),
    _ignored("suspend_job_at_exec", "has no effect: it belongs to tool daemons"),
    _ignored(
        "file_remaps buffer_files buffer_size buffer_block_size fetch_files compress_files append_files local_files",
        _OLD,
    ),
    # -- refused ------------------------------------------------------------------------------------------------------
    _refused("wantnametag", _GRID, "leave it out"),
    _refused(
        "rendezvousdir",
        "is refused: users are known by certificates and tokens, not by a directory that both ends see",
        "leave it out",
    ),
    _refused("rootdir", "is refused: no job gets another root directory here", "leave it out", "/"),
    _refused("primary_unix_group", "is refused: a job has its owner's own groups", "leave it out"),
    _refused(
        "encrypt_execute_directory",
        "is refused: this pool does not encrypt the directories that jobs run in",
        "leave it out",
    ),
    _refused("want_io_proxy", "is refused: there is no proxy for input and output", "see remote_io"),
    _refused("noop_job noop_job_exit_code noop_job_exit_signal", "is refused: a job that does nothing is not queued"),
    _refused(
        "output_destination output_directory",
        "is refused: outputs are sent back to the submit machine",
        "use transfer_output_remaps",
    ),
    _refused(
        "transfer_plugins",
        "is refused: programs that fetch files are the administrator's (TRANSFER_PLUGINS)",
        "fetch the file in the job",
    ),
    _refused(
        "grid_resource remote_grid_resource remote_universe arc_application arc_data_staging arc_resources arc_rte"
        " batch_extra_submit_args batch_project batch_queue batch_runtime",
        _GRID,
        "leave it out",
    ),
    _refused(
        "vm_checkpoint vm_disk vm_macaddr vm_memory vm_networking vm_networking_type vm_no_output_vm vm_type vm_vcpus"
        " vm_vnc xen_initrd xen_kernel xen_kernel_params xen_root",
        _VM,
        "leave it out",
    ),
    _refused("parallel_script_shadow parallel_script_starter", _NO_SCRIPTS, "start it from the job's own script"),
    _refused(
        "tool_daemon_cmd tool_daemon_args tool_daemon_arguments tool_daemon_arguments2 tool_daemon_error"
        " tool_daemon_input tool_daemon_output",
        "is refused: no tool is started beside a job",
        "start it from the job's own script",
    ),
    _refused(
        "use_oauth_services use_scitoken use_scitokens scitokens_file use_x509userproxy x509userproxy"
        " delegate_job_gsi_credentials_lifetime",
        _TOKENS,
        "send the file with transfer_input_files and name it in environment",
    ),
)

#: Commands whose names are made of a user's words: what begins or ends like that, and what is said of it.
_FAMILIES = (
    (re.compile(r"(ec2_|gce_|azure_|cloud_label_).*"), _GRID),
    (re.compile(r".*_container_port"), _IMAGES),
    (re.compile(r".*_oauth_(permissions|resource|options).*"), _TOKENS),
)
_SPOKEN: dict[str, Row] = {
    name: row for row in TABLE if row.warns or row.support in (Support.IGNORED, Support.REFUSED) for name in row.names
}
#: Why a universe is refused, and the way out, by its number.
_UNIVERSES: dict[int, tuple[str, str]] = {
    1: (
        "there is no standard universe: nothing is linked anew",
        "write remote_io = on for remote files; see checkpoint",
    ),
    9: (f"universe = grid {_GRID}", "leave universe out"),
    13: (f"universe = vm {_VM}", "leave universe out"),
}


def row_of(name: str) -> Row | None:
    """The row of a command that does not only become an attribute as it is; None for what is no command."""
    return next((row for row in TABLE if name in row.names), None)


def covered() -> frozenset[str]:
    """The commands that the table speaks of, of those that the reader knows."""
    return frozenset(name for row in TABLE for name in row.names) & NAMES


def check_universe(job: JobDraft) -> None:
    """Refuse a job of a kind that this pool does not start."""
    if job.facts.as_reference:
        return
    check_number(job, job.nature.universe)


def check_number(job: JobDraft, number: int, command: str = "universe") -> None:
    """Refuse a universe that this pool does not start, by its number."""
    if not job.facts.as_reference and (trouble := _UNIVERSES.get(number)) is not None:
        raise job.refuse(command, *trouble, other="JobUniverse")


def check(job: JobDraft) -> None:
    """Say of each command that is written what is not done about it."""
    if job.facts.as_reference:
        return
    if job.text_of("WhenToTransferOutput") == "ON_SUCCESS":
        job.warn("when_to_transfer_output", "outputs are sent back after a failure, too, as with ON_EXIT")
    for name, row in _rows_of(sorted(job.written)):
        text = job.param(name)
        if text is None or row.asks_nothing(text):
            continue
        if row.support is Support.REFUSED:
            job.refuse(name, f"'{name}' {row.says}", row.hint)
        else:
            job.warn(name, f"'{name}' {row.says}", row.hint)


def _rows_of(names: Iterable[str]) -> Iterator[tuple[str, Row]]:
    for name in names:
        if (row := _SPOKEN.get(name)) is not None:
            yield name, row
            continue
        for pattern, says in _FAMILIES:
            if pattern.fullmatch(name):
                yield name, Row((name,), Support.REFUSED, says, "leave it out")

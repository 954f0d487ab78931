"""No command is ignored without a word: for each there is the code that obeys it, a warning, or a refusal."""

from __future__ import annotations

import pytest

from pool.jobs.description import DescriptionError, Severity
from pool.jobs.description.commands import NAMES, SIMPLE, CommandKind, is_command
from pool.jobs.description.support import TABLE, Row, Support
from tests.conftest import REPOSITORY
from tests.jobs.description.support import read, refusal

BOOLEANS = {command.name for command in SIMPLE if command.kind is CommandKind.BOOLEAN} | {
    *("stream_input", "stream_output", "stream_error", "use_x509userproxy", "suspend_job_at_exec"),
    "wantparallelscheduling",
}
#: Values that a command takes and that ask for something, where neither `true` nor `5` is one.
OTHERS = {
    "run_as_owner": "false",
    "want_graceful_removal": "false",
    "erase_output_and_error_on_restart": "false",
    "java_vm_arguments2": '"5"',
    "tool_daemon_arguments2": '"5"',
}
#: All commands that HTCondor's manual documents (htcondor-jdl, version 25), but for `queue` and for those whose names
#: are made of a user's words.
DOCUMENTED = """
    WantNameTag accounting_group accounting_group_user allowed_execute_duration allowed_job_duration
    arc_application arc_data_staging arc_resources arc_rte arguments aws_access_key_id_file aws_region
    aws_secret_access_key_file azure_admin_key azure_admin_username azure_auth_file azure_image azure_location
    azure_size batch_extra_submit_args batch_name batch_project batch_queue batch_runtime checkpoint_destination
    checkpoint_exit_code cloud_label_names concurrency_limits concurrency_limits_expr container_image
    container_is_common container_service_names container_target_dir coresize cron_day_of_month cron_day_of_week
    cron_hour cron_minute cron_month cron_prep_time cron_window cuda_version dagman_log deferral_prep_time
    deferral_time deferral_window delegate_job_GSI_credentials_lifetime description docker_image
    docker_network_type docker_override_entrypoint docker_pull_policy dont_encrypt_input_files
    dont_encrypt_output_files ec2_access_key_id ec2_ami_id ec2_availability_zone ec2_block_device_mapping
    ec2_ebs_volumes ec2_elastic_ip ec2_iam_profile_arn ec2_iam_profile_name ec2_instance_type ec2_keypair
    ec2_keypair_file ec2_parameter_names ec2_secret_access_key ec2_security_groups ec2_security_ids
    ec2_spot_price ec2_tag_names ec2_user_data ec2_user_data_file ec2_vpc_ip ec2_vpc_subnet email_attributes
    encrypt_execute_directory encrypt_input_files encrypt_output_files environment
    erase_output_and_error_on_restart error executable gce_account gce_auth_file gce_image gce_json_file
    gce_machine_type gce_metadata gce_metadata_file gce_preemptible getenv gpus_maximum_capability
    gpus_minimum_capability gpus_minimum_memory gpus_minimum_runtime grid_resource gs_access_key_id_file
    gs_secret_access_key_file hold hold_kill_sig image_size initialdir input jar_files java_vm_args
    job_ad_information_attrs job_lease_duration job_machine_attrs job_machine_attrs_history_length
    job_max_vacate_time keep_claim_idle kill_sig kill_sig_timeout leave_in_queue load_profile log log_xml
    machine_count manifest manifest_dir match_list_length max_idle max_job_retirement_time max_materialize
    max_retries max_transfer_input_mb max_transfer_output_mb mount_under_scratch next_job_start_delay nice_user
    noop_job noop_job_exit_code noop_job_exit_signal notification notify_user on_exit_hold on_exit_hold_reason
    on_exit_hold_subcode on_exit_remove output output_destination output_directory periodic_hold
    periodic_hold_reason periodic_hold_subcode periodic_release periodic_remove periodic_vacate
    preserve_relative_paths primary_unix_group priority public_input_files rank remote_initialdir
    remove_kill_sig rendezvousdir request_GPUs request_cpus request_disk request_gpus request_memory
    require_gpus requirements retry_request_disk retry_request_memory retry_request_memory_increase
    retry_request_memory_max retry_until run_as_owner s3_access_key_id_file s3_secret_access_key_file
    scitokens_file shell should_transfer_files skip_filechecks skip_if_dataflow stack_size starter_debug
    starter_log stream_error stream_input stream_output submit_event_notes submit_event_notes_attrs
    submit_event_user_notes success_exit_code transfer_checkpoint_files transfer_container transfer_error
    transfer_executable transfer_input transfer_input_files transfer_output transfer_output_files
    transfer_output_remaps transfer_plugins ulog_execute_attrs universe use_oauth_services use_scitokens
    use_x509userproxy vm_checkpoint vm_disk vm_macaddr vm_memory vm_networking vm_networking_type
    vm_no_output_vm vm_type want_graceful_removal want_job_networking when_to_transfer_output x509userproxy
    xen_initrd xen_kernel xen_kernel_params xen_root
"""
ROWS = [(name, row) for row in TABLE for name in row.names if name in NAMES]


def said(text: str) -> list[str]:
    try:
        return [str(one) for one in read(text).warnings]
    except DescriptionError as error:
        return [str(one) for one in error.diagnostics if one.severity is Severity.ERROR]


def test_each_command_that_the_reader_knows_has_one_row() -> None:
    assert sorted(name for name, _ in ROWS) == sorted(NAMES)


@pytest.mark.parametrize("name", DOCUMENTED.split())
def test_each_documented_command_is_known(name: str) -> None:
    """A name that is none is taken for a macro, of which only a command much like it is said."""
    assert is_command(name)


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[name for name, _ in ROWS])
def test_a_command_is_obeyed_or_spoken_of(name: str, row: Row) -> None:
    done = row.support in (Support.DONE, Support.PARTLY)
    if done:
        file, word = row.code
        assert word in (REPOSITORY / "pool" / file).read_text(encoding="utf-8")
    if not done or row.warns:
        is_spoken_of(name, row)


def is_spoken_of(name: str, row: Row) -> None:
    value = OTHERS.get(name, "true" if name in BOOLEANS else "5")
    text = f"executable = /bin/true\n{name} = {value}\nqueue 2\n"
    (line,) = [line for line in said(text) if f"'{name}'" in line][:1]
    assert line.startswith("job.sub:2: " + ("error" if row.support is Support.REFUSED else "warning"))
    assert row.says in line


@pytest.mark.parametrize(
    "line",
    [
        "stream_output = false",
        "run_as_owner = true",
        "rootdir = /",
        "machine_count = 1",
        "encrypt_execute_directory = false",
    ],
)
def test_a_value_that_asks_for_nothing_is_taken_without_a_word(line: str) -> None:
    assert said(f"executable = /bin/true\n{line}\nqueue\n") == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("universe = grid\ngrid_resource = batch slurm", "grid"),
        ("universe = 9\ngrid_resource = condor a b", "grid"),
        ("universe = standard", "standard"),
        ("universe = vm", "vm"),
        ("foo_container_port = 5", "foo_container_port"),
        ("ec2_ami_id = x", "ec2_ami_id"),
    ],
)
def test_a_kind_of_job_that_is_not_started_is_refused_by_name(text: str, what: str) -> None:
    assert any(what in one.message for one in refusal(f"executable = /bin/true\n{text}\nqueue\n").diagnostics)


@pytest.mark.parametrize("name", ["request_memry", "request_memoy", "request_cpuss"])
def test_a_misspelt_request_is_asked_about(name: str) -> None:
    (line,) = said(f"executable = /bin/true\n{name} = 4\nqueue\n")
    assert "did you mean request_" in line


def test_outputs_after_a_failure_are_spoken_of() -> None:
    (line,) = said("executable = /bin/true\nwhen_to_transfer_output = ON_SUCCESS\nqueue\n")
    assert "after a failure, too" in line


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("concurrency_limits = a:b", "expected a number behind the colon of 'a:b' in 'concurrency_limits', not 'b'"),
        ("concurrency_limits = net:", "expected a number behind the colon of 'net:' in 'concurrency_limits', not ''"),
    ],
)
def test_amounts_of_limits_are_numbers(line: str, why: str) -> None:
    """Such a job was queued, and never matched."""
    assert why in str(refusal(f"executable = /bin/true\n{line}\nqueue\n"))
    read("executable = /bin/true\nconcurrency_limits = a:2, net.big:0.5, c\nqueue\n")

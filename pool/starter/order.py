"""The start order for a keeper: a job's command, its files' names there, what this machine gives and what it hides.

Nothing is prepared here, and nothing is started: `starter.py` does that.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pool.jobs import network
from pool.jobs.activation import NOTHING, STDERR, STDOUT, Activation, FileMode
from pool.jobs.gangs import HOSTS
from pool.jobs.huge_pages import VARIABLE as TUNABLES
from pool.jobs.huge_pages import is_wanted, tunables
from pool.starter import devices, process_specs
from pool.starter.files import VisibleFiles
from pool.starter.job_image import JobImage
from pool.starter.place import ExecutionSite, StartRefused, UnixAccount
from pool.starter.private_tmp import NamedFiles, names_a_file_there
from pool.starter.ranks import with_ranker
from pool.starter.spec import SEEN, KeeperSpec

#: JOB_SYSTEM_CALLS as a keeper knows it. Not for a job with the node's own user and files:
#: see pool/checkpoint/sandbox/filter.c.
FILTERS = {"filtered": "plain", "namespaces": "nested", "all": ""}


def order_of(
    id: str,
    activation: Activation,
    account: UnixAccount,
    place: ExecutionSite,
    *,
    full: bool,
    seen: VisibleFiles | None,
    lease: float,
    claim: dict[str, Any],
    append: bool = False,
    image: JobImage | None = None,
    hosts: Sequence[str] = (),
) -> KeeperSpec:
    """The order for the keeper of one start.

    Args:
        id: of the start.
        full: whether this machine can give a job a file tree of its own.
        seen: what the job sees of its owner's files, where it works on them from here.
        lease: seconds the keeper lets the job run without being renewed.
        claim: kept with the keeper, to find again after a restart of the node.
        image: what is the job's root.
        append: the job goes on from a checkpoint of its own: what it wrote before stays in its standard files.
        hosts: by number, the machine of each part of a job of several.

    Raises:
        StartRefused: it asks for a network that this machine does not let it have.
    """
    transfer, closed = activation.mode is FileMode.TRANSFER, activation.mode is not FileMode.SHARED
    fixed = closed and full
    if seen is None:
        seen = VisibleFiles((), (), account.home)
    scratch = str(place.scratch)
    own = SEEN if fixed else scratch
    program = activation.executable
    if activation.carries_executable:
        program = os.path.join(own, os.path.basename(program))
    elif activation.image:
        program = activation.argv[0]  # of the image, along its PATH where it has no slash
    stdin = activation.stdin
    if transfer and stdin != NOTHING:
        stdin = os.path.join(own, os.path.basename(stdin))
    mode, setup = network_for(activation, place, hosts)
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        **(image.config.environment if image is not None else {}),
        "HOME": own if transfer else seen.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "TMPDIR": own,
        "OMP_NUM_THREADS": str(place.cpus),
        **activation.env,
        "_CONDOR_SCRATCH_DIR": own,
        "_CONDOR_SLOT": place.slot,
        "POOLNODE_JOB": activation.name,
    }
    if setup and activation.is_node:
        env[HOSTS] = network.node_addresses(activation.parts, activation.part, hosts)
    if is_wanted(activation.huge_pages, place.huge_pages, spare=place.spare_memory):
        env[TUNABLES] = tunables(env.get(TUNABLES, ""))
    if place.gpus is not None:
        env |= devices.variables(place.gpus, own_files=closed)
    beside = own if transfer else None
    kept = image.kept if image is not None else None
    cwd = own if transfer else activation.begins_in or activation.iwd
    argv = image.command_line(activation, program) if image is not None else (program, *activation.argv[1:])
    files = (
        os.path.join(activation.iwd, stdin),
        _output(activation, activation.stdout, STDOUT, beside),
        _output(activation, activation.stderr, STDOUT if one_output(activation) else STDERR, beside),
    )
    members = process_specs.members_of(activation, env, beside)
    own_tmp = place.private_tmp and not closed
    if own_tmp:
        processes = [NamedFiles.of(each) for each in members] or [NamedFiles(cwd, files, argv)]
        own_tmp = not names_a_file_there(processes, scratch)
    spec = KeeperSpec(
        id=id,
        argv=argv,
        env=env,
        cwd=cwd,
        stdin=files[0],
        stdout=files[1],
        stderr=files[2],
        uid=account.uid,
        gid=account.gid,
        groups=account.groups,
        scratch=scratch,
        private_tmp=own_tmp,
        reset_connections=activation.reset_connections,
        root=str(kept or os.path.join(place.scratch, activation.image)) if activation.image else "",
        root_is_kept=kept is not None,
        fixed=fixed,
        isolation="full" if closed else "shared",
        memory=place.memory,
        core=activation.core_limit,
        stack=activation.stack_limit,
        lease_seconds=lease,
        nice=activation.nice,
        soft_signal=activation.soft_signal,
        grace=activation.grace,
        hidden=place.hidden,
        devices=place.devices if closed else (),
        processes=place.processes,
        cpus=place.cpus,
        filter=FILTERS[place.system_calls] if closed or account.switch else "",
        network=mode,
        network_setup=setup,
        members=members,
        pipes=process_specs.pipes_of(activation),
        on_failure=process_specs.on_failure_of(activation),
        remote=seen.trees,
        static_remotes=seen.static_bits,
        binds=seen.binds,
        claim=claim,
        append_output=append,
    )
    return with_ranker(spec, activation, own) if activation.mpi else spec


def network_for(start: Activation, place: ExecutionSite, hosts: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The network of a job, and the data from which its keeper makes it: none for one that is not its own.

    Raises:
        StartRefused: it asks for one that this machine does not let it have, or has too many parts.
    """
    mode = network.chosen(start.job_network, start.network, place.network)
    if mode is None:
        raise StartRefused(
            f"the job asks for job_network = {start.job_network}, and this machine has JOB_NETWORK = {place.network}",
            where="machine",
            hint="ask for less, or leave job_network out",
        )
    if mode not in network.OWN:
        return mode, ()
    outside = place.outside_names() if mode == network.PRIVATE_OUT else None
    if start.job_network == network.PRIVATE_OUT and outside is None:
        raise StartRefused(
            "the job asks for job_network = private+out, and this machine offers no way out (JOB_NETWORK_DESTINATIONS)",
            where="machine",
            hint="ask for less, or for machines with TARGET.HasNetworkOut",
        )
    if start.parts > network.MOST_ADDRESSES:
        raise StartRefused(f"a network of a job's own has at most {network.MOST_ADDRESSES} parts", where="start")
    names = tuple(hosts) or (*("",) * start.part, os.uname().nodename)
    return network.PRIVATE, network.setup_of(start.part, names, *(outside or ()))


def one_output(activation: Activation) -> bool:
    """Whether standard output and error are meant to be one file."""
    return os.path.join(activation.iwd, activation.stdout) == os.path.join(activation.iwd, activation.stderr)


def _output(activation: Activation, path: str, name: str, own: str | None) -> str:
    """Where one of its outputs goes: below `own` under that name, or else where it belongs."""
    if path == NOTHING:
        return path
    if own is not None:
        return os.path.join(own, name)
    return path if os.path.isabs(path) else os.path.join(activation.iwd, path)

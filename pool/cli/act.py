"""`rm`, `hold`, `release`, `prio` and `vacate`: what is done to jobs in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pool.cli.common import print_error, print_json, print_lines, query_pool
from pool.cli.formats import amount
from pool.cli.options import Address, CommandArgument, CommandOption, Constraint, Json
from pool.cli.selection import Selection, UsageProblem, select
from pool.cli.startds import send_order

if TYPE_CHECKING:
    from pool.client.pool import ActionResult, Pool

Which = Annotated[
    list[str] | None,
    CommandArgument(metavar="JOB", help="Clusters (12), jobs (12.3) and users.", show_default=False),
]
All = Annotated[bool, CommandOption("--all", help="Every job you may act on.")]
Reason = Annotated[str, CommandOption("--reason", metavar="TEXT", help="Why; kept with the job.")]


def rm(
    jobs: Which = None,
    constraint: Constraint = None,
    everything: All = False,
    reason: Reason = "",
    force: Annotated[
        bool,
        CommandOption("--force", help="Also forget a job whose machine cannot be reached. It may still run there."),
    ] = False,
    save: Annotated[
        bool,
        CommandOption(
            "--checkpoint",
            help="Save running jobs once more, and keep the last checkpoint of each, "
            "for a job with start_from_checkpoint = JOB.",
        ),
    ] = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Remove jobs. Running ones are stopped first. Only a job's owner or an administrator can.

    \b
    Examples:
      poolnode rm 12             cluster 12
      poolnode rm 12.3 13.0      two jobs
      poolnode rm alice          all of alice's
      poolnode rm -c 'JobStatus == 5 && HoldReasonCode == 13'
      poolnode rm --checkpoint 12.3
      poolnode rm --all
    """
    if save and force:
        raise UsageProblem("rm: --checkpoint and --force", hint="a job that is forgotten cannot be saved; give one")
    return _act(
        "remove",
        "removed",
        jobs,
        constraint,
        everything,
        as_json,
        address,
        reason=reason,
        force=force,
        checkpoint=save,
    )


def hold(
    jobs: Which = None,
    constraint: Constraint = None,
    everything: All = False,
    reason: Reason = "",
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Keep jobs in the queue without running them. Running ones are stopped.

    \b
    Examples:
      poolnode hold 12 --reason "the input is wrong"
      poolnode hold alice
    """
    return _act("hold", "held", jobs, constraint, everything, as_json, address, reason=reason)


def release(
    jobs: Which = None,
    constraint: Constraint = None,
    everything: All = False,
    reason: Reason = "",
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Let held jobs run again. `poolnode q --held` says why they are held.

    \b
    Examples:
      poolnode release 12
      poolnode release --all
    """
    return _act("release", "released", jobs, constraint, everything, as_json, address, reason=reason)


def prio(
    jobs: Which = None,
    value: Annotated[
        int | None,
        CommandOption(
            "--prio",
            "-p",
            min=-(2**31),
            max=2**31 - 1,
            metavar="N",
            help="The new priority; higher goes first.",
        ),
    ] = None,
    constraint: Constraint = None,
    everything: All = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Change the priority of jobs among their owner's own jobs. A running job is never stopped for it.

    \b
    Examples:
      poolnode prio -p 10 12.3
      poolnode prio -p -5 alice
    """
    if value is None:
        raise UsageProblem("prio: which priority", hint="give it with -p: poolnode prio -p 10 12.3")
    done = f"set to priority {value}"
    return _act("prio", done, jobs, constraint, everything, as_json, address, value=value)


def qedit(
    words: Annotated[
        list[str] | None,
        CommandArgument(metavar="JOB... NAME=VALUE...", help="Which jobs, then what of their ads.", show_default=False),
    ] = None,
    constraint: Constraint = None,
    everything: All = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Change attributes of queued jobs. A value is an expression; a running job takes it at its next start.

    Attributes that say whose a job is, or what has happened to it, cannot be changed.

    \b
    Examples:
      poolnode qedit 12.3 RequestMemory=4096
      poolnode qedit 12 'Requirements=TARGET.Memory >= 8192' 'Rank=TARGET.KFlops'
      poolnode qedit alice 'JobDescription="second try"'
    """
    pairs = [word.partition("=") for word in words or () if "=" in word]
    if not pairs:
        raise UsageProblem("qedit: which attribute", hint="NAME=VALUE: poolnode qedit 12.3 RequestMemory=4096")
    attributes = {name.strip(): value.strip() for name, _, value in pairs}
    jobs = [word for word in words or () if "=" not in word]
    return _act("edit", "changed", jobs, constraint, everything, as_json, address, attributes=attributes)


def checkpoint(
    jobs: Which = None,
    constraint: Constraint = None,
    everything: All = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Save running jobs now, so that nothing done until now is lost. Each is on the submit side when this returns.

    A job that cannot be saved is named, and runs on. A job that loses its machine goes on from its last checkpoint.

    \b
    Examples:
      poolnode checkpoint 12.3
      poolnode checkpoint 12
    """
    return _act("checkpoint", "checkpointed", jobs, constraint, everything, as_json, address)


def vacate(
    jobs: Which = None,
    slot: Annotated[
        str | None,
        CommandOption(
            "--slot",
            metavar="NAME",
            help="Instead of jobs: whatever runs on this slot (slot1@host) or machine.",
        ),
    ] = None,
    fast: Annotated[bool, CommandOption("--fast", help="Kill at once instead of asking the job to end first.")] = False,
    constraint: Constraint = None,
    everything: All = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Take running jobs off their machines. They go back to the queue and run again, there or elsewhere.

    A job that can be saved goes on from where it was, however short its run was. --slot frees a machine instead: a job
    that has run for less than CHECKPOINT_WORTH since its last checkpoint is then not saved again.

    \b
    Examples:
      poolnode vacate 12.3
      poolnode vacate --slot donder
      poolnode vacate --slot slot2@donder --fast
    """
    if slot is None:
        return _act("vacate", "vacated", jobs, constraint, everything, as_json, address, force=fast)
    if jobs or constraint or everything:
        raise UsageProblem("vacate: jobs or a slot, not both", hint="leave out one")
    vacated = query_pool(address, lambda pool: _vacate_machine(pool, slot, fast))
    if as_json:
        print_json([{"action": "vacate", "slots": vacated}])
    else:
        print_lines([f"{slot}: {amount(len(vacated), 'slot')} vacated"])
    return 0


async def _vacate_machine(pool: Pool, slot: str, fast: bool) -> list[str]:
    wish = {"slot": slot if "@" in slot else None, "graceful": not fast}
    return list((await send_order(pool, slot, "vacate", wish)).get("slots") or ())


def _act(
    action: str,
    done: str,
    jobs: list[str] | None,
    constraint: str | None,
    everything: bool,
    as_json: bool,
    address: str | None,
    *,
    reason: str = "",
    value: int | None = None,
    force: bool = False,
    checkpoint: bool = False,
    attributes: dict[str, str] | None = None,
) -> int:
    chosen = select(jobs or [])
    name = {"remove": "rm", "edit": "qedit"}.get(action, action)
    if everything and (chosen or constraint):
        raise UsageProblem(f"{name}: --all and something else", hint="give one or the other")
    if not (everything or chosen or constraint):
        raise UsageProblem(
            f"{name}: which jobs", hint=f"give ids (12 or 12.3), a user, -c EXPR or --all; {name} --help"
        )

    async def question(pool: Pool) -> ActionResult:
        from pool.cli.progress import Working

        with Working(f"{name}: asking") as working:
            return await pool.act(
                action,
                **_choice(chosen, constraint, everything),
                reason=reason,
                value=value,
                force=force,
                checkpoint=checkpoint,
                attributes=attributes,
                progress=lambda count: working.update(f"{name}: {amount(count, 'job')} {done}"),
            )

    acted = query_pool(address, question, working="")
    if as_json:
        print_json([{"action": action, "done": acted.done, "refused": [list(pair) for pair in acted.refused]}])
    elif acted.done or not chosen.owners:
        print_lines([f"{amount(acted.done, 'job')} {done}"])
    if not (acted.refused or constraint):
        for owner in chosen.owners:
            if owner not in acted.owners and owner.rpartition("@")[0] not in acted.owners:
                print_error(f"poolnode: {owner} has no jobs in the queue")
    for job, why in acted.refused[:20]:
        print_error(f"poolnode: {job}: {why}")
    if len(acted.refused) > 20:
        print_error(f"poolnode: and {len(acted.refused) - 20:,} more refused")
    return 1 if acted.refused or (not acted.done and not constraint and not everything) else 0


def _choice(chosen: Selection, constraint: str | None, everything: bool) -> dict[str, Any]:
    return {"everything": True} if everything else chosen.parameters(constraint)

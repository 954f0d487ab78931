"""Claims of dedicated schedulers on the machine's side (WR 3.1, 3.2): whose job is on one, and what is believed of it.

Such a claim serves any user's job, so that its owner and its usage go with each start. The negotiator's grant says that
the claimant is the scheduler, and the claim's connection says that it is the same node. A node that joined as a schedd
is believed about its users, as about the name under which it submits. Nobody else's request counts as the scheduler's,
whatever its ad says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pool.classad import ClassAd
from pool.jobs.activation import Activation, FileMode
from pool.policy.managed import ACCOUNT, claims_to_be, is_dedicated, managers_of, marked, submitter_of
from pool.roles.startd.slots.records import SlotClaim, SlotRefused, Wire
from pool.starter.accounts import NOBODY
from pool.starter.place import StartRefused

if TYPE_CHECKING:
    from pool.starter.place import UnixAccount


def request_of(params: Wire, submitter: str) -> Wire:
    """The parameters of a claim, its job's ad with the `Scheduler` that is true of it."""
    return {**params, "ad": marked(params["ad"], submitter)}


def owner_of(submitter: str, ad: Wire) -> str:
    """The kind of job that a claim is made for."""
    name = submitter.rsplit("@", 1)[0]
    owner = ad.get("Owner")
    return owner if name == ACCOUNT and isinstance(owner, str) and owner else name


def job_ad(claim: SlotClaim, ad: Wire) -> Wire:
    """The ad of a job that is started on a claim, with the `Scheduler` that is true of it: a job that the scheduler
    lends its machine to has none, and the owner's policy for all others."""
    return marked(ad, claim.submitter, dedicated=claims_to_be(ad, claim.submitter))


def starts(claim: SlotClaim, start: Activation) -> None:
    """A job starts on a claim: from now on it is this job's user who has the slot."""
    if is_dedicated(claim.submitter):
        claim.owner = start.owner


def check_files(claim: SlotClaim, start: Activation, account: UnixAccount) -> None:
    """Refuse a start whose job could open none of its owner's files here. The claim was made for another's job, whose
    account here may have been another; an ordinary claim's schedd knows this before.

    Raises:
        StartRefused: it may run on another machine.
    """
    if is_dedicated(claim.submitter) and start.mode is FileMode.SHARED and account.name == NOBODY != start.owner:
        raise StartRefused(f"{start.owner} has no account here, and the job opens its files itself", where="machine")


def is_empty(claim: SlotClaim) -> None:
    """No job is on a claim any more: what the owner's policy sees is the scheduler's request, not the last job."""
    if is_dedicated(claim.submitter) and not claims_to_be(claim.ad_wire, claim.submitter):
        claim.ad_wire = marked(claim.ad_wire, claim.submitter)


def ranked_ad(claim: SlotClaim) -> ClassAd:
    """The ad by which a claim is ranked: the scheduler's, also while it lends its machine to another job."""
    if is_dedicated(claim.submitter) and not claims_to_be(claim.ad_wire, claim.submitter):
        return ClassAd.from_wire(marked(claim.ad_wire, claim.submitter))
    return claim.ad


def note_of(claim: SlotClaim) -> Wire:
    """The keeper's note that the job is the dedicated scheduler's own."""
    return {"dedicated": True} if claims_to_be(claim.ad_wire, claim.submitter) else {}


def remembered(note: Wire, ad: Wire) -> Wire:
    """The part of a job's ad that its keeper's note gives, until the schedd sends the rest."""
    return marked(ad, str(note["submitter"]), dedicated=note.get("dedicated") is True)


def check_manages(slot: Wire, submitter: str, node: str) -> None:
    """Refuse a dedicated scheduler that does not manage this machine, and one that is not the node it claims from.

    Raises:
        SlotRefused: it has to take its turn as everybody, under its users' names.
    """
    if not is_dedicated(submitter):
        return
    if submitter != submitter_of(node) or submitter not in managers_of(slot):
        raise SlotRefused(f"slot {slot['Name']} is not managed by {submitter}", hint="set DEDICATED_SCHEDULER there")

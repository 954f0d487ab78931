"""The account that a claim's jobs run as on this machine, and what follows from it for their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pool.jobs.activation import AS_NOBODY
from pool.starter.accounts import NOBODY, NoJobAccount, account_for
from pool.starter.place import UnixAccount

if TYPE_CHECKING:
    from pool.roles.startd.role import Startd
    from pool.roles.startd.slots.records import Slot, SlotClaim


def account_of(startd: Startd, claim: SlotClaim) -> UnixAccount:
    """The account for the owner of this claim.

    Raises:
        NoJobAccount: this machine runs no jobs of that owner.
    """
    settings = startd.settings
    rule = "node" if startd.given.user is not None else settings.text("RUN_AS")
    uid_domain = str(claim.ad_wire.get("User", "")).rsplit("@", 1)[-1]
    at_home = claim.node == startd.given.node
    return account_for(claim.owner, uid_domain, settings.text("UID_DOMAIN"), rule, at_home=at_home)


def claimed_ad(startd: Startd, slot: Slot) -> dict[str, Any]:
    """The ad of a claimed slot as its schedd is told it.

    A job that runs as nobody can open none of its owner's files, whatever file system the machine shares (F5). The ad
    says so, and the schedd has the files carried. All else stays: the job's requirements were matched with it.
    """
    ad = startd.ads.wire_of(slot)
    if slot.claim is None or "User" not in slot.claim.ad_wire:
        return ad  # a job that was found and of which nobody has said more yet
    try:
        powerless = account_of(startd, slot.claim).name == NOBODY != slot.claim.owner
    except NoJobAccount:
        return ad  # the start says so
    return {**ad, AS_NOBODY: True} if powerless else ad

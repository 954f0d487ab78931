"""The account that a claim's jobs run as on this machine, and what follows from it for their files."""

from __future__ import annotations

from collections.abc import Callable

from pool.config import Settings
from pool.jobs.activation import AS_NOBODY
from pool.policy.flock.shown import GUEST_OF
from pool.roles.startd.slots.records import Slot, SlotClaim, Wire
from pool.starter.accounts import NOBODY, NoJobAccount, account_for
from pool.starter.place import UnixAccount


class JobAccounts:
    """The accounts of one machine.

    Args:
        settings: those in force.
        node: this node's name.
        is_personal: the node runs as one user, and all its jobs with it.
    """

    def __init__(self, settings: Callable[[], Settings], node: str, *, is_personal: bool) -> None:
        self._settings = settings
        self._node = node
        self._is_personal = is_personal

    def account_of(self, claim: SlotClaim) -> UnixAccount:
        """The account for the owner of this claim.

        Raises:
            NoJobAccount: this machine runs no jobs of that owner.
        """
        settings = self._settings()
        rule = "node" if self._is_personal else settings.text("RUN_AS")
        uid_domain = str(claim.ad_wire.get("User", "")).rsplit("@", 1)[-1]
        if GUEST_OF in claim.ad_wire and not self._is_personal:
            # Another pool's user: no account here is his, whatever the names are (EV 4.3.4).
            rule, uid_domain = ("refuse" if rule == "refuse" else NOBODY), ""
        same_node = claim.node == self._node
        return account_for(claim.owner, uid_domain, settings.text("UID_DOMAIN"), rule, same_node=same_node)

    def claimed_ad(self, slot: Slot, ad: Wire) -> Wire:
        """The ad of a claimed slot as its schedd gets it.

        A job that runs as nobody can open none of its owner's files, whatever file system the machine shares (F5). The
        ad says so, and the schedd has the files carried. All else stays: the job's requirements were matched with it.

        Args:
            ad: as the collector has it.
        """
        if slot.claim is None or "User" not in slot.claim.ad_wire:
            return ad  # a job that was found and of which nobody has said more yet
        try:
            powerless = self.account_of(slot.claim).name == NOBODY != slot.claim.owner
        except NoJobAccount:
            return ad  # the start says so
        return {**ad, AS_NOBODY: True} if powerless else ad

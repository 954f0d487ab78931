"""Makes the starter of a job: its account, its place on the machine, its ways to the shadow and to other parts."""

from __future__ import annotations

import os
from collections.abc import Callable

from pool.jobs.activation import Activation
from pool.jobs.network import OWN, PRIVATE, chosen
from pool.network.large_packets import kernel_takes_large
from pool.network.rooms import JobNetworks
from pool.pipes.remote_pipes import RemotePipes
from pool.roles.base import Spawn
from pool.roles.links import Links
from pool.roles.startd.running.direct_parts import DirectParts
from pool.roles.startd.running.direct_shadows import DirectShadows
from pool.roles.startd.running.job_account import JobAccounts
from pool.roles.startd.running.other_parts import Others
from pool.roles.startd.running.place import SlotPlaces
from pool.roles.startd.running.shadow_link import ClaimLink, ImageTickets
from pool.roles.startd.running.streams import ExpectedStreams
from pool.roles.startd.slots import dedicated
from pool.roles.startd.slots.records import Slot, SlotClaim
from pool.starter.keeper import Keeper, Keepers
from pool.starter.place import UnixAccount
from pool.starter.starter import Starter


class Starters:
    """Makes the starters of one machine's jobs.

    Args:
        node, address: this node's.
        secret: draws that many random bytes as text.
    """

    def __init__(
        self,
        keepers: Keepers,
        places: SlotPlaces,
        accounts: JobAccounts,
        streams: ExpectedStreams,
        direct: DirectParts,
        direct_shadows: DirectShadows,
        networks: JobNetworks,
        peers: ImageTickets,
        links: Links,
        secret: Callable[[int], str],
        spawn: Spawn,
        *,
        node: str,
        address: str,
    ) -> None:
        self._keepers = keepers
        self._places = places
        self._accounts = accounts
        self._streams = streams
        self._direct = direct
        self._direct_shadows = direct_shadows
        self._networks = networks
        self._peers = peers
        self._links = links
        self._secret = secret
        self._spawn = spawn
        self._node = node
        self._address = address

    def create(self, start: Activation, slot: Slot, claim: SlotClaim, stream_broke: Callable[[str], None]) -> Starter:
        """The starter of a job that begins.

        Args:
            stream_broke: called with the reason when a stream to another part is lost.

        Raises:
            NoAccount: this machine runs no jobs of that owner.
        """
        account, remote_pipes = self._accounts.account_of(claim), None
        dedicated.check_files(claim, start, account)
        place = self._places.place_of(slot, claim)
        if start.gang:
            mode = chosen(start.job_network, start.network, place.network)
            network = self._networks if mode in OWN else None
            card: dict[str, str | bool] = {"address": self._address, "node": self._node}
            if network is not None:
                card |= {"network": PRIVATE, "large": kernel_takes_large(os.uname().release)}
            remote_pipes = RemotePipes(start, self._others(claim, card), stream_broke, network)
        return Starter(start, account, place, self._keepers, self._link(claim), remote_pipes)

    def pipes_of(self, start: Activation, claim: SlotClaim, stream_broke: Callable[[str], None]) -> RemotePipes:
        """The pipes of a found part of a job, which has no network of the job's own; arguments as for `make`."""
        card: dict[str, str | bool] = {"address": self._address, "node": self._node}
        return RemotePipes(start, self._others(claim, card), stream_broke)

    def _others(self, claim: SlotClaim, card: dict[str, str | bool]) -> Others:
        return Others(claim, self._streams, self._direct, card, self._links, self._secret, self._spawn)

    def found(self, keeper: Keeper, start: Activation, slot: Slot, claim: SlotClaim) -> Starter:
        """The starter of a job whose keeper outlived the node."""
        account = UnixAccount(keeper.spec.uid, keeper.spec.gid, None, "", "", False)
        place = self._places.place_of(slot, claim)
        return Starter.found(keeper, start, account, place, self._keepers, self._link(claim))

    def _link(self, claim: SlotClaim) -> ClaimLink:
        return ClaimLink(claim, self._address, self._links, self._peers, self._direct_shadows, self._spawn)

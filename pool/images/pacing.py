"""A bound on the share of the network that checkpoints take on their way from one node (C5).

    share = BandwidthShare(10e6)          await share.wait_for_bytes(size)      before they are sent

A transfer with a deadline is let through as quickly as that needs, whatever the bound: a last checkpoint that is late
is none.
"""

from __future__ import annotations

import asyncio

#: Seconds' worth of the rate that may be sent at once after a pause.
BURST = 0.1


class BandwidthShare:
    """The rate that all checkpoints of a node share.

    Attributes:
        rate: bytes per second; 0 for no bound.
    """

    def __init__(self, rate: float = 0.0) -> None:
        self.rate = rate
        #: By the loop's time, when all that was let through is sent at the rate.
        self._until = 0.0

    async def wait_for_bytes(self, size: int, least: float = 0.0) -> None:
        """Wait until so many bytes may be sent.

        Args:
            least: bytes per second that are needed, and had in any case; the others wait for it then.
        """
        if self.rate <= 0:
            return
        now = asyncio.get_running_loop().time()
        begin = max(self._until, now - BURST)
        self._until = begin + size / self.rate
        wait = max(begin - now, 0.0)
        await asyncio.sleep(min(wait, size / least) if least > 0 else wait)

"""Large packets: of TCP over IPv4, longer than an IP header can say (relay/large.c). Kernels before 6.3 drop them."""

from __future__ import annotations

import re

#: The first version of Linux that takes them.
SINCE = (6, 3)


def kernel_takes_large(release: str) -> bool:
    """Whether a kernel with this release takes large packets; a release of an unknown form does not."""
    found = re.match(r"([0-9]+)\.([0-9]+)", release)
    return found is not None and (int(found[1]), int(found[2])) >= SINCE

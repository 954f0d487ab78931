"""The packets of jobs' private networks: from part to part, on one machine and between machines (docs/network.md).

    relay_process   the relay (C, `relay/`): one process for each job network on a machine
    relay_link      a connection to another machine, which the relay encrypts itself (C, `relay/seal.c`)
    sealed_link     the same where it cannot: threads of the node encrypt the relay's frames
    stream_link     a link to a machine in another pool, whose bytes pass through the worlds
    splices         links of other machines that this node carries, where these do not reach each other
    large_packets   which machines take packets that are longer than an IP header can say
    probes          makes connections notice that their way out has died with the relay
    way_out_process the way out of a network (C, `way_out/`): connections to addresses outside
    rooms           the networks of the jobs that run here: relay, wires, links

Addresses and names are `pool.jobs.network`'s; the device of a job is its keeper's.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def program() -> Path:
    """The place of this installation's relay, built or not."""
    return HERE / "bin" / "relay"


def way_out_program() -> Path:
    """The same of the way out."""
    return HERE / "bin" / "way_out"

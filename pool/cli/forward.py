"""`forward`: a port of a running job on this machine."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Annotated

from pool.cli.common import print_error, query_pool
from pool.cli.options import Address, CommandArgument, CommandOption
from pool.cli.selection import one_job
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool


def forward(
    job: Annotated[str, CommandArgument(metavar="JOB", help="A job (12.3); or a cluster, for its first job.")],
    port: Annotated[int, CommandArgument(metavar="PORT", min=1, max=65535, help="The port in the job's network.")],
    local: Annotated[
        int | None, CommandOption("--local", "-l", min=0, max=65535, metavar="PORT", help="Here; 0 for any free one.")
    ] = None,
    node: Annotated[int, CommandOption("--node", min=0, metavar="N", help="Of a parallel job: node N's.")] = 0,
    address: Address = None,
) -> int:
    """Bring a port of a running job to this machine, until interrupted.

    For a job of yours with a network of its own (`job_network = private`): a notebook, a dashboard. Connections to
    127.0.0.1 here arrive at the port in the job, wherever it runs, over the pool's own encrypted connections.

    \b
    Examples:
      poolnode forward 12.3 8888
      poolnode forward 12.3 80 --local 8080
      poolnode forward 12 8787 --node 0
    """
    chosen = one_job(job)
    wanted = port if local is None else local
    try:
        listener = socket.create_server(("127.0.0.1", wanted))
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise PoolError(f"cannot listen on port {wanted} here: {why}", hint="choose another with --local") from error

    async def question(pool: Pool) -> None:
        from pool.client.forwarding import forward_port, may_forward

        whole = chosen if len(chosen) == 2 else (chosen[0], 0)
        await may_forward(pool, whole, node=node)
        print_error(f"127.0.0.1:{listener.getsockname()[1]} is port {port} of job {job}; interrupt to end")
        await forward_port(pool, whole, port, listener, node=node, failed=lambda why: print_error(f"poolnode: {why}"))

    with listener:
        query_pool(address, question, working="")
    return 0

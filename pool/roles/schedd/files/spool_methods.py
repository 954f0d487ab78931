"""The schedd's methods for jobs that are submitted from another machine: inputs come in, outputs go out."""

from __future__ import annotations

from typing import Any

from pool.roles.schedd.core.callers import owner_of
from pool.roles.schedd.files.spool import Spool
from pool.roles.schedd.files.spool_outputs import SpooledOutputs
from pool.wire import Call, Right, Service, Stream, streaming
from pool.wire.parameter_checks import JOB_IDS


class SpoolMethods(Service):
    """The methods about spooled files, served under the schedd's name."""

    def __init__(self, spool: Spool, outputs: SpooledOutputs) -> None:
        self._spool = spool
        self._outputs = outputs

    @streaming(Right.SUBMIT, takes={"cluster": int})
    async def spool_inputs(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The input files of a cluster that was queued with `spool`: see `Spool.receive_inputs`."""
        everybody = Right.ADMINISTER in call.identity.rights
        await self._spool.receive_inputs(params["cluster"], None if everybody else owner_of(call, {}), stream)

    @streaming(Right.SUBMIT, takes={"ids": JOB_IDS, "keep": bool | None})
    async def fetch_outputs(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The outputs of jobs that were queued with `spool`: see `SpooledOutputs.send_outputs`."""
        owner = None if Right.ADMINISTER in call.identity.rights else owner_of(call, {})
        await self._outputs.send_outputs(params["ids"], owner, params.get("keep") is True, stream)

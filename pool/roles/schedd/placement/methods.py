"""The schedd's methods for negotiators and for startds, served under the schedd's name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from pool.jobs.reasons import Reason
from pool.policy.managed import is_reserved
from pool.roles.schedd.checkpoints.images import StoredCheckpoints
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.submit_side_costs import SubmitSideCosts
from pool.roles.schedd.files.remote_io import RemoteFiles
from pool.roles.schedd.parallel.between_pools import BetweenPools
from pool.roles.schedd.parallel.gangs import Gangs
from pool.roles.schedd.parallel.gathering import Gatherings
from pool.roles.schedd.parallel.third_node import ThirdNode
from pool.roles.schedd.placement.claim_reports import ClaimReports
from pool.roles.schedd.placement.matches import Matches
from pool.roles.schedd.placement.run_reports import RunReports
from pool.shadow.shadow import Shadow
from pool.wire import Call, Right, Service, Stream, method, streaming
from pool.wire.parameter_checks import JOB_ID, MAPPINGS, NUMBERS, TEXTS, optional

T = TypeVar("T")
#: Characters of a reason that a negotiator gives.
MOST_REASON = 500


class SchedulerRequests(Protocol):
    """The requests of the dedicated scheduler to the negotiator; see `pool.roles.schedd.dedicated.requests`."""

    def requests(self, limit: int) -> list[dict[str, Any]]:
        """Its requests."""

    def matched(self, match: dict[str, Any]) -> None:
        """A slot has been granted."""

    def rejected(self, numbers: Iterable[int]) -> None:
        """For these requests a cycle found nothing."""


class NegotiatorMethods(Service):
    """The methods with which a negotiator asks for requests and delivers matches.

    Args:
        dedicated: what the dedicated scheduler asks for.
        learn: called with the names of attributes that machines' expressions refer to in a job's ad.
    """

    def __init__(
        self,
        context: ScheddContext,
        matches: Matches,
        gathering: Gatherings,
        costs: SubmitSideCosts,
        learn: Callable[[frozenset[str]], None],
        dedicated: SchedulerRequests,
    ) -> None:
        self._dedicated = dedicated
        self._context = context
        self._matches = matches
        self._gathering = gathering
        self._costs = costs
        self._learn = learn

    @method(Right.NEGOTIATE, takes={"submitter": str, "limit": int, "references": optional(TEXTS)})
    async def requests(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The requests of a submitter's idle jobs: {submitter, limit, references} -> {requests, running}"""
        self._costs.mark_busy()
        self._learn(frozenset(str(name) for name in params.get("references", ())))
        owner = _owner(params["submitter"])
        if is_reserved(owner):
            return {"requests": self._dedicated.requests(int(params["limit"])), "running": 0}
        return {
            "requests": self._matches.requests(owner, int(params["limit"])),
            "running": self._matches.holds(owner),
        }

    @method(Right.NEGOTIATE, takes={"matches": MAPPINGS})
    async def matched(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Matches made for this schedd's submitters."""
        for match in params["matches"]:
            if is_reserved(_owner(match["submitter"])):
                self._dedicated.matched(match)
                continue
            self._matches.matched(match, _owner(match["submitter"]))
        return {}

    @method(Right.NEGOTIATE, takes={"submitter": str, "time": float | int, "rejections": list})
    async def rejected(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The requests for which a cycle found no machine: {submitter, time, rejections: [[request, reason]]}"""
        when = float(params["time"])
        if is_reserved(_owner(params["submitter"])):
            self._dedicated.rejected(int(number) for number, _ in params["rejections"])
            return {}
        for number, reason in params["rejections"]:
            self._gathering.rejected(int(number), str(reason)[:MOST_REASON], when)
            group = self._context.queue.group(int(number))
            if group is not None and group.owner == _owner(params["submitter"]):
                group.rejected = (str(reason)[:MOST_REASON], when)
        return {}


class StartdMethods(Service):
    """The methods with which startds and starters report about jobs, and fetch and bring their files.

    Args:
        ended: takes the end of a run: (claim, job, run, report); its answer may carry the claim's next job.
    """

    def __init__(
        self,
        claims: ClaimReports,
        ended: Callable[[str, tuple[int, int], int, dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]],
        reports: RunReports,
        gangs: Gangs,
        shadow: Shadow,
        remote: RemoteFiles,
        images: StoredCheckpoints,
        costs: SubmitSideCosts,
        third_node: ThirdNode,
        between_pools: BetweenPools,
    ) -> None:
        self._third_node = third_node
        self._between_pools = between_pools
        self._claims = claims
        self._ended = ended
        self._reports = reports
        self._gangs = gangs
        self._shadow = shadow
        self._remote = remote
        self._images = images
        self._costs = costs

    def check_claim(self, claim: str, node: str) -> None:
        """Refuse a node that speaks of a claim on another's slot. Raises NotYours."""
        self._claims.check_node(claim, node)

    @method(Right.EXECUTE, takes={"claims": TEXTS})
    async def renew(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A startd asks for its leases to be renewed: {claims} -> {gone}"""
        return {"gone": self._claims.renew([str(claim) for claim in params["claims"]], call.identity.node)}

    @method(Right.EXECUTE, takes={"claim": str, "run": int, "kind": str, "data": dict})
    async def report(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A report about a running job."""
        claim = str(params["claim"])
        self._claims.check_node(claim, call.identity.node)
        await self._costing(
            params, self._reports.record(claim, int(params["run"]), str(params["kind"]), params["data"])
        )
        return {}

    @method(Right.EXECUTE, cancellable=True, takes={"claim": str, "run": int, "card": dict})
    async def wait_for_parts(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A part of a job on several machines can begin: {claim, run, card} -> {cards}, when all parts can."""
        self._claims.check_node(params["claim"], call.identity.node)
        return await self._costing(params, self._gangs.wait_for_parts(params["claim"], params["run"], params["card"]))

    @method(Right.EXECUTE, cancellable=True, takes={"claim": str, "run": int, "other": str, "ticket": str})
    async def carry_link(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A machine of a job does not reach another one: {claim, run, other, ticket} -> {by}; see `ThirdNode`."""
        self._claims.check_node(params["claim"], call.identity.node)
        made = self._third_node.carry(params["claim"], params["run"], params["other"], params["ticket"])
        return {"by": await made}

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int, "parts": NUMBERS, "key": bytes})
    async def link_to_part(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A link of a job's network to a machine in another pool: {claim, run, parts, key}; see `BetweenPools`."""
        self._claims.check_node(params["claim"], call.identity.node)
        await self._between_pools.link(params["claim"], params["run"], params["parts"], params["key"], stream)

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int, "part": int, "stream": int})
    async def pipe_to_part(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A pipe to a part in another pool: {claim, run, part, stream}; see `BetweenPools`."""
        self._claims.check_node(params["claim"], call.identity.node)
        await self._between_pools.pipe(params["claim"], params["run"], params["part"], params["stream"], stream)

    @method(Right.EXECUTE, cancellable=True, takes={"claim": str, "run": int, "parts": NUMBERS, "key": bytes})
    async def direct_to_part(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A direct connection to a machine in another pool: {claim, run, parts, key} -> {address, ticket, key}"""
        self._claims.check_node(params["claim"], call.identity.node)
        return await self._between_pools.direct(params["claim"], params["run"], params["parts"], params["key"])

    @method(Right.EXECUTE, takes={"claim": str, "reason": dict})
    async def revoked(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A startd has ended a claim that no job is on, or whose lease is over: {claim, reason}"""
        self._claims.check_node(params["claim"], call.identity.node)
        self._claims.revoked(params["claim"], Reason.from_wire(params["reason"]))
        return {}

    @method(Right.EXECUTE, takes={"claims": TEXTS})
    async def unreachable(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The world cannot reach the startds of these claims just now: {claims}. They are asked for again."""
        for claim in params["claims"]:
            self._claims.check_node(claim, call.identity.node)
            self._claims.unreachable(claim)
        return {}

    @method(Right.EXECUTE, takes={"claim": str, "job": JOB_ID, "run": int, "report": dict})
    async def ended(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A running job has ended: {claim, job, run, report} -> {next, keep}"""
        job = (int(params["job"][0]), int(params["job"][1]))
        self._claims.check_node(str(params["claim"]), call.identity.node)
        ended = self._ended(str(params["claim"]), job, int(params["run"]), params["report"])
        return await self._costing(params, ended)

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int, "executable": bool | None})
    async def fetch_inputs(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A job's input files, for its scratch directory."""
        self._claims.check_node(str(params.get("claim")), call.identity.node)
        await self._costing(params, self._shadow.fetch(params, stream))

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int})
    async def store_outputs(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A job's output files, to be put in their places on the submit side."""
        self._claims.check_node(str(params.get("claim")), call.identity.node)
        await self._costing(params, self._shadow.store_outputs(params, stream))

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int, "again": bool | None})
    async def remote_io(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The requests of a running job's file system."""
        self._claims.check_node(params["claim"], call.identity.node)
        await self._costing(params, self._remote.serve(params, stream))

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int})
    async def store_image(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A running job's checkpoint, to be kept."""
        self._claims.check_node(str(params.get("claim")), call.identity.node)
        await self._costing(params, self._images.receive(params, stream))

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int, "generation": int})
    async def fetch_image(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The checkpoint that a start continues from."""
        self._claims.check_node(str(params.get("claim")), call.identity.node)
        await self._costing(params, self._images.send_image(params, stream))

    async def _costing(self, params: dict[str, Any], work: Coroutine[Any, Any, T]) -> T:
        """Do some work for the job on a claim; it counts as the job's cost on the submit side (EV 2.8)."""
        return await self._costs.measured(str(params.get("claim")), work)


def _owner(submitter: str) -> str:
    return submitter.rsplit("@", 1)[0]

"""One connection to a node, and what a user asks of a pool over it.

Jobs go to the schedd of the node that is connected to; machines are asked of the pool's collector, which the
node names when it does not have that role itself. A lost connection is made again for everything that only
asks; whatever changes something is never repeated by itself, because it may have been done.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pool.client.addresses import NoPool
from pool.client.calls import as_ads, id_text, open_link, question, where_to
from pool.client.ids import job_id, job_ids, one_job
from pool.client.network import NothingToShow
from pool.client.patience import Patience
from pool.client.through_node import ThroughNode
from pool.client.watching import PoolWatches
from pool.errors import PoolError
from pool.wire import ConnectionLost, DeadlineExceeded

if TYPE_CHECKING:
    from pool.classad import ClassAd
    from pool.client.descriptions import What
    from pool.client.handles import Cluster, Job
    from pool.client.known_descriptions import KnownDescriptions
    from pool.client.results import Result
    from pool.client.spooling import FetchResult
    from pool.client.tally import Tally
    from pool.client.why import Explanation
    from pool.jobs.description import Description
    from pool.outside import OutsideWorld
    from pool.policy.inspection import Inspection
    from pool.wire import Connection, Network, Stream

WireAd = dict[str, Any]
#: Queries of one pool that are under way at a time: a connection carries a bounded number of streams.
QUERIES = 64
#: Jobs that are named in one query.
NAMED = 200


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The outcome of an action: how many jobs of which owners it was done to, and which were refused and why."""

    done: int
    refused: tuple[tuple[str, str], ...] = ()
    owners: tuple[str, ...] = ()


class Pool:
    """A connected pool. `async with await Pool.connect() as pool:` closes it at the end.

    Args:
        connection: an open connection to the node.
        network: how to connect again, and to other nodes.
        address: where the node is.
        patience: seconds for which a lost node is looked for again before giving up.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        network: Network,
        address: str,
        outside: OutsideWorld | None = None,
        patience: float = 60.0,
    ) -> None:
        self.address = address
        self.patience = patience
        self._network = network
        self._outside = outside
        self._links: dict[str, Connection] = {address: connection}
        self._connecting = asyncio.Lock()
        self._info: WireAd | None = None
        self._known: KnownDescriptions | None = None
        self._watches = PoolWatches(self)
        self._asking = asyncio.Semaphore(QUERIES)

    @classmethod
    async def connect(
        cls,
        address: str | None = None,
        *,
        network: Network | None = None,
        outside: OutsideWorld | None = None,
        timeout: float = 10.0,
        patience: float = 60.0,
    ) -> Self:
        """Connects to the node at `address`, by default the user's own (`pool.client.addresses`).

        Raises:
            NoPool: no node was found, or none answers within `timeout` seconds.
        """
        where = where_to(address) if network is None or address is None else address
        if network is None:
            from pool.client.network import user_network

            network = user_network()
        connection = await open_link(network, where, timeout)
        return cls(connection, network=network, address=where, outside=outside, patience=patience)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection. Jobs go on."""
        await self._watches.close()
        links, self._links = list(self._links.values()), {}
        for link in links:
            await link.close()

    # ---- calling -------------------------------------------------------------------------------------------

    async def link(self, address: str | None = None) -> Connection:
        """An open connection to a node of the pool, made again if it was lost.

        A user with nothing to show to another node reads there through his own node.

        Raises:
            NoPool: nobody answers there.
        """
        async with self._connecting:
            own = await self._opened(self.address)
            if address is None or address == self.address:
                return own
            try:
                return await self._opened(address)
            except NothingToShow:
                if not self.address.startswith("unix:"):
                    raise
                return ThroughNode(own, address)

    async def _opened(self, address: str) -> Connection:
        link = self._links.get(address)
        if link is None or link.closed.done():
            link = self._links[address] = await open_link(self._network, address, 10.0)
        return link

    async def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float = 30.0,
        at: str | None = None,
    ) -> Any:
        """One call, once.

        Raises:
            PoolError: refused by the other side, no answer in time, or the connection was lost.
        """
        try:
            return await (await self.link(at)).call(method, dict(params or {}), timeout=timeout)
        except ConnectionLost as error:
            raise NoPool(
                f"the connection to {at or self.address} was lost during {method}",
                hint="it may or may not have been done: look before trying again",
                retry=True,
            ) from error
        except DeadlineExceeded as error:
            raise NoPool(f"{at or self.address} did not answer {method} within {timeout:g} s", retry=True) from error

    async def batches(
        self, method: str, params: Mapping[str, Any] | None = None, *, at: str | None = None
    ) -> AsyncIterator[list[WireAd]]:
        """The batches of a query, in wire form, as they arrive."""
        async with self.streaming(method, params, at) as stream:
            async for batch in stream:
                yield batch

    @asynccontextmanager
    async def streaming(
        self, method: str, params: Mapping[str, Any] | None, at: str | None = None
    ) -> AsyncIterator[Stream]:
        """A stream to a node, given up when the block is left.

        Raises:
            NoPool: the connection was lost.
            PoolError: the other side ended it with an error.
        """
        try:
            stream = await (await self.link(at)).stream(method, dict(params or {}))
            ended = False
            try:
                yield stream
                ended = True
            finally:
                if not ended:
                    stream.abort(None)
        except ConnectionLost as error:
            raise NoPool(f"the connection to {at or self.address} was lost during {method}", retry=True) from error

    async def gather(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        at: str | None = None,
        patient: bool = False,
    ) -> list[WireAd]:
        """Everything a query brings, in wire form; asked once more if the connection breaks meanwhile.

        Args:
            patient: ask again for as long as the pool's patience lasts, whatever may pass.
        """
        patience = Patience(self.patience if patient else 0.0)
        async with self._asking:
            while True:
                try:
                    return [ad async for batch in self.batches(method, params, at=at) for ad in batch]
                except NoPool as error:
                    await patience.wait(error)
                except PoolError as error:
                    if not patient:
                        raise
                    await patience.wait(error)

    # ---- jobs ----------------------------------------------------------------------------------------------

    async def submit(
        self,
        what: What,
        *,
        spool: bool | None = None,
        progress: Callable[[int], None] | None = None,
        **how: Any,
    ) -> Cluster:
        """Queues the jobs of one description and returns their cluster, which the pool then never loses.

        Args:
            what: the text of a description (with line ends), the path of one, a dict of its commands
                (`{"executable": "/bin/true", "queue": 3}`), or a `Description` read before. `items` of a dict may be
                a list, a data frame, or anything to iterate over, which is read and sent piece by piece.
            progress: called with how many jobs have been sent, while a large cluster is.
            spool: whether the jobs' files are sent along, to be fetched with `Cluster.fetch`; by default where the
                schedd does not see this machine's files.
            how: `iwd`, `name`, `extra`, as `pool.client.descriptions.describe` takes them.

        Raises:
            PoolError: the description is wrong, makes several clusters (use `submit_all`), or is refused.
        """
        from pool.client.commands import items_of
        from pool.client.items import comes_in_pieces, is_frame
        from pool.client.submitting import submit_description, submit_items, understand

        items = items_of(what) if isinstance(what, Mapping) else None
        if isinstance(what, Mapping) and comes_in_pieces(items):
            cluster = await submit_items(self, what, items, spool, progress, how)
        else:
            description = await understand(self, what, how, self._known_descriptions())
            if len(description.clusters) != 1:
                raise PoolError(
                    f"the description makes {len(description.clusters)} clusters, not one", hint="use submit_all"
                )
            (cluster,) = await submit_description(self, description, progress, spool)
        if is_frame(items):
            cluster.parameters = items
        return cluster

    async def submit_all(
        self,
        what: What,
        *,
        progress: Callable[[int], None] | None = None,
        spool: bool | None = None,
        files: Callable[[str], None] | None = None,
        **how: Any,
    ) -> list[Cluster]:
        """As `submit`, for a description with any number of clusters.

        Args:
            progress: called with how many jobs have been sent, while a large cluster is.
            files: called with words on how far the jobs' files are, while these are sent.
        """
        from pool.client.submitting import submit_description, understand

        description = await understand(self, what, how, self._known_descriptions())
        return await submit_description(self, description, progress, spool, files)

    async def fetch(
        self,
        handles: Iterable[Any],
        into: str | os.PathLike[str] | None = None,
        *,
        keep: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> FetchResult:
        """Fetch the outputs of jobs that were submitted with `spool`: clusters and jobs, as handles or ids.

        Each goes where its description says, once all of its job have come. Completed jobs then leave the queue.

        Args:
            into: a new or empty directory for all of them, for who has not submitted the jobs on this machine.
            keep: the jobs and their outputs stay at the schedd.
            progress: called with words on how far it is.

        Raises:
            PoolError: an output cannot be written, a job's were fetched before, or there is no such job.
        """
        from pool.client.spooling import fetch

        return await fetch(self, [tuple(one) for one in job_ids(handles)], into, keep=keep, progress=progress)

    def _known_descriptions(self) -> KnownDescriptions:
        if self._known is None:
            from pool.client.known_descriptions import KnownDescriptions

            self._known = KnownDescriptions()
        return self._known

    async def describe(self, what: What, **how: Any) -> Description:
        """Reads a description with this pool's own facts, and queues nothing."""
        from pool.client.descriptions import describe
        from pool.outside import OutsideWorld

        self._outside = self._outside or OutsideWorld()
        return describe(what, outside=self._outside, **how)

    def cluster(self, cluster: int | str, count: int | None = None) -> Cluster:
        """A handle on a cluster that was submitted before; whether there is one is seen when it is used.

        Raises:
            PoolError: that is no number of a cluster.
        """
        from pool.client.handles import Cluster

        return Cluster(self, cluster, count)

    def job(self, cluster: int | str, proc: int | None = None) -> Job:
        """A handle on one job: `job(12, 3)` or `job("12.3")`; of a cluster alone its first.

        Raises:
            PoolError: that is no id of a job.
        """
        from pool.client.handles import Job

        named = job_id(cluster)
        return Job(self, *(one_job((*named, proc)) if proc is not None else one_job((*named, 0)[:2])))

    # ---- waiting -------------------------------------------------------------------------------------------

    async def wait(
        self,
        handles: Iterable[Any],
        *,
        count: int | None = None,
        timeout: float | None = None,
        progress: Callable[[Tally], None] | None = None,
        until_stuck: bool = False,
    ) -> list[Result]:
        """Wait for many: clusters and jobs, as handles or ids. Their results, in the order of their ids.

        Args:
            count: return as soon as so many jobs have ended, with the results of those that have; all by default.
            timeout: seconds; TimeoutError is raised after that.
            progress: called with the tally at each change.
            until_stuck: also return when everything that is left is held.

        Raises:
            PoolError: there is no such job.
        """
        from pool.client.waiting import wait_for

        return await wait_for(
            self, job_ids(handles), None, timeout, progress=progress, until_stuck=until_stuck, count=count
        )

    def as_completed(self, handles: Iterable[Any], *, timeout: float | None = None) -> AsyncIterator[Result]:
        """Each job's result as it ends: `async for result in pool.as_completed([cluster, other])`.

        Raises:
            PoolError: there is no such job.
            TimeoutError: `timeout` seconds have passed.
        """
        from pool.client.waiting import as_completed

        return as_completed(self, job_ids(handles), timeout)

    # ---- asking and changing -------------------------------------------------------------------------------

    async def jobs(
        self,
        *,
        ids: Iterable[Sequence[int]] | None = None,
        owner: str | None = None,
        constraint: str | None = None,
        attributes: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[ClassAd]:
        """The ads of queued jobs: all, or those chosen. `ids` are (cluster,) or (cluster, proc)."""
        return as_ads(await self.gather("schedd.query", question(ids, owner, constraint, attributes, limit)))

    async def history(
        self,
        *,
        ids: Iterable[Sequence[int]] | None = None,
        owner: str | None = None,
        constraint: str | None = None,
        attributes: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[ClassAd]:
        """The ads of jobs that have left the queue, newest first."""
        return as_ads(await self.gather("schedd.history", question(ids, owner, constraint, attributes, limit)))

    async def find(
        self, ids: Iterable[Sequence[int]], attributes: Sequence[str] | None = None, *, patient: bool = False
    ) -> list[WireAd]:
        """Ads of jobs in wire form, from the queue and from the history, in the order of their ids.

        The queue is asked first, so that a job that leaves meanwhile is seen; the history has the last word.

        Args:
            patient: as `gather`.
        """
        named = job_ids(ids)
        found: dict[tuple[int, int], WireAd] = {}
        wanted = None if attributes is None else list(dict.fromkeys([*attributes, "ClusterId", "ProcId"]))
        for method in ("schedd.query", "schedd.history"):
            for start in range(0, len(named), NAMED):
                asked = question(named[start : start + NAMED], None, None, wanted, None)
                for ad in await self.gather(method, asked, patient=patient):
                    found[ad["ClusterId"], ad["ProcId"]] = ad
        ads = [found[job] for job in sorted(found)]
        if wanted is None or attributes is None or len(wanted) == len(attributes):
            return ads
        return [{name: ad[name] for name in attributes if name in ad} for ad in ads]

    async def act(
        self,
        action: str,
        *,
        ids: Iterable[Sequence[int]] | None = None,
        owner: str | None = None,
        constraint: str | None = None,
        everything: bool = False,
        reason: str = "",
        value: int | None = None,
        force: bool = False,
        checkpoint: bool = False,
        attributes: Mapping[str, str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> ActionResult:
        """remove, hold, release, vacate, prio or edit, on the jobs chosen, which takes as long as it takes.

        Args:
            progress: called with the jobs that are done, about once a second.
            checkpoint: keep the last checkpoint of what is removed, for `start_from_checkpoint`.
            attributes: for edit: names, and the texts of expressions that are their new values.

        Raises:
            PoolError: no choice was made, or all of it was refused by the schedd.
        """
        params: dict[str, Any] = {"action": action, "reason": reason, "value": value, "force": force}
        if ids is not None:
            params["ids"] = [list(job) for job in job_ids(ids)]
        if owner is not None:
            params["owner"] = owner
        if constraint is not None:
            params["constraint"] = constraint
        if everything:
            params["all"] = True
        if checkpoint:
            params["checkpoint"] = True
        if attributes is not None:
            params["edits"] = dict(attributes)
        answer: dict[str, Any] | None = None
        async with self.streaming("schedd.act_stream", params) as stream:
            async for item in stream:
                if isinstance(item, dict):
                    answer = item
                elif progress is not None:
                    progress(int(item))
        if answer is None:
            raise NoPool(f"{self.address} did not say what it did", hint="look before trying again", retry=True)
        done = answer.get("done") or 0
        refused = [(id_text(item["id"]), str(item["why"])) for item in answer.get("refused") or ()]
        owners = tuple(map(str, answer.get("owners") or ()))
        return ActionResult(done if isinstance(done, int) else len(done), tuple(refused), owners)

    async def summary(self) -> list[dict[str, Any]]:
        """Completed jobs, local and remote processor seconds and leverage by user (EV 2.8)."""
        answer = await self.call("schedd.summary")
        return list(answer)

    def events(
        self,
        *,
        cluster: int | None = None,
        ids: Iterable[Sequence[int]] | None = None,
        after: int | None = 0,
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """The events of jobs as they happen, in wire form, without end. An empty list says: these are all until now.

        A lost connection is made again, a schedd that is restarted is waited for, and the events go on where they
        stopped. All that is followed in this pool comes over one stream.

        Args:
            after: the number of the event after which they begin; None for now.

        Raises:
            NoPool: the node did not come back within `patience` seconds.
            PoolError: the schedd refuses.
        """
        named = job_ids(ids) if ids is not None else None
        if cluster is not None:
            named = [(cluster,)] if named is None else [one for one in named if one[0] == cluster]
        return self._watches.events(named, after)

    async def tail(
        self,
        cluster: int,
        proc: int = 0,
        *,
        file: str = "out",
        offset: int = 0,
        lines: int | None = None,
        follow: bool = True,
        node: int = 0,
    ) -> AsyncIterator[bytes]:
        """A job's output (`file`: out or err) as it grows, until the job has ended.

        Args:
            offset: the byte it begins at.
            lines: how many lines before the end it begins instead.
            node: of a parallel job: whose output.
        """
        params: WireAd = {"id": [cluster, proc], "file": file, "offset": offset, "lines": lines}
        if node:
            params["node"] = node
        params |= {"follow": follow, "with_offset": True}
        patience = Patience(self.patience)
        while True:
            try:
                async with self.streaming("schedd.tail", params) as stream:
                    async for piece in stream:
                        patience.goes_well()
                        if isinstance(piece, int):  # where the lines begin
                            params |= {"offset": piece, "lines": None}
                            continue
                        params["offset"] += len(piece)
                        yield piece
                return
            except PoolError as error:
                if not follow:
                    raise
                await patience.wait(error)

    # ---- machines ------------------------------------------------------------------------------------------

    async def machines(
        self, *, constraint: str | None = None, attributes: Sequence[str] | None = None, kind: str = "Machine"
    ) -> list[ClassAd]:
        """The ads of the pool's slots, or of another kind (Scheduler, Submitter, Negotiator, Any)."""
        return as_ads(await self.advertised(kind, constraint=constraint, attributes=attributes))

    async def advertised(
        self,
        kind: str,
        *,
        constraint: str | None = None,
        attributes: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[WireAd]:
        """The collector's ads of one kind, in wire form."""
        params: dict[str, Any] = {"type": kind}
        params |= question(None, None, constraint, attributes, limit)
        return await self.gather("collector.query", params, at=await self.collector())

    async def inspect(self, job: str | Sequence[int], seconds: float = 0.5) -> Inspection:
        """The present activity of a running job (`"12.3"` or `(12, 3)`): its processes and what each of them waits for.

        Args:
            seconds: for which it is looked at, to know rates; at most 10.

        Raises:
            PoolError: there is no such job, it does not run, or it is another user's.
        """
        from pool.client.inspecting import inspect_job

        return await inspect_job(self, *one_job(job), seconds)

    async def why(self, job: str | Sequence[int]) -> Explanation:
        """Why a job does not run (`"12.3"` or `(12, 3)`), from its schedd and the negotiator.

        Raises:
            PoolError: there is no such job, or its schedd does not answer.
        """
        from pool.client.why import why_job

        return await why_job(self, *one_job(job))

    async def why_machine(self, name: str) -> list[Explanation]:
        """Why a slot, or each slot of a machine, runs what it runs or nothing.

        Raises:
            PoolError: there is no machine of that name, or several are.
        """
        from pool.client.why import why_machine

        return await why_machine(self, name)

    async def negotiator(self) -> str:
        """The address of the pool's negotiator: this node, what the collector knows, or the collector's node."""
        if "negotiator" in ((await self.info()).get("roles") or ()):
            return self.address
        for ad in await self.advertised("Negotiator", attributes=["NegotiatorAddress"]):
            if address := ad.get("NegotiatorAddress"):
                return str(address)
        return await self.collector()

    async def collector(self) -> str:
        """The address of the pool's collector."""
        info = await self.info()
        if "collector" in (info.get("roles") or ["collector"]):
            return self.address
        return str(info.get("collector") or self.address)

    async def info(self) -> dict[str, Any]:
        """The node's description of itself: name, roles, address, collector."""
        if self._info is None:
            self._info = dict(await self.call("node.info"))
        return self._info

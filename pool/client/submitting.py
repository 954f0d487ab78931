"""From a description that was understood to a cluster in the queue: in one call, in batches, or piece by piece.

few jobs            schedd.submit         the cluster's ad and all differences
many                schedd.submit_large   the ad, then differences in batches
items in pieces     schedd.submit_large   the same, while the items are still being read
"""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from pool.client.addresses import NoPool
from pool.client.batches import batches, is_large
from pool.client.descriptions import DescriptionWarning, domain_here
from pool.client.handles import Cluster
from pool.errors import PoolError
from pool.jobs.description import Description, bind_cluster
from pool.jobs.gangs import is_parallel
from pool.wire import RemoteError

if TYPE_CHECKING:
    from pool.client.descriptions import What
    from pool.client.known_descriptions import KnownDescriptions
    from pool.client.pool import Pool
    from pool.jobs.description import ClusterDraft

Wire = dict[str, Any]
Deltas = list[Wire | None]
Progress = Callable[[int], None] | None
#: In a job's ad: other pools in which it may run (`pool.policy.flock.private`).
ALSO = "FlockAlso"


async def understand(
    pool: Pool, what: What, how: Mapping[str, Any], known: KnownDescriptions | None = None
) -> Description:
    """Read the description that is to be submitted; what there is to be said about it becomes warnings of Python's.

    Args:
        known: descriptions that were read before; see `describe`.
    """
    if isinstance(what, Description):
        return what  # its reader has its warnings
    description = await pool.describe(what, known=known, **how)
    for warning in description.warnings:
        warnings.warn(str(warning), DescriptionWarning, stacklevel=4)
    return description


async def submit_description(
    pool: Pool,
    description: Description,
    progress: Progress = None,
    spool: bool | None = None,
    files: Callable[[str], None] | None = None,
) -> list[Cluster]:
    """Queue all clusters of a description; see `Pool.submit_all`."""
    if spool is None:
        spool = await _is_elsewhere(pool)
    await check_also(pool, [draft.attributes for draft in description.clusters])
    return [await _submit_draft(pool, draft, progress, spool, files) for draft in description.clusters]


async def check_also(pool: Pool, ads: Iterable[Wire]) -> None:
    """Refuse jobs that name another pool which their user has not joined: they would wait for it without end.

    Raises:
        PoolError: which pool, and how it is joined.
    """
    naming = [ad[ALSO] for ad in ads if ALSO in ad]
    if not naming:
        return
    from pool.policy.flock.private import pools_of

    named = dict.fromkeys(name for text in naming for name in pools_of(text))
    found = await world_call(pool, "check_pools", {"pools": list(named)})
    if found["unknown"]:
        first = found["unknown"][0]
        joined = ", ".join(found["known"]) or "none"
        raise PoolError(
            f"also_pools: you have not joined a pool {first}; joined are: {joined}",
            hint=f"with a token from there: poolnode flock join {first} FILE",
        )


async def world_call(pool: Pool, verb: str, params: Wire) -> Any:
    """Call the pool's world: it runs on this node, or on the one with the collector.

    Raises:
        PoolError: neither has it, or it refuses.
    """
    if "world" in ((await pool.info()).get("roles") or ()):
        return await pool.call(f"world.{verb}", params, timeout=30.0)
    try:
        return await pool.call(f"world.{verb}", params, timeout=30.0, at=await pool.collector())
    except RemoteError as error:
        if error.kind != "NoSuchRole":
            raise
        raise PoolError(
            "this pool has no world, which speaks with other pools", hint="its first node needs the role world"
        ) from error


async def _submit_draft(
    pool: Pool, draft: ClusterDraft, progress: Progress, spool: bool, files: Callable[[str], None] | None
) -> Cluster:
    ad, deltas = draft.attributes, draft.wire_deltas()
    if spool:
        from pool.client.spooling import spooled_ad

        ad = spooled_ad(ad, deltas)
    large = deltas is not None and is_large(deltas)
    params: Wire = {"count": draft.count}
    if draft.uses_cluster:
        number = params["cluster"] = await _reserve(pool)
        ad = bind_cluster(ad, number)
        if deltas and not large:
            deltas = [delta and bind_cluster(delta, number) for delta in deltas]
    ad = await _with_domain(pool, ad)
    params |= {"ad": ad} | ({"spool": True} if spool else {})
    if deltas and large:
        answer = await submit_batches(pool, params, batches(deltas), progress)
    else:
        answer = await pool.call("schedd.submit", params | {"deltas": deltas}, timeout=120.0)
    cluster = Cluster(pool, int(answer["cluster"]), int(answer["count"]))
    cluster.spooled = spool
    if spool:
        await _send_files(pool, cluster, ad, deltas, files)
    return cluster


async def submit_items(
    pool: Pool, commands: Mapping[str, Any], items: Any, spool: bool | None, progress: Progress, how: Mapping[str, Any]
) -> Cluster:
    """Queue a job (or `queue` of them) for each item, while the items are read: neither side has all of them as text.

    A description whose jobs need all items at once (jobs whose files are sent along, parallel jobs) is read whole.

    Raises:
        PoolError: an item cannot be one, or a job of it is wrong: nothing was queued then.
    """
    from pool.client.commands import text_of
    from pool.client.items import ItemLines, pieces_of

    if spool is None:
        spool = await _is_elsewhere(pool)
    shape = ItemLines()
    async with aclosing(pieces_of(items)) as pieces:
        head = shape.lines(await anext(pieces, []))
        text = text_of(commands, shape, head)
        how = {**how, "name": how.get("name") or "the given commands"}
        description = await understand(pool, text, how)
        draft, further = description.clusters[0], description.further
        await check_also(pool, [draft.attributes])
        if spool or further is None or is_parallel(draft.ad):
            async for piece in pieces:
                head += shape.lines(piece)
            whole = await pool.describe(text_of(commands, shape, head), **how)
            (cluster,) = await submit_description(pool, whole, progress, spool)
        else:
            number = await _reserve(pool)
            ad = await _with_domain(pool, bind_cluster(draft.attributes, number))

            async def differences() -> AsyncGenerator[Deltas, None]:
                for batch in batches(draft.wire_deltas() or [None] * draft.count):
                    yield batch
                async for piece in pieces:
                    first_row = shape.written
                    for batch in batches(further(shape.lines(piece), first_row)):
                        yield batch

            params = {"ad": ad, "cluster": number}
            answer = await submit_batches(pool, params, differences(), progress)
            cluster = Cluster(pool, int(answer["cluster"]), int(answer["count"]))
    return cluster


async def submit_batches(
    pool: Pool,
    params: Wire,
    lists: Iterable[Deltas] | AsyncGenerator[Deltas, None],
    progress: Progress = None,
) -> Wire:
    """A cluster whose differences go in batches; nothing is queued before the last has come.

    Args:
        params: of `schedd.submit_large`: ad, cluster, and count where it is known.
        lists: the differences.
    """
    number, sent = params.get("cluster"), 0
    async with pool.streaming("schedd.submit_large", params) as stream:
        async for batch in _each(lists):
            await stream.send(batch if number is None else [one and bind_cluster(one, number) for one in batch])
            sent += len(batch)
            if progress is not None:
                progress(sent)
        await stream.send("done")
        async for answer in stream:
            return dict(answer)
    raise NoPool(f"{pool.address} did not answer the submit", hint="look before trying again", retry=True)


async def _each(lists: Iterable[Deltas] | AsyncGenerator[Deltas, None]) -> AsyncGenerator[Deltas, None]:
    if isinstance(lists, AsyncGenerator):
        async with aclosing(lists):
            async for one in lists:
                yield one
    else:
        for one in lists:
            yield one


async def _is_elsewhere(pool: Pool) -> bool:
    from pool.client.spooling import is_elsewhere

    return await is_elsewhere(pool)


async def _reserve(pool: Pool) -> int:
    return int((await pool.call("schedd.reserve"))["cluster"])


async def _with_domain(pool: Pool, ad: Wire) -> Wire:
    """The ad with the name of the node's file system in place of this process's own: the node knows it better."""
    domain = (await pool.info()).get("filesystem_domain")
    return ad | {"FileSystemDomain": domain} if domain and ad.get("FileSystemDomain") == domain_here() else ad


async def _send_files(
    pool: Pool,
    cluster: Cluster,
    ad: Wire,
    deltas: Sequence[Wire | None] | None,
    progress: Callable[[str], None] | None,
) -> None:
    """Send the files of a cluster that waits for them, and remember what it may bring back."""
    from pool.client.receipts import Receipt
    from pool.client.spooling import send_inputs

    bound = [one and bind_cluster(one, cluster.cluster) for one in deltas] if deltas is not None else None
    receipt = Receipt.from_submit(cluster.cluster, cluster.count or 0, ad, bound)
    try:
        receipt.save(pool.address, os.environ)
    except OSError as error:
        warnings.warn(
            f"poolnode fetch {cluster.cluster} will need --to DIR: no receipt could be kept: {error}", stacklevel=5
        )
    await send_inputs(pool, receipt, progress)

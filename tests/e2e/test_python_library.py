"""The library against a node: without asyncio, waiting for any of many."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.client import PoolError
from pool.client.sync import SyncPool
from tests.e2e.support import ALL, PATIENCE, Node, nodes


@pytest.fixture(scope="module")
def node(whose_pool: object) -> Iterator[Node]:
    with nodes() as made:
        yield made.start("own", ALL, SLOTS="2").ready()


def test_without_asyncio(node: Node, tmp_path: Path) -> None:
    with SyncPool.connect(node.address) as pool:
        quick = pool.submit({"executable": "/bin/echo", "arguments": ["two words"], "output": "out"}, iwd=tmp_path)
        slow = pool.submit({"executable": "/bin/sleep", "arguments": "600"}, iwd=tmp_path)
        (first,) = pool.wait([quick, slow], count=1, timeout=PATIENCE)
        assert (first.cluster, first.ok) == (quick.cluster, True)
        assert (tmp_path / "out").read_text() == "two words\n"
        assert b"".join(quick[0].tail()) == b"two words\n"
        assert [result.job for result in pool.as_completed([quick])] == [f"{quick.cluster}.0"]
        for event in quick.events():
            if event.kind.ends:
                break
        with pytest.raises(TimeoutError):
            slow.wait(0.2)
        assert slow.remove().done == 1
        assert slow.jobs[0].wait(PATIENCE).state == "removed"
        with pytest.raises(PoolError, match="there is no job 999"):
            pool.cluster(999).wait()
        threads = [threading.Thread(target=quick.wait) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    with pytest.raises(PoolError, match="the pool was closed"):
        pool.jobs()

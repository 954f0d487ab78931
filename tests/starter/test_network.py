"""Jobs without a network: a loopback of their own and nothing else."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers, StartFailed
from tests.starter.support import PYTHON, opened, shell, spec, to_end

LOOPBACK = (
    "import socket; s = socket.create_server(('127.0.0.1', 0)); "
    "c = socket.create_connection(s.getsockname()); c.sendall(b'x'); assert s.accept()[0].recv(1) == b'x'"
)


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_only_its_own_loopback_is_there(best: NativeKeepers, scratch: Path, isolation: str) -> None:
    if not best.abilities.network:
        pytest.skip("needs the ability network")
    kind = {"network": "none", "isolation": isolation}
    assert (await to_end(best, shell(scratch, "cut -d: -f1 /proc/net/dev | tail -n +3", **kind))).code == 0
    if isolation == "full":
        assert (scratch / "out").read_text().split() == ["lo"]
        return
    assert (await to_end(best, spec(scratch, PYTHON, "-c", LOOPBACK, **kind))).code == 0
    with socket.create_server(("127.0.0.1", 0)) as server:
        reach = f"import socket; socket.create_connection({server.getsockname()!r}, 2)"
        assert (await to_end(best, spec(scratch, PYTHON, "-c", reach, **kind))).code == 1
        kind["network"] = "host"
        assert (await to_end(best, spec(scratch, PYTHON, "-c", reach, **kind))).code == 0


async def test_a_machine_that_cannot_says_so_and_refuses(place: Path, program: Path, scratch: Path) -> None:
    async with opened(place, program, without=512) as keepers:
        assert any(line.startswith("no network namespaces") for line in keepers.abilities.reduced)
        with pytest.raises(StartFailed, match="network"):
            await keepers.start(shell(scratch, "true", network="none"))
        assert (await to_end(keepers, shell(scratch, "exit 3"))).code == 3

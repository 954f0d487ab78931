"""Work flows written in Python, on real nodes: calls that give their results on, a failure, and another try."""

from __future__ import annotations

import importlib
import sys

import pytest

from pool import Workflow
from pool.errors import PoolError
from tests.e2e.support import ALL, PATIENCE, Nodes, asked, client

FUNCTIONS = """
def square(value):
    return value * value


def read(path, more):
    with open(path) as file:
        return int(file.read()) + more
"""


async def test_calls_give_their_results_on_and_go_on(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    home = nodes.directory("home")

    (home / "of_the_program.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(home))
    functions = importlib.import_module("of_the_program")
    python = f"{sys.prefix},{sys.base_prefix}"  # jobs whose files are sent see no home
    node = nodes.start("whole", ALL, POLICY="dedicated", SLOTS="2", SHOW_PATHS=python).ready()
    for place, transfer in (("shared", False), ("sent", True)):
        work = Workflow("sums", home / place, paths=(), ship=[home / "of_the_program.py"])
        commands = {"should_transfer_files": True} if transfer else {}
        squares = [work.call(functions.square, number, commands=commands) for number in range(3)]
        total = work.call(sum, squares, commands=commands)
        last = work.call(functions.read, str(home / f"{place}.number"), total)
        work.job("told", {"executable": "/bin/echo", "arguments": ["done"], "output": "told"}, after=[last])
        async with client(node) as pool:
            run = await work.submit(pool)
            ended = await run.wait(PATIENCE)
            assert ended.exit_code == 1
            assert run.result(total) == 5
            with pytest.raises(PoolError) as failed:
                run.result(last)
            assert f"{last.name} has no result, since {last.name} has failed" in str(failed.value)
            assert "No such file or directory" in (failed.value.hint or "")
            (home / f"{place}.number").write_text("37")
            run = await work.submit(pool)
            ended = await run.wait(PATIENCE)
            assert (ended.exit_code, run.result(last)) == (0, 42)
            assert (await run.status())["counts"]["DONE"] == 6
        assert (home / place / "told").read_text() == "done\n"
    grown = Workflow("grown", home / "grown", paths=(), ship=[home / "of_the_program.py"])
    value = grown.call(functions.square, 2)
    async with client(node) as pool:
        run = await grown.submit(pool, keep_open=True)

        async def all_done() -> bool:
            return bool((await run.status())["counts"]["DONE"] == len(grown.nodes))

        await asked(all_done, "all nodes to be done")
        while run.result(value) < 200:  # a node for each result, as long as it is small
            value = grown.call(functions.square, value)
            assert (await run.update())["added"] == [value.name]
            await asked(all_done, "all nodes to be done")
        await run.close()
        assert (await run.wait(PATIENCE)).exit_code == 0
        assert (run.result(value), len(grown.nodes)) == (256, 3)
        with pytest.raises(PoolError, match="has ended"):
            await run.update()

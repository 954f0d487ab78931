"""A node of a user whom the machine's passwd does not know, as in containers: it works, and he goes by his number."""

from __future__ import annotations

import os
import shutil
import sysconfig

import pytest

from pool.client import Pool
from tests.conftest import REPOSITORY
from tests.e2e.support import ALL, PATIENCE, Nodes
from tests.hostile.real import ByUser
from tests.ordinary_user import PYTHON

UID = 61237


@pytest.mark.own_pool("the node is a user's own")
async def test_a_user_without_an_account_has_a_node_by_his_number(nodes: Nodes) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None or shutil.which(PYTHON) is None:
        pytest.skip(f"needs root, setpriv and {PYTHON}")
    home, state = nodes.directory("home"), nodes.state("own")
    for path in (home, state):
        path.mkdir(exist_ok=True)
        os.chown(path, UID, UID)
    # A Python that he can run, in place of that of the tests.
    user = ("setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups")
    machine = (*user, "sh", "-c", 'shift; exec "$0" "$@"', PYTHON)
    packages = os.pathsep.join([str(REPOSITORY), sysconfig.get_paths()["purelib"]])
    environ = {"HOME": str(home), "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"}
    node = nodes.start("own", ALL, machine=machine, environ=environ).ready()
    async with await Pool.connect(node.address, network=ByUser(UID)) as pool:
        job = {"executable": "/usr/bin/id", "arguments": "-u", "output": "out", "log": "log"}
        (result,) = await (await pool.submit(job, iwd=str(home))).wait(PATIENCE, until_stuck=True)
        assert result.ok, result
        (ad,) = await pool.gather("schedd.history", {})
        assert ad["Owner"] == str(UID)
    assert (home / "out").read_text() == f"{UID}\n"
    assert (home / "out").stat().st_uid == UID

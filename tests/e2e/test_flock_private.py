"""Two real pools that have agreed on nothing, and a user with an account in both (EV 4.1); then they do agree."""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.client import Pool
from tests.e2e import support
from tests.e2e.flocks import BOTH, HEAD, agree, lines_of
from tests.e2e.support import (
    Node,
    Nodes,
    administrator,
    asked,
    client,
    poolnode,
    processes_with,
    program,
    slots,
    token,
    until,
)
from tests.ordinary_user import as_root


@pytest.fixture(scope="module")
def pair(whose_pool: object) -> Iterator[Nodes]:
    """physics, the user's home, which has no machine; and chem, which has one."""

    async def start(nodes: Nodes) -> None:
        nodes.start("physics", HEAD).ready()
        rules = nodes.directory("rules") / "flock.toml"
        rules.write_text("")
        chem = nodes.start("chem", BOTH, SLOTS="1", FILESYSTEM_DOMAIN="chem", FLOCK_FILE=str(rules)).ready()
        async with client(chem) as pool:
            await slots(pool, 1)

    with support.running(start) as nodes:
        yield nodes


async def token_of(chem: Node, user: str, directory: Path, **more: Any) -> Path:
    """A user's token for chem, in a file of his."""
    async with administrator(chem) as pool:
        made = await pool.call("node.token", {"roles": ["user"], "user": user, "lifetime": 600, "uses": 1, **more})
    path = directory / "token"
    path.write_text(made["token"])
    return path


async def private(node: Node) -> list[dict[str, Any]]:
    async with client(node) as pool:
        found: list[dict[str, Any]] = (await pool.call("world.status"))["private"]
        return found


async def test_a_job_runs_once_where_a_machine_is_and_its_files_are_at_home(pair: Nodes) -> None:
    """Joined with a token, submitted, watched in both pools, back with its output; then the user quits."""
    physics, chem = pair.all
    home, user = pair.directory("private"), pwd.getpwuid(os.geteuid()).pw_name
    (home / "in").write_text("from home\n")
    script = program(home, "cat in; echo made > result; id -un; sleep 1.5")
    (home / "job.sub").write_text(
        f"executable = {script}\ntransfer_input_files = in\nshould_transfer_files = YES\n"
        "output = out\nlog = log\nqueue\n"
    )

    def tool(*words: str) -> Any:
        return poolnode(*words, "-A", physics.address, cwd=home)

    refused = tool("submit", "--also", "chem", "job.sub")
    assert "have not joined a pool chem" in refused.stderr, refused.stderr
    assert refused.stderr.count("\n") <= 2
    token = await token_of(chem, user, home, administer=True)
    refused = tool("flock", "join", "chem", str(token))
    assert "administrator's token" in refused.stderr, refused.stderr
    token = await token_of(chem, user, home)
    joined = tool("flock", "join", "chem", str(token))
    assert f"may run at chem, too, as {user}" in joined.stdout, joined.stderr
    submitted = tool("submit", "--also", "chem", "-q", "job.sub")
    assert submitted.returncode == 0, submitted.stderr
    async with client(physics) as pool:
        cluster = pool.cluster(int(submitted.stdout))

        async def runs() -> bool:
            return any(one["running"] for one in await private(chem))

        await asked(runs, "the job at chem")
        (there,) = await private(chem)
        assert (there["user"], there["pool"], there["side"]) == (user, "physics", "here")
        assert [(one["pool"], one["side"], one["trouble"]) for one in await private(physics)] == [("chem", "there", "")]
        (ad,) = await cluster.ads()
        assert "@chem~" in str(ad.value("RemoteHost"))
        async with client(chem) as other:
            assert await other.find([(1,)]) == [], "it is in one queue, at home"
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
    assert lines_of(home / "out")[:2] == ["from", "home"]
    assert (home / "result").read_text() == "made\n"
    left = tool("flock", "quit", "chem")
    assert "run at chem no more" in left.stdout, left.stderr
    assert await private(physics) == []

    async def forgotten() -> bool:
        return await private(chem) == []

    await asked(forgotten, "chem to have heard of it")
    assert "jobs here run at" not in tool("flock").stdout
    with as_root():
        assert "private-flock.json" in {path.name for path in physics.state.iterdir()}


async def agreed(chem: Node, physics: Node) -> None:
    """Chem lends to physics, and physics sees its machine."""
    await agree(chem, physics, ("chem", "physics"))
    async with client(physics) as pool:
        await slots(pool, 1)


async def saved(cluster: Any) -> None:
    """Wait until the job runs, and has a checkpoint at home."""

    async def has_checkpoint() -> bool:
        await cluster.checkpoint()
        (ad,) = await cluster.ads()
        return bool(ad.value("NumCkpts", 0))

    await asked(has_checkpoint, "a checkpoint of the job at chem")


async def state_of(pool: Pool, cluster: Any) -> str:
    return str((await pool.job(cluster.cluster, 0).result()).state)


async def test_leave_sends_jobs_home_while_they_run(pair: Nodes) -> None:
    """chem's administrator leaves: the job is off the machine at once, saved, and goes on after a new agreement."""
    physics, chem = pair.all
    await agreed(chem, physics)
    home = pair.directory("leaves")
    script = program(home, "for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.4; done; exec sleep 0.1", "leaves-4711.sh")
    async with client(physics) as pool:
        cluster = await pool.submit({"executable": script, "output": "out", "checkpoint": "required"}, iwd=str(home))
        await saved(cluster)
        with as_root():
            left = poolnode("flock", "leave", "physics", "-A", chem.address)
        assert left.stdout == "the agreement with physics has ended\n", left.stderr
        assert not processes_with("leaves-4711"), "it has left when the command ends"

        async def idle() -> bool:
            return await state_of(pool, cluster) == "idle"

        await asked(idle, "the job to wait at home")
        with as_root():
            assert poolnode("flock", "leave", "chem", "-A", physics.address).returncode == 0
        await agreed(chem, physics)
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
        (ad,) = await cluster.ads()
        assert (ad.value("NumJobStarts"), ad.value("NumCkpts", 0) >= 1) == (2, True)
    assert lines_of(home / "out") == list("123456789")


async def test_limits_are_read_again(pair: Nodes) -> None:
    """SIGHUP at chem: nobody is let in, `why` says so, and then somebody is; `status --pool` where that is given."""
    physics, chem = pair.all
    rules, home = pair.directory("rules") / "flock.toml", pair.directory("limits")

    def reread(text: str) -> None:
        rules.write_text(text)
        before = len(chem.log)
        chem.signal(signal.SIGHUP)
        chem.said("configuration read again", after=before)

    reread('[physics]\nusers = ["nobody-else"]\n')
    refused = poolnode("status", "--pool", "chem", "-A", physics.address)
    assert "does not give it our status" in refused.stderr, refused.stderr
    async with client(physics) as pool:
        cluster = await pool.submit({"executable": "/bin/true"}, iwd=str(home))

        async def said() -> bool:
            return "chem: 1 idle machine, all take it; it said: jobs of" in str(await pool.why(f"{cluster.cluster}.0"))

        await asked(said, "why to say what chem says")
        reread("[physics]\nin = false\n")

        async def withdrawn() -> bool:
            return "chem: no idle machine" in str(await pool.why(f"{cluster.cluster}.0"))

        await asked(withdrawn, "the machine to be withdrawn")
        reread("[physics]\nstatus = true\n")
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
    listed = poolnode("status", "--pool", "chem", "-A", physics.address)
    assert "chem" in listed.stdout, listed.stderr
    await until(lambda: "DISTANCE" in poolnode("flock", "-A", physics.address).stdout, "the machine's value")


async def test_a_job_comes_home_to_a_machine_of_its_own_pool(pair: Nodes) -> None:
    """It runs at chem with copies of its files, as it asks; then it may run anywhere, its own pool's machine comes
    first, and it goes on there."""
    physics = pair.all[0]
    home = pair.directory("comes-home")
    pair.start("desk", "startd", join=await token(physics, "startd"), SLOTS="1").ready()
    script = program(home, "for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.4; done", "comes-home.sh")
    job = {"executable": script, "output": "out", "checkpoint": "required", "requirements": 'FlockPool =?= "chem"'}
    async with client(physics) as pool:
        await slots(pool, 2)
        cluster = await pool.submit(job, iwd=str(home))
        await saved(cluster)
        await cluster.edit(Requirements="true")
        await cluster.vacate()
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
        (ad,) = await cluster.ads()
        assert str(ad.value("LastRemoteHost")).endswith("@desk"), ad.value("LastRemoteHost")
        assert (ad.value("NumJobStarts"), ad.value("NumCkpts", 0) >= 1) == (2, True)
        assert lines_of(home / "out") == list("123456789")
